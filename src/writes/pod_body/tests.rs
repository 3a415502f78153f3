//! Bodies of pod requests built from JSON, and templates rejected before any request.

use serde_json::{Value, json};

use super::{create_body, delete_body};
use crate::api::interner::Interner;
use crate::api::workload_kind::REPLICA_SET;
use crate::api::{ReplicaSet, ResourceVersion, Uid};

fn replica_set(template: &Value) -> ReplicaSet {
    let object = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u-rs"},
        "spec": {"template": template},
    });
    ReplicaSet::from_json(object.to_string().as_bytes(), &mut Interner::default())
        .expect("a readable ReplicaSet")
}

#[test]
fn a_09_the_pod_is_built_from_the_template() {
    let spec = json!({"containers": [{"name": "c", "image": "i"}], "unknownField": {"a": [1]}});
    let rs = replica_set(&json!({
        "metadata": {
            "labels": {"app": "web"}, "annotations": {"n": "\"v\""}, "finalizers": ["f/x"],
            "creationTimestamp": null, "name": "ignored",
        },
        "spec": spec, "besideTheSpec": {"b": 1.5},
    }));
    let body = create_body(&rs, &REPLICA_SET, "web-x2b4c").expect("a body");
    let body: Value = serde_json::from_slice(&body.bytes).expect("JSON");
    let expected = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "web-x2b4c", "generateName": "web-", "labels": {"app": "web"},
            "annotations": {"n": "\"v\""}, "finalizers": ["f/x"],
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u-rs",
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": spec, "besideTheSpec": {"b": 1.5},
    });
    assert_eq!(body, expected);
}

#[test]
fn a_12_a_template_without_labels_is_rejected_locally() {
    let rs = replica_set(&json!({"metadata": {}, "spec": {}}));
    let error = create_body(&rs, &REPLICA_SET, "web-x2b4c").expect_err("no labels");
    assert_eq!(error.to_string(), "unable to create pods, no labels");
}

#[test]
fn the_spec_keeps_its_bytes() {
    let text = r#"{"metadata":{"name":"web","namespace":"shop","uid":"u"},"spec":{"template":
        {"metadata":{"labels":{"a":"b"}},"spec":{"big":12345678901234567890123, "f":1.10}}}}"#;
    let rs = ReplicaSet::from_json(text.as_bytes(), &mut Interner::default()).expect("readable");
    let body = create_body(&rs, &REPLICA_SET, "web-x2b4c").expect("a body");
    let body = String::from_utf8(body.bytes).expect("text");
    assert!(
        body.contains(r#"{"big":12345678901234567890123, "f":1.10}"#),
        "{body}"
    );
}

#[test]
fn a_delete_names_the_uid_and_on_request_the_version() {
    let check = |version: Option<&str>, preconditions: Value| {
        let version = version.map(ResourceVersion::new);
        let body = delete_body(&Uid::new("u-1"), version.as_ref());
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        let expected = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions,
        });
        assert_eq!(body, expected);
    };
    check(None, json!({"uid": "u-1"}));
    check(Some(""), json!({"uid": "u-1"}));
    check(Some("7"), json!({"uid": "u-1", "resourceVersion": "7"}));
}
