//! Writes that are recorded instead of sent; what they answer can be set by test.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::api::{ObjectKey, Pod, ReplicaSet, ReplicaSetStatus, Selector, Status};
use crate::writes::{CreatedPod, PatchedPod, PodControl, ReplicaSetControl, WriteError};

/// One recorded write.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::controller) enum Write {
    Create(String),
    Delete(String),
    Patch(String, Value),
    GetReplicaSet(String),
    ListPods,
    FindPod(String),
    UpdateStatus(ReplicaSetStatus),
}

type UpdateAnswer =
    Box<dyn FnMut(&ReplicaSet, &ReplicaSetStatus) -> Option<Result<ReplicaSet, WriteError>> + Send>;

type Answer<T> = Box<dyn FnMut(usize) -> Option<Result<T, WriteError>> + Send>;

/// Writes that are recorded; what they answer can be set by test. The number that an answer function
/// gets counts the calls of its kind from 0; `None` means the ordinary answer.
#[derive(Default)]
pub(in crate::controller) struct FakeWrites {
    state: Mutex<FakeState>,
    creates: AtomicUsize,
    deletes: AtomicUsize,
    patches: AtomicUsize,
}

#[derive(Default)]
struct FakeState {
    writes: Vec<Write>,
    on_create: Option<Answer<CreatedPod>>,
    on_delete: Option<Answer<()>>,
    on_patch: Option<Answer<PatchedPod>>,
    on_update_status: Option<UpdateAnswer>,
    live_replica_set: Option<Result<ReplicaSet, WriteError>>,
    live_pods: Vec<Pod>,
}

impl std::fmt::Debug for FakeWrites {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeWrites").finish_non_exhaustive()
    }
}

impl FakeWrites {
    pub(in crate::controller) fn on_create(
        &self,
        answer: impl FnMut(usize) -> Option<Result<CreatedPod, WriteError>> + Send + 'static,
    ) {
        self.lock().on_create = Some(Box::new(answer));
    }

    pub(in crate::controller) fn on_delete(
        &self,
        answer: impl FnMut(usize) -> Option<Result<(), WriteError>> + Send + 'static,
    ) {
        self.lock().on_delete = Some(Box::new(answer));
    }

    pub(in crate::controller) fn on_patch(
        &self,
        answer: impl FnMut(usize) -> Option<Result<PatchedPod, WriteError>> + Send + 'static,
    ) {
        self.lock().on_patch = Some(Box::new(answer));
    }

    pub(in crate::controller) fn on_update_status(
        &self,
        answer: impl FnMut(&ReplicaSet, &ReplicaSetStatus) -> Option<Result<ReplicaSet, WriteError>>
        + Send
        + 'static,
    ) {
        self.lock().on_update_status = Some(Box::new(answer));
    }

    /// What a live GET of the ReplicaSet answers; without it, 404.
    pub(in crate::controller) fn set_live_replica_set(
        &self,
        answer: Result<ReplicaSet, WriteError>,
    ) {
        self.lock().live_replica_set = Some(answer);
    }

    /// What live LISTs of pods answer.
    pub(in crate::controller) fn set_live_pods(&self, pods: Vec<Pod>) {
        self.lock().live_pods = pods;
    }

    /// All writes since the last call.
    pub(in crate::controller) fn take(&self) -> Vec<Write> {
        std::mem::take(&mut self.lock().writes)
    }

    /// Creates, deletes and patches since the last [`Self::take`].
    pub(in crate::controller) fn counts(&self) -> (usize, usize, usize) {
        let count = |is: fn(&Write) -> bool| self.lock().writes.iter().filter(|w| is(w)).count();
        (
            count(|write| matches!(write, Write::Create(_))),
            count(|write| matches!(write, Write::Delete(_))),
            count(|write| matches!(write, Write::Patch(..))),
        )
    }

    /// Status updates since the last [`Self::take`].
    pub(in crate::controller) fn status_updates(&self) -> Vec<ReplicaSetStatus> {
        let status = |write: &Write| match write {
            Write::UpdateStatus(status) => Some(status.clone()),
            _ => None,
        };
        self.lock().writes.iter().filter_map(status).collect()
    }

    /// Names of the pods created since the last [`Self::take`].
    pub(in crate::controller) fn created(&self) -> Vec<String> {
        let name = |write: &Write| match write {
            Write::Create(name) => Some(name.clone()),
            _ => None,
        };
        self.lock().writes.iter().filter_map(name).collect()
    }

    /// Names of the pods deleted since the last [`Self::take`].
    pub(in crate::controller) fn deleted(&self) -> Vec<String> {
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
        self.record(Write::UpdateStatus(status.clone()));
        let mut state = self.lock();
        let answer = state.on_update_status.as_mut();
        let answer = answer.and_then(|answer| answer(rs, status));
        drop(state);
        answer.unwrap_or_else(|| Ok(with_status(rs, status.clone())))
    }
}

/// A refusal by the API server.
pub(in crate::controller) fn refused(code: u16, reason: &str, message: &str) -> WriteError {
    WriteError::Refused(Status::new(code, reason, message))
}

/// `rs` with another status.
pub(in crate::controller) fn with_status(rs: &ReplicaSet, status: ReplicaSetStatus) -> ReplicaSet {
    let mut rs = rs.clone();
    rs.status = status;
    rs
}
