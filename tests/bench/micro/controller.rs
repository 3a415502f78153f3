//! A sync and its parts.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use criterion::{BatchSize, BenchmarkId, Criterion};
use jiff::Timestamp;
use replicaset_controller::api::ObjectKey;
use replicaset_controller::controller::decide::deletion_order::{
    DeletionOrder, RankedPod, sort_for_deletion,
};
use replicaset_controller::controller::decide::protection::Marks;
use replicaset_controller::controller::memory::own_writes::OwnWrites;
use replicaset_controller::stdx::clock::SystemClock;
use replicaset_controller::workqueue::{Lanes, WorkQueue};

use crate::fixture::{cache, controller, pods_of, replica_set};

pub(crate) fn expectations(criterion: &mut Criterion) {
    let names: Vec<Arc<str>> = (0..500).map(|n| format!("web-{n}").into()).collect();
    let mut writes = OwnWrites::default();
    criterion.bench_function("expectations, 500 creations expected and observed", |b| {
        b.iter(|| {
            let now = Instant::now();
            writes.expect(names.iter().cloned(), [], now);
            for name in &names {
                writes.creation_seen(name);
            }
            writes.satisfaction(now)
        });
    });
}

pub(crate) fn queue(criterion: &mut Criterion) {
    let queue = WorkQueue::new(Arc::new(SystemClock));
    let keys: Vec<ObjectKey> = (0..1000)
        .map(|n| ObjectKey::new("default", format!("web-{n}")))
        .collect();
    criterion.bench_function("queue, 1,000 keys added twice, taken and done", |b| {
        b.iter(|| {
            for key in keys.iter().chain(&keys) {
                queue.add(key.clone());
            }
            while let Some(key) = queue.try_get() {
                queue.done(&key);
            }
        });
    });
}

pub(crate) fn sync_without_changes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sync without changes");
    for min_ready_seconds in [0, 5] {
        for count in [10, 1_000, 10_000] {
            let rs = replica_set(count, min_ready_seconds);
            let controller = controller(&cache(&rs, count));
            let id = BenchmarkId::new(format!("minReadySeconds {min_ready_seconds}"), count);
            group.bench_function(id, |bencher| {
                bencher.iter(|| {
                    controller
                        .sync_replica_set(black_box(&rs.key), Lanes::All)
                        .expect("a sync")
                });
            });
        }
    }
    group.finish();
}

pub(crate) fn deletion_order(criterion: &mut Criterion) {
    let rs = replica_set(10_000, 0);
    let pods: Vec<RankedPod> = pods_of(&rs, 10_000)
        .into_iter()
        .enumerate()
        .map(|(n, pod)| RankedPod {
            pod: Arc::new(pod),
            rank: n % 7,
        })
        .collect();
    let order = DeletionOrder {
        now: Timestamp::now(),
        uses_deletion_cost: true,
        marks: Marks::Ignored,
    };
    criterion.bench_function("deletion order of 10,000 pods", |bencher| {
        bencher.iter_batched(
            || pods.clone(),
            |pods| sort_for_deletion(pods, order),
            BatchSize::LargeInput,
        );
    });
}
