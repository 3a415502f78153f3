//! Events that go into the store.

use criterion::{BatchSize, Criterion};
use replicaset_controller::cache::pods::PodStore;

use crate::fixture::{pods_of, replica_set};

const PODS: usize = 10_000;

pub(crate) fn apply(criterion: &mut Criterion) {
    let rs = replica_set(PODS, 0);
    let pods = pods_of(&rs, PODS);
    let store = PodStore::new();
    for pod in &pods {
        store.apply_added(pod.clone());
    }
    let mut group = criterion.benchmark_group("store, 10,000 pods");
    let mut turn = pods.iter().cycle();
    group.bench_function("apply a change", |bencher| {
        bencher.iter_batched(
            || turn.next().cloned().unwrap_or_default(),
            |pod| store.apply_modified(pod),
            BatchSize::SmallInput,
        );
    });
    let mut turn = pods.iter().cycle();
    group.bench_function("delete and add", |bencher| {
        bencher.iter_batched(
            || turn.next().cloned().unwrap_or_default(),
            |pod| {
                let deleted = store.apply_deleted(pod.clone());
                (deleted, store.apply_added(pod))
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}
