//! Decoding of ReplicaSets and ReplicationControllers from JSON, and the body of a status update.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Interner, ReplicaSet, ReplicaSetStatus, topology_key};
use crate::api::Labels;
use crate::api::protobuf::put_bytes;
use crate::api::replica_set::Template;
use crate::api::workload_kind::{REPLICA_SET, REPLICATION_CONTROLLER};

fn read(object: &Value) -> ReplicaSet {
    let text = object.to_string();
    ReplicaSet::from_json(text.as_bytes(), &mut Interner::default()).expect("readable")
}

fn sample() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": "web", "namespace": "default", "uid": "u-rs", "resourceVersion": "7",
            "generation": 3, "labels": {"x": "y"}, "annotations": {"a": "\"b\""},
            "managedFields": [{"manager": "m"}],
            "ownerReferences": [
                {"kind": "Deployment", "name": "d", "uid": "u-d", "controller": true},
            ],
        },
        "spec": {
            "replicas": 4, "minReadySeconds": 5, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"futureField": {"deep": [1]}},
            },
            "futureSpec": true,
        },
        "status": {
            "replicas": 2, "futureCount": 9,
            "conditions": [{"type": "Other", "status": "True", "futureKey": 1}],
        },
    })
}

#[test]
fn every_field_is_decoded() {
    let rs = read(&sample());
    assert_eq!(rs.key.to_string(), "default/web");
    assert_eq!(
        (rs.generation, rs.replicas, rs.min_ready_seconds),
        (3, 4, 5)
    );
    assert_eq!(rs.controller.as_ref().map(|c| &*c.name), Some("d"));
    assert!(
        rs.selector
            .expect("a valid selector")
            .matches(&rs.template_labels)
    );
    assert_eq!(
        (rs.status.replicas, rs.status.terminating_replicas),
        (2, None)
    );
}

#[test]
fn absent_replicas_mean_one() {
    let rs = read(&json!({"metadata": {"name": "web"}, "spec": {}}));
    assert_eq!((rs.replicas, rs.min_ready_seconds), (1, 0));
    assert!(rs.template().is_none());
}

#[test]
fn a_status_update_keeps_unknown_fields() {
    let rs = read(&sample());
    let status = ReplicaSetStatus {
        replicas: 4,
        terminating_replicas: Some(0),
        ..rs.status.clone()
    };
    let body = rs.with_status(&REPLICA_SET, &status).expect("JSON");
    let body: Value = serde_json::from_slice(&body.bytes).expect("JSON");
    let mut expected = sample();
    expected["metadata"]
        .as_object_mut()
        .expect("an object")
        .remove("managedFields");
    expected["status"]["replicas"] = json!(4);
    expected["status"]["terminatingReplicas"] = json!(0);
    assert_eq!(body, expected);
}

fn read_controller(object: &Value) -> Result<ReplicaSet, serde_json::Error> {
    let text = object.to_string();
    let interner = &mut Interner::default();
    ReplicaSet::of_kind(&REPLICATION_CONTROLLER, text.as_bytes(), interner)
}

#[test]
fn o_02_a_map_selector_consists_of_equalities() {
    let mut object = sample();
    object["apiVersion"] = json!("v1");
    object["kind"] = json!("ReplicationController");
    object["spec"]["selector"] = json!({"app": "web", "tier": "front"});
    let rc = read_controller(&object).expect("readable");
    let selector = rc.selector.as_ref().expect("a valid selector");
    assert_eq!(selector.to_string(), "app=web,tier=front");
    assert_eq!((rc.generation, rc.replicas), (3, 4));
    // A key with a meaning in a label selector is an ordinary label here.
    object["spec"]["selector"] = json!({"matchLabels": "x"});
    let rc = read_controller(&object).expect("readable");
    assert_eq!(
        rc.selector.as_ref().expect("valid").to_string(),
        "matchLabels=x"
    );
    // The update sends back the received selector.
    let body = rc
        .with_status(&REPLICATION_CONTROLLER, &rc.status)
        .expect("JSON");
    let body: Value = serde_json::from_slice(&body.bytes).expect("JSON");
    assert_eq!(body["spec"], object["spec"]);
}

#[test]
fn o_02_no_selector_and_an_empty_one_match_nothing() {
    for selector in [Value::Null, json!({})] {
        let mut object = sample();
        object["spec"]["selector"] = selector;
        let rc = read_controller(&object).expect("readable");
        let selector = rc.selector.expect("valid");
        assert!(selector.is_empty() && !selector.matches(&Labels::default()));
    }
}

#[test]
fn o_02_a_selector_other_than_a_map_of_labels_is_an_error() {
    let mut object = sample();
    object["spec"]["selector"] = json!({"matchLabels": {"app": "web"}});
    read_controller(&object).expect_err("the selector is not a map of strings");
}

#[test]
fn the_template_is_carried_unchanged() {
    let rs = read(&sample());
    let Some(Template::Json(template)) = rs.template() else {
        panic!("the template is not in JSON");
    };
    let template: Value = serde_json::from_str(template.get()).expect("JSON");
    assert_eq!(template, sample()["spec"]["template"]);
}

/// Checks the key of a template with these constraints, in both encodings.
#[track_caller]
fn check(constraints: &[(&str, &str)], expected: Option<&str>) {
    let of_json = |(key, when): &(&str, &str)| {
        json!({
            "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, "minDomains": 2,
        })
    };
    let list: Vec<_> = constraints.iter().map(of_json).collect();
    let template = json!({"metadata": {}, "spec": {
        "containers": [{"name": "c"}], "topologySpreadConstraints": list}});
    let raw = RawValue::from_string(template.to_string()).expect("JSON");
    assert_eq!(topology_key(Template::Json(&raw)).as_deref(), expected);

    let (mut spec, mut template) = (Vec::new(), Vec::new());
    put_bytes(2, b"a container", &mut spec);
    for (key, when) in constraints {
        let mut constraint = vec![0x08, 1];
        put_bytes(2, key, &mut constraint);
        put_bytes(3, when, &mut constraint);
        put_bytes(33, &constraint, &mut spec);
    }
    put_bytes(1, b"", &mut template);
    put_bytes(2, &spec, &mut template);
    let template = Template::Protobuf(&template);
    assert_eq!(topology_key(template).as_deref(), expected);
}

#[test]
fn do_not_schedule_precedes_schedule_anyway() {
    let (must, should) = ("DoNotSchedule", "ScheduleAnyway");
    check(&[], None);
    check(&[("zone", should)], Some("zone"));
    check(&[("zone", should), ("node", should)], Some("zone"));
    check(
        &[("zone", should), ("node", must), ("rack", must)],
        Some("node"),
    );
    check(&[("zone", "Perhaps"), ("", must)], None);
}

#[test]
fn a_template_that_cannot_be_read_has_no_topology() {
    for json in [
        "{}",
        r#"{"spec": null}"#,
        r#"{"spec": 1}"#,
        r#"{"spec": {"topologySpreadConstraints": null}}"#,
        r#"{"spec": {"topologySpreadConstraints": [{}]}}"#,
    ] {
        let raw = RawValue::from_string(json.to_owned()).expect("JSON");
        assert_eq!(topology_key(Template::Json(&raw)), None, "{json}");
    }
    assert_eq!(topology_key(Template::Protobuf(b"\x12\x05ab")), None);
}

#[test]
fn only_a_settled_replica_set_is_cached_without_its_spec() {
    let at = |replicas: i32, status: Value| {
        let mut object = sample();
        object["spec"]["replicas"] = replicas.into();
        object["status"] = status;
        read(&object).for_cache()
    };
    let at_rest = at(0, json!({"replicas": 0, "observedGeneration": 3}));
    assert!(!at_rest.is_complete() && at_rest.template().is_none());
    let status = ReplicaSetStatus::default();
    assert!(at_rest.with_status(&REPLICA_SET, &status).is_err());
    for (replicas, status) in [
        (1, json!({"replicas": 0, "observedGeneration": 3})),
        (0, json!({"replicas": 1, "observedGeneration": 3})),
        (
            0,
            json!({"replicas": 0, "terminatingReplicas": 1, "observedGeneration": 3}),
        ),
        (0, json!({"replicas": 0, "observedGeneration": 2})),
    ] {
        let rs = at(replicas, status);
        assert!(rs.is_complete() && rs.template().is_some(), "{rs:?}");
    }
    let mut terminating = sample();
    terminating["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    terminating["spec"]["replicas"] = 0.into();
    terminating["status"] = json!({"replicas": 0, "observedGeneration": 3});
    assert!(read(&terminating).for_cache().is_complete());
}
