//! Pods of a typical size: a template of about 3 KB, and the status that a kubelet writes.

use serde_json::{Value, json};

const IMAGE_ID: &str = "registry.example/team/server@sha256:\
    1b5f3f0c6bd8e4a9d0c1e2f3a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7";
const CONTAINER_ID: &str =
    "containerd://8a9b0c1d2e3f405162738495a6b7c8d9e0f1a2b3c4d5e6f708192a3b4c5d6e7f";

/// A pod template as of a Deployment: two containers with environment, probes and volumes.
pub(crate) fn template(app: &str) -> Value {
    json!({
        "metadata": {
            "labels": {"app": app, "tier": "backend", "pod-template-hash": "5d59d67564"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "9090"},
        },
        "spec": {
            "containers": [container("server"), container("sidecar")],
            "volumes": [
                {"name": "config", "configMap": {"name": "server-config"}},
                {"name": "cache", "emptyDir": {}},
            ],
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "automountServiceAccountToken": false,
        },
    })
}

fn container(name: &str) -> Value {
    let variables = (0..12).map(
        |n| json!({"name": format!("SETTING_{n}"), "value": format!("the value of setting {n}")}),
    );
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10});
    json!({
        "name": name,
        "image": "registry.example/team/server:v1.2.3",
        "args": ["--listen=0.0.0.0:8080", "--log-format=json", "--cache=/cache"],
        "env": variables.collect::<Vec<_>>(),
        "ports": [{"containerPort": 8080, "name": "http"}],
        "resources": {
            "requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"},
        },
        "livenessProbe": probe,
        "readinessProbe": probe,
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/server", "readOnly": true},
            {"name": "cache", "mountPath": "/cache"},
        ],
    })
}

/// The status patch of a kubelet for a pod that has become Ready.
pub(crate) fn ready_status(now: &str) -> Value {
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
    let container = |name: &str| {
        json!({
            "name": name, "ready": true, "restartCount": 0, "started": true,
            "image": "registry.example/team/server:v1.2.3",
            "imageID": IMAGE_ID,
            "containerID": CONTAINER_ID,
            "state": {"running": {"startedAt": now}},
        })
    };
    json!({"status": {
        "phase": "Running", "podIP": "10.1.2.3", "hostIP": "10.0.0.7",
        "podIPs": [{"ip": "10.1.2.3"}], "hostIPs": [{"ip": "10.0.0.7"}], "startTime": now,
        "conditions": [
            condition("PodReadyToStartContainers"), condition("Initialized"),
            condition("Ready"), condition("ContainersReady"), condition("PodScheduled"),
        ],
        "containerStatuses": [container("server"), container("sidecar")],
    }})
}
