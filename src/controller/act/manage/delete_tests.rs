//! Groups B and G, the part about deletes.

use crate::api::Pod;
use crate::controller::testing::{
    controller_ref, deletes, fixture, not_allowed, owned_pod, read_replica_set, ready_pod,
    rejected, replica_set, replica_set_json, seconds_ago,
};
use crate::writes::WriteError;

#[test]
fn b_16_deletions_are_expected_by_identity_before_they_are_sent() {
    let rs = replica_set("web", 1);
    let pods = ["a", "b", "c"].map(|name| owned_pod(name, &rs));
    let fixture = fixture(&rs, pods.clone());
    fixture.sync_ok("web");
    assert_eq!(fixture.open(&rs), Some((0, 2)));
    let deleted = deletes(&fixture);
    let first = pods.iter().find(|pod| *pod.key.name == *deleted[0]);
    let first = first.expect("one of the three").clone();
    let going = Pod {
        resource_version: "2".into(),
        deletion: Some(seconds_ago(0)),
        ..first
    };
    fixture.deliver_pod(going.clone());
    assert_eq!(fixture.open(&rs), Some((0, 1)));
    fixture.deliver_pod_deleted(going);
    assert_eq!(fixture.open(&rs), Some((0, 1)), "counted once");
}

#[test]
fn g_13_all_deletes_are_sent_and_the_first_error_returned() {
    let rs = replica_set("web", 0);
    let fixture = fixture(&rs, ["a", "b", "c", "d"].map(|name| owned_pod(name, &rs)));
    fixture.writes.on_delete(|call, _| {
        let message = format!("error {call}");
        (call % 2 == 1).then(|| Err(rejected(403, "Forbidden", &message)))
    });
    let error = fixture.sync("web").expect_err("two are rejected");
    assert_eq!(error.to_string(), "unable to delete pods: error 1");
    fixture.assert_counts(0, 4, 0);
    assert_eq!(fixture.open(&rs), Some((0, 2)));
}

/// DIFFERS from upstream, which drops the expectation and deletes another pod next.
#[test]
fn a_pod_already_gone_is_expected_like_a_deleted_one() {
    for error in [
        rejected(404, "NotFound", "gone"),
        rejected(409, "Conflict", "another UID"),
    ] {
        let rs = replica_set("web", 1);
        let fixture = fixture(&rs, [owned_pod("a", &rs), ready_pod("b", &rs)]);
        fixture
            .writes
            .on_delete(move |_, _| Some(Err(error.clone())));
        fixture.sync_ok("web");
        assert_eq!(deletes(&fixture), ["a"]);
        assert_eq!(fixture.open(&rs), Some((0, 1)));
        fixture.sync_ok("web");
        fixture.assert_counts(0, 0, 0);
        fixture.deliver_pod_deleted(owned_pod("a", &rs));
        assert_eq!(fixture.open(&rs), Some((0, 0)));
    }
}

/// An admission webhook may reject with any code.
#[test]
fn a_conflict_on_an_existing_pod_is_an_error() {
    let rs = replica_set("web", 1);
    let fixture = fixture(&rs, [owned_pod("a", &rs), ready_pod("b", &rs)]);
    fixture
        .writes
        .set_live_pods(vec![owned_pod("a", &rs), ready_pod("b", &rs)]);
    fixture
        .writes
        .on_delete(|_, _| Some(Err(rejected(409, "Conflict", "not now"))));
    let error = fixture.sync("web").expect_err("rejected");
    assert_eq!(error.to_string(), "unable to delete pods: not now");
    assert_eq!(fixture.open(&rs), Some((0, 0)));
    assert_eq!(
        fixture.writes.take_warnings(),
        ["FailedDelete: Error deleting: not now"]
    );
    let conditions = fixture.writes.status_updates().remove(0).conditions;
    assert_eq!(conditions[0].reason.as_deref(), Some("FailedDelete"));
}

#[test]
fn an_unresolved_conflict_is_retried_on_the_same_pod() {
    let rs = replica_set("web", 1);
    let fixture = fixture(&rs, [owned_pod("a", &rs), ready_pod("b", &rs)]);
    fixture
        .writes
        .on_delete(|_, _| Some(Err(rejected(409, "Conflict", "not now"))));
    fixture.writes.on_find_pod(|_, _| Some(Err(not_allowed())));
    fixture.sync("web").expect_err("the read is rejected");
    assert_eq!(deletes(&fixture), ["a"]);
    assert_eq!(fixture.open(&rs), Some((0, 0)));
    // Without the earlier delete, this pod would go first.
    fixture.deliver_pod(Pod {
        resource_version: "2".into(),
        node: None,
        ..owned_pod("b", &rs)
    });
    fixture.writes.on_delete(|_, _| None);
    fixture.sync_ok("web");
    assert_eq!(deletes(&fixture), ["a"]);
}

#[test]
fn a_deletion_already_in_the_cache_is_not_expected() {
    for is_found in [true, false] {
        let rs = replica_set("web", 0);
        let fixture = fixture(&rs, [owned_pod("a", &rs)]);
        let (cache, going) = (fixture.cache.clone(), owned_pod("a", &rs));
        fixture.writes.on_delete(move |_, _| {
            // The event arrives between the listing of the pods and the response.
            if is_found {
                cache.pods.apply(Pod {
                    resource_version: "2".into(),
                    deletion: Some(seconds_ago(0)),
                    ..going.clone()
                });
                return None;
            }
            cache.pods.apply_deleted(going.clone());
            Some(Err(rejected(404, "NotFound", "gone")))
        });
        fixture.sync_ok("web");
        assert_eq!(fixture.open(&rs), Some((0, 0)));
    }
}

/// As a StatefulSet's pods are, whose names return.
#[test]
fn a_pod_recreated_before_the_response_is_gone() {
    let rs = replica_set("web", 0);
    let fixture = fixture(&rs, [owned_pod("a", &rs)]);
    let (cache, recreated) = (fixture.cache.clone(), owned_pod("a", &rs));
    fixture.writes.on_delete(move |_, _| {
        cache.pods.apply(Pod {
            uid: "uid-of-another".into(),
            resource_version: "3".into(),
            ..recreated.clone()
        });
        None
    });
    fixture.sync_ok("web");
    assert_eq!(fixture.open(&rs), Some((0, 0)));
}

/// The pods of other owners are those of the cache, in all namespaces.
#[test]
fn consolidate_sees_the_pods_of_all_owners() {
    let mut object = replica_set_json("web", 2);
    object["metadata"]["annotations"] =
        serde_json::json!({"replicaset-controller/scale-down-order": "consolidate"});
    let rs = read_replica_set(&object);
    let on = |name: &str, node: &str| Pod {
        node: Some(node.into()),
        ..ready_pod(name, &rs)
    };
    let other = Pod {
        key: crate::api::ObjectKey::new("elsewhere", "x"),
        controller: Some(controller_ref("StatefulSet", "db", "uid-db")),
        ..on("x", "node-1")
    };
    let pods = [
        on("a", "node-1"),
        on("b", "node-2"),
        on("c", "node-2"),
        on("d", "node-3"),
        other,
    ];
    let fixture = fixture(&rs, pods);
    fixture.sync_ok("web");
    assert_eq!(deletes(&fixture), ["d", "a"]);
}

#[test]
fn an_event_reports_a_conflict_that_cannot_be_read() {
    for (error, warnings) in [
        (
            not_allowed(),
            &["FailedDelete: Error deleting: exceeded quota"][..],
        ),
        (WriteError::Stopped, &[]),
    ] {
        let rs = replica_set("web", 0);
        let fixture = fixture(&rs, [owned_pod("a", &rs)]);
        fixture
            .writes
            .on_delete(|_, _| Some(Err(rejected(409, "Conflict", "not now"))));
        fixture
            .writes
            .on_find_pod(move |_, _| Some(Err(error.clone())));
        fixture.sync("web").expect_err("the read fails");
        assert_eq!(fixture.writes.take_warnings(), warnings);
    }
}
