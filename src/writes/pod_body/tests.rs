//! Bodies of pod requests built from JSON, and templates rejected before any request.

use serde_json::{Value, json};

use super::{create_body, delete_body};
use crate::api::interner::Interner;
use crate::api::protobuf::{Envelope, Fields, MEDIA_TYPE};
use crate::api::workload_kind::REPLICA_SET;
use crate::api::{Pod, ReplicaSet, ResourceVersion, Uid};

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

/// Written by a kube-apiserver.
const REPLICA_SET_PROTOBUF: &[u8] = include_bytes!("../../../tests/data/replica-set.pb");

fn field(message: &[u8], tag: u32) -> Vec<&[u8]> {
    let fields = Fields::of(message).map(|field| field.expect("a whole field"));
    let fields = fields.filter(|field| field.tag == tag);
    fields.map(|field| field.bytes).collect()
}

#[test]
fn a_09_the_protobuf_pod_is_built_from_the_template() {
    let rs = ReplicaSet::from_answer(&REPLICA_SET, REPLICA_SET_PROTOBUF).expect("a ReplicaSet");
    let body = create_body(&rs, &REPLICA_SET, "web-x2b4c").expect("a body");
    assert_eq!(body.media_type, MEDIA_TYPE);
    let envelope = Envelope::open(&body.bytes).expect("an envelope");
    assert_eq!(envelope.kind, "Pod");

    let pod = Pod::from_protobuf(envelope.raw, &mut Interner::default()).expect("a pod");
    assert_eq!(&*pod.key.name, "web-x2b4c");
    assert_eq!(pod.labels, rs.template_labels);
    let owner = pod.controller.expect("a controller");
    assert_eq!((&*owner.kind, &*owner.name), ("ReplicaSet", "web"));
    assert_eq!(owner.uid, rs.uid);

    let metadata = field(envelope.raw, 1)[0];
    assert_eq!(field(metadata, 2), [b"web-"]);
    assert_eq!(field(metadata, 14), [b"example.com/pod"]);
    let annotation = String::from_utf8_lossy(field(metadata, 12)[0]).into_owned();
    assert!(annotation.contains("\"v\""), "{annotation}");
    let owner = field(metadata, 13)[0];
    assert_eq!(field(owner, 5), [b"apps/v1"]);
    let fields = Fields::of(owner).map(|field| field.expect("a whole field"));
    let numbers = fields.filter(|field| field.number > 0);
    let numbers: Vec<(u32, u64)> = numbers.map(|field| (field.tag, field.number)).collect();
    // controller and blockOwnerDeletion
    assert_eq!(numbers, [(6, 1), (7, 1)]);

    // The spec equals the template's, byte by byte.
    let original = Envelope::open(REPLICA_SET_PROTOBUF).expect("an envelope");
    let template = field(field(original.raw, 2)[0], 3)[0];
    assert_eq!(field(envelope.raw, 2), field(template, 2));
}
