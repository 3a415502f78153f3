//! The daemon's requests in the simulation, and their outcomes: answered, rejected, lost or late.

use super::server::{Late, has_its_template};
use super::{State, World};
use crate::api::{ObjectKey, Pod, ReplicaSet, ReplicaSetStatus, ResourceVersion, Selector};
use crate::controller::decide::status::Counts;
use crate::controller::testing::rejected;
use crate::live::{LiveReader, Manager};
use crate::stdx::clock::Clock;
use crate::writes::{PodControl, ReplicaSetControl, WriteError, WrittenPod};

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fate {
    Responded,
    ResponseLost,
    RequestLost,
    Late,
}

impl World {
    /// Executes one request or drops it, and returns or loses its response.
    fn request<T>(
        &self,
        late: Option<Late>,
        carry_out: impl FnOnce(&mut State) -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        let mut state = self.lock();
        let (fate, is_killed) = state.script.draw_fate(late.is_some());
        let response: Option<Result<T, WriteError>> = match fate {
            Fate::Responded | Fate::ResponseLost => Some(carry_out(&mut state)),
            Fate::Late => {
                state.server.late.extend(late);
                None
            }
            Fate::RequestLost => None,
        };
        state.is_killed = is_killed;
        drop(state);
        if is_killed {
            // Unwinds like a panic, but without one message for each of thousands.
            std::panic::resume_unwind(Box::new("the daemon is killed"));
        }
        self.deliver_by_script();
        match response {
            Some(response) if fate == Fate::Responded => response,
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
        self.request(Some(late), |state| {
            let (active, wanted) = (state.server.n_active(rs), rs.replicas);
            let response = state.server.add_pod(rs, name);
            if response.is_ok() && active >= usize::try_from(wanted).unwrap_or(0) {
                let wrong = format!("{name} is created though {active} of {wanted} are there");
                state.wrong.push(wrong);
            }
            response
        })
    }

    /// PROPERTY P14: No delete leaves fewer active pods than the `spec.replicas` by which the sync
    /// acts.
    fn delete_pod(
        &self,
        rs: &ReplicaSet,
        pod: &Pod,
        _version: Option<&ResourceVersion>,
    ) -> Result<(), WriteError> {
        let now = self.clock.wall();
        let late = Late::Delete(pod.clone(), now);
        self.request(Some(late), |state| {
            let active = state.server.n_active(rs);
            let response = state.server.delete_pod(pod, now);
            let wanted = usize::try_from(rs.replicas).unwrap_or(0);
            if state.server.n_active(rs) < active.min(wanted) {
                let name = &pod.key.name;
                let wrong = format!("{name} is deleted though only {active} of {wanted} are there");
                state.wrong.push(wrong);
            }
            response
        })
    }

    fn patch_pod(
        &self,
        _rs: &ReplicaSet,
        pod: &Pod,
        patch: Vec<u8>,
    ) -> Result<WrittenPod, WriteError> {
        self.take_time();
        self.request(None, |state| state.server.patch_pod(&pod.key.name, &patch))
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
        self.request(None, |state| state.server.update_status(rs, status))
    }
}

impl LiveReader for World {
    fn get_replica_set(&self, key: &ObjectKey) -> Result<ReplicaSet, WriteError> {
        self.take_time();
        self.request(None, |state| {
            let found = state.server.replica_sets.get(&key.name).cloned();
            found.ok_or_else(|| rejected(404, "NotFound", "replicaset not found"))
        })
    }

    fn find_pod(&self, _rs: &ReplicaSet, name: &str) -> Result<Option<Pod>, WriteError> {
        self.take_time();
        self.request(None, |state| Ok(state.server.pods.get(name).cloned()))
    }

    fn list_pods(&self, _rs: &ReplicaSet, selector: &Selector) -> Result<Vec<Pod>, WriteError> {
        self.take_time();
        self.request(None, |state| {
            let is_selected = |pod: &&Pod| selector.matches(&pod.labels);
            let pods = state.server.pods.values().filter(is_selected);
            Ok(pods.cloned().collect())
        })
    }

    fn newest_versions(&self, _namespace: &str) -> Result<[ResourceVersion; 2], WriteError> {
        self.take_time();
        self.request(None, |state| {
            Ok([state.server.version(), state.server.version()])
        })
    }

    fn owner_managers(&self, _rs: &ReplicaSet, _name: &str) -> Result<Vec<Manager>, WriteError> {
        Ok(Vec::new())
    }
}
