//! A sync and its parts.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use criterion::{BatchSize, BenchmarkId, Criterion};
use jiff::Timestamp;
use replicaset_controller::api::policy::ScaleDownOrder;
use replicaset_controller::api::{ControllerRef, ObjectKey, Pod};
use replicaset_controller::cache::Cache;
use replicaset_controller::controller::decide::deletion_order::{
    DeletionContext, DeletionOrder, NodeCounts, RankedPod, RelatedPods, count_on_node,
    pods_to_delete, sort_for_deletion,
};
use replicaset_controller::controller::decide::optional::Marks;
use replicaset_controller::controller::memory::own_writes::OwnWrites;
use replicaset_controller::stdx::clock::SystemClock;
use replicaset_controller::workqueue::WorkQueue;

use crate::fixture::{cache, controller, controller_with, pods_of, replica_set};

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
            writes.may(now)
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
                bencher.iter(|| controller.process(black_box(&rs.key)));
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

/// All pods of a cluster with this cache.
#[derive(Debug)]
struct Cluster(Cache);

impl RelatedPods for Cluster {
    fn related_pods(&self) -> Vec<Arc<Pod>> {
        Vec::new()
    }

    fn active_pods_per_node(&self) -> NodeCounts {
        let mut counts = NodeCounts::default();
        self.0
            .pods
            .visit_all(&mut |pod| count_on_node(pod, &mut counts));
        counts
    }
}

/// A scale-down of 10,000 pods in a cluster with 50,000.
pub(crate) fn scale_down_order(criterion: &mut Criterion) {
    let rs = replica_set(10_000, 0);
    let cache = cache(&rs, 10_000);
    let owner = Arc::new(ControllerRef {
        kind: "ReplicaSet".into(),
        name: "other".into(),
        uid: "5f2b3c4d-0000-4000-8000-000000000002".into(),
    });
    for (n, pod) in pods_of(&rs, 40_000).into_iter().enumerate() {
        cache.pods.apply(Pod {
            key: ObjectKey::new("default", format!("other-{n}")),
            controller: Some(Arc::clone(&owner)),
            node: Some(format!("node-{}", n % 5_000).into()),
            ..pod
        });
    }
    let pods: Vec<Arc<Pod>> = pods_of(&rs, 10_000).into_iter().map(Arc::new).collect();
    let cluster = Cluster(cache);
    let mut group = criterion.benchmark_group("scale-down order, 500 of 10,000 pods");
    for order in ["off", "spread", "consolidate", "spread,consolidate"] {
        let context = DeletionContext {
            related_pods: &cluster,
            unresolved: &[],
            order: DeletionOrder {
                now: Timestamp::now(),
                uses_deletion_cost: true,
                marks: Marks::Ignored,
            },
            preferences: order.parse::<ScaleDownOrder>().expect("an order"),
            rs: &rs,
        };
        group.bench_function(order, |bencher| {
            bencher.iter(|| pods_to_delete(black_box(&pods), 500, &context));
        });
    }
    group.bench_function("pods per node of 50,000", |bencher| {
        bencher.iter(|| cluster.active_pods_per_node());
    });
    group.finish();
}

/// New deletion costs of one pod after the other, each event followed by what it enqueued.
pub(crate) fn deletion_costs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a new deletion cost, 10,000 pods");
    for min_ready_seconds in [0, 5] {
        let rs = replica_set(10_000, min_ready_seconds);
        let (cache, pods) = (cache(&rs, 10_000), pods_of(&rs, 10_000));
        let queue = Arc::new(WorkQueue::new(Arc::new(SystemClock)));
        let controller = controller_with(&cache, Arc::clone(&queue));
        let mut n = 0;
        let mut next = || {
            n += 1;
            Pod {
                deletion_cost: i32::try_from(n).unwrap_or(0),
                resource_version: (20_000 + n).to_string().as_str().into(),
                ..pods[n % pods.len()].clone()
            }
        };
        let id = BenchmarkId::new("minReadySeconds", min_ready_seconds);
        group.bench_function(id, |bencher| {
            bencher.iter_batched(
                &mut next,
                |pod| {
                    let event = cache.pods.apply(pod).expect("a change");
                    controller.handle_pod_event(&event);
                    controller.handle_cache_advanced();
                    while let Some(key) = queue.try_get() {
                        controller.process(&key);
                    }
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}
