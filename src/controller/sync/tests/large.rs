//! Syncs with many pods to create, delete, adopt or release: which workers serve them, and what
//! never waits for them.

use serde_json::json;

use crate::api::pod::PodFailure;
use crate::api::{ObjectKey, Pod, PodPhase, ReplicaSet, ReplicaSetStatus};
use crate::controller::testing::{
    Fixture, key, owned_pod, read_replica_set, ready_pod, rejected, replica_set, replica_set_json,
    seconds_ago, with_status,
};

/// Works on all queued keys.
fn work(fixture: &Fixture) {
    while let Some(key) = fixture.queue.try_get() {
        fixture.process(&key);
    }
}

/// A fixture with one permit, which the other key has.
fn without_permit(rs: &ReplicaSet, pods: impl IntoIterator<Item = Pod>) -> (Fixture, ObjectKey) {
    let (fixture, held) = Fixture::with_held_permit();
    fixture.cache_silently(Some(rs.clone()), pods);
    (fixture, held)
}

fn pods(n: usize, make: impl Fn(&str) -> Pod) -> Vec<Pod> {
    (0..n).map(|n| make(&format!("p{n}"))).collect()
}

#[test]
fn a_sync_of_many_pods_waits_for_a_permit() {
    let (fixture, held) = Fixture::with_held_permit();
    for (name, replicas) in [("large", 2000), ("many", 32), ("few", 31), ("none", 0)] {
        let mut object = replica_set_json(name, replicas);
        object["spec"]["selector"]["matchLabels"] = json!({"app": name});
        object["spec"]["template"]["metadata"]["labels"] = json!({"app": name});
        fixture.deliver_replica_set(read_replica_set(&object));
    }
    work(&fixture);
    fixture.assert_counts(31, 0, 0);
    for name in ["large", "many"] {
        assert!(fixture.queue.state_of(&key(name)).is_waiting, "{name}");
    }
    fixture.queue.done(&held);
    work(&fixture);
    fixture.assert_counts(31 + 500 + 32, 0, 0);
    // With open expectations no pods are due, and a status waits for no large sync.
    fixture.controller.enqueue(&key("large"));
    assert_eq!(fixture.queue.try_get(), Some(key("large")));
    assert_eq!(fixture.queue.len(), 0);
}

#[test]
fn with_a_small_burst_no_sync_is_large() {
    let fixture = Fixture::with_burst(31);
    fixture.deliver_replica_set(replica_set("large", 2000));
    work(&fixture);
    let figures = fixture.controller.inspector().totals().expected;
    assert_eq!(figures, (31, 0));
}

/// The sync waits for a permit, and then does everything.
#[track_caller]
fn check_waits(rs: &ReplicaSet, pods: Vec<Pod>, counts: (usize, usize, usize)) {
    let (fixture, held) = without_permit(rs, pods);
    fixture.writes.set_live_replica_set(Ok(rs.clone()));
    fixture.queue.add(rs.key.clone());
    work(&fixture);
    fixture.assert_counts(0, 0, 0);
    assert_eq!(fixture.queue.num_requeues(&rs.key), 0);
    assert_eq!(fixture.queue.try_get(), None);
    fixture.queue.done(&held);
    work(&fixture);
    let (creates, deletes, patches) = counts;
    fixture.assert_counts(creates, deletes, patches);
}

#[test]
fn a_large_sync_waits_for_a_permit() {
    check_waits(&replica_set("web", 100), Vec::new(), (100, 0, 0));
    let none = replica_set("web", 0);
    let owned = pods(32, |name| owned_pod(name, &none));
    check_waits(&none, owned, (0, 32, 0));
}

#[test]
fn a_loss_is_written_without_a_permit() {
    let status = |replicas, generation| ReplicaSetStatus {
        replicas,
        fully_labeled_replicas: replicas,
        ready_replicas: replicas,
        available_replicas: replicas,
        terminating_replicas: Some(0),
        observed_generation: generation,
        ..ReplicaSetStatus::default()
    };
    let mut rs = with_status(&replica_set("web", 100), status(5, 1));
    rs.generation = 2;
    let (fixture, held) = without_permit(&rs, pods(5, |name| ready_pod(name, &rs)));
    fixture.deliver_pod_deleted(ready_pod("p0", &rs));
    work(&fixture);
    fixture.assert_counts(0, 0, 0);
    assert_eq!(fixture.writes.status_updates(), [status(4, 2)]);
    fixture.queue.done(&held);
    assert_eq!(fixture.queue.try_get(), Some(rs.key));
}

#[test]
fn after_a_failover_a_loss_waits_for_no_large_sync() {
    let mut rs = replica_set("web", 100);
    rs.status.replicas = 5;
    rs.status.observed_generation = 1;
    let (fixture, _) = without_permit(&rs, pods(5, |name| owned_pod(name, &rs)));
    fixture.controller.stand_by();
    fixture.deliver_bookmarks("10", "10");
    fixture.writes.set_live_replica_set(Ok(rs.clone()));
    let left = pods(5, |name| owned_pod(name, &rs)).split_off(1);
    fixture.writes.set_live_pods(left);
    fixture.writes.set_live_versions("20", "20");
    fixture.controller.failover();
    fixture.deliver_pod_deleted(owned_pod("p0", &rs));
    work(&fixture);
    fixture.assert_counts(0, 0, 0);
    let reported = fixture.writes.status_updates();
    assert_eq!(reported.first().map(|status| status.replicas), Some(4));
}

/// A failed status write costs a back-off, but not its position in the queue.
#[test]
fn a_status_that_cannot_be_written_keeps_no_large_sync_waiting() {
    let mut rs = with_status(
        &replica_set("web", 100),
        ReplicaSetStatus {
            replicas: 5,
            ..ReplicaSetStatus::default()
        },
    );
    rs.status.observed_generation = 1;
    let (fixture, held) = without_permit(&rs, [owned_pod("a", &rs)]);
    fixture
        .writes
        .on_update_status(|_, _| Some(Err(rejected(500, "InternalError", "no"))));
    fixture.queue.add(rs.key.clone());
    work(&fixture);
    let reported = fixture.writes.status_updates();
    assert_eq!(reported.first().map(|status| status.replicas), Some(1));
    fixture.queue.done(&held);
    work(&fixture);
    fixture.assert_counts(99, 0, 0);
}

/// The status of pods that wait for a back-off waits for no permit.
#[test]
fn status_is_written_without_a_permit() {
    let mut object = replica_set_json("web", 100);
    let annotations = json!({"replicaset-controller/failed-pod-backoff": "10s..5m"});
    object["metadata"]["annotations"] = annotations;
    let rs = read_replica_set(&object);
    let failed = pods(100, |name| Pod {
        phase: PodPhase::Failed,
        creation: Some(seconds_ago(9)),
        failure: Some(Box::new(PodFailure {
            reason: "Rejected".into(),
            at: Some(seconds_ago(5)),
        })),
        ..owned_pod(name, &rs)
    });
    let (fixture, _) = without_permit(&rs, failed);
    fixture.controller.enqueue(&rs.key);
    work(&fixture);
    fixture.assert_counts(0, 0, 0);
    let reported = fixture.writes.status_updates();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert_eq!(fixture.queue.try_get(), None);
}

#[test]
fn small_syncs_need_no_permit() {
    let rs = replica_set("web", 100);
    let (fixture, _) = without_permit(&rs, pods(69, |name| owned_pod(name, &rs)));
    fixture.queue.add(rs.key.clone());
    work(&fixture);
    fixture.assert_counts(31, 0, 0);
    assert_eq!(fixture.writes.status_updates().len(), 1);
}
