//! Decoding of pods: every field, and the forms that the API server may send.

use super::{Interner, Pod, PodPhase, parse_deletion_cost};
use crate::api::Uid;

fn read(json: &str) -> Pod {
    Pod::from_json(json.as_bytes(), &mut Interner::default()).expect("a readable pod")
}

#[test]
fn every_field_is_decoded() {
    let pod = read(
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{
            "name":"web-x2b4c","namespace":"default","uid":"u-1","resourceVersion":"42",
            "labels":{"app":"web"},
            "annotations":{"other":"1","controller.kubernetes.io/pod-deletion-cost":"-7"},
            "creationTimestamp":"2026-01-02T03:04:05Z","deletionTimestamp":"2026-01-02T03:04:06Z",
            "ownerReferences":[
                {"apiVersion":"v1","kind":"Thing","name":"t","uid":"u-t"},
                {"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"u-rs",
                    "controller":true}]},
        "spec":{"nodeName":"node-1","containers":[{"name":"c"}],
            "initContainers":[{"name":"once"},{"name":"side","restartPolicy":"Always"}]},
        "status":{"phase":"Running",
            "conditions":[{"type":"Ready","status":"True",
                "lastTransitionTime":"2026-01-02T03:05:00Z"}],
            "containerStatuses":[{"name":"c","restartCount":3},{"name":"d","restartCount":5}],
            "initContainerStatuses":[
                {"name":"once","restartCount":9},{"name":"side","restartCount":2}]}}"#,
    );
    assert_eq!(pod.key.to_string(), "default/web-x2b4c");
    assert_eq!(
        (pod.uid.to_string(), pod.resource_version.to_string()),
        ("u-1".into(), "42".into())
    );
    assert_eq!(pod.labels.to_string(), "app=web");
    let controller = pod.controller.as_deref().expect("a controller");
    assert_eq!(
        (&*controller.kind, &*controller.name),
        ("ReplicaSet", "web")
    );
    assert!(pod.is_controlled_by(&Uid::new("u-rs")));
    assert_eq!(
        (pod.phase, pod.node.as_deref()),
        (PodPhase::Running, Some("node-1"))
    );
    assert!(pod.is_ready && pod.is_terminating() && !pod.is_active());
    assert_eq!(
        pod.ready_transition.map(|t| t.to_string()).as_deref(),
        Some("2026-01-02T03:05:00Z")
    );
    assert_eq!(
        pod.creation.map(|t| t.to_string()).as_deref(),
        Some("2026-01-02T03:04:05Z")
    );
    assert_eq!(
        (pod.restarts, pod.sidecar_restarts, pod.deletion_cost),
        (5, 2, -7)
    );
}

#[test]
fn absent_and_null_fields_decode_alike() {
    let bare = read(r#"{"metadata":{"name":"p"}}"#);
    let null = read(
        r#"{"metadata":{"name":"p","namespace":null,"labels":null,"annotations":null,
            "ownerReferences":null,"creationTimestamp":null,"deletionTimestamp":null},
        "spec":{"nodeName":"","initContainers":null},
        "status":{"phase":"","conditions":null,"containerStatuses":null,
            "initContainerStatuses":null}}"#,
    );
    assert_eq!(bare, null);
    assert_eq!((bare.phase, bare.is_active()), (PodPhase::Other, true));
}

#[test]
fn a_negative_restart_count_is_none() {
    let pod = read(
        r#"{"metadata": {"name": "a"}, "status": {"containerStatuses": [{"restartCount": -5}]}}"#,
    );
    assert_eq!(pod.restarts, 0);
}

#[test]
fn escaped_text_is_decoded() {
    assert_eq!(
        read(r#"{"metadata":{"name":"a\u0062c","labels":{"k":"\u00e9"}}}"#)
            .labels
            .get("k"),
        Some("é")
    );
}

#[test]
fn a_06_finished_pods_are_not_active() {
    for (phase, active) in [
        ("Pending", true),
        ("Running", true),
        ("Unknown", true),
        ("", true),
        ("Succeeded", false),
        ("Failed", false),
    ] {
        let pod = read(&format!(
            r#"{{"metadata":{{"name":"p"}},"status":{{"phase":"{phase}"}}}}"#
        ));
        assert_eq!(pod.is_active(), active, "phase {phase:?}");
    }
}

#[test]
fn e_24_deletion_cost_is_a_plain_32_bit_decimal() {
    for (text, cost) in [
        ("0", 0),
        ("100", 100),
        ("-100", -100),
        ("2147483647", i32::MAX),
        ("-2147483648", i32::MIN),
        ("2147483648", 0),
        ("", 0),
        ("+10", 0),
        ("008", 0),
        ("-", 0),
        ("ten", 0),
        ("1.5", 0),
    ] {
        assert_eq!(parse_deletion_cost(text), cost, "{text:?}");
    }
}

#[test]
fn a_pod_has_the_documented_size() {
    let fields = 16 + 24 + 16 + 16 + 8 + 8 + 24 + 16 + 8;
    assert_eq!(size_of::<Pod>(), fields);
}
