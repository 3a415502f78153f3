//! No-op syncs.

use std::time::Duration;

use serde_json::json;

use crate::api::Pod;
use crate::controller::testing::{Fixture, key, read_replica_set, ready_pod, replica_set_json};
use crate::stdx::clock::Clock;

/// A fixture with a converged ReplicaSet: all pods are Ready, and the status reports that.
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

/// Returns the allocations and bytes of one sync.
fn allocated(n_pods: usize, min_ready_seconds: i32) -> (u64, u64) {
    let fixture = settled(n_pods, min_ready_seconds);
    // The first sync allocates whatever later syncs keep.
    fixture.sync_ok("web");
    let spent = allocation_counter::measure(|| fixture.sync_ok("web"));
    fixture.assert_counts(0, 0, 0);
    assert!(fixture.writes.take().is_empty(), "nothing is written");
    (spent.count_total, spent.bytes_total)
}

#[test]
fn a_no_op_sync_needs_constant_memory() {
    for min_ready_seconds in [0, 5] {
        let few = allocated(10, min_ready_seconds);
        assert_eq!(allocated(1000, min_ready_seconds), few);
    }
}

#[test]
fn the_key_is_requeued_when_the_next_pod_is_available() {
    let fixture = settled(3, 100_000);
    fixture.sync_ok("web");
    let available: Vec<i32> = fixture
        .writes
        .status_updates()
        .iter()
        .map(|status| status.available_replicas)
        .collect();
    assert_eq!(available, [0], "Ready for a day is not long enough");
    let remaining = Duration::from_secs(100_000 - 86_400);
    let due = fixture.queue.next_deadline();
    assert_eq!(due.map(|due| due - fixture.clock.now()), Some(remaining));
}

/// Nine of ten ReplicaSets are old revisions.
#[test]
fn a_replica_set_at_zero_keeps_no_record() {
    for (n_pods, is_kept) in [(0, false), (1, true)] {
        let fixture = settled(n_pods, 0);
        let key = key("web");
        fixture.queue.add(key.clone());
        assert_eq!(fixture.queue.try_get().as_ref(), Some(&key));
        fixture.process(&key);
        let rs = fixture.cache.replica_sets.get(&key).expect("it is cached");
        let record = fixture.controller.memories.get(&rs, |_| ());
        assert_eq!(record.is_some(), is_kept, "{n_pods} pods");
    }
}
