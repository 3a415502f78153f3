//! Fixtures of the controller's unit tests: objects, writes that are recorded instead of sent, and a
//! controller over a real cache and queue with a clock turned by hand.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::plan::BURST_REPLICAS;
use super::slow_start::Serial;
use super::sync::Outcome;
use super::{Parts, ReplicaSetController, SyncError};
use crate::api::interner::Interner;
use crate::api::workload_kind::REPLICA_SET;
use crate::api::{ObjectKey, Pod, ReplicaSet, ReplicaSetStatus, Selector, Status};
use crate::cache::Cache;
use crate::stdx::clock::FakeClock;
use crate::workqueue::WorkQueue;
use crate::writes::{CreatedPod, PatchedPod, PodControl, ReplicaSetControl, WriteError};

/// The JSON of a ReplicaSet in `default` with selector and labels `type=production`.
pub(super) fn replica_set_json(name: &str, replicas: i32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("uid-{name}"),
            "resourceVersion": "1", "generation": 1,
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"type": "production"}},
            "template": {
                "metadata": {"labels": {"type": "production"}},
                "spec": {"containers": [{"name": "c", "image": "example.invalid/none:0"}]},
            },
        },
        "status": {"replicas": 0},
    })
}

/// The ReplicaSet that this JSON describes.
pub(super) fn read_replica_set(object: &Value) -> ReplicaSet {
    ReplicaSet::from_json(object.to_string().as_bytes(), &mut Interner::default())
        .expect("a readable ReplicaSet")
}

/// [`replica_set_json`], read.
pub(super) fn replica_set(name: &str, replicas: i32) -> ReplicaSet {
    read_replica_set(&replica_set_json(name, replicas))
}

/// The JSON of a running pod in `default`, labelled `type=production`, without an owner.
pub(super) fn pod_json(name: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("uid-{name}"),
            "resourceVersion": "1", "labels": {"type": "production"},
        },
        "spec": {"nodeName": "node-1"},
        "status": {"phase": "Running"},
    })
}

/// [`pod_json`] owned by `rs`.
pub(super) fn owned_pod_json(name: &str, rs: &ReplicaSet) -> Value {
    let mut pod = pod_json(name);
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": rs.key.name, "uid": rs.uid,
        "controller": true, "blockOwnerDeletion": true,
    }]);
    pod
}

/// The pod that this JSON describes.
pub(super) fn read_pod(object: &Value) -> Pod {
    Pod::from_json(object.to_string().as_bytes(), &mut Interner::default()).expect("a readable pod")
}

/// One recorded write.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Write {
    Create(String),
    Delete(String),
    Patch(String, Value),
    GetReplicaSet(String),
    ListPods,
    FindPod(String),
    UpdateStatus(ReplicaSetStatus),
}

type Answer<T> = Box<dyn FnMut(usize) -> Option<Result<T, WriteError>> + Send>;

/// Writes that are recorded; what they answer can be set by test. The number that an answer function
/// gets counts the calls of its kind from 0; `None` means the ordinary answer.
#[derive(Default)]
pub(super) struct FakeWrites {
    state: Mutex<FakeState>,
    creates: AtomicUsize,
    deletes: AtomicUsize,
    patches: AtomicUsize,
    updates: AtomicUsize,
}

#[derive(Default)]
struct FakeState {
    writes: Vec<Write>,
    on_create: Option<Answer<CreatedPod>>,
    on_delete: Option<Answer<()>>,
    on_patch: Option<Answer<PatchedPod>>,
    on_update: Option<Answer<ReplicaSet>>,
    live_replica_set: Option<Result<ReplicaSet, WriteError>>,
    live_pods: Vec<Pod>,
}

impl std::fmt::Debug for FakeWrites {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeWrites").finish_non_exhaustive()
    }
}

impl FakeWrites {
    pub(super) fn on_create(
        &self,
        answer: impl FnMut(usize) -> Option<Result<CreatedPod, WriteError>> + Send + 'static,
    ) {
        self.lock().on_create = Some(Box::new(answer));
    }

    pub(super) fn on_delete(
        &self,
        answer: impl FnMut(usize) -> Option<Result<(), WriteError>> + Send + 'static,
    ) {
        self.lock().on_delete = Some(Box::new(answer));
    }

    pub(super) fn on_patch(
        &self,
        answer: impl FnMut(usize) -> Option<Result<PatchedPod, WriteError>> + Send + 'static,
    ) {
        self.lock().on_patch = Some(Box::new(answer));
    }

    pub(super) fn on_update(
        &self,
        answer: impl FnMut(usize) -> Option<Result<ReplicaSet, WriteError>> + Send + 'static,
    ) {
        self.lock().on_update = Some(Box::new(answer));
    }

    /// What a live GET of the ReplicaSet answers; without it, 404.
    pub(super) fn set_live_replica_set(&self, answer: Result<ReplicaSet, WriteError>) {
        self.lock().live_replica_set = Some(answer);
    }

    /// What live LISTs of pods answer.
    pub(super) fn set_live_pods(&self, pods: Vec<Pod>) {
        self.lock().live_pods = pods;
    }

    /// All writes since the last call.
    pub(super) fn take(&self) -> Vec<Write> {
        std::mem::take(&mut self.lock().writes)
    }

    /// Creates, deletes and patches since the last [`Self::take`].
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        let count = |is: fn(&Write) -> bool| self.lock().writes.iter().filter(|w| is(w)).count();
        (
            count(|write| matches!(write, Write::Create(_))),
            count(|write| matches!(write, Write::Delete(_))),
            count(|write| matches!(write, Write::Patch(..))),
        )
    }

    /// Status updates since the last [`Self::take`].
    pub(super) fn status_updates(&self) -> Vec<ReplicaSetStatus> {
        let status = |write: &Write| match write {
            Write::UpdateStatus(status) => Some(status.clone()),
            _ => None,
        };
        self.lock().writes.iter().filter_map(status).collect()
    }

    /// Names of the pods created since the last [`Self::take`].
    pub(super) fn created(&self) -> Vec<String> {
        let name = |write: &Write| match write {
            Write::Create(name) => Some(name.clone()),
            _ => None,
        };
        self.lock().writes.iter().filter_map(name).collect()
    }

    /// Names of the pods deleted since the last [`Self::take`].
    pub(super) fn deleted(&self) -> Vec<String> {
        let name = |write: &Write| match write {
            Write::Delete(name) => Some(name.clone()),
            _ => None,
        };
        self.lock().writes.iter().filter_map(name).collect()
    }

    fn record(&self, write: Write) {
        self.lock().writes.push(write);
    }

    fn lock(&self) -> MutexGuard<'_, FakeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PodControl for FakeWrites {
    fn create_pod(&self, _rs: &ReplicaSet, name: &str) -> Result<CreatedPod, WriteError> {
        let call = self.creates.fetch_add(1, Ordering::Relaxed);
        self.record(Write::Create(name.to_owned()));
        let answer = self
            .lock()
            .on_create
            .as_mut()
            .and_then(|answer| answer(call));
        answer.unwrap_or_else(|| Ok(CreatedPod::default()))
    }

    fn find_pod(&self, _rs: &ReplicaSet, name: &str) -> Result<Option<Pod>, WriteError> {
        self.record(Write::FindPod(name.to_owned()));
        Ok(self
            .lock()
            .live_pods
            .iter()
            .find(|pod| *pod.key.name == *name)
            .cloned())
    }

    fn list_pods(&self, _rs: &ReplicaSet, selector: &Selector) -> Result<Vec<Pod>, WriteError> {
        self.record(Write::ListPods);
        let state = self.lock();
        Ok(state
            .live_pods
            .iter()
            .filter(|pod| selector.matches(&pod.labels))
            .cloned()
            .collect())
    }

    fn delete_pod(&self, _rs: &ReplicaSet, pod: &Pod) -> Result<(), WriteError> {
        let call = self.deletes.fetch_add(1, Ordering::Relaxed);
        self.record(Write::Delete(pod.key.name.to_string()));
        let answer = self
            .lock()
            .on_delete
            .as_mut()
            .and_then(|answer| answer(call));
        answer.unwrap_or(Ok(()))
    }

    fn patch_pod(&self, pod: &Pod, patch: Vec<u8>) -> Result<PatchedPod, WriteError> {
        let call = self.patches.fetch_add(1, Ordering::Relaxed);
        let patch = serde_json::from_slice(&patch).expect("a patch is JSON");
        self.record(Write::Patch(pod.key.name.to_string(), patch));
        let answer = self
            .lock()
            .on_patch
            .as_mut()
            .and_then(|answer| answer(call));
        answer.unwrap_or_else(|| Ok(PatchedPod::default()))
    }
}

impl ReplicaSetControl for FakeWrites {
    fn get(&self, key: &ObjectKey) -> Result<ReplicaSet, WriteError> {
        self.record(Write::GetReplicaSet(key.to_string()));
        let live = self.lock().live_replica_set.clone();
        live.unwrap_or_else(|| Err(refused(404, "NotFound", "not found")))
    }

    fn update_status(
        &self,
        rs: &ReplicaSet,
        status: &ReplicaSetStatus,
    ) -> Result<ReplicaSet, WriteError> {
        let call = self.updates.fetch_add(1, Ordering::Relaxed);
        self.record(Write::UpdateStatus(status.clone()));
        let answer = self
            .lock()
            .on_update
            .as_mut()
            .and_then(|answer| answer(call));
        answer.unwrap_or_else(|| {
            Ok(ReplicaSet {
                status: status.clone(),
                ..rs.clone()
            })
        })
    }
}

/// A refusal by the API server.
pub(super) fn refused(code: u16, reason: &str, message: &str) -> WriteError {
    WriteError::Refused(Status::new(code, reason, message))
}

/// A controller with everything around it, driven by the test's own thread.
pub(super) struct Fixture {
    pub(super) cache: Cache,
    pub(super) writes: Arc<FakeWrites>,
    pub(super) queue: Arc<WorkQueue<ObjectKey>>,
    pub(super) clock: Arc<FakeClock>,
    pub(super) controller: ReplicaSetController,
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self::with_burst(BURST_REPLICAS)
    }

    pub(super) fn with_burst(burst_replicas: usize) -> Self {
        let (cache, writes) = (Cache::default(), Arc::new(FakeWrites::default()));
        let clock = Arc::new(FakeClock::default());
        let queue = Arc::new(WorkQueue::new(Arc::clone(&clock) as Arc<_>));
        let controller = ReplicaSetController::new(Parts {
            kind: &REPLICA_SET,
            cache: Arc::new(cache.clone()),
            pod_control: Arc::clone(&writes) as Arc<_>,
            replica_set_control: Arc::clone(&writes) as Arc<_>,
            queue: Arc::clone(&queue),
            batches: Arc::new(Serial),
            clock: Arc::clone(&clock) as Arc<_>,
            burst_replicas,
        });
        Self {
            cache,
            writes,
            queue,
            clock,
            controller,
        }
    }

    /// Puts a ReplicaSet into the cache, new or changed, and hands the event to the handlers.
    pub(super) fn deliver_replica_set(&self, rs: ReplicaSet) {
        if let Some(event) = self.cache.replica_sets.apply_modified(rs) {
            self.controller.handle_replica_set_event(&event);
        }
        self.controller.handle_cache_advanced();
    }

    /// Takes a ReplicaSet out of the cache and hands the event to the handlers.
    pub(super) fn deliver_replica_set_deleted(&self, rs: ReplicaSet) {
        if let Some(event) = self.cache.replica_sets.apply_deleted(rs) {
            self.controller.handle_replica_set_event(&event);
        }
        self.controller.handle_cache_advanced();
    }

    /// Puts a pod into the cache, new or changed, and hands the event to the handlers.
    pub(super) fn deliver_pod(&self, pod: Pod) {
        if let Some(event) = self.cache.pods.apply_modified(pod) {
            self.controller.handle_pod_event(&event);
        }
        self.controller.handle_cache_advanced();
    }

    /// Takes a pod out of the cache and hands the event to the handlers.
    pub(super) fn deliver_pod_deleted(&self, pod: Pod) {
        if let Some(event) = self.cache.pods.apply_deleted(pod) {
            self.controller.handle_pod_event(&event);
        }
        self.controller.handle_cache_advanced();
    }

    /// Puts objects into the cache without telling anybody.
    pub(super) fn cache_silently(
        &self,
        rs: Option<ReplicaSet>,
        pods: impl IntoIterator<Item = Pod>,
    ) {
        if let Some(rs) = rs {
            self.cache.replica_sets.apply_modified(rs);
        }
        for pod in pods {
            self.cache.pods.apply_modified(pod);
        }
    }

    /// One sync of `default/name`.
    pub(super) fn sync(&self, name: &str) -> Result<Outcome, SyncError> {
        self.controller
            .sync_replica_set(&ObjectKey::new("default", name))
    }

    /// The keys that wait in the queue now, in order; they are taken out and done.
    pub(super) fn queued(&self) -> Vec<String> {
        let take = || {
            let key = self.queue.try_get()?;
            self.queue.done(&key);
            Some(key.to_string())
        };
        std::iter::from_fn(take).collect()
    }
}
