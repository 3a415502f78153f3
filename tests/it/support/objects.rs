//! Manifests for tests, and accessors for fields of returned objects. Pure.

use serde_json::{Value, json};

/// The value of the label `app` that test objects have by default.
pub(crate) const APP: &str = "conf";

/// The selector for the pods of [`new_replica_set`] and [`new_pod`].
pub(crate) const LIVE: &str = "app=conf";

/// A ReplicaSet with this many replicas.
pub(crate) fn new_replica_set(name: &str, replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": APP}},
            "template": {
                "metadata": {"labels": {"app": APP}},
                "spec": pod_spec(),
            },
        },
    })
}

/// A ReplicaSet whose selector and template use the label `app=APP`, with this value.
pub(crate) fn new_replica_set_labelled(name: &str, replicas: i64, app: &str) -> Value {
    let mut rs = new_replica_set(name, replicas);
    rs["spec"]["selector"]["matchLabels"]["app"] = json!(app);
    rs["spec"]["template"]["metadata"]["labels"]["app"] = json!(app);
    rs
}

/// Converts a ReplicaSet to the equivalent ReplicationController.
pub(crate) fn as_controller(rs: &Value) -> Value {
    let mut rc = rs.clone();
    rc["apiVersion"] = json!("v1");
    rc["kind"] = json!("ReplicationController");
    rc["spec"]["selector"] = rs["spec"]["selector"]["matchLabels"].clone();
    rc
}

/// An orphan pod that matches the selector of [`new_replica_set`].
pub(crate) fn new_pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": APP}},
        "spec": pod_spec(),
    })
}

fn pod_spec() -> Value {
    json!({"containers": [{"name": "c", "image": "example.invalid/none:0"}]})
}

/// A complete owner reference to the controller of a pod.
pub(crate) fn controller_reference(rs: &Value) -> Value {
    let mut reference = plain_reference(rs);
    reference["controller"] = json!(true);
    reference["blockOwnerDeletion"] = json!(true);
    reference
}

/// An owner reference without `controller: true`.
pub(crate) fn plain_reference(rs: &Value) -> Value {
    json!({
        "apiVersion": rs["apiVersion"], "kind": rs["kind"], "name": name(rs), "uid": uid(rs),
    })
}

/// An owner reference to a controller that does not exist.
pub(crate) fn foreign_controller_reference(uid: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "other", "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// The status of a running pod. `is_ready` sets its condition `Ready`, `since` (RFC 3339) the
/// condition's last transition time.
pub(crate) fn running(is_ready: bool, since: Option<&str>) -> Value {
    let ready = if is_ready { "True" } else { "False" };
    let mut condition = json!({"type": "Ready", "status": ready});
    if let Some(since) = since {
        condition["lastTransitionTime"] = json!(since);
    }
    json!({"phase": "Running", "conditions": [condition]})
}

/// The container statuses of a pod with one container and this restart count.
pub(crate) fn container_statuses(restarts: i64) -> Value {
    json!([{
        "name": "c", "image": "example.invalid/none:0", "imageID": "", "ready": true,
        "restartCount": restarts,
    }])
}

/// The time this many seconds ago, in RFC 3339.
pub(crate) fn seconds_ago(seconds: i64) -> String {
    let now = jiff::Timestamp::now().as_second();
    let time = jiff::Timestamp::from_second(now - seconds);
    time.expect("a representable time").to_string()
}

/// `metadata.name`.
pub(crate) fn name(object: &Value) -> String {
    text_at(object, "/metadata/name")
}

/// `metadata.uid`.
pub(crate) fn uid(object: &Value) -> String {
    text_at(object, "/metadata/uid")
}

/// The names of some objects, sorted.
pub(crate) fn names(objects: &[Value]) -> Vec<String> {
    let mut names: Vec<String> = objects.iter().map(name).collect();
    names.sort();
    names
}

/// The UIDs of some objects, sorted.
pub(crate) fn uids(objects: &[Value]) -> Vec<String> {
    let mut uids: Vec<String> = objects.iter().map(uid).collect();
    uids.sort();
    uids
}

/// `metadata.ownerReferences`.
pub(crate) fn owner_references(object: &Value) -> Vec<Value> {
    let references = object.pointer("/metadata/ownerReferences");
    references
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default()
}

/// The UID in the owner reference with `controller: true`.
pub(crate) fn controller_uid(object: &Value) -> Option<String> {
    let references = owner_references(object);
    let controller = references
        .iter()
        .find(|reference| reference["controller"] == json!(true));
    controller.map(|reference| text_at(reference, "/uid"))
}

/// True if the object has a deletion timestamp.
pub(crate) fn is_terminating(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

/// The string at a JSON pointer; empty if there is none.
pub(crate) fn text_at(value: &Value, pointer: &str) -> String {
    let text = value.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

/// The number at a JSON pointer; 0 if there is none, as the API omits zeros.
pub(crate) fn number_at(value: &Value, pointer: &str) -> i64 {
    value.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// `metadata.resourceVersion`; 0 if there is none.
pub(crate) fn resource_version(object: &Value) -> u64 {
    let version = text_at(object, "/metadata/resourceVersion");
    version.parse().unwrap_or(0)
}
