//! The controller's metrics: E-26, H-22, and this project's own.

use std::time::Duration;

use super::at;
use crate::controller::memory::history::SyncEnd;
use crate::controller::memory::positions::Resource;
use crate::controller::testing::{
    Fixture, fixture, lost, not_allowed, owned_pod, pod, ready_pod, rejected, replica_set,
    seconds_ago,
};
use crate::telemetry::metrics::controller::WriteOutcome;

#[test]
fn h_22_skipped_syncs_are_counted_by_lagging_cache() {
    let (fixture, rs) = (Fixture::new(), replica_set("web", 0));
    fixture.deliver_replica_set(rs.clone());
    fixture.deliver_bookmarks("10", "10");
    let skips = || {
        let (pods, owners) = (
            &fixture.metrics.stale_pods_skips,
            &fixture.metrics.stale_owners_skips,
        );
        (pods.get(), owners.get())
    };
    let wrote = |resource, version: &str| {
        fixture.wrote_at(&rs, resource, version);
    };
    let skip = || {
        assert_eq!(fixture.sync("web").expect("no error"), SyncEnd::TooEarly);
    };
    wrote(Resource::Pods, "11");
    skip();
    skip();
    assert_eq!(skips(), (2, 0));
    fixture.deliver_bookmarks("11", "");
    wrote(Resource::ReplicaSets, "12");
    skip();
    assert_eq!(skips(), (2, 1));
    fixture.deliver_bookmarks("12", "12");
    fixture.sync_ok("web");
    assert_eq!(skips(), (2, 1));
}

#[test]
fn e_26_a_partial_delete_measures_each_ready_pod_deleted() {
    let rs = replica_set("web", 1);
    let aged = |name: &str, seconds| {
        let mut pod = ready_pod(name, &rs);
        pod.creation = Some(seconds_ago(seconds));
        pod
    };
    let fixture = fixture(&rs, [aged("a", 100), aged("b", 100), aged("c", 100)]);
    fixture.sync_ok("web");
    fixture.assert_counts(0, 2, 0);
    let ratio = &fixture.metrics.sorting_deletion_age_ratio;
    assert_eq!((ratio.get_sample_count(), ratio.get_sample_sum()), (2, 2.0));
}

#[test]
fn e_26_a_delete_of_all_pods_sorts_none_and_measures_none() {
    let rs = replica_set("web", 0);
    let mut ready = ready_pod("a", &rs);
    ready.creation = Some(seconds_ago(0));
    let fixture = fixture(&rs, [ready]);
    fixture.sync_ok("web");
    fixture.assert_counts(0, 1, 0);
    let ratio = &fixture.metrics.sorting_deletion_age_ratio;
    assert_eq!(ratio.get_sample_count(), 0);
}

#[test]
fn pod_requests_are_counted_by_outcome() {
    let rs = replica_set("web", 4);
    let fixture = fixture(&rs, []);
    fixture.writes.on_create(|call, _| match call {
        0 => None,
        1 => Some(Err(lost())),
        _ => Some(Err(not_allowed())),
    });
    fixture.sync("web").expect_err("some are rejected");
    let created = &fixture.metrics.pods_created;
    assert_eq!(
        (
            created.get(WriteOutcome::Success),
            created.get(WriteOutcome::Unknown)
        ),
        (1, 1)
    );
    assert!(created.get(WriteOutcome::Rejected) >= 1);

    let rs = replica_set("web", 0);
    let fixture = self::fixture(&rs, [owned_pod("a", &rs), owned_pod("b", &rs)]);
    fixture
        .writes
        .on_delete(|call, _| (call == 0).then(|| Err(rejected(404, "NotFound", "gone"))));
    fixture.sync_ok("web");
    let deleted = &fixture.metrics.pods_deleted;
    assert_eq!(
        (
            deleted.get(WriteOutcome::NotNeeded),
            deleted.get(WriteOutcome::Success)
        ),
        (1, 1)
    );

    let rs = replica_set("web", 1);
    let fixture = self::fixture(&rs, [pod("orphan")]);
    fixture.writes.set_live_replica_set(Ok(rs.clone()));
    fixture.sync_ok("web");
    assert_eq!(fixture.metrics.pods_adopted.get(WriteOutcome::Success), 1);
}

#[test]
fn a_change_is_timed_to_first_request_and_convergence() {
    let (fixture, rs) = (Fixture::new(), replica_set("web", 1));
    let (first, converge) = (&fixture.metrics.first_request, &fixture.metrics.converge);
    fixture.deliver_replica_set(rs.clone());
    fixture.clock.advance(Duration::from_secs(2));
    fixture.sync_ok("web");
    assert_eq!((first.get_sample_count(), first.get_sample_sum()), (1, 2.0));
    assert_eq!(converge.get_sample_count(), 0, "the pod was not seen yet");

    let created = fixture.writes.created();
    fixture.deliver_pod(owned_pod(&created[0], &rs));
    fixture.clock.advance(Duration::from_secs(3));
    fixture.sync_ok("web");
    fixture.sync_ok("web");
    assert_eq!(
        (converge.get_sample_count(), converge.get_sample_sum()),
        (1, 5.0)
    );

    // A ReplicaSet that is unchanged at the start counts no change.
    let mut found = at("2", replica_set("old", 0));
    found.status.observed_generation = found.generation;
    fixture.deliver_replica_set(found);
    fixture.sync_ok("old");
    assert_eq!(converge.get_sample_count(), 1);
    assert_eq!(first.get_sample_count(), 1);
}
