//! Syncs that come for nothing.

use std::time::Duration;

use serde_json::json;

use crate::api::Pod;
use crate::controller::testing::{Fixture, read_replica_set, ready_pod, replica_set_json};
use crate::stdx::clock::Clock;

/// A fixture with a ReplicaSet that has as many Ready pods as it wants, and says so.
fn settled(n_pods: usize, min_ready_seconds: i32) -> Fixture {
    let mut object = replica_set_json("web", i32::try_from(n_pods).expect("few"));
    object["spec"]["minReadySeconds"] = json!(min_ready_seconds);
    object["status"] = json!({
        "replicas": n_pods, "fullyLabeledReplicas": n_pods, "readyReplicas": n_pods,
        "availableReplicas": n_pods, "terminatingReplicas": 0, "observedGeneration": 1,
    });
    let rs = read_replica_set(&object);
    let fixture = Fixture::new();
    let pods = (0..n_pods).map(|n| Pod {
        labels: rs.template_labels.clone(),
        ..ready_pod(&format!("web-{n}"), &rs)
    });
    let pods: Vec<Pod> = pods.collect();
    fixture.cache_silently(Some(rs), pods);
    fixture
}

/// Allocations and bytes of one sync.
fn allocated(n_pods: usize, min_ready_seconds: i32) -> (u64, u64) {
    let fixture = settled(n_pods, min_ready_seconds);
    // What is kept from one sync to the next is there after the first.
    fixture.sync_ok("web");
    let spent = allocation_counter::measure(|| fixture.sync_ok("web"));
    fixture.assert_counts(0, 0, 0);
    assert!(fixture.writes.take().is_empty(), "nothing is written");
    (spent.count_total, spent.bytes_total)
}

#[test]
fn it_takes_the_same_memory_however_many_pods_are_owned() {
    for min_ready_seconds in [0, 5] {
        let few = allocated(10, min_ready_seconds);
        assert_eq!(allocated(1000, min_ready_seconds), few);
    }
}

#[test]
fn it_comes_back_when_the_next_pod_becomes_available() {
    let fixture = settled(3, 100_000);
    fixture.sync_ok("web");
    let available: Vec<i32> = fixture
        .writes
        .status_updates()
        .iter()
        .map(|status| status.available_replicas)
        .collect();
    assert_eq!(available, [0], "Ready for a day is not long enough");
    let left = Duration::from_secs(100_000 - 86_400);
    let due = fixture.queue.next_deadline();
    assert_eq!(due.map(|due| due - fixture.clock.now()), Some(left));
}
