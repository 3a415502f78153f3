//! The daemon's requests in the simulation, and their outcomes: answered, rejected, lost or late.

use std::fmt::{Debug, Display};

use super::server::{Late, has_its_template};
use super::{State, World};
use crate::api::{ObjectKey, Pod, ReplicaSet, ReplicaSetStatus, ResourceVersion, Selector};
use crate::controller::decide::status::Counts;
use crate::controller::testing::rejected;
use crate::live::{LiveReader, Manager};
use crate::stdx::clock::Clock;
use crate::writes::{PodControl, Precondition, ReplicaSetControl, WriteError, WrittenPod};

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fate {
    Responded,
    Rejected,
    ResponseLost,
    RequestLost,
    Late,
}

impl State {
    /// Returns the fate of a request, and whether the daemon dies while it is under way.
    fn draw_fate(&mut self, may_be_late: bool, may_be_killed: bool) -> (Fate, bool) {
        if let Some(script) = &mut self.script {
            return script.draw_fate(may_be_late);
        }
        let is_killed = self.is_troubled && may_be_killed && self.rng.u32(..60) == 0;
        let fate = match self.rng.u32(..40) {
            _ if !self.is_troubled => Fate::Responded,
            0..20 if is_killed && may_be_late => Fate::Late,
            0 | 1 => Fate::Rejected,
            2 | 3 => Fate::ResponseLost,
            4 => Fate::RequestLost,
            5 if may_be_late => Fate::Late,
            _ => Fate::Responded,
        };
        (fate, is_killed)
    }
}

impl State {
    /// Returns a rejection of a request: of a kind with a back-off of its own, or another.
    fn draw_rejection(&mut self) -> WriteError {
        let kind = if self.script.is_some() {
            0
        } else {
            self.rng.u32(..6)
        };
        let (code, reason, message) = match kind {
            1 | 2 => (403, "Forbidden", "exceeded quota: few, requested: pods=1"),
            3 => (429, "TooManyRequests", "later"),
            4 => (422, "Invalid", "no pod"),
            _ => (403, "Forbidden", "rejected"),
        };
        rejected(code, reason, message)
    }
}

impl World {
    /// Executes one request or drops it, and returns or loses its response.
    fn request<T: Debug>(
        &self,
        what: &dyn Display,
        late: Option<Late>,
        carry_out: impl FnOnce(&mut State) -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        if self.lock().script.is_none() {
            self.deliver_some();
        }
        let mut state = self.lock();
        let (fate, is_killed) = state.draw_fate(late.is_some(), self.trouble.kills);
        let before = state.server.n_lines();
        let response: Option<Result<T, WriteError>> = match fate {
            Fate::Responded | Fate::ResponseLost => Some(carry_out(&mut state)),
            Fate::Late => {
                state.server.late.extend(late);
                None
            }
            Fate::Rejected | Fate::RequestLost => None,
        };
        state.is_killed = is_killed;
        let changed = state.server.n_lines() > before;
        let line = format!("{what}: {fate:?}, changed {changed}, killed {is_killed}");
        state.history.push(line);
        drop(state);
        if is_killed {
            // Unwinds like a panic, but without one message for each of thousands.
            std::panic::resume_unwind(Box::new("the daemon is killed"));
        }
        self.deliver_some();
        match response {
            Some(response) if fate == Fate::Responded => response,
            _ if fate == Fate::Rejected => Err(self.lock().draw_rejection()),
            _ => Err(WriteError::unknown("the response was lost")),
        }
    }
}

impl World {
    /// Records that the current sync has sent a request other than a create, delete or status.
    fn take_time(&self) {
        let mut state = self.lock();
        if state.sent.status.is_none() {
            state.sent.took_time = true;
        }
    }
}

impl PodControl for World {
    /// PROPERTY P13: No pod is created while the API server has as many active pods of the
    /// ReplicaSet as the `spec.replicas` by which the sync acts, nor from the template of another
    /// generation.
    fn create_pod(&self, rs: &ReplicaSet, name: &str) -> Result<WrittenPod, WriteError> {
        let late = self.lock().server.late_create(rs, name);
        if !has_its_template(rs) {
            let wrong = format!(
                "{name} is created without the template of {}",
                rs.generation
            );
            self.lock().wrong.push(wrong);
        }
        self.request(&format_args!("create {name}"), Some(late), |state| {
            let (active, wanted) = (state.server.n_active(rs), rs.replicas);
            let response = state.server.add_pod(rs, name, true);
            if response.is_ok() && active >= usize::try_from(wanted).unwrap_or(0) {
                let wrong = format!("{name} is created though {active} of {wanted} are there");
                state.wrong.push(wrong);
            }
            response
        })
    }

    /// PROPERTY P14: In histories without deaths of pods and recreated ReplicaSets, no delete
    /// leaves fewer active pods than the `spec.replicas` by which the sync acts.
    fn delete_pod(
        &self,
        rs: &ReplicaSet,
        pod: &Pod,
        _precondition: Precondition,
    ) -> Result<(), WriteError> {
        let now = self.clock.wall();
        let late = Late::Delete(pod.clone(), now);
        self.request(
            &format_args!("delete {}", pod.key.name),
            Some(late),
            |state| {
                let active = state.server.n_active(rs);
                let response = state.server.delete_pod(pod, now);
                let wanted = usize::try_from(rs.replicas).unwrap_or(0);
                // Only pods that die unseen may cause a surplus deletion.
                let is_guarded = !self.trouble.deaths && !self.trouble.recreations;
                if is_guarded && state.server.n_active(rs) < active.min(wanted) {
                    let name = &pod.key.name;
                    let wrong =
                        format!("{name} is deleted though only {active} of {wanted} are there");
                    state.wrong.push(wrong);
                }
                response
            },
        )
    }

    fn patch_pod(
        &self,
        _rs: &ReplicaSet,
        pod: &Pod,
        patch: Vec<u8>,
    ) -> Result<WrittenPod, WriteError> {
        self.take_time();
        self.request(&format_args!("patch {}", pod.key.name), None, |state| {
            state.server.patch_pod(&pod.key.name, &patch)
        })
    }
}

impl ReplicaSetControl for World {
    fn update_status(
        &self,
        rs: &ReplicaSet,
        status: &ReplicaSetStatus,
    ) -> Result<ReplicaSet, WriteError> {
        self.lock().sent.status = Some(Counts::from(status));
        if !has_its_template(rs) {
            let wrong = format!("the status of {} is written without its spec", rs.key);
            self.lock().wrong.push(wrong);
        }
        self.request(&format_args!("status of {}", rs.key), None, |state| {
            state.server.update_status(rs, status)
        })
    }
}

impl LiveReader for World {
    fn get_replica_set(&self, key: &ObjectKey) -> Result<ReplicaSet, WriteError> {
        self.take_time();
        self.request(&format_args!("get {key}"), None, |state| {
            let found = state.server.replica_sets.get(&key.name).cloned();
            found.ok_or_else(|| rejected(404, "NotFound", "replicaset not found"))
        })
    }

    fn find_pod(&self, _rs: &ReplicaSet, name: &str) -> Result<Option<Pod>, WriteError> {
        self.take_time();
        self.request(&format_args!("find {name}"), None, |state| {
            Ok(state.server.pods.get(name).cloned())
        })
    }

    fn list_pods(&self, _rs: &ReplicaSet, selector: &Selector) -> Result<Vec<Pod>, WriteError> {
        self.take_time();
        self.request(&"list pods", None, |state| {
            let is_selected = |pod: &&Pod| selector.matches(&pod.labels);
            let pods = state.server.pods.values().filter(is_selected);
            Ok(pods.cloned().collect())
        })
    }

    fn newest_versions(&self, _namespace: &str) -> Result<[ResourceVersion; 2], WriteError> {
        self.take_time();
        self.request(&"newest versions", None, |state| {
            Ok([state.server.version(), state.server.version()])
        })
    }

    fn owner_managers(&self, _rs: &ReplicaSet, _name: &str) -> Result<Vec<Manager>, WriteError> {
        Ok(Vec::new())
    }
}
