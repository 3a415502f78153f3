//! Counts active pods from a watch of its own on the thread `census`, which ends with the test. A
//! watch shows every state, while polling could miss a short one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use replicaset_controller::stdx::stop::Stop;
use replicaset_controller::stdx::thread::Thread;
use serde_json::Value;

use super::api::{Api, Kind};
use super::objects::{controller_uid, is_terminating, text_at, uid};
use super::waiting::PATIENCE;

/// Pod counts since the watch was opened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Census {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified after each watch event.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// UIDs of the active pods, by the UID of their controller.
    active: BTreeMap<String, BTreeSet<String>>,
    /// Maximum number of pods that were active at a time, by the UID of their controller.
    most: BTreeMap<String, usize>,
    /// UIDs of all pods that the watch has shown.
    seen: BTreeSet<String>,
}

impl Census {
    /// Opens the watch, then starts the thread. Returns once the watch is open.
    pub(crate) fn start(api: &Api, stop: &Stop) -> Self {
        let census = Self::default();
        let (events, counting) = (api.watch(Kind::Pods), census.clone());
        // Not joined: the thread ends when the test's stop signal closes the watch's connection.
        drop(Thread::spawn("census", stop, move || {
            for event in events {
                counting.count(&event);
            }
        }));
        census
    }

    /// Number of active pods.
    pub(crate) fn n_active(&self) -> usize {
        self.lock().n_active()
    }

    /// Number of pods that the watch has shown, deleted ones included.
    pub(crate) fn n_seen(&self) -> usize {
        self.lock().seen.len()
    }

    /// Maximum number of this controller's pods that were active at a time.
    pub(crate) fn most(&self, controller: &str) -> usize {
        self.lock().most.get(controller).copied().unwrap_or(0)
    }

    /// Waits until the watch has shown `n_pods` pods. The test fails after [`PATIENCE`].
    #[track_caller]
    pub(crate) fn wait_for_seen(&self, n_pods: usize) {
        self.wait_for(|state| state.seen.len() >= n_pods);
    }

    /// Waits until `is_enough` accepts the number of active pods. The test fails after
    /// [`PATIENCE`].
    #[track_caller]
    pub(crate) fn wait_for_active(&self, is_enough: impl Fn(usize) -> bool) {
        self.wait_for(|state| is_enough(state.n_active()));
    }

    #[track_caller]
    fn wait_for(&self, is_enough: impl Fn(&State) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.lock();
        while !is_enough(&state) {
            let remaining = deadline.saturating_duration_since(Instant::now());
            let (n_active, n_seen) = (state.n_active(), state.seen.len());
            assert!(
                !remaining.is_zero(),
                "{n_active} of {n_seen} pods are active"
            );
            let waited = self.shared.changed.wait_timeout(state, remaining);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn count(&self, event: &Value) {
        let (type_, pod) = (&event["type"], &event["object"]);
        if type_ == "BOOKMARK" {
            return;
        }
        assert_ne!(type_, "ERROR", "{pod}");
        let phase = text_at(pod, "/status/phase");
        let is_active = type_ != "DELETED"
            && !is_terminating(pod)
            && !matches!(phase.as_str(), "Succeeded" | "Failed");
        let mut state = self.lock();
        for pods in state.active.values_mut() {
            pods.remove(&uid(pod));
        }
        state.seen.insert(uid(pod));
        if let Some(controller) = controller_uid(pod).filter(|_| is_active) {
            let pods = state.active.entry(controller.clone()).or_default();
            pods.insert(uid(pod));
            let n_pods = pods.len();
            let most = state.most.entry(controller).or_default();
            *most = n_pods.max(*most);
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn n_active(&self) -> usize {
        self.active.values().map(BTreeSet::len).sum()
    }
}
