//! Events that go into the store.

use criterion::{BatchSize, Criterion};
use replicaset_controller::api::Pod;
use replicaset_controller::cache::event::CacheEvent;
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
    let mut turn = 0;
    let mut next_change = || {
        turn += 1;
        changed(&pods, turn)
    };
    // The store drops what it has already, and so would be measured doing nothing.
    let told = store.apply_modified(next_change());
    assert!(
        matches!(told, Some(CacheEvent::Updated { .. })),
        "the store takes the change for no change: {told:?}"
    );
    let mut group = criterion.benchmark_group("store, 10,000 pods");
    group.bench_function("apply a change", |bencher| {
        bencher.iter_batched(
            &mut next_change,
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

/// The change that comes as number `turn`: one pod after the other, and with each pass over all of
/// them the other readiness.
fn changed(pods: &[Pod], turn: usize) -> Pod {
    let mut pod = pods[turn % pods.len()].clone();
    let version = pods.len() + 2 + turn;
    pod.resource_version = version.to_string().as_str().into();
    pod.is_ready = (turn / pods.len()) % 2 == 1;
    pod
}
