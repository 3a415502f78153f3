//! Applying events to the store.

use criterion::{BatchSize, Criterion};
use replicaset_controller::api::Pod;
use replicaset_controller::cache::pods::PodStore;
use replicaset_controller::cache::store::CacheEvent;

use crate::fixture::{pods_of, replica_set};

const PODS: usize = 10_000;

pub(crate) fn apply(criterion: &mut Criterion) {
    let rs = replica_set(PODS, 0);
    let pods = pods_of(&rs, PODS);
    let store = PodStore::new();
    for pod in &pods {
        store.apply(pod.clone());
    }
    let mut n_changes = 0;
    let mut next_change = || {
        n_changes += 1;
        changed(&pods, n_changes)
    };
    // The store ignores an object that it has already. That would make the benchmark meaningless.
    let event = store.apply(next_change());
    assert!(
        matches!(event, Some(CacheEvent::Updated { .. })),
        "the store ignores the change: {event:?}"
    );
    let mut group = criterion.benchmark_group("store, 10,000 pods");
    group.bench_function("apply a change", |bencher| {
        bencher.iter_batched(
            &mut next_change,
            |pod| store.apply(pod),
            BatchSize::SmallInput,
        );
    });
    let mut next_pod = pods.iter().cycle();
    group.bench_function("delete and add", |bencher| {
        bencher.iter_batched(
            || next_pod.next().cloned().unwrap_or_default(),
            |pod| {
                let deleted = store.apply_deleted(pod.clone());
                (deleted, store.apply(pod))
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

/// The change number `n`. Changes cycle through the pods, and each cycle flips their readiness.
fn changed(pods: &[Pod], n: usize) -> Pod {
    let mut pod = pods[n % pods.len()].clone();
    let version = pods.len() + 2 + n;
    pod.resource_version = version.to_string().as_str().into();
    pod.is_ready = (n / pods.len()) % 2 == 1;
    pod
}
