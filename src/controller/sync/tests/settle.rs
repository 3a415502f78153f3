//! What a scale-down and a replacement wait for, and for how long.

use std::time::Duration;

use crate::api::{Pod, ReplicaSet};
use crate::controller::memory::Memory;
use crate::controller::memory::positions::SETTLE_MAX;
use crate::controller::sync::Outcome;
use crate::controller::testing::{
    Fixture, deletes, fixture, key, owned_pod, pod, ready_pod, refused, replica_set, seconds_ago,
};
use crate::stdx::clock::Clock;

const MS: Duration = Duration::from_millis(1);

/// `rs` as its spec asks for so many pods since this version.
fn scaled(rs: &ReplicaSet, replicas: i32, version: &str) -> ReplicaSet {
    let mut rs = rs.clone();
    rs.replicas = replicas;
    rs.generation += 1;
    rs.resource_version = version.into();
    rs
}

/// Two pods, of which `b` would go first; at version 11 one is to go, and at 10 the client has said on
/// `a` that it is the one.
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
    assert_eq!(fixture.sync("web").expect("no error"), Outcome::TooEarly);
    assert_eq!(fixture.writes.take(), []);
}

#[test]
fn a_cost_that_was_written_before_it_decides() {
    let (fixture, rs) = one_of_two();
    waits(&fixture);
    fixture.deliver_pod(cheap(&rs));
    // Other costs may be still to come.
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
fn quiet_pods_are_waited_for_25_ms_and_no_failure_is_counted() {
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

/// The status that says that the spec was observed may be written before the choice.
#[test]
fn it_waits_also_if_the_first_sync_had_to_wait_for_something_else() {
    let (fixture, rs) = one_of_two();
    fixture.controller.expect(&rs, ["c".into()], []);
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
fn what_makes_no_choice_does_not_wait() {
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
fn a_pod_too_many_under_an_old_spec_goes_at_once() {
    let mut rs = replica_set("web", 1);
    rs.status.observed_generation = 1;
    rs.resource_version = "20".into();
    let fixture = fixture(&rs, [ready_pod("a", &rs), owned_pod("b", &rs)]);
    fixture.sync_ok("web");
    assert_eq!(deletes(&fixture), ["b"]);
}

#[test]
fn a_version_that_is_no_number_is_not_waited_for() {
    let mut rs = replica_set("web", 1);
    rs.resource_version = "x20".into();
    let fixture = fixture(&rs, [ready_pod("a", &rs), owned_pod("b", &rs)]);
    fixture.sync_ok("web");
    assert_eq!(deletes(&fixture), ["b"]);
}

#[test]
fn a_standby_notes_no_losses() {
    let rs = replica_set("web", 1);
    let fixture = fixture(&rs, [ready_pod("a", &rs)]);
    fixture.controller.stand_by();
    fixture.deliver_pod_deleted(ready_pod("a", &rs));
    let now = fixture.clock.now();
    let waits = |memory: &mut Memory| memory.positions.left_to_replace(&"1".into(), now);
    let waits = fixture.controller.memories.get(&rs.key, &rs.uid, waits);
    assert_eq!(waits.flatten(), None);
}

/// Two pods of which one goes at version 20, while the ReplicaSets are known as of version 9.
fn one_has_gone() -> (Fixture, ReplicaSet) {
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
fn a_pod_that_went_with_its_owner_is_not_created_again() {
    let (fixture, mut rs) = one_has_gone();
    fixture.sync_ok("web");
    assert_eq!(fixture.writes.created(), [""; 0]);
    // The status tells of the loss all the same.
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
fn a_pod_that_went_is_replaced_once_the_replica_sets_are_as_new() {
    let (fixture, _) = one_has_gone();
    fixture.sync_ok("web");
    assert_eq!(fixture.writes.created(), [""; 0]);
    fixture.deliver_bookmarks("", "20");
    fixture.sync_ok("web");
    assert_eq!(fixture.writes.created().len(), 1);
}

#[test]
fn a_pod_that_went_is_replaced_after_25_ms() {
    let (fixture, _) = one_has_gone();
    fixture.sync_ok("web");
    assert_eq!(fixture.queued_after(SETTLE_MAX.saturating_sub(MS)), [""; 0]);
    assert_eq!(fixture.queued_after(MS), ["default/web"]);
    fixture.sync_ok("web");
    assert_eq!(fixture.writes.created().len(), 1);
}

#[test]
fn pods_that_go_one_after_the_other_are_waited_for_once() {
    let (fixture, rs) = one_has_gone();
    fixture.sync_ok("web");
    fixture.clock.advance(SETTLE_MAX);
    // The worker comes to it when the next one has gone.
    fixture.deliver_pod_deleted(Pod {
        resource_version: "30".into(),
        ..ready_pod("b", &rs)
    });
    fixture.sync_ok("web");
    assert_eq!(fixture.writes.created().len(), 2);
}

/// The patches of a sync take time.
#[test]
fn a_replica_set_that_goes_during_the_adoptions_gets_no_pods() {
    let rs = replica_set("web", 2);
    let fixture = fixture(&rs, [pod("orphan")]);
    fixture.writes.set_live_replica_set(Ok(rs.clone()));
    let cache = fixture.cache.clone();
    let mut going = rs.clone();
    going.resource_version = "9".into();
    going.deletion = Some(seconds_ago(0));
    fixture.writes.on_patch(move |_, _| {
        cache.replica_sets.apply_modified(going.clone());
        None
    });
    fixture.sync_ok("web");
    fixture.assert_counts(0, 0, 1);
    assert_eq!(fixture.queued_after(Duration::ZERO), ["default/web"]);
}

/// One of four was to be deleted; then two of them turn out to have gone.
#[test]
fn what_is_due_after_adoptions_that_failed_is_done_by_the_next_sync() {
    let rs = replica_set("web", 3);
    let pods = [owned_pod("a", &rs), owned_pod("b", &rs), pod("c"), pod("d")];
    let fixture = fixture(&rs, pods);
    fixture.writes.set_live_replica_set(Ok(rs.clone()));
    let gone = || refused(404, "NotFound", "gone");
    fixture.writes.on_patch(move |_, _| Some(Err(gone())));
    fixture.sync_ok("web");
    fixture.assert_counts(0, 0, 2);
    assert_eq!(fixture.queued(), ["default/web"]);
}

/// A status that says that the spec was observed does not end the wait of the choice.
#[test]
fn the_choice_waits_though_a_status_was_written_while_the_pods_were_late() {
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
    let left = |memory: &mut Memory| memory.positions.left_to_choose(&"10".into(), now);
    let left = fixture.controller.memories.get(&rs.key, &rs.uid, left);
    assert_eq!(left.flatten(), Some(SETTLE_MAX), "{names:?}");
}
