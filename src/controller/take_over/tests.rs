//! Standing by, and the first syncs of a new leader whose cache may be old.

use std::time::Duration;

use crate::api::ReplicaSet;
use crate::controller::sync::Outcome;
use crate::controller::testing::{Fixture, fixture, key, owned_pod, replica_set};

/// A new leader whose caches stand at version 10, while the API server was at 20.
fn new_leader(rs: &ReplicaSet) -> Fixture {
    let fixture = fixture(rs, []);
    fixture.controller.stand_by();
    fixture.deliver_bookmarks("10", "10");
    fixture.writes.set_live_replica_set(Ok(rs.clone()));
    fixture.controller.take_over("20".into());
    fixture
}

#[test]
fn a_standby_collects_no_keys() {
    let rs = replica_set("a", 2);
    let fixture = Fixture::new();
    fixture.controller.stand_by();
    fixture.deliver_replica_set(rs.clone());
    fixture.deliver_pod(owned_pod("x", &rs));
    fixture.deliver_replica_set_deleted(rs.clone());
    assert!(fixture.queued_after(Duration::from_hours(1)).is_empty());
    fixture.controller.take_over("1".into());
    fixture.deliver_replica_set(rs);
    assert_eq!(fixture.queued(), ["default/a"]);
}

#[test]
fn what_changed_while_it_stood_by_is_not_measured() {
    let (fixture, mut rs) = (Fixture::new(), replica_set("a", 2));
    fixture.controller.stand_by();
    fixture.deliver_replica_set(rs.clone());
    rs.replicas = 1;
    rs.generation = 2;
    rs.resource_version = "2".into();
    fixture.deliver_replica_set(rs.clone());
    fixture.deliver_pod(owned_pod("x", &rs));
    fixture.clock.advance(Duration::from_hours(3));
    fixture.controller.take_over("1".into());
    fixture.sync_ok("a");
    assert_eq!(fixture.metrics.converge.get_sample_count(), 0);
}

#[test]
fn what_the_last_leader_made_unseen_is_not_made_again() {
    let rs = replica_set("a", 2);
    let fixture = new_leader(&rs);
    let pods = [owned_pod("x", &rs), owned_pod("y", &rs)];
    fixture.writes.set_live_pods(pods.to_vec());
    assert_eq!(fixture.sync("a").expect("a sync"), Outcome::TooEarly);
    assert_eq!(fixture.open(&rs), Some((2, 0)), "the pods are waited for");
    fixture.sync_ok("a");
    for pod in pods {
        fixture.deliver_pod(pod);
    }
    fixture.sync_ok("a");
    fixture.assert_counts(0, 0, 0);
}

#[test]
fn what_the_last_leader_deleted_unseen_is_not_deleted_again() {
    let rs = replica_set("a", 1);
    let fixture = new_leader(&rs);
    let pods = [owned_pod("x", &rs), owned_pod("y", &rs)];
    fixture.cache_silently(None, pods.clone());
    let [gone, left] = pods;
    fixture.writes.set_live_pods(vec![left]);
    assert_eq!(fixture.sync("a").expect("a sync"), Outcome::TooEarly);
    fixture.sync_ok("a");
    fixture.deliver_pod_deleted(gone);
    fixture.sync_ok("a");
    fixture.assert_counts(0, 0, 0);
}

#[test]
fn a_replica_set_that_has_changed_unseen_is_waited_for() {
    let rs = replica_set("a", 2);
    let fixture = new_leader(&rs);
    let mut changed = rs.clone();
    changed.generation = 2;
    fixture.writes.set_live_replica_set(Ok(changed));
    assert_eq!(fixture.sync("a").expect("a sync"), Outcome::TooEarly);
    assert_eq!(fixture.queued_after(Duration::from_secs(1)), ["default/a"]);
    fixture.assert_counts(0, 0, 0);
    // The caches have come so far by now, and it is as it was read: so it is acted on.
    fixture.deliver_bookmarks("20", "20");
    fixture.sync_ok("a");
    fixture.assert_counts(2, 0, 0);
}

#[test]
fn a_cache_that_shows_all_is_asked_about_once_and_then_acted_on() {
    let rs = replica_set("a", 2);
    let fixture = new_leader(&rs);
    assert_eq!(fixture.sync("a").expect("a sync"), Outcome::TooEarly);
    assert_eq!(fixture.queued(), ["default/a"], "it comes again at once");
    fixture.sync_ok("a");
    fixture.assert_counts(2, 0, 0);
}

#[test]
fn caches_as_new_as_the_take_over_are_asked_nothing() {
    let rs = replica_set("a", 2);
    let fixture = new_leader(&rs);
    fixture.deliver_bookmarks("20", "21");
    fixture.sync_ok("a");
    fixture.assert_counts(2, 0, 0);
    assert_eq!(fixture.writes.take().len(), 3, "two pods and a status");
    assert!(fixture.controller.sync_replica_set(&key("b")).is_ok());
}

#[test]
fn nothing_is_asked_for_where_nothing_is_to_be_done() {
    let rs = replica_set("a", 1);
    let fixture = new_leader(&rs);
    fixture.cache_silently(None, [owned_pod("x", &rs)]);
    fixture.sync_ok("a");
    assert_eq!(fixture.writes.take().len(), 1, "a status");
}
