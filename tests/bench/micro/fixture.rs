//! Objects, and a controller whose writes and live reads fail.

use std::sync::Arc;

use jiff::Timestamp;
use replicaset_controller::api::ReplicaSetStatus;
use replicaset_controller::api::interner::Interner;
use replicaset_controller::api::workload_kind::REPLICA_SET;
use replicaset_controller::api::{
    CompactTimestamp, ControllerRef, ObjectKey, Pod, PodPhase, ReplicaSet, ResourceVersion,
    Selector,
};
use replicaset_controller::batches::FairPool;
use replicaset_controller::cache::Cache;
use replicaset_controller::controller::{Options, Parts, ReplicaSetController};
use replicaset_controller::live::{LiveReader, Manager};
use replicaset_controller::stdx::clock::SystemClock;
use replicaset_controller::telemetry::metrics::Metrics;
use replicaset_controller::workqueue::WorkQueue;
use replicaset_controller::writes::{
    PodControl, Precondition, ReplicaSetControl, WriteError, WrittenPod,
};
use serde_json::json;

/// Fails all writes and live reads. The benchmarks need none.
#[derive(Debug)]
struct CacheOnly;

fn unexpected<T>() -> Result<T, WriteError> {
    Err(WriteError::Local("unexpected request".to_owned()))
}

impl PodControl for CacheOnly {
    fn create_pod(&self, _: &ReplicaSet, _: &str) -> Result<WrittenPod, WriteError> {
        unexpected()
    }

    fn delete_pod(&self, _: &ReplicaSet, _: &Pod, _: Precondition) -> Result<(), WriteError> {
        unexpected()
    }

    fn patch_pod(&self, _: &ReplicaSet, _: &Pod, _: Vec<u8>) -> Result<WrittenPod, WriteError> {
        unexpected()
    }
}

impl ReplicaSetControl for CacheOnly {
    fn update_status(
        &self,
        _: &ReplicaSet,
        _: &ReplicaSetStatus,
    ) -> Result<ReplicaSet, WriteError> {
        unexpected()
    }
}

impl LiveReader for CacheOnly {
    fn get_replica_set(&self, _: &ObjectKey) -> Result<ReplicaSet, WriteError> {
        unexpected()
    }

    fn find_pod(&self, _: &ReplicaSet, _: &str) -> Result<Option<Pod>, WriteError> {
        unexpected()
    }

    fn list_pods(&self, _: &ReplicaSet, _: &Selector) -> Result<Vec<Pod>, WriteError> {
        unexpected()
    }

    fn newest_versions(&self, _: &str) -> Result<[ResourceVersion; 2], WriteError> {
        unexpected()
    }

    fn owner_managers(&self, _: &ReplicaSet, _: &str) -> Result<Vec<Manager>, WriteError> {
        unexpected()
    }
}

/// A ReplicaSet whose pods are all Ready, with an up-to-date status.
pub(crate) fn replica_set(replicas: usize, min_ready_seconds: u32) -> ReplicaSet {
    let labels = json!({"app": "web", "tier": "backend", "pod-template-hash": "5d59d67564"});
    let object = json!({
        "metadata": {
            "name": "web", "namespace": "default", "resourceVersion": "1", "generation": 1,
            "uid": "5f2b3c4d-0000-4000-8000-000000000001",
        },
        "spec": {
            "replicas": replicas, "minReadySeconds": min_ready_seconds,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": []}},
        },
        "status": {
            "replicas": replicas, "fullyLabeledReplicas": replicas, "readyReplicas": replicas,
            "availableReplicas": replicas, "terminatingReplicas": 0, "observedGeneration": 1,
        },
    });
    ReplicaSet::from_json(object.to_string().as_bytes(), &mut Interner::default())
        .expect("a readable ReplicaSet")
}

/// `count` pods of `rs`, which share their interned values as in the cache.
pub(crate) fn pods_of(rs: &ReplicaSet, count: usize) -> Vec<Pod> {
    let controller = Arc::new(ControllerRef {
        kind: "ReplicaSet".into(),
        name: Arc::clone(&rs.key.name),
        uid: rs.uid.clone(),
    });
    let mut interner = Interner::default();
    let namespace = Arc::clone(&rs.key.namespace);
    let pod = |n: usize| Pod {
        key: ObjectKey {
            namespace: Arc::clone(&namespace),
            name: format!("web-{n:05}").into(),
        },
        uid: format!("5f2b3c4d-0000-4000-9000-{n:012}").as_str().into(),
        resource_version: (n + 2).to_string().as_str().into(),
        labels: rs.template_labels.clone(),
        controller: Some(Arc::clone(&controller)),
        phase: PodPhase::Running,
        node: Some(interner.text(&format!("node-{}", n % 100))),
        is_ready: true,
        ready_transition: "2026-01-02T03:04:05Z"
            .parse::<Timestamp>()
            .ok()
            .map(CompactTimestamp::from),
        creation: "2026-01-02T03:04:00Z"
            .parse::<Timestamp>()
            .ok()
            .map(CompactTimestamp::from),
        restarts: i32::try_from(n % 3).unwrap_or(0),
        ..Pod::default()
    };
    (0..count).map(pod).collect()
}

/// A cache with `rs` and its pods.
pub(crate) fn cache(rs: &ReplicaSet, count: usize) -> Cache {
    let cache = Cache::default();
    cache.replica_sets.apply(rs.clone());
    for pod in pods_of(rs, count) {
        cache.pods.apply(pod);
    }
    cache.pods.set_synced();
    cache.replica_sets.set_synced();
    cache
}

/// A controller over this cache.
pub(crate) fn controller(cache: &Cache) -> ReplicaSetController {
    controller_with(cache, Arc::new(WorkQueue::new(Arc::new(SystemClock))))
}

/// A controller over this cache, with this queue.
pub(crate) fn controller_with(
    cache: &Cache,
    queue: Arc<WorkQueue<ObjectKey>>,
) -> ReplicaSetController {
    let clock = Arc::new(SystemClock);
    let metrics = Metrics::new();
    ReplicaSetController::new(Parts {
        kind: &REPLICA_SET,
        cache: cache.clone(),
        live: Arc::new(CacheOnly),
        pod_control: Arc::new(CacheOnly),
        replica_set_control: Arc::new(CacheOnly),
        queue,
        batches: Arc::new(FairPool::default()),
        clock,
        options: Options::default(),
        metrics: metrics.controller.of("replicaset", "apps", "replicasets"),
        quota_watch: Arc::default(),
    })
}
