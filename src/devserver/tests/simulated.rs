//! The simulated controllers, evictions and logs.

use serde_json::{Value, json};

use super::rig::{PODS, Rig, names, pod, quick_kubelet};
use crate::{DevServerOptions, simulated_controllers};

const EVENTS: &str = "/api/v1/namespaces/default/events";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const DAEMONS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

fn rig() -> Rig {
    Rig::with(&DevServerOptions {
        controllers: simulated_controllers().map(str::to_owned).collect(),
        garbage_collection: true,
        kubelet: Some(quick_kubelet()),
        ..DevServerOptions::default()
    })
}

fn template() -> Value {
    json!({
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "example.invalid/c:1"}]},
    })
}

fn workload(replicas: i64) -> Value {
    json!({
        "metadata": {"name": "a"},
        "spec": {
            "replicas": replicas, "serviceName": "a", "template": template(),
            "selector": {"matchLabels": {"app": "a"}},
        },
    })
}

/// Waits until the object at `path` has this value at `pointer`.
#[track_caller]
fn await_value(rig: &Rig, path: &str, pointer: &str, value: &Value) -> Value {
    rig.collected(|rig| rig.get(path).1.pointer(pointer) == Some(value));
    rig.get(path).1
}

fn job(name: &str, completions: i64, fate: &str) -> Value {
    let mut template = template();
    template["spec"]["restartPolicy"] = json!("Never");
    template["metadata"]["annotations"] = json!({"dev.replicaset-controller/fate": fate});
    json!({
        "metadata": {"name": name},
        "spec": {
            "completions": completions, "parallelism": 2, "completionMode": "Indexed",
            "backoffLimit": 1, "template": template,
        },
    })
}

#[test]
fn jobs_complete_or_fail() {
    let rig = rig();
    assert_eq!(rig.warnings("POST", JOBS, &job("good", 3, "")), [""; 0]);
    rig.ok("POST", JOBS, &job("bad", 3, "failed"));
    let good = format!("{JOBS}/good");
    let good = await_value(&rig, &good, "/status/conditions/1/type", &json!("Complete"));
    assert_eq!(good["status"]["succeeded"], json!(3));
    assert_eq!(good["status"]["completedIndexes"], json!("0-2"));
    let uid = &good["metadata"]["uid"];
    let labels = &good["spec"]["template"]["metadata"]["labels"];
    assert_eq!(&labels["batch.kubernetes.io/controller-uid"], uid);
    let bad = format!("{JOBS}/bad");
    let bad = await_value(&rig, &bad, "/status/conditions/1/type", &json!("Failed"));
    assert_eq!(bad["status"]["failed"], json!(2));
    for (job, reason) in [("good", "Completed"), ("bad", "BackoffLimitExceeded")] {
        let fields = format!("involvedObject.name%3D{job},reason%3D{reason}");
        rig.collected(|rig| {
            names(&rig.get(&format!("{EVENTS}?fieldSelector={fields}")).1).len() == 1
        });
    }
}

#[test]
fn a_rejected_pod_of_a_job_is_one_event() {
    let rig = rig();
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}});
    rig.ok("POST", "/api/v1/namespaces/default/resourcequotas", &quota);
    rig.ok("POST", JOBS, &job("j", 1, ""));
    let path = format!("{EVENTS}?fieldSelector=reason%3DFailedCreate");
    rig.collected(|rig| !names(&rig.get(&path).1).is_empty());
    // The next job's event comes after another attempt of the first one.
    rig.ok("POST", JOBS, &job("k", 1, ""));
    rig.collected(|rig| names(&rig.get(&path).1).len() == 2);
    let events = rig.get(&path).1;
    let event = &events["items"][0];
    let message = event["message"].as_str().unwrap_or_default();
    assert!(message.contains("exceeded quota: q"), "{event}");
    assert_eq!(event["source"]["component"], json!("job-controller"));
    assert_eq!(event["count"], json!(1));
}

#[test]
fn a_stateful_set_gets_its_pods_in_order() {
    let rig = rig();
    let mut watch = rig.watch(PODS, "");
    rig.ok("POST", SETS, &workload(2));
    let path = format!("{SETS}/a");
    await_value(&rig, &path, "/status/readyReplicas", &json!(2));
    let mut seen = Vec::new();
    while !seen.contains(&"ADDED a-1".to_owned()) {
        let frame = watch.next().expect("a frame");
        let pod = &frame["object"];
        let ready = pod["status"]["conditions"]
            .to_string()
            .contains("\"Ready\"");
        let (kind, name) = (&frame["type"], &pod["metadata"]["name"]);
        let of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        seen.push(format!(
            "{} {}{}",
            of(kind),
            of(name),
            if ready { " ready" } else { "" }
        ));
    }
    assert!(seen.contains(&"MODIFIED a-0 ready".to_owned()), "{seen:?}");
    rig.patch(&path, &json!({"spec": {"replicas": 1}}));
    await_value(&rig, &path, "/status/replicas", &json!(1));
    assert_eq!(names(&rig.get(PODS).1), ["a-0"]);
    let image = json!([{"name": "c", "image": "example.invalid/c:2"}]);
    let patch = json!({"spec": {"template": {"spec": {"containers": image}}}});
    rig.patch(&path, &patch);
    let pod = format!("{PODS}/a-0");
    let image = json!("example.invalid/c:2");
    await_value(&rig, &pod, "/spec/containers/0/image", &image);
}

#[test]
fn a_daemon_set_gets_a_pod_on_each_node() {
    let rig = rig();
    rig.ok("POST", DAEMONS, &workload(1));
    await_value(
        &rig,
        &format!("{DAEMONS}/a"),
        "/status/numberReady",
        &json!(2),
    );
    let pods = rig.get(PODS).1;
    let items = pods["items"].as_array().expect("a list").iter();
    let mut nodes: Vec<&Value> = items.map(|pod| &pod["spec"]["nodeName"]).collect();
    nodes.sort_by_key(ToString::to_string);
    assert_eq!(nodes, [&json!("node-0"), &json!("node-1")]);
}

#[test]
fn a_service_has_the_ready_pods_as_endpoints() {
    let rig = rig();
    rig.create_pod("p");
    let services = "/api/v1/namespaces/default/services";
    let service = json!({
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    });
    rig.ok("POST", services, &service);
    let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/web-simulated";
    let ready = "/endpoints/0/conditions/ready";
    let slice = await_value(&rig, slice, ready, &json!(true));
    assert_eq!(slice["endpoints"][0]["targetRef"]["name"], json!("p"));
    assert_eq!(slice["ports"][0]["port"], json!(8080));
}

#[test]
fn a_budget_blocks_evictions() {
    let rig = rig();
    rig.create_pod("p");
    rig.create_pod("q");
    let budget = json!({
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    rig.ok("POST", BUDGETS, &budget);
    let path = format!("{BUDGETS}/b");
    await_value(&rig, &path, "/status/disruptionsAllowed", &json!(1));
    let evict = |name: &str| {
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name},
        });
        rig.send("POST", &format!("{PODS}/{name}/eviction"), &eviction)
    };
    assert_eq!(evict("p").0, 201);
    await_value(&rig, &path, "/status/currentHealthy", &json!(1));
    let (code, error) = evict("q");
    let cause = "The disruption budget b needs 1 healthy pods and has 1 currently";
    let message = error["details"]["causes"][0]["message"]
        .as_str()
        .unwrap_or_default();
    assert!(code == 429 && message == cause, "{error}");
    assert_eq!(
        error["details"]["causes"][0]["reason"],
        json!("DisruptionBudget")
    );
}

#[test]
fn logs_are_canned() {
    let rig = rig();
    let mut own = pod("own");
    own["metadata"]["annotations"] = json!({"dev.replicaset-controller/log": "a\nb"});
    rig.ok("POST", PODS, &own);
    rig.create_pod("p");
    let log = |name: &str, query: &str| {
        let path = format!("{PODS}/{name}/log?{query}");
        rig.collected(|rig| rig.get(&path).0 == 200);
        rig.send_text("", "GET", &path, "").1
    };
    assert_eq!(log("own", ""), "a\nb\n");
    assert_eq!(log("own", "tailLines=1"), "b\n");
    assert!(log("p", "container=c").contains("this is the log of c in p"));
    assert_eq!(rig.get(&format!("{PODS}/p/log?container=x")).0, 400);
}

#[test]
fn scheduling_and_readiness_gates_delay_pods() {
    let rig = rig();
    let mut gated = pod("gated");
    gated["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    gated["spec"]["readinessGates"] = json!([{"conditionType": "example.com/up"}]);
    let gated = rig.ok("POST", PODS, &gated);
    let reason = &gated["status"]["conditions"][0]["reason"];
    assert_eq!(reason, &json!("SchedulingGated"));
    let path = format!("{PODS}/gated");
    rig.patch(&path, &json!({"spec": {"schedulingGates": null}}));
    let condition = |kind: &str, status: &str| {
        rig.collected(|rig| {
            let pod = rig.get(&path).1;
            let conditions = pod["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|it| it["type"] == kind && it["status"] == status)
        });
    };
    condition("ContainersReady", "True");
    condition("Ready", "False");
    let up = json!({"type": "example.com/up", "status": "True"});
    rig.patch(
        &format!("{path}/status"),
        &json!({"status": {"conditions": [up]}}),
    );
    condition("Ready", "True");
}
