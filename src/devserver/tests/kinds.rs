//! The kinds besides pods and ReplicaSets, each with its own rules.

use serde_json::{Value, json};

use super::rig::{PODS, Rig, check_error, names, pod};
use crate::DevServerOptions;

const CONTROLLERS: &str = "/api/v1/namespaces/default/replicationcontrollers";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const NAMESPACES: &str = "/api/v1/namespaces";

fn with_controllers() -> Rig {
    Rig::with(&DevServerOptions {
        garbage_collection: true,
        ..DevServerOptions::default()
    })
}

fn controller(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"replicas": 2, "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]},
        }},
    })
}

#[test]
fn controller_selector_and_labels_default_to_the_template() {
    let rig = Rig::new();
    let created = rig.ok("POST", CONTROLLERS, &controller("rc"));
    assert_eq!(created["spec"]["selector"], json!({"a": "b"}));
    assert_eq!(created["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(created["status"], json!({"replicas": 0}));
    let path = format!("{CONTROLLERS}/rc");
    let scale = rig.ok(
        "PUT",
        &format!("{path}/scale"),
        &json!({
            "metadata": {"name": "rc"}, "spec": {"replicas": 5},
        }),
    );
    assert_eq!(scale["spec"]["replicas"], json!(5));
    assert_eq!(scale["status"], json!({"replicas": 0, "selector": "a=b"}));
    let mut status = rig.get(&path).1;
    status["status"] = json!({"replicas": 5, "readyReplicas": 6});
    assert_eq!(rig.send("PUT", &format!("{path}/status"), &status).0, 422);
    status["status"] = json!({"replicas": 5, "readyReplicas": 4, "observedGeneration": 2});
    let written = rig.ok("PUT", &format!("{path}/status"), &status);
    assert_eq!(written["status"], status["status"]);
    // The selector may change together with the template.
    let response = rig.patch(&path, &json!({"spec": {"selector": {"a": "c"}}}));
    let message = "ReplicationController \"rc\" is invalid: spec.template.metadata.labels: Invalid \
                   value: {\"a\":\"b\"}: `selector` does not match template `labels`";
    check_error(&response, 422, "Invalid", message);
    let both =
        json!({"spec": {"selector": {"a": "c"}, "template": {"metadata": {"labels": {"a": "c"}}}}});
    assert_eq!(rig.patch(&path, &both).0, 200);
    let bare = json!({"metadata": {"name": "bare"}, "spec": {}});
    let message = "ReplicationController \"bare\" is invalid: [spec.selector: Required value, \
                   spec.template: Required value]";
    check_error(
        &rig.send("POST", CONTROLLERS, &bare),
        422,
        "Invalid",
        message,
    );
}

#[test]
fn a_quota_counts_pods_and_rejects_the_next() {
    let rig = Rig::new();
    rig.create_pod("a");
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": 2}}});
    let created = rig.ok("POST", QUOTAS, &quota);
    let status = json!({"hard": {"pods": "2"}, "used": {"pods": "1"}});
    assert_eq!(
        (&created["spec"]["hard"]["pods"], &created["status"]),
        (&json!("2"), &status)
    );
    rig.create_pod("b");
    let message = "pods \"c\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, \
                   limited: pods=2";
    check_error(
        &rig.send("POST", PODS, &pod("c")),
        403,
        "Forbidden",
        message,
    );
    let used = |rig: &Rig| rig.get(&format!("{QUOTAS}/q")).1["status"]["used"]["pods"].clone();
    assert_eq!(used(&rig), json!("2"));
    let done = json!({"status": {"phase": "Succeeded"}});
    assert_eq!(rig.patch(&format!("{PODS}/a/status"), &done).0, 200);
    assert_eq!(used(&rig), json!("1"));
    rig.create_pod("c");
    assert_eq!(
        rig.patch(
            &format!("{QUOTAS}/q"),
            &json!({"spec": {"hard": {"pods": "9"}}})
        )
        .0,
        200
    );
    let raised = rig.get(&format!("{QUOTAS}/q")).1;
    assert_eq!(raised["status"]["hard"]["pods"], json!("9"));
    for (hard, code) in [("x", 400), ("-1", 422), ("1.5", 422)] {
        let bad = json!({"metadata": {"name": "bad"}, "spec": {"hard": {"pods": hard}}});
        assert_eq!(rig.send("POST", QUOTAS, &bad).0, code, "{hard}");
    }
}

#[test]
fn a_quota_with_scopes_blocks_nothing() {
    let rig = Rig::new();
    let priority = json!({
        "scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"],
    });
    for (name, member, value) in [
        ("a", "scopes", json!(["BestEffort"])),
        (
            "b",
            "scopeSelector",
            json!({"matchExpressions": [priority]}),
        ),
    ] {
        let mut quota = json!({"metadata": {"name": name}, "spec": {"hard": {"pods": 0}}});
        quota["spec"]["hard"]["requests.cpu"] = json!("1");
        quota["spec"][member] = value;
        let created = rig.ok("POST", QUOTAS, &quota);
        assert_eq!(created["status"]["used"], json!({}));
        rig.create_pod(name);
    }
}

#[test]
fn a_namespace_gets_its_service_account_and_is_emptied() {
    let rig = with_controllers();
    let created = rig.ok("POST", NAMESPACES, &json!({"metadata": {"name": "n"}}));
    assert_eq!(created["spec"], json!({"finalizers": ["kubernetes"]}));
    let accounts = "/api/v1/namespaces/n/serviceaccounts";
    assert_eq!(names(&rig.get(accounts).1), ["default"]);
    let mut held = pod("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    rig.ok("POST", "/api/v1/namespaces/n/pods", &held);
    let deleting = rig.delete("/api/v1/namespaces/n", &json!({})).1;
    assert_eq!(deleting["status"]["phase"], json!("Terminating"));
    rig.collected(|rig| rig.get(accounts).1["items"] == json!([]));
    let response = rig.send("POST", accounts, &json!({"metadata": {"name": "late"}}));
    assert_eq!(
        response.1["details"]["causes"][0]["reason"],
        json!("NamespaceTerminating")
    );
    let release = json!({"metadata": {"finalizers": null}});
    let path = "/api/v1/namespaces/n/pods/held";
    let (code, _) = rig.send_as(
        "application/merge-patch+json",
        "PATCH",
        path,
        &release.to_string(),
    );
    assert_eq!(code, 200);
    rig.collected(|rig| rig.get("/api/v1/namespaces/n").0 == 404);
}

#[test]
fn without_controllers_a_namespace_waits_to_be_finalized() {
    let rig = Rig::new();
    rig.ok("POST", NAMESPACES, &json!({"metadata": {"name": "n"}}));
    rig.delete("/api/v1/namespaces/n", &json!({}));
    let mut deleting = rig.get("/api/v1/namespaces/n").1;
    deleting["spec"] = json!({});
    // An update cannot change the finalizers; only the subresource `finalize` does.
    assert_eq!(
        rig.ok("PUT", "/api/v1/namespaces/n", &deleting)["spec"],
        json!({"finalizers": ["kubernetes"]})
    );
    deleting["metadata"]["resourceVersion"] = json!("");
    assert_eq!(
        rig.ok("PUT", "/api/v1/namespaces/n/finalize", &deleting)["spec"],
        json!({})
    );
    assert_eq!(rig.get("/api/v1/namespaces/n").0, 404);
    assert_eq!(rig.delete(NAMESPACES, &json!({})).0, 405);
    for name in ["UP", "a.b", &"n".repeat(64)] {
        let bad = json!({"metadata": {"name": name}});
        assert_eq!(rig.send("POST", NAMESPACES, &bad).0, 422, "{name}");
    }
}

#[test]
fn nodes_are_cluster_scoped() {
    let rig = Rig::new();
    let node = rig.ok(
        "POST",
        "/api/v1/nodes",
        &json!({"metadata": {"name": "node-a"}}),
    );
    assert_eq!(node["status"]["nodeInfo"]["osImage"], json!(""));
    assert_eq!(rig.get("/api/v1/namespaces/default/nodes").0, 404);
    let cordon = json!({"spec": {"unschedulable": true}});
    let (code, node) = rig.patch("/api/v1/nodes/node-a", &cordon);
    assert_eq!((code, &node["spec"]["unschedulable"]), (200, &json!(true)));
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    assert_eq!(rig.patch("/api/v1/nodes/node-a/status", &ready).0, 200);
    let table = rig.table("/api/v1/nodes");
    assert_eq!(
        table["rows"][0]["cells"][1],
        json!("Ready,SchedulingDisabled")
    );
}
