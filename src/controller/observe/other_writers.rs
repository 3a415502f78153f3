//! Detects other writers of the objects that this daemon controls. Two controllers of one
//! ReplicaSet fight while each looks healthy, so this daemon reports a second one.
//!
//! The watch threads raise a *suspicion* at little cost: a new pod of a ReplicaSet that this daemon
//! does not expect, or a changed status that it did not write. The next sync of the ReplicaSet
//! queries the API server once for the writer (`metadata.managedFields`), so an own write with a
//! lost response never counts as foreign. After a query, suspicions are dropped for five seconds.
//! For some time after the take-over there is none, because the previous leader's last writes may
//! still arrive.
//!
//! Another instance of this program stays undetected, because it writes under the same name.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::api::{Pod, ReplicaSet};
use crate::controller::memory::Memory;
use crate::controller::memory::suspicion::{Armed, Suspects};
use crate::controller::{Mode, ReplicaSetController};
use crate::live::field_managers::{MANAGER, Manager};

/// Minimum time between two queries, over all ReplicaSets.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Reason of the warning event.
pub const OTHER_WRITER: &str = "OtherWriter";

/// When this daemon started to write, and when it last queried the API server. Shared by workers
/// and watch threads. Only a worker with a suspicion takes the one short lock.
#[derive(Debug, Default)]
pub struct OtherWriters {
    /// `None` while this daemon must not write.
    armed: OnceLock<Armed>,
    checked: Mutex<Option<Instant>>,
}

impl OtherWriters {
    /// Returns true if the last query is old enough, and counts that as a new query.
    fn may_query(&self, now: Instant) -> bool {
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |then: Instant| now.saturating_duration_since(then) < CHECK_INTERVAL;
        let may_query = !checked.is_some_and(is_recent);
        if may_query {
            *checked = Some(now);
        }
        may_query
    }
}

impl ReplicaSetController {
    /// Starts reporting foreign writes. Call once the caches have synced. Later calls have no
    /// effect.
    pub fn start_detection(&self) {
        if let Mode::Writes(others) = &self.mode {
            others.armed.get_or_init(|| Armed {
                since: self.clock.now(),
                wall: self.clock.wall(),
            });
        }
    }

    fn armed(&self) -> Option<&Armed> {
        match &self.mode {
            Mode::Writes(others) => others.armed.get(),
            Mode::DryRun(_) => None,
        }
    }

    /// Records in `memory` that the watch showed a new pod. Call this before the handler observes
    /// its creation.
    pub(in crate::controller) fn suspect_pod(&self, memory: &mut Memory, pod: &Pod) {
        if let Some(armed) = self.armed()
            && !memory.own_writes.has_creation(&pod.key.name)
        {
            memory.suspicion.saw_pod(pod, armed, self.clock.now());
        }
    }

    /// Records in `memory` that the watch showed a changed ReplicaSet.
    pub(in crate::controller) fn suspect_status(
        &self,
        memory: &mut Memory,
        old: &ReplicaSet,
        new: &ReplicaSet,
    ) {
        let (armed, now) = (self.armed(), self.clock.now());
        memory.suspicion.saw_status(old, new, armed, now);
    }

    /// Follows up a suspicion of the watch threads. Blocks for one read if there is one.
    pub(in crate::controller) fn follow_suspicion(&self, rs: &ReplicaSet) {
        let Mode::Writes(others) = &self.mode else {
            return;
        };
        let now = self.clock.now();
        let take = |memory: &mut Memory| {
            let suspicion = &mut memory.suspicion;
            let is_raised = suspicion.is_raised();
            is_raised.then(|| (suspicion.take(), suspicion.is_reported(now)))
        };
        match self.memories.get(&rs.key, &rs.uid, take).flatten() {
            Some((suspects, true)) => self.count_foreign_writes(&suspects),
            Some((suspects, false)) if others.may_query(now) => {
                self.query_managers(rs, &suspects, now);
            }
            // A second controller goes on writing, so a later suspicion finds it.
            Some(_) | None => {}
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
                    "cannot determine the writer of {what}"
                );
                return;
            }
        };
        let Some(other) = foreign_manager(managers) else {
            return;
        };
        self.count_foreign_writes(suspects);
        let note_reported = |memory: &mut Memory| memory.suspicion.note_reported(now);
        self.memories.with(&rs.key, &rs.uid, note_reported);
        let message = format!(
            "{what} was written by {other}, while {} controls this {}: stop one of the two",
            self.kind.component, self.kind.kind
        );
        let object = self.kind.named(&rs.key);
        log::warn!(object:% = object; "another writer is active: {message}");
        self.pod_control.warn(rs, OTHER_WRITER, message);
    }

    fn count_foreign_writes(&self, suspects: &Suspects) {
        for what in suspects.kinds() {
            self.metrics.other_writers.seen(what);
        }
    }
}

/// Returns the last writer, unless it was this program.
fn foreign_manager(managers: Vec<Manager>) -> Option<String> {
    let latest = managers.iter().map(|manager| manager.time).max()?;
    let mut last = managers
        .into_iter()
        .filter(|manager| manager.time == latest);
    // Times have whole seconds, so an own write in the same second leaves the order open.
    let mut other = None;
    last.all(|manager| {
        let is_other = manager.name != MANAGER;
        other = Some(manager.name);
        is_other
    })
    .then_some(other)
    .flatten()
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
    fn queries_are_rate_limited() {
        let (others, clock) = (OtherWriters::default(), FakeClock::default());
        assert!(others.may_query(clock.now()));
        assert!(!others.may_query(clock.now()));
        clock.advance(CHECK_INTERVAL);
        assert!(others.may_query(clock.now()));
    }
}
