//! Syncs with many pods to create, delete, adopt or release: which workers serve them, and what
//! never waits for them.

use serde_json::json;

use crate::api::pod::PodFailure;
use crate::api::{Pod, PodPhase, ReplicaSet, ReplicaSetStatus};
use crate::controller::testing::{
    Fixture, fixture, key, owned_pod, pod, read_replica_set, ready_pod, refused, replica_set,
    replica_set_json, seconds_ago, with_status,
};
use crate::workqueue::Lanes;

/// Returns the keys that a worker for small work takes, in order.
fn small_keys(fixture: &Fixture) -> Vec<String> {
    let mut keys = Vec::new();
    while let Some(key) = fixture.queue.try_get_from(Lanes::Small) {
        keys.push(key.name.to_string());
        fixture.queue.done(&key);
    }
    keys
}

fn pods(n: usize, make: impl Fn(&str) -> Pod) -> Vec<Pod> {
    (0..n).map(|n| make(&format!("p{n}"))).collect()
}

#[test]
fn a_key_with_many_pods_due_goes_to_large_workers() {
    let fixture = Fixture::new();
    fixture.deliver_replica_set(replica_set("giant", 2000));
    fixture.deliver_replica_set(replica_set("many", 32));
    fixture.deliver_replica_set(replica_set("few", 31));
    fixture.deliver_replica_set(replica_set("none", 0));
    assert_eq!(small_keys(&fixture), ["few", "none"]);
    assert_eq!(fixture.queue.len(), 2);
    // With open expectations no pods are due, and a status waits for no large sync.
    fixture.sync("giant").expect("no error");
    fixture.controller.enqueue(&key("giant"));
    assert_eq!(small_keys(&fixture), ["giant"]);
}

#[test]
fn with_a_small_burst_no_sync_is_large() {
    let fixture = Fixture::with_burst(31);
    fixture.deliver_replica_set(replica_set("giant", 2000));
    assert_eq!(small_keys(&fixture), ["giant"]);
}

/// A key enqueued as a small one is handed over to a worker for large work, which syncs it.
#[track_caller]
fn check_is_handed_over(rs: &ReplicaSet, pods: Vec<Pod>, counts: (usize, usize, usize)) {
    let fixture = fixture(rs, pods);
    fixture.writes.set_live_replica_set(Ok(rs.clone()));
    fixture.queue.add(rs.key.clone());
    assert!(fixture.controller.process_next_work_item(Lanes::Small));
    fixture.assert_counts(0, 0, 0);
    assert_eq!(fixture.writes.status_updates(), []);
    assert_eq!(fixture.queue.num_requeues(&rs.key), 0);
    assert_eq!(fixture.queue.try_get_from(Lanes::Small), None);
    assert!(fixture.controller.process_next_work_item(Lanes::All));
    let (creates, deletes, patches) = counts;
    fixture.assert_counts(creates, deletes, patches);
}

#[test]
fn a_worker_for_small_work_hands_large_work_over() {
    let rs = replica_set("web", 100);
    check_is_handed_over(&rs, Vec::new(), (100, 0, 0));
    let none = replica_set("web", 0);
    let owned = || pods(32, |name| owned_pod(name, &none));
    check_is_handed_over(&none, owned(), (0, 32, 0));
    check_is_handed_over(&rs, pods(99, pod), (1, 0, 99));
    let strangers = pods(40, |name| Pod {
        labels: [("type", "other")].into_iter().collect(),
        ..owned_pod(name, &none)
    });
    check_is_handed_over(&none, strangers, (0, 0, 40));
}

#[test]
fn a_loss_is_written_before_large_work_is_handed_over() {
    let status = |replicas| ReplicaSetStatus {
        replicas,
        fully_labeled_replicas: replicas,
        ready_replicas: replicas,
        available_replicas: replicas,
        terminating_replicas: Some(0),
        observed_generation: 1,
        ..ReplicaSetStatus::default()
    };
    let mut rs = with_status(&replica_set("web", 100), status(5));
    rs.generation = 2;
    let fixture = fixture(&rs, pods(5, |name| ready_pod(name, &rs)));
    fixture.deliver_pod_deleted(ready_pod("p0", &rs));
    assert!(fixture.controller.process_next_work_item(Lanes::Small));
    fixture.assert_counts(0, 0, 0);
    assert_eq!(fixture.writes.status_updates(), [status(4)]);
    assert_eq!(fixture.queue.try_get_from(Lanes::Small), None);
    assert_eq!(fixture.queue.try_get(), Some(rs.key));
}

#[test]
fn after_a_take_over_a_loss_waits_for_no_large_sync() {
    let mut rs = replica_set("web", 100);
    rs.status.replicas = 5;
    rs.status.observed_generation = 1;
    let fixture = fixture(&rs, pods(5, |name| owned_pod(name, &rs)));
    fixture.controller.stand_by();
    fixture.deliver_bookmarks("10", "10");
    fixture.writes.set_live_replica_set(Ok(rs.clone()));
    let left = pods(5, |name| owned_pod(name, &rs)).split_off(1);
    fixture.writes.set_live_pods(left);
    fixture.writes.set_live_versions("20", "20");
    fixture.controller.take_over();
    fixture.deliver_pod_deleted(owned_pod("p0", &rs));
    for _ in 0..2 {
        assert!(fixture.controller.process_next_work_item(Lanes::Small));
    }
    fixture.assert_counts(0, 0, 0);
    let reported = fixture.writes.status_updates();
    assert_eq!(reported.first().map(|status| status.replicas), Some(4));
}

/// The ReplicaSet also has pods to release, which its status does not wait for either.
#[test]
fn a_status_that_cannot_be_written_hands_large_work_over() {
    let mut rs = with_status(
        &replica_set("web", 100),
        ReplicaSetStatus {
            replicas: 5,
            ..ReplicaSetStatus::default()
        },
    );
    rs.status.observed_generation = 1;
    let stranger = Pod {
        labels: [("type", "other")].into_iter().collect(),
        ..owned_pod("stranger", &rs)
    };
    let fixture = fixture(&rs, [owned_pod("a", &rs), stranger]);
    fixture
        .writes
        .on_update_status(|_, _| Some(Err(refused(500, "InternalError", "no"))));
    fixture.queue.add(rs.key.clone());
    assert!(fixture.controller.process_next_work_item(Lanes::Small));
    let reported = fixture.writes.status_updates();
    assert_eq!(reported.first().map(|status| status.replicas), Some(1));
    assert_eq!(fixture.queue.num_requeues(&rs.key), 0);
    assert_eq!(fixture.queue.try_get_from(Lanes::Small), None);
    assert_eq!(fixture.queue.try_get(), Some(rs.key));
}

/// Pods that wait for a back-off are no work, so that the status waits for no large sync.
#[test]
fn pods_that_are_held_back_make_no_sync_large() {
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
    let fixture = fixture(&rs, failed);
    fixture.controller.enqueue(&rs.key);
    assert!(fixture.controller.process_next_work_item(Lanes::Small));
    fixture.assert_counts(0, 0, 0);
    let reported = fixture.writes.status_updates();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert_eq!(fixture.queue.try_get(), None);
}

#[test]
fn a_worker_for_small_work_finishes_small_syncs() {
    let rs = replica_set("web", 100);
    let fixture = fixture(&rs, pods(69, |name| owned_pod(name, &rs)));
    fixture.queue.add(rs.key.clone());
    assert!(fixture.controller.process_next_work_item(Lanes::Small));
    fixture.assert_counts(31, 0, 0);
    assert_eq!(fixture.writes.status_updates().len(), 1);
}
