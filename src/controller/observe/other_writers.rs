//! Detects other writers of the objects that this daemon controls. Two controllers of one
//! ReplicaSet fight while each looks healthy, so this daemon reports a second one.
//!
//! The watch threads raise a *suspicion* at little cost: a new pod of a ReplicaSet that this daemon
//! does not expect, or a changed status that it did not write. The next sync of the ReplicaSet
//! queries the API server for the writer (`metadata.managedFields`), so an own write with a lost
//! response never counts as foreign. Nor does a write before the take-over, by the API server's
//! clock: kube-controller-manager may just have led.
//!
//! Another instance of this program stays undetected, because it writes under the same name. No
//! health check fails, since a restart does not stop the other controller.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::api::{Pod, ReplicaSet, WorkloadKind};
use crate::controller::memory::Memory;
use crate::controller::memory::suspicion::Suspects;
use crate::controller::{Mode, ReplicaSetController};
use crate::live::field_managers::{MANAGER, Manager};

/// Minimum time between two queries, over all ReplicaSets.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Minimum time between two reports, over all ReplicaSets. In between, suspicions only count.
const REPORT_INTERVAL: Duration = Duration::from_mins(1);

/// `explain` names another writer for this long after the last report.
const EXPLAINED_FOR: Duration = Duration::from_mins(2);

/// Reason of the warning event.
pub const OTHER_WRITER: &str = "OtherWriter";

/// When this daemon started to write, and what it knows of other writers. Shared by workers and
/// watch threads. Only a worker with a suspicion, and `explain`, take the one short lock.
#[derive(Debug, Default)]
pub struct OtherWriters {
    /// The time of the take-over; unset while this daemon must not write.
    armed: OnceLock<Timestamp>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    queried: Option<Instant>,
    /// The last report, and when it was made.
    reported: Option<(Instant, String)>,
}

impl OtherWriters {
    /// Returns true if the last query is old enough, and counts that as a new query.
    fn may_query(&self, now: Instant) -> bool {
        let mut state = self.lock();
        let is_recent = |then: Instant| now.saturating_duration_since(then) < CHECK_INTERVAL;
        let may_query = !state.queried.is_some_and(is_recent);
        if may_query {
            state.queried = Some(now);
        }
        may_query
    }

    /// The last report, if it was made within `period`.
    fn reported_within(&self, period: Duration, now: Instant) -> Option<String> {
        let state = self.lock();
        let (at, message) = state.reported.as_ref()?;
        (now.saturating_duration_since(*at) < period).then(|| message.clone())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReplicaSetController {
    /// Starts reporting foreign writes. Call once the caches have synced. Later calls have no
    /// effect.
    pub fn start_detection(&self) {
        if let Mode::Writes(others) = &self.mode {
            others.armed.get_or_init(|| self.clock.wall());
        }
    }

    /// What another writer did within the last minutes.
    pub(in crate::controller) fn other_writer(&self) -> Option<String> {
        match &self.mode {
            Mode::Writes(others) => others.reported_within(EXPLAINED_FOR, self.clock.now()),
            Mode::DryRun(_) => None,
        }
    }

    fn armed(&self) -> Option<&Timestamp> {
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
            memory.suspicion.saw_pod(pod, armed);
        }
    }

    /// Records in `memory` that the watch showed a changed ReplicaSet.
    pub(in crate::controller) fn suspect_status(
        &self,
        memory: &mut Memory,
        old: &ReplicaSet,
        new: &ReplicaSet,
    ) {
        let is_armed = self.armed().is_some();
        memory.suspicion.saw_status(old, new, is_armed);
    }

    /// Follows up a suspicion of the watch threads. Blocks for one read if there is one.
    pub(in crate::controller) fn follow_suspicion(&self, rs: &ReplicaSet) {
        let Mode::Writes(others) = &self.mode else {
            return;
        };
        let take = |memory: &mut Memory| {
            let suspicion = &mut memory.suspicion;
            suspicion.is_raised().then(|| suspicion.take())
        };
        let Some(suspects) = self.memories.get(&rs.key, &rs.uid, take).flatten() else {
            return;
        };
        let now = self.clock.now();
        if others.reported_within(REPORT_INTERVAL, now).is_some() {
            self.count_foreign_writes(&suspects);
        } else if others.may_query(now) {
            // A second controller goes on writing, so a later suspicion finds it, too.
            self.query_managers(rs, &suspects, others);
        }
    }

    fn query_managers(&self, rs: &ReplicaSet, suspects: &Suspects, others: &OtherWriters) {
        let (what, found) = match &suspects.pod {
            Some(name) => (format!("pod {name}"), self.live.owner_managers(rs, name)),
            None => (
                format!("the status of {}", rs.key),
                self.live.status_managers(&rs.key),
            ),
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
        let armed = others.armed.get().copied();
        let Some(other) = armed.and_then(|armed| foreign_manager(managers, armed)) else {
            return;
        };
        self.count_foreign_writes(suspects);
        let message = format!(
            "{other} wrote {what}, which this daemon controls: two controllers undo each other's \
             work"
        );
        let way_out = way_out(self.kind);
        let object = self.kind.named(&rs.key);
        log::error!(object:% = object, then:% = way_out, writer = other; "{message}");
        self.pod_control
            .warn(rs, OTHER_WRITER, format!("{message}; {way_out}"));
        others.lock().reported = Some((self.clock.now(), message));
    }

    fn count_foreign_writes(&self, suspects: &Suspects) {
        for what in suspects.kinds() {
            self.metrics.other_writers.seen(what);
        }
    }
}

/// How to stop one of two controllers.
pub fn way_out(kind: &WorkloadKind) -> String {
    format!(
        "stop one of the two: this daemon, or the controller in kube-controller-manager, by its \
         flag --controllers=*,-{}",
        kind.controller
    )
}

/// Returns the last of the other writers after `armed`. Own writes do not hide it: in a fight, both
/// write in the same second.
fn foreign_manager(managers: Vec<Manager>, armed: Timestamp) -> Option<String> {
    let is_foreign = |it: &Manager| it.name != MANAGER && it.time > Some(armed);
    let foreign = managers.into_iter().filter(is_foreign);
    Some(foreign.max_by_key(|manager| manager.time)?.name)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;

    use super::{CHECK_INTERVAL, OtherWriters, REPORT_INTERVAL, foreign_manager};
    use crate::controller::memory::Memory;
    use crate::controller::testing::{fixture, owned_pod, replica_set, with_status};
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
    fn a_write_of_another_program_after_the_take_over_is_foreign() {
        let armed = Timestamp::constant(5, 500_000_000);
        let (ours, other) = ("replicaset-controller", "kube-controller-manager");
        let foreign = |of: &[(&str, i64)]| foreign_manager(managers(of), armed);
        for none in [
            &[][..],
            &[(ours, 6)],
            &[(other, 5)],
            &[(other, 5), (ours, 6)],
        ] {
            assert_eq!(foreign(none), None);
        }
        for some in [
            &[(other, 6)][..],
            &[(other, 6), (ours, 6)],
            &[(ours, 6), (other, 7)],
        ] {
            assert_eq!(foreign(some).as_deref(), Some(other));
        }
    }

    #[test]
    fn an_own_status_raises_no_suspicion() {
        let rs = replica_set("web", 1);
        let fixture = fixture(&rs, [owned_pod("a", &rs)]);
        fixture.controller.start_detection();
        fixture.clock.advance(Duration::from_hours(1));
        fixture.sync_ok("web");
        let status = fixture.writes.status_updates().remove(0);
        let mut written = with_status(&rs, status);
        written.resource_version = "2".into();
        fixture.deliver_replica_set(written);
        let is_raised = |memory: &mut Memory| memory.suspicion.is_raised();
        let is_raised = fixture.controller.memories.get(&rs.key, &rs.uid, is_raised);
        assert_eq!(is_raised, Some(false));
    }

    #[test]
    fn queries_and_reports_are_rate_limited() {
        let (others, clock) = (OtherWriters::default(), FakeClock::default());
        assert!(others.may_query(clock.now()));
        assert!(!others.may_query(clock.now()));
        clock.advance(CHECK_INTERVAL);
        assert!(others.may_query(clock.now()));
        let reported = || others.reported_within(REPORT_INTERVAL, clock.now());
        assert_eq!(reported(), None);
        others.lock().reported = Some((clock.now(), "it".to_owned()));
        assert_eq!(reported().as_deref(), Some("it"));
        clock.advance(REPORT_INTERVAL);
        assert_eq!(reported(), None);
    }
}
