//! The waits of a scale-down and of a replacement.

use std::time::Duration;

use serde_json::json;

use crate::api::{Pod, ReplicaSet};
use crate::controller::memory::Memory;
use crate::controller::memory::history::SyncEnd;
use crate::controller::memory::positions::SETTLE_MAX;
use crate::controller::testing::{
    Fixture, deletes, fixture, key, owned_pod, read_replica_set, ready_pod, replica_set,
    replica_set_json, seconds_ago,
};
use crate::stdx::clock::Clock;

const MS: Duration = Duration::from_millis(1);

/// Returns `rs` with this many replicas since this version.
fn scaled(rs: &ReplicaSet, replicas: i32, version: &str) -> ReplicaSet {
    let mut rs = rs.clone();
    rs.replicas = replicas;
    rs.generation += 1;
    rs.resource_version = version.into();
    rs
}

/// Two pods; by default `b` is deleted first. Version 11 scales down to one, and at version 10 the
/// client has marked `a` to go.
fn one_of_two() -> (Fixture, ReplicaSet) {
    let mut rs = replica_set("web", 2);
    rs.status.observed_generation = 1;
    let fixture = fixture(&rs, [ready_pod("a", &rs), younger("b", &rs)]);
    fixture.deliver_bookmarks("9", "9");
    fixture.deliver_replica_set(scaled(&rs, 1, "11"));
    fixture.queued();
    (fixture, rs)
}

fn younger(name: &str, rs: &ReplicaSet) -> Pod {
    Pod {
        ready_transition: Some(seconds_ago(1)),
        ..ready_pod(name, rs)
    }
}

fn cheap(rs: &ReplicaSet) -> Pod {
    Pod {
        resource_version: "10".into(),
        deletion_cost: -1,
        ..ready_pod("a", rs)
    }
}

#[track_caller]
fn waits(fixture: &Fixture) {
    assert_eq!(fixture.sync("web").expect("no error"), SyncEnd::TooEarly);
    assert_eq!(fixture.writes.take(), []);
}

#[test]
fn a_deletion_cost_set_before_the_spec_decides() {
    let (fixture, rs) = one_of_two();
    waits(&fixture);
    fixture.deliver_pod(cheap(&rs));
    // More costs may follow.
    waits(&fixture);
    fixture.deliver_bookmarks("11", "");
    fixture.sync_ok("web");
    assert_eq!(deletes(&fixture), ["a"]);
}

#[test]
fn an_event_of_its_pods_that_is_newer_ends_the_wait() {
    let (fixture, rs) = one_of_two();
    waits(&fixture);
    fixture.deliver_pod(cheap(&rs));
    fixture.queued();
    fixture.deliver_pod(Pod {
        resource_version: "12".into(),
        ..younger("b", &rs)
    });
    fixture.sync_ok("web");
    assert_eq!(deletes(&fixture), ["a"]);
}

#[test]
fn a_quiet_pod_watch_delays_deletes_by_25_ms() {
    let (fixture, _) = one_of_two();
    fixture.process(&key("web"));
    fixture.assert_counts(0, 0, 0);
    assert_eq!(fixture.queue.num_requeues(&key("web")), 0);
    assert!(fixture.queued_after(24 * MS).is_empty());
    waits(&fixture);
    assert_eq!(fixture.queued_after(MS), ["default/web"]);
    fixture.sync_ok("web");
    assert_eq!(deletes(&fixture), ["b"]);
}

/// Unless the size of its Deployment has changed, or marks may spare pods.
#[test]
fn a_rollout_deletes_at_once() {
    let protection = "replicaset-controller/scale-down-protection";
    for (annotations, deletes_at_once) in [
        (
            json!({"deployment.kubernetes.io/desired-replicas": "2"}),
            true,
        ),
        (
            json!({"deployment.kubernetes.io/desired-replicas": "1"}),
            false,
        ),
        (
            json!({"deployment.kubernetes.io/desired-replicas": "all"}),
            false,
        ),
        (
            json!({"deployment.kubernetes.io/desired-replicas": "2", protection: "on"}),
            false,
        ),
        (json!({}), false),
    ] {
        let (fixture, rs) = one_of_two();
        let mut object = replica_set_json("web", 1);
        object["metadata"]["annotations"] = annotations.clone();
        object["metadata"]["generation"] = (rs.generation + 1).into();
        object["metadata"]["resourceVersion"] = "12".into();
        object["status"]["observedGeneration"] = rs.generation.into();
        fixture.deliver_replica_set(read_replica_set(&object));
        if deletes_at_once {
            fixture.sync_ok("web");
            assert_eq!(deletes(&fixture), ["b"], "{annotations}");
        } else {
            waits(&fixture);
        }
    }
}

/// The status with the observed generation may precede the choice.
#[test]
fn a_delete_waits_also_after_an_earlier_wait() {
    let (fixture, rs) = one_of_two();
    fixture.writer().expect(&rs, ["c".into()], []);
    fixture.sync_ok("web");
    let status = fixture.writes.status_updates().remove(0);
    assert_eq!(status.observed_generation, 2);
    fixture.writes.take();
    let mut echo = scaled(&rs, 1, "12");
    echo.status = status;
    fixture.deliver_replica_set(echo);
    fixture.see_creation(&rs, "c");
    waits(&fixture);
    fixture.clock.advance(SETTLE_MAX);
    fixture.sync_ok("web");
    assert_eq!(deletes(&fixture), ["b"]);
}

#[test]
fn syncs_without_a_choice_of_pods_do_not_wait() {
    let (fixture, rs) = one_of_two();
    fixture.deliver_replica_set(scaled(&rs, 0, "13"));
    fixture.sync_ok("web");
    assert_eq!(deletes(&fixture).len(), 2, "all of them");

    let (fixture, rs) = one_of_two();
    fixture.deliver_replica_set(scaled(&rs, 3, "13"));
    fixture.sync_ok("web");
    fixture.assert_counts(1, 0, 0);
}

#[test]
fn an_observed_spec_deletes_surplus_pods_at_once() {
    let mut rs = replica_set("web", 1);
    rs.status.observed_generation = 1;
    rs.resource_version = "20".into();
    let fixture = fixture(&rs, [ready_pod("a", &rs), owned_pod("b", &rs)]);
    fixture.sync_ok("web");
    assert_eq!(deletes(&fixture), ["b"]);
}

#[test]
fn a_version_that_is_no_number_delays_nothing() {
    let mut rs = replica_set("web", 1);
    rs.resource_version = "x20".into();
    let fixture = fixture(&rs, [ready_pod("a", &rs), owned_pod("b", &rs)]);
    fixture.sync_ok("web");
    assert_eq!(deletes(&fixture), ["b"]);
}

#[test]
fn a_standby_records_no_losses() {
    let rs = replica_set("web", 1);
    let fixture = fixture(&rs, [ready_pod("a", &rs)]);
    fixture.controller.stand_by();
    fixture.deliver_pod_deleted(ready_pod("a", &rs));
    let now = fixture.clock.now();
    let waits = |memory: &mut Memory| memory.positions.loss_delay(&"1".into(), now);
    let waits = fixture.controller.memories.get(&rs, waits);
    assert_eq!(waits.flatten(), None);
}

/// Two pods, one of them lost at version 20, while the ReplicaSet cache is at version 9.
fn one_is_gone() -> (Fixture, ReplicaSet) {
    let mut rs = replica_set("web", 2);
    rs.status.observed_generation = 1;
    rs.status.replicas = 2;
    let fixture = fixture(&rs, [ready_pod("a", &rs), ready_pod("b", &rs)]);
    fixture.deliver_bookmarks("9", "9");
    fixture.deliver_pod_deleted(Pod {
        resource_version: "20".into(),
        ..ready_pod("a", &rs)
    });
    fixture.queued();
    (fixture, rs)
}

#[test]
fn a_pod_deleted_with_its_owner_is_not_recreated() {
    let (fixture, mut rs) = one_is_gone();
    fixture.sync_ok("web");
    assert_eq!(fixture.writes.created(), [""; 0]);
    // The status reports the loss all the same.
    assert_eq!(fixture.writes.status_updates()[0].replicas, 1);
    fixture.writes.take();
    rs.resource_version = "19".into();
    rs.deletion = Some(seconds_ago(0));
    fixture.deliver_replica_set(rs);
    fixture.clock.advance(SETTLE_MAX);
    fixture.sync_ok("web");
    assert_eq!(fixture.writes.created(), [""; 0]);
}

#[test]
fn a_lost_pod_is_replaced_once_the_cache_is_as_new() {
    let (fixture, _) = one_is_gone();
    fixture.sync_ok("web");
    assert_eq!(fixture.writes.created(), [""; 0]);
    fixture.deliver_bookmarks("", "20");
    fixture.sync_ok("web");
    assert_eq!(fixture.writes.created().len(), 1);
}

/// The watch was cut off, and the next list lacks the pod. Only the list's version says when.
#[test]
fn a_pod_that_a_list_lacks_is_replaced_once_the_cache_is_as_new() {
    let rs = replica_set("web", 1);
    let fixture = fixture(&rs, [ready_pod("a", &rs)]);
    fixture.deliver_bookmarks("9", "9");
    for event in fixture.cache.pods.replace(Vec::new(), &[], &"20".into()) {
        fixture.controller.handle_pod_event(&event);
    }
    fixture.controller.handle_cache_advanced();
    fixture.sync_ok("web");
    assert_eq!(fixture.writes.created(), [""; 0]);
    fixture.deliver_bookmarks("", "20");
    fixture.sync_ok("web");
    assert_eq!(fixture.writes.created().len(), 1);
}

#[test]
fn a_lost_pod_is_replaced_after_25_ms() {
    let (fixture, _) = one_is_gone();
    fixture.sync_ok("web");
    assert_eq!(fixture.queued_after(SETTLE_MAX.saturating_sub(MS)), [""; 0]);
    assert_eq!(fixture.queued_after(MS), ["default/web"]);
    fixture.sync_ok("web");
    assert_eq!(fixture.writes.created().len(), 1);
}

#[test]
fn a_series_of_losses_delays_creates_once() {
    let (fixture, rs) = one_is_gone();
    fixture.sync_ok("web");
    fixture.clock.advance(SETTLE_MAX);
    // The worker syncs the key after the next pod is gone.
    fixture.deliver_pod_deleted(Pod {
        resource_version: "30".into(),
        ..ready_pod("b", &rs)
    });
    fixture.sync_ok("web");
    assert_eq!(fixture.writes.created().len(), 2);
}

/// Otherwise the next loss, perhaps hours later, would count as part of the first series.
#[test]
fn a_loss_that_needs_no_create_any_more_is_over() {
    let (fixture, mut rs) = one_is_gone();
    fixture.sync_ok("web");
    rs.resource_version = "21".into();
    rs.generation = 2;
    rs.replicas = 1;
    fixture.deliver_replica_set(rs.clone());
    fixture.clock.advance(SETTLE_MAX);
    fixture.sync_ok("web");
    fixture.clock.advance(Duration::from_secs(1));
    fixture.deliver_pod_deleted(Pod {
        resource_version: "30".into(),
        ..ready_pod("b", &rs)
    });
    fixture.sync_ok("web");
    assert_eq!(fixture.writes.created(), [""; 0]);
}

/// A status with the observed generation does not end the wait of the choice.
#[test]
fn a_delete_waits_even_after_a_status_write() {
    let fixture = Fixture::with_status_interval(Duration::from_secs(1));
    let mut rs = replica_set("web", 1);
    fixture.cache_silently(Some(rs.clone()), []);
    fixture.deliver_bookmarks("9", "9");
    fixture.sync_ok("web");
    let names = fixture.writes.created();
    fixture.writes.take();
    rs = scaled(&rs, 2, "11");
    fixture.deliver_replica_set(rs.clone());
    fixture.clock.advance(SETTLE_MAX);
    let _ = fixture.sync("web").expect("no error");
    let statuses = fixture.writes.status_updates();
    assert_eq!(statuses.last().map(|it| it.observed_generation), Some(2));
    let now = fixture.clock.now();
    let remaining = |memory: &mut Memory| memory.positions.spec_delay(&rs, &"10".into(), now);
    let remaining = fixture.controller.memories.get(&rs, remaining);
    assert_eq!(remaining.flatten(), Some(SETTLE_MAX), "{names:?}");
}

/// What no longer counts as a replica cannot be lost.
#[test]
fn a_pod_that_was_terminating_already_is_no_loss() {
    let rs = replica_set("web", 1);
    let going = Pod {
        resource_version: "8".into(),
        deletion: Some(seconds_ago(0)),
        ..ready_pod("a", &rs)
    };
    let fixture = fixture(&rs, [going.clone()]);
    fixture.deliver_bookmarks("9", "9");
    fixture.deliver_pod(Pod {
        resource_version: "20".into(),
        is_ready: false,
        ..going
    });
    fixture.sync_ok("web");
    assert_eq!(fixture.writes.created().len(), 1);
}
