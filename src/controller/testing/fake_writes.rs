//! Fake writes and live reads: they record calls instead of sending them, and tests set their
//! results.

use parking_lot::{Mutex, MutexGuard};

use serde_json::Value;

use crate::api::{ObjectKey, Pod, ReplicaSet, ReplicaSetStatus, ResourceVersion, Selector, Status};
use crate::live::{LiveReader, Manager};
use crate::writes::{PodControl, ReplicaSetControl, WriteError, WrittenPod};

/// One recorded write or live read.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::controller) enum Write {
    Create(String),
    Delete(String),
    /// The pod, and whether it must have its version.
    DeleteQuietly(String, bool),
    Patch(String, Value),
    GetReplicaSet(String),
    GetVersions,
    ListPods,
    FindPod(String),
    FindGang,
    UpdateStatus(ReplicaSetStatus),
}

type Scripted<T> = Option<Result<T, WriteError>>;

/// The result of a call. Receives the number of the call, counted from 0 since the hook was set,
/// and the pod's name. `None` selects the default result.
type Hook<T> = Option<(usize, Box<dyn FnMut(usize, &str) -> Scripted<T> + Send>)>;

type UpdateHook = Box<dyn FnMut(&ReplicaSet, &ReplicaSetStatus) -> Scripted<ReplicaSet> + Send>;

/// Recorded writes with results set by tests. Hooks run without the lock, so they may do whatever a
/// test does. A running hook is not active for calls that it makes itself.
#[derive(Default)]
pub(in crate::controller) struct FakeWrites(Mutex<State>);

#[derive(Default)]
struct State {
    writes: Vec<Write>,
    warnings: Vec<String>,
    delete_versions: Vec<Option<String>>,
    on_create: Hook<WrittenPod>,
    on_delete: Hook<()>,
    on_patch: Hook<WrittenPod>,
    on_find_pod: Hook<Option<Pod>>,
    on_list_pods: Hook<Vec<Pod>>,
    on_update_status: Option<UpdateHook>,
    live_replica_set: Option<Result<ReplicaSet, WriteError>>,
    live_pods: Vec<Pod>,
    live_versions: Option<Result<[ResourceVersion; 2], WriteError>>,
    n_spare: Option<usize>,
    serves_workloads: bool,
}

impl std::fmt::Debug for FakeWrites {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeWrites").finish_non_exhaustive()
    }
}

/// Declares the setters of hooks.
macro_rules! hooks {
    ($($name:ident: $response:ty),* $(,)?) => {
        impl FakeWrites {
            $(pub(in crate::controller) fn $name(
                &self,
                hook: impl FnMut(usize, &str) -> Scripted<$response> + Send + 'static,
            ) {
                self.lock().$name = Some((0, Box::new(hook)));
            })*
        }
    };
}

hooks! {
    on_create: WrittenPod,
    on_delete: (),
    on_patch: WrittenPod,
    on_find_pod: Option<Pod>,
    on_list_pods: Vec<Pod>,
}

impl FakeWrites {
    /// Sets the result of a status update; `None` means success.
    pub(in crate::controller) fn on_update_status(
        &self,
        hook: impl FnMut(&ReplicaSet, &ReplicaSetStatus) -> Scripted<ReplicaSet> + Send + 'static,
    ) {
        self.lock().on_update_status = Some(Box::new(hook));
    }

    /// Sets the result of a live GET of the ReplicaSet; the default is 404.
    pub(in crate::controller) fn set_live_replica_set(
        &self,
        response: Result<ReplicaSet, WriteError>,
    ) {
        self.lock().live_replica_set = Some(response);
    }

    /// Sets the API server's versions of pods and of ReplicaSets; by default it reports none.
    pub(in crate::controller) fn set_live_versions(&self, pods: &str, replica_sets: &str) {
        self.lock().live_versions = Some(Ok([pods.into(), replica_sets.into()]));
    }

    /// Makes the query for these versions fail.
    pub(in crate::controller) fn reject_live_versions(&self) {
        let rejection = rejected(503, "ServiceUnavailable", "no");
        self.lock().live_versions = Some(Err(rejection));
    }

    /// Serves Workloads, of which none asks for gang scheduling.
    pub(in crate::controller) fn serve_workloads(&self) {
        self.lock().serves_workloads = true;
    }

    /// Sets the number of requests that may be sent without delaying others; the default is any.
    pub(in crate::controller) fn set_spare_requests(&self, number: usize) {
        self.lock().n_spare = Some(number);
    }

    /// Sets the pods that live reads find.
    pub(in crate::controller) fn set_live_pods(&self, pods: Vec<Pod>) {
        self.lock().live_pods = pods;
    }

    /// Takes all writes since the last call.
    pub(in crate::controller) fn take(&self) -> Vec<Write> {
        std::mem::take(&mut self.lock().writes)
    }

    /// Takes the reasons and messages of the warnings since the last call.
    pub(in crate::controller) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().warnings)
    }

    /// Takes the versions that the deletes since the last call had as a precondition.
    pub(in crate::controller) fn take_delete_versions(&self) -> Vec<Option<String>> {
        std::mem::take(&mut self.lock().delete_versions)
    }

    /// Counts creates, deletes and patches since the last [`Self::take`].
    pub(in crate::controller) fn counts(&self) -> (usize, usize, usize) {
        let count = |is: fn(&Write) -> bool| self.lock().writes.iter().filter(|w| is(w)).count();
        (
            count(|write| matches!(write, Write::Create(_))),
            count(|write| matches!(write, Write::Delete(_))),
            count(|write| matches!(write, Write::Patch(..))),
        )
    }

    /// Returns the status updates since the last [`Self::take`].
    pub(in crate::controller) fn status_updates(&self) -> Vec<ReplicaSetStatus> {
        let status = |write: &Write| match write {
            Write::UpdateStatus(status) => Some(status.clone()),
            _ => None,
        };
        self.lock().writes.iter().filter_map(status).collect()
    }

    /// Returns the names of the pods created since the last [`Self::take`].
    pub(in crate::controller) fn created(&self) -> Vec<String> {
        let name = |write: &Write| match write {
            Write::Create(name) => Some(name.clone()),
            _ => None,
        };
        self.lock().writes.iter().filter_map(name).collect()
    }

    /// Returns the names of the pods deleted since the last [`Self::take`].
    pub(in crate::controller) fn deleted(&self) -> Vec<String> {
        let name = |write: &Write| match write {
            Write::Delete(name) => Some(name.clone()),
            _ => None,
        };
        self.lock().writes.iter().filter_map(name).collect()
    }

    /// Records the call and runs the hook that `field` selects.
    fn call<T>(
        &self,
        write: Write,
        name: &str,
        field: fn(&mut State) -> &mut Hook<T>,
    ) -> Scripted<T> {
        let mut state = self.lock();
        state.writes.push(write);
        let (call, mut hook) = field(&mut state).take()?;
        drop(state);
        let response = hook(call, name);
        field(&mut self.lock()).get_or_insert((call + 1, hook));
        response
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

impl PodControl for FakeWrites {
    fn create_pod(&self, _rs: &ReplicaSet, name: &str) -> Result<WrittenPod, WriteError> {
        let write = Write::Create(name.to_owned());
        let response = self.call(write, name, |state| &mut state.on_create);
        response.unwrap_or_else(|| Ok(WrittenPod::default()))
    }

    fn delete_pod(
        &self,
        _rs: &ReplicaSet,
        pod: &Pod,
        version: Option<&ResourceVersion>,
    ) -> Result<(), WriteError> {
        let version = version.map(ToString::to_string);
        self.lock().delete_versions.push(version);
        let write = Write::Delete(pod.key.name.to_string());
        let response = self.call(write, &pod.key.name, |state| &mut state.on_delete);
        response.unwrap_or(Ok(()))
    }

    fn delete_pod_quietly(
        &self,
        _rs: &ReplicaSet,
        pod: &Pod,
        version: Option<&ResourceVersion>,
    ) -> Result<(), WriteError> {
        let is_same = version == Some(&pod.resource_version);
        let write = Write::DeleteQuietly(pod.key.name.to_string(), is_same);
        let response = self.call(write, &pod.key.name, |state| &mut state.on_delete);
        response.unwrap_or(Ok(()))
    }

    fn n_spare_requests(&self) -> usize {
        self.lock().n_spare.unwrap_or(usize::MAX)
    }

    fn warn(&self, _rs: &ReplicaSet, reason: &'static str, message: String) {
        self.lock().warnings.push(format!("{reason}: {message}"));
    }

    fn patch_pod(
        &self,
        _rs: &ReplicaSet,
        pod: &Pod,
        patch: Vec<u8>,
    ) -> Result<WrittenPod, WriteError> {
        let patch = serde_json::from_slice(&patch).expect("a patch is JSON");
        let write = Write::Patch(pod.key.name.to_string(), patch);
        let response = self.call(write, &pod.key.name, |state| &mut state.on_patch);
        response.unwrap_or_else(|| Ok(WrittenPod::default()))
    }
}

impl ReplicaSetControl for FakeWrites {
    fn update_status(
        &self,
        rs: &ReplicaSet,
        status: &ReplicaSetStatus,
    ) -> Result<ReplicaSet, WriteError> {
        let mut state = self.lock();
        state.writes.push(Write::UpdateStatus(status.clone()));
        let hook = state.on_update_status.as_mut();
        let response = hook.and_then(|hook| hook(rs, status));
        response.unwrap_or_else(|| Ok(with_status(rs, status.clone())))
    }
}

impl LiveReader for FakeWrites {
    fn get_replica_set(&self, key: &ObjectKey) -> Result<ReplicaSet, WriteError> {
        let mut state = self.lock();
        state.writes.push(Write::GetReplicaSet(key.to_string()));
        let live = state.live_replica_set.clone();
        live.unwrap_or_else(|| Err(rejected(404, "NotFound", "not found")))
    }

    fn find_pod(&self, _rs: &ReplicaSet, name: &str) -> Result<Option<Pod>, WriteError> {
        let write = Write::FindPod(name.to_owned());
        let response = self.call(write, name, |state| &mut state.on_find_pod);
        response.unwrap_or_else(|| {
            let state = self.lock();
            let found = state.live_pods.iter().find(|pod| *pod.key.name == *name);
            Ok(found.cloned())
        })
    }

    fn list_pods(&self, _rs: &ReplicaSet, selector: &Selector) -> Result<Vec<Pod>, WriteError> {
        let response = self.call(Write::ListPods, "", |state| &mut state.on_list_pods);
        response.unwrap_or_else(|| {
            let state = self.lock();
            let is_selected = |pod: &&Pod| selector.matches(&pod.labels);
            Ok(state
                .live_pods
                .iter()
                .filter(is_selected)
                .cloned()
                .collect())
        })
    }

    fn newest_versions(&self, _namespace: &str) -> Result<[ResourceVersion; 2], WriteError> {
        let mut state = self.lock();
        state.writes.push(Write::GetVersions);
        let versions = state.live_versions.clone();
        versions.unwrap_or_else(|| Ok(Default::default()))
    }

    fn owner_managers(&self, _rs: &ReplicaSet, _name: &str) -> Result<Vec<Manager>, WriteError> {
        Ok(Vec::new())
    }

    fn serves_workloads(&self) -> bool {
        self.lock().serves_workloads
    }

    fn gang_workload(&self, _rs: &ReplicaSet) -> Result<Option<String>, WriteError> {
        self.lock().writes.push(Write::FindGang);
        Ok(None)
    }
}

/// A status error of the API server.
pub(in crate::controller) fn rejected(code: u16, reason: &str, message: &str) -> WriteError {
    WriteError::Rejected(Status::new(code, reason, message))
}

/// `rs` with another status.
pub(in crate::controller) fn with_status(rs: &ReplicaSet, status: ReplicaSetStatus) -> ReplicaSet {
    let mut rs = rs.clone();
    rs.status = status;
    rs
}
