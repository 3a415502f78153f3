//! Standby, and the first syncs of a new leader whose cache may be old.

use std::sync::Arc;
use std::time::Duration;

use crate::api::ReplicaSet;
use crate::controller::memory::Memory;
use crate::controller::memory::history::SyncEnd;
use crate::controller::testing::{Fixture, Write, fixture, owned_pod, pod, rejected, replica_set};

/// A new leader with caches at version 10, while the API server is at 20.
fn new_leader(rs: &ReplicaSet) -> Fixture {
    let fixture = fixture(rs, []);
    fixture.controller.stand_by();
    fixture.deliver_bookmarks("10", "10");
    fixture.writes.set_live_replica_set(Ok(rs.clone()));
    fixture.writes.set_live_versions("20", "20");
    fixture.controller.failover();
    fixture
}

#[test]
fn a_standby_enqueues_no_keys() {
    let rs = replica_set("a", 2);
    let fixture = Fixture::new();
    fixture.controller.stand_by();
    fixture.deliver_replica_set(rs.clone());
    fixture.deliver_pod(owned_pod("x", &rs));
    fixture.deliver_replica_set_deleted(rs.clone());
    assert!(fixture.queued_after(Duration::from_hours(1)).is_empty());
    fixture.controller.failover();
    fixture.deliver_replica_set(rs);
    assert_eq!(fixture.queued(), ["default/a"]);
}

#[test]
fn changes_seen_as_a_standby_are_not_measured() {
    let (fixture, mut rs) = (Fixture::new(), replica_set("a", 2));
    fixture.controller.stand_by();
    fixture.deliver_replica_set(rs.clone());
    rs.replicas = 1;
    rs.generation = 2;
    rs.resource_version = "2".into();
    fixture.deliver_replica_set(rs.clone());
    fixture.deliver_pod(owned_pod("x", &rs));
    fixture.clock.advance(Duration::from_hours(3));
    fixture.controller.failover();
    fixture.sync_ok("a");
    assert_eq!(fixture.metrics.converge.get_sample_count(), 0);
}

#[test]
fn unseen_creates_of_the_last_leader_are_not_repeated() {
    let rs = replica_set("a", 2);
    let fixture = new_leader(&rs);
    let pods = [owned_pod("x", &rs), owned_pod("y", &rs)];
    fixture.writes.set_live_pods(pods.to_vec());
    assert_eq!(fixture.sync("a").expect("a sync"), SyncEnd::TooEarly);
    assert_eq!(fixture.open(&rs), Some((2, 0)), "the pods are waited for");
    fixture.sync_ok("a");
    for pod in pods {
        fixture.deliver_pod(pod);
    }
    fixture.sync_ok("a");
    fixture.assert_counts(0, 0, 0);
}

#[test]
fn unseen_deletes_of_the_last_leader_are_not_repeated() {
    let rs = replica_set("a", 1);
    let fixture = new_leader(&rs);
    let pods = [owned_pod("x", &rs), owned_pod("y", &rs)];
    fixture.cache_silently(None, pods.clone());
    let [gone, remaining] = pods;
    fixture.writes.set_live_pods(vec![remaining]);
    assert_eq!(fixture.sync("a").expect("a sync"), SyncEnd::TooEarly);
    fixture.sync_ok("a");
    fixture.deliver_pod_deleted(gone);
    fixture.sync_ok("a");
    fixture.assert_counts(0, 0, 0);
}

#[test]
fn a_sync_waits_for_an_unseen_change_of_its_replica_set() {
    let rs = replica_set("a", 2);
    let fixture = new_leader(&rs);
    let mut changed = rs.clone();
    changed.generation = 2;
    fixture.writes.set_live_replica_set(Ok(changed));
    assert_eq!(fixture.sync("a").expect("a sync"), SyncEnd::TooEarly);
    assert_eq!(fixture.queued_after(Duration::from_secs(1)), ["default/a"]);
    fixture.assert_counts(0, 0, 0);
    // The caches have reached their targets and the ReplicaSet is unchanged, so the sync acts.
    fixture.deliver_bookmarks("20", "20");
    fixture.sync_ok("a");
    fixture.assert_counts(2, 0, 0);
}

#[test]
fn a_complete_cache_is_verified_once_and_then_acted_on() {
    let rs = replica_set("a", 2);
    let fixture = new_leader(&rs);
    assert_eq!(fixture.sync("a").expect("a sync"), SyncEnd::TooEarly);
    assert_eq!(fixture.queued(), ["default/a"], "it comes again at once");
    fixture.sync_ok("a");
    fixture.assert_counts(2, 0, 0);
}

#[test]
fn current_caches_need_no_further_query() {
    let rs = replica_set("a", 2);
    let fixture = new_leader(&rs);
    fixture.deliver_bookmarks("20", "20");
    assert_eq!(fixture.sync("a").expect("a sync"), SyncEnd::TooEarly);
    assert_eq!(fixture.writes.take(), [Write::GetVersions]);
    assert_eq!(fixture.queued(), ["default/a"], "it comes again at once");
    fixture.sync_ok("a");
    fixture.assert_counts(2, 0, 0);
    assert_eq!(fixture.writes.take().len(), 3, "two pods and a status");
    assert!(fixture.sync("b").is_ok());
}

/// New pods beside a spec from before the previous leader's time, or the reverse.
#[test]
fn both_caches_must_be_as_new_as_the_failover() {
    for (pods, replica_sets) in [("20", "19"), ("19", "20")] {
        let rs = replica_set("a", 2);
        let fixture = new_leader(&rs);
        fixture.deliver_bookmarks(pods, replica_sets);
        let mut changed = rs.clone();
        changed.generation = 2;
        fixture.writes.set_live_replica_set(Ok(changed));
        for _ in 0..3 {
            assert_eq!(fixture.sync("a").expect("a sync"), SyncEnd::TooEarly);
        }
        fixture.assert_counts(0, 0, 0);
    }
}

/// As with `--etcd-servers-overrides`.
#[test]
fn versions_of_two_histories_are_not_compared() {
    for (pods, replica_sets) in [("20", "5000"), ("5000", "20")] {
        let rs = replica_set("a", 2);
        let fixture = new_leader(&rs);
        fixture.writes.set_live_versions(pods, replica_sets);
        fixture.deliver_bookmarks(pods, "");
        assert_eq!(fixture.sync("a").expect("a sync"), SyncEnd::TooEarly);
        assert!(fixture.writes.take().contains(&Write::ListPods));
        fixture.deliver_bookmarks("", replica_sets);
        fixture.sync_ok("a");
        fixture.assert_counts(2, 0, 0);
    }
}

#[test]
fn a_failed_version_query_is_retried() {
    let rs = replica_set("a", 2);
    let fixture = fixture(&rs, []);
    fixture.controller.failover();
    fixture.writes.reject_live_versions();
    for _ in 0..3 {
        assert!(fixture.sync("a").is_err());
        assert_eq!(fixture.writes.take(), [Write::GetVersions]);
    }
    fixture.writes.set_live_versions("20", "20");
    fixture.deliver_bookmarks("20", "20");
    assert_eq!(fixture.sync("a").expect("a sync"), SyncEnd::TooEarly);
    fixture.sync_ok("a");
    fixture.assert_counts(2, 0, 0);
}

/// A new leader queries for the first ReplicaSets, and for none once its caches have advanced.
#[test]
fn a_failover_leaves_no_state() {
    let fixture = Fixture::new();
    fixture.controller.stand_by();
    fixture.deliver_bookmarks("10", "10");
    fixture.controller.failover();
    fixture.writes.set_live_versions("1000", "1000");
    let mut n_queries = 0;
    for n in 0..100 {
        let name = format!("rs-{n}");
        let rs = replica_set(&name, 1);
        fixture.deliver_replica_set(rs.clone());
        let version = (10 + 100 * n).to_string();
        fixture.deliver_bookmarks(&version, &version);
        fixture.writes.set_live_replica_set(Ok(rs.clone()));
        while fixture.sync(&name).expect("a sync") == SyncEnd::TooEarly {}
        let writes = fixture.writes.take();
        n_queries += usize::from(writes.contains(&Write::ListPods));
        let is_confirmed = |memory: &mut Memory| memory.positions.is_confirmed;
        let is_confirmed = || {
            let memories = &fixture.controller.memories;
            memories.get(&rs, is_confirmed)
        };
        assert_eq!(is_confirmed(), Some(n < 10), "{n}");
        fixture.deliver_replica_set_deleted(rs.clone());
        assert_eq!(is_confirmed(), None);
    }
    assert_eq!(n_queries, 10);
}

#[test]
fn the_proof_discards_what_the_api_server_confirmed() {
    let rs = replica_set("a", 2);
    let fixture = new_leader(&rs);
    while fixture.sync("a").expect("a sync") == SyncEnd::TooEarly {}
    let is_confirmed = |memory: &mut Memory| memory.positions.is_confirmed;
    let is_confirmed = || {
        let memories = &fixture.controller.memories;
        memories.get(&rs, is_confirmed)
    };
    assert_eq!(is_confirmed(), Some(true));
    fixture.deliver_bookmarks("20", "20");
    fixture.sync("a").expect("a sync");
    assert_ne!(is_confirmed(), Some(true));
}

/// The proof completes during a sync that has read the caches before it.
#[test]
fn a_sync_never_acts_on_reads_before_the_proof() {
    let rs = replica_set("a", 2);
    let fixture = Arc::new(new_leader(&rs));
    assert_eq!(fixture.sync("a").expect("a sync"), SyncEnd::TooEarly);
    let other = replica_set("b", 2);
    fixture.writes.set_live_replica_set(Ok(other.clone()));
    fixture.cache_silently(Some(other.clone()), [pod("orphan")]);
    let (unseen, within) = (owned_pod("x", &other), Arc::downgrade(&fixture));
    fixture.writes.on_list_pods(move |_, _| {
        let fixture = within.upgrade().expect("the fixture of this test");
        fixture.deliver_pod(unseen.clone());
        fixture.deliver_bookmarks("20", "20");
        None
    });
    assert_eq!(fixture.sync("b").expect("a sync"), SyncEnd::TooEarly);
    fixture.assert_counts(0, 0, 0);
}

/// Including those with only an outdated status.
#[test]
fn a_new_leader_enqueues_every_replica_set() {
    let rs = replica_set("a", 1);
    let fixture = new_leader(&rs);
    fixture.cache_silently(None, [owned_pod("x", &rs)]);
    fixture.cache_silently(Some(replica_set("b", 1)), []);
    assert!(fixture.queued().is_empty());
    fixture.controller.enqueue_all();
    assert_eq!(fixture.queued(), ["default/b", "default/a"]);
}

#[test]
fn a_sync_without_work_sends_no_query() {
    let rs = replica_set("a", 1);
    let fixture = new_leader(&rs);
    fixture.cache_silently(None, [owned_pod("x", &rs)]);
    fixture.sync_ok("a");
    assert_eq!(fixture.writes.take().len(), 1, "a status");
}

/// The orphan that makes the number right is gone already, so only the second decision acts.
#[test]
fn a_create_in_place_of_an_orphan_that_is_gone_needs_the_proof() {
    let rs = replica_set("a", 1);
    let fixture = new_leader(&rs);
    let orphan = crate::api::Pod {
        labels: owned_pod("x", &rs).labels,
        ..pod("x")
    };
    fixture.cache_silently(None, [orphan]);
    fixture
        .writes
        .on_patch(|_, _| Some(Err(rejected(404, "NotFound", "gone"))));
    assert_eq!(fixture.sync("a").expect("a sync"), SyncEnd::TooEarly);
    let writes = fixture.writes.take();
    assert!(writes.contains(&Write::GetVersions), "{writes:?}");
    assert!(fixture.writes.status_updates().is_empty());
    fixture.sync_ok("a");
    fixture.assert_counts(1, 0, 1);
}
