//! Is somebody else writing what this daemon controls? Two controllers for one ReplicaSet fight, and
//! each looks healthy; so a second one that is seen at work is told of.
//!
//! The watch threads raise a *suspicion*, cheaply: a pod of ours that is new and that this daemon does
//! not expect, or a status that has changed and that it did not write. The next sync of the ReplicaSet
//! asks the API server once who it was (`metadata.managedFields`), so that a write of our own whose
//! answer was lost is never taken for a foreign_manager's. For some time after the daemon took over nothing is
//! suspected: its predecessor's last writes may still arrive.
//!
//! What it cannot tell: another instance of this very program, which writes under the same name.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;

use crate::api::conditions::{REPLICA_FAILURE, get_condition};
use crate::api::{Pod, ReplicaSet, ReplicaSetStatus};
use crate::controller::memory::Memory;
use crate::controller::memory::suspicion::{Armed, Suspects};
use crate::controller::{Mode, ReplicaSetController};
use crate::live::field_managers::{MANAGER, Manager};

/// Between two questions to the API server, over all ReplicaSets.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Reason of the event.
pub const OTHER_WRITER: &str = "OtherWriter";

/// Since when this daemon writes, and when it asked the API server last. Shared by workers and watch
/// threads; one short lock, which only a worker with a suspicion takes.
#[derive(Debug, Default)]
pub struct OtherWriters {
    /// `None` while this daemon must not write.
    armed: ArcSwapOption<Armed>,
    checked: Mutex<Option<Instant>>,
}

impl OtherWriters {
    /// True if the API server was not asked just now; then it is asked, now.
    fn may_ask(&self, now: Instant) -> bool {
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |then: Instant| now.saturating_duration_since(then) < CHECK_INTERVAL;
        let may_ask = !checked.is_some_and(is_recent);
        if may_ask {
            *checked = Some(now);
        }
        may_ask
    }
}

impl ReplicaSetController {
    /// From now on, what others write is told: the caches are complete, and syncs begin. Only the first
    /// call counts.
    pub fn start_detection(&self) {
        if let Mode::Writes(others) = &self.mode
            && others.armed.load().is_none()
        {
            let (since, wall) = (self.clock.now(), self.clock.wall());
            others.armed.store(Some(Arc::new(Armed { since, wall })));
        }
    }

    fn armed(&self) -> Option<Arc<Armed>> {
        match &self.mode {
            Mode::Writes(others) => others.armed.load_full(),
            Mode::DryRun(_) => None,
        }
    }

    /// Notes in the record of its ReplicaSet that the watch brought a new pod. To be called before its
    /// creation is struck out.
    pub(in crate::controller) fn suspect_pod(&self, memory: &mut Memory, pod: &Pod) {
        if let Some(armed) = self.armed()
            && !memory.own_writes.has_creation(&pod.key.name)
        {
            memory.suspicion.saw_pod(pod, &armed, self.clock.now());
        }
    }

    /// Notes in its record that the watch brought a ReplicaSet that has changed.
    pub(in crate::controller) fn suspect_status(
        &self,
        memory: &mut Memory,
        old: &ReplicaSet,
        new: &ReplicaSet,
    ) {
        if old.uid == new.uid && !is_alike(&old.status, &new.status) {
            let armed = self.armed();
            let version = &new.resource_version;
            let now = self.clock.now();
            memory.suspicion.saw_status(version, armed.as_deref(), now);
        }
    }

    /// Follows up what the watch threads suspect of `rs`. Blocks for one read if there is something.
    pub(in crate::controller) fn follow_suspicion(&self, rs: &ReplicaSet) {
        let Mode::Writes(others) = &self.mode else {
            return;
        };
        let now = self.clock.now();
        let look = |memory: &mut Memory| {
            let suspicion = &memory.suspicion;
            suspicion.is_raised().then(|| suspicion.is_told(now))
        };
        let Some(is_told) = self.memories.get(&rs.key, &rs.uid, look).flatten() else {
            return;
        };
        if !is_told && !others.may_ask(now) {
            return;
        }
        let take = |memory: &mut Memory| memory.suspicion.take();
        let Some(suspects) = self.memories.get(&rs.key, &rs.uid, take) else {
            return;
        };
        if is_told {
            self.count_foreign_writes(&suspects);
        } else {
            self.query_managers(rs, &suspects, now);
        }
    }

    fn query_managers(&self, rs: &ReplicaSet, suspects: &Suspects, now: Instant) {
        let (what, found) = match &suspects.pod {
            Some(name) => (format!("pod {name}"), self.live.owner_managers(rs, name)),
            None => ("the status".to_owned(), self.live.status_managers(&rs.key)),
        };
        let managers = match found {
            Ok(managers) => managers,
            Err(error) => {
                log::debug!(
                    object:% = self.kind.named(&rs.key), error:%;
                    "who wrote {what} is not known"
                );
                return;
            }
        };
        let Some(other) = foreign_manager(managers) else {
            return;
        };
        self.count_foreign_writes(suspects);
        let note_told = |memory: &mut Memory| memory.suspicion.note_told(now);
        self.memories.with(&rs.key, &rs.uid, note_told);
        let message = format!(
            "{what} was written by {other}, while {} controls this {}: stop one of the two",
            self.kind.component, self.kind.kind
        );
        let object = self.kind.named(&rs.key);
        log::warn!(object:% = object; "another writer is at work: {message}");
        self.pod_control.warn(rs, OTHER_WRITER, message);
    }

    fn count_foreign_writes(&self, suspects: &Suspects) {
        for what in suspects.kinds() {
            self.metrics.other_writers.seen(what);
        }
    }
}

/// Who wrote last, unless it was this program.
fn foreign_manager(managers: Vec<Manager>) -> Option<String> {
    let latest = managers.iter().map(|manager| manager.time).max()?;
    let mut last = managers
        .into_iter()
        .filter(|manager| manager.time == latest);
    // Times have whole seconds: one of ours in the same second leaves it open, and then it is not told.
    let mut other = None;
    last.all(|manager| {
        let is_other = manager.name != MANAGER;
        other = Some(manager.name);
        is_other
    })
    .then_some(other)
    .flatten()
}

/// True if the two agree in what this controller writes; conditions of other types are others' matter.
fn is_alike(a: &ReplicaSetStatus, b: &ReplicaSetStatus) -> bool {
    let failure = |status: &ReplicaSetStatus| {
        let condition = get_condition(&status.conditions, REPLICA_FAILURE);
        condition.map(|condition| condition.status.clone())
    };
    a.replicas == b.replicas
        && a.fully_labeled_replicas == b.fully_labeled_replicas
        && a.ready_replicas == b.ready_replicas
        && a.available_replicas == b.available_replicas
        && a.terminating_replicas == b.terminating_replicas
        && a.observed_generation == b.observed_generation
        && failure(a) == failure(b)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{CHECK_INTERVAL, OtherWriters, foreign_manager};
    use crate::live::Manager;
    use crate::stdx::clock::{Clock, FakeClock};

    fn managers(of: &[(&str, i64)]) -> Vec<Manager> {
        let manager = |(name, second): &(&str, i64)| Manager {
            name: (*name).to_owned(),
            time: Timestamp::from_second(*second).ok(),
        };
        of.iter().map(manager).collect()
    }

    #[test]
    fn only_the_last_writer_counts_and_never_this_program() {
        let ours = "replicaset-controller";
        let other = "kube-controller-manager";
        assert_eq!(foreign_manager(managers(&[])), None);
        assert_eq!(foreign_manager(managers(&[(ours, 2)])), None);
        assert_eq!(foreign_manager(managers(&[(other, 1), (ours, 2)])), None);
        assert_eq!(foreign_manager(managers(&[(other, 2), (ours, 2)])), None);
        assert_eq!(
            foreign_manager(managers(&[(ours, 1), (other, 2)])).as_deref(),
            Some(other)
        );
    }

    #[test]
    fn the_api_server_is_asked_seldom() {
        let (others, clock) = (OtherWriters::default(), FakeClock::default());
        assert!(others.may_ask(clock.now()));
        assert!(!others.may_ask(clock.now()));
        clock.advance(CHECK_INTERVAL);
        assert!(others.may_ask(clock.now()));
    }
}
