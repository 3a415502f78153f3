//! Deletes of Failed pods that are not kept.

use std::time::Duration;

use serde_json::json;

use super::PAUSE;
use crate::api::pod::PodFailure;
use crate::api::{Pod, PodPhase, ReplicaSet};
use crate::controller::decide::Pods;
use crate::controller::memory::RecordView;
use crate::controller::testing::{
    Fixture, Write, fixture, not_allowed, owned_pod, read_replica_set, ready_pod, rejected,
    replica_set_json, seconds_ago,
};
use crate::telemetry::metrics::controller::WriteOutcome;
use crate::writes::WriteError;

/// A ReplicaSet that keeps one Failed pod.
fn keeps_one(replicas: i32) -> ReplicaSet {
    let mut object = replica_set_json("web", replicas);
    object["metadata"]["annotations"] = json!({"replicaset-controller/failed-pods-kept": "1"});
    read_replica_set(&object)
}

/// A pod that failed so many seconds ago.
fn failed(i: i64, rs: &ReplicaSet, ago: i64) -> Pod {
    Pod {
        phase: PodPhase::Failed,
        creation: Some(seconds_ago(ago + 60)),
        failure: Some(Box::new(PodFailure {
            reason: "Evicted".into(),
            at: Some(seconds_ago(ago)),
        })),
        ..owned_pod(&format!("f{i:02}"), rs)
    }
}

/// A ReplicaSet with a Ready pod and this many old Failed pods, `f00` the oldest.
fn with_failed(n: i64) -> (Fixture, ReplicaSet) {
    let rs = keeps_one(1);
    let failed = (0..n).map(|i| failed(i, &rs, 9000 - i));
    let pods: Vec<Pod> = failed.chain([ready_pod("a", &rs)]).collect();
    (fixture(&rs, pods), rs)
}

/// Takes the names of the deleted old Failed pods; each delete must name the version.
fn discarded(fixture: &Fixture) -> Vec<String> {
    let name = |write: Write| match write {
        Write::DeleteQuietly(name, true) => Some(name),
        Write::UpdateStatus(_) => None,
        other => panic!("{other:?}"),
    };
    fixture.writes.take().into_iter().filter_map(name).collect()
}

#[test]
fn a_min_age_beyond_the_clock_fails_no_sync() {
    let mut object = replica_set_json("web", 1);
    object["metadata"]["annotations"] = json!({
        "replicaset-controller/failed-pods-kept": "0",
        "replicaset-controller/failed-pods-min-age": "2562047788015215h30m",
    });
    let rs = read_replica_set(&object);
    let fixture = fixture(&rs, [failed(1, &rs, 1), ready_pod("a", &rs)]);
    fixture.sync_ok("web");
    assert_eq!(discarded(&fixture), [""; 0]);
}

#[test]
fn failed_pods_that_are_kept_are_not_read() {
    for (n, expected) in [(0, false), (1, false), (2, true)] {
        let (fixture, rs) = with_failed(n);
        let selector = rs.selector.as_ref().expect("a valid selector");
        let view = fixture
            .controller
            .view(&rs, selector, RecordView::default());
        let is_listed = matches!(view.pods, Pods::Listed { .. });
        assert_eq!(is_listed, expected, "{n}");
    }
}

#[test]
fn a_failing_create_does_not_keep_them() {
    let rs = keeps_one(1);
    let pods: Vec<Pod> = (0..10).map(|i| failed(i, &rs, 9000 - i)).collect();
    let fixture = fixture(&rs, pods);
    fixture.writes.on_create(|_, _| Some(Err(not_allowed())));
    fixture.process(&rs.key);
    let deletes = |writes: Vec<Write>| {
        let is_delete = |write: &&Write| matches!(write, Write::DeleteQuietly(..));
        writes.iter().filter(is_delete).count()
    };
    assert_eq!(deletes(fixture.writes.take()), 8);
    // The others come with the retry, whose back-off a requeue would precede.
    assert_eq!(
        fixture.queued_after(Duration::from_millis(5)),
        ["default/web"]
    );
    assert_eq!(fixture.queue.next_deadline(), None);
}

#[test]
fn the_status_is_written_first() {
    let (fixture, _) = with_failed(3);
    fixture.sync_ok("web");
    let writes = fixture.writes.take();
    let [Write::UpdateStatus(_), rest @ ..] = writes.as_slice() else {
        panic!("{writes:?}");
    };
    assert_eq!(rest.len(), 2, "{rest:?}");
}

#[test]
fn they_do_not_shorten_the_back_off_of_a_failing_sync() {
    let rs = keeps_one(1);
    let pods: Vec<Pod> = (0..10).map(|i| failed(i, &rs, 9000 - i)).collect();
    let fixture = fixture(&rs, pods);
    let conflict = || rejected(409, "Conflict", "not now");
    fixture.writes.on_create(move |_, _| Some(Err(conflict())));
    for _ in 0..9 {
        fixture.process(&rs.key);
        fixture.queued_after(Duration::from_secs(10));
    }
    fixture.process(&rs.key);
    assert_eq!(fixture.queued_after(Duration::from_secs(1)), [""; 0]);
}

#[test]
fn the_oldest_are_deleted_first_a_few_per_sync() {
    let (fixture, rs) = with_failed(11);
    fixture.sync_ok("web");
    let first = discarded(&fixture);
    assert_eq!(
        first,
        ["f00", "f01", "f02", "f03", "f04", "f05", "f06", "f07"]
    );
    // The watch has not shown the deletions, and another event causes a sync.
    fixture.sync_ok("web");
    assert_eq!(
        discarded(&fixture),
        [""; 0],
        "the next ones wait for the watch"
    );
    for i in 0..8 {
        fixture.deliver_pod_deleted(failed(i, &rs, 9000 - i));
    }
    fixture.queued();
    assert_eq!(
        fixture.queued_after(Duration::from_millis(500)),
        ["default/web"]
    );
    fixture.sync_ok("web");
    assert_eq!(discarded(&fixture), ["f08", "f09"]);
    assert_eq!(fixture.queue.next_deadline(), None, "none is left");
    assert_eq!(
        fixture
            .metrics
            .old_failed_pods_deleted
            .get(WriteOutcome::Success),
        10
    );
    assert_eq!(fixture.open(&rs), None, "no sync waits for them");
    assert_eq!(fixture.writes.take_warnings(), [""; 0]);
}

#[test]
fn they_take_only_what_the_rate_limit_has_to_spare() {
    let (fixture, _) = with_failed(11);
    fixture.writes.set_spare_requests(0);
    fixture.sync_ok("web");
    assert_eq!(discarded(&fixture), [""; 0]);
    fixture.queued();
    fixture.writes.set_spare_requests(2);
    assert_eq!(
        fixture.queued_after(Duration::from_millis(500)),
        ["default/web"]
    );
    fixture.sync_ok("web");
    assert_eq!(discarded(&fixture), ["f00", "f01"]);
}

#[test]
fn needed_pods_come_first() {
    let rs = keeps_one(1);
    let fixture = fixture(&rs, [failed(0, &rs, 9000), failed(1, &rs, 8000)]);
    fixture.sync_ok("web");
    fixture.assert_counts(1, 0, 0);
    assert!(
        fixture
            .writes
            .take()
            .iter()
            .all(|it| !matches!(it, Write::DeleteQuietly(..)))
    );
    fixture.deliver_pod(owned_pod("a", &rs));
    fixture.queued();
    fixture.queued_after(Duration::from_millis(500));
}

/// What is gone leaves the cache soon, but something may reject each delete as a conflict, for
/// ever.
#[test]
fn a_pod_that_has_changed_since_is_left_alone() {
    for (code, reason, is_tried_soon) in [(404, "NotFound", true), (409, "Conflict", false)] {
        let (fixture, _) = with_failed(10);
        fixture
            .writes
            .on_delete(move |_, _| Some(Err(rejected(code, reason, "changed"))));
        fixture.sync_ok("web");
        assert_eq!(discarded(&fixture).len(), 8);
        assert_eq!(
            fixture
                .metrics
                .old_failed_pods_deleted
                .get(WriteOutcome::NotNeeded),
            8
        );
        fixture.queued();
        let soon = fixture.queued_after(Duration::from_millis(500));
        assert_eq!(!soon.is_empty(), is_tried_soon, "{code}");
        if !is_tried_soon {
            let in_a_minute = fixture.queued_after(Duration::from_mins(1));
            assert_eq!(in_a_minute, ["default/web"]);
        }
    }
}

#[test]
fn a_rejected_delete_fails_no_sync_and_is_retried() {
    let (fixture, _) = with_failed(5);
    fixture.writes.on_delete(|_, _| Some(Err(not_allowed())));
    fixture.sync_ok("web");
    assert_eq!(
        discarded(&fixture),
        ["f00"],
        "the others would be rejected too"
    );
    assert_eq!(
        fixture
            .metrics
            .old_failed_pods_deleted
            .get(WriteOutcome::Rejected),
        1
    );
    fixture.queued();
    assert_eq!(fixture.queued_after(Duration::from_secs(59)), [""; 0]);
    assert_eq!(
        fixture.queued_after(Duration::from_secs(1)),
        ["default/web"]
    );
    fixture
        .writes
        .on_delete(|_, _| Some(Err(WriteError::Stopped)));
    fixture.sync_ok("web");
    assert_eq!(discarded(&fixture), ["f00"]);
    assert_eq!(fixture.queued_after(PAUSE), ["default/web"]);
}

#[test]
fn a_young_one_is_deleted_when_it_is_old_enough() {
    let rs = keeps_one(1);
    let pods = [failed(0, &rs, 290), failed(1, &rs, 10), ready_pod("a", &rs)];
    let fixture = fixture(&rs, pods);
    fixture.sync_ok("web");
    assert_eq!(discarded(&fixture), [""; 0]);
    fixture.queued();
    assert_eq!(fixture.queued_after(Duration::from_secs(9)), [""; 0]);
    assert_eq!(
        fixture.queued_after(Duration::from_secs(1)),
        ["default/web"]
    );
    fixture.sync_ok("web");
    assert_eq!(discarded(&fixture), ["f00"]);
}

#[test]
fn a_terminating_replica_set_deletes_none() {
    let mut rs = keeps_one(1);
    rs.deletion = Some(seconds_ago(1));
    let fixture = fixture(&rs, [failed(0, &rs, 9000), failed(1, &rs, 8000)]);
    fixture.sync_ok("web");
    assert_eq!(discarded(&fixture), [""; 0]);
}
