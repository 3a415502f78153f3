//! Updates: conflicts, the status and scale subresources, immutable fields, generations.

use serde_json::json;

use super::rig::{PODS, REPLICA_SETS, Rig, check_error, uid, version};

#[test]
fn an_update_on_an_old_version_is_a_conflict() {
    let rig = Rig::new();
    let mut old = rig.create_replica_set("web", 2);
    let mut new = old.clone();
    new["spec"]["replicas"] = json!(3);
    let path = format!("{REPLICA_SETS}/web");
    let updated = rig.ok("PUT", &path, &new);
    assert_eq!(updated["metadata"]["generation"], json!(2));
    old["spec"]["replicas"] = json!(4);
    let response = rig.send("PUT", &path, &old);
    let message = "Operation cannot be fulfilled on replicasets.apps \"web\": the object has been \
                   modified; please apply your changes to the latest version and try again";
    check_error(&response, 409, "Conflict", message);
    // Without a version the update is unconditional.
    old["metadata"]["resourceVersion"] = json!("");
    let updated = rig.ok("PUT", &path, &old);
    assert_eq!(updated["spec"]["replicas"], json!(4));
    old["metadata"]["name"] = json!("other");
    assert_eq!(rig.send("PUT", &path, &old).0, 400);
}

#[test]
fn status_and_spec_are_written_separately() {
    let rig = Rig::new();
    let mut web = rig.create_replica_set("web", 2);
    web["spec"]["replicas"] = json!(9);
    web["status"] = json!({
        "replicas": 4, "fullyLabeledReplicas": 4, "readyReplicas": 0, "observedGeneration": 1,
    });
    let path = format!("{REPLICA_SETS}/web/status");
    let mut response = rig.ok("PUT", &path, &web);
    let expected = json!({"replicas": 4, "fullyLabeledReplicas": 4, "observedGeneration": 1});
    assert_eq!(response["status"], expected);
    assert_eq!(response["spec"]["replicas"], json!(2));
    assert_eq!(response["metadata"]["generation"], json!(1));
    assert!(version(&response) > version(&web));
    // An unchanged status keeps even the version.
    assert_eq!(rig.ok("PUT", &path, &response), response);
    assert_eq!(rig.send("PUT", &path, &web).0, 409);
    response["status"]["replicas"] = json!(7);
    let main = rig.ok("PUT", &format!("{REPLICA_SETS}/web"), &response);
    assert_eq!(main["status"]["replicas"], json!(4));
}

#[test]
fn f_27_conditions_are_stored_as_sent() {
    let rig = Rig::new();
    let mut web = rig.create_replica_set("web", 2);
    let conditions = json!([
        {"type": "Other", "status": "True"},
        {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "m"},
    ]);
    web["status"] = json!({"replicas": 0, "conditions": conditions});
    let response = rig.ok("PUT", &format!("{REPLICA_SETS}/web/status"), &web);
    assert_eq!(response["status"]["conditions"], conditions);
}

#[test]
fn an_invalid_status_is_rejected() {
    let rig = Rig::new();
    let mut web = rig.create_replica_set("web", 2);
    let path = format!("{REPLICA_SETS}/web/status");
    web["status"] = json!({"replicas": -1});
    let message = "ReplicaSet.apps \"web\" is invalid: [status.replicas: Invalid value: -1: must \
                   be greater than or equal to 0, status.fullyLabeledReplicas: Invalid value: 0: \
                   cannot be greater than status.replicas, status.readyReplicas: Invalid value: \
                   0: cannot be greater than status.replicas, status.availableReplicas: Invalid \
                   value: 0: cannot be greater than status.replicas]";
    check_error(&rig.send("PUT", &path, &web), 422, "Invalid", message);
    web["status"] = json!({"replicas": 1, "readyReplicas": 2, "availableReplicas": 3});
    let message = "ReplicaSet.apps \"web\" is invalid: [status.readyReplicas: Invalid value: 2: \
                   cannot be greater than status.replicas, status.availableReplicas: Invalid \
                   value: 3: cannot be greater than status.replicas, status.availableReplicas: \
                   Invalid value: 3: cannot be greater than readyReplicas]";
    check_error(&rig.send("PUT", &path, &web), 422, "Invalid", message);
}

#[test]
fn an_update_of_another_uid_is_a_conflict() {
    let rig = Rig::new();
    let mut web = rig.create_replica_set("web", 2);
    let own = uid(&web);
    let zero = "00000000-0000-0000-0000-000000000000";
    web["metadata"]["uid"] = json!(zero);
    let response = rig.send("PUT", &format!("{REPLICA_SETS}/web/status"), &web);
    let message = format!(
        "Operation cannot be fulfilled on replicasets.apps \"web\": StorageError: invalid object, \
         Code: 4, Key: /registry/replicasets/default/web, ResourceVersion: 0, \
         AdditionalErrorMsg: Precondition failed: UID in precondition: {zero}, UID in object \
         meta: {own}"
    );
    check_error(&response, 409, "Conflict", &message);
}

#[test]
fn m_05_a_selector_is_immutable() {
    let rig = Rig::new();
    let mut web = rig.create_replica_set("web", 0);
    web["spec"]["selector"]["matchLabels"] = json!({"app": "x"});
    web["spec"]["template"]["metadata"]["labels"] = json!({"app": "x"});
    let response = rig.send("PUT", &format!("{REPLICA_SETS}/web"), &web);
    let message = "ReplicaSet.apps \"web\" is invalid: spec.selector: Invalid value: \
                   {\"matchLabels\":{\"app\":\"x\"}}: field is immutable";
    check_error(&response, 422, "Invalid", message);
}

#[test]
fn m_07_only_template_metadata_raises_the_generation() {
    let rig = Rig::new();
    let mut web = rig.create_replica_set("web", 2);
    web["spec"]["template"]["metadata"]["annotations"] = json!({"k": "v"});
    let path = format!("{REPLICA_SETS}/web");
    let mut web = rig.ok("PUT", &path, &web);
    assert_eq!(web["metadata"]["generation"], json!(2));
    web["metadata"]["labels"] = json!({"k": "v"});
    let web = rig.ok("PUT", &path, &web);
    assert_eq!(web["metadata"]["generation"], json!(2));
}

#[test]
fn m_18_n_05_scale_reads_and_writes_replicas() {
    let rig = Rig::new();
    let web = rig.create_replica_set("web", 1);
    let path = format!("{REPLICA_SETS}/web/scale");
    let mut scale = rig.get(&path).1;
    assert_eq!(scale["kind"], json!("Scale"));
    assert_eq!(scale["spec"], json!({"replicas": 1}));
    assert_eq!(
        scale["status"],
        json!({"replicas": 0, "selector": "app=web"})
    );
    assert_eq!(scale["metadata"]["uid"], json!(uid(&web)));
    scale["spec"]["replicas"] = json!(2);
    rig.ok("PUT", &path, &scale);
    assert_eq!(rig.send("PUT", &path, &scale).0, 409);
    let (code, scaled) = rig.patch(&path, &json!({"spec": {"replicas": 4}}));
    assert_eq!((code, &scaled["spec"]["replicas"]), (200, &json!(4)));
    let web = rig.get(&format!("{REPLICA_SETS}/web")).1;
    assert_eq!(web["spec"]["replicas"], json!(4));
    assert_eq!(web["metadata"]["generation"], json!(3));
    assert_eq!(rig.patch(&path, &json!({"spec": {"replicas": -4}})).0, 422);
}

#[test]
fn a_pod_is_bound_once_and_its_spec_is_immutable() {
    let rig = Rig::new();
    let mut pod = rig.create_pod("p");
    pod["spec"]["nodeName"] = json!("node-b");
    assert_eq!(rig.send("PUT", &format!("{PODS}/p"), &pod).0, 422);
    let path = format!("{PODS}/p/binding");
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "node-a"}});
    assert_eq!(rig.send("POST", &path, &binding).0, 201);
    assert_eq!(rig.send("POST", &path, &binding).0, 409);
    let pod = rig.get(&format!("{PODS}/p")).1;
    assert_eq!(pod["spec"]["nodeName"], json!("node-a"));
    assert_eq!(
        pod["status"]["conditions"][0]["type"],
        json!("PodScheduled")
    );
}
