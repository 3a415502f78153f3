//! Detects other writers of the objects that this daemon controls. Two controllers of one
//! ReplicaSet fight while each looks healthy, so this daemon reports a second one.
//!
//! The watch threads raise a *suspicion*: a new pod of a ReplicaSet that this daemon does not
//! expect, or a changed status that it did not write. The next sync of the ReplicaSet queries the
//! API server for the writer (`metadata.managedFields`), so an own write with a lost response never
//! counts as foreign. Another instance of this program writes under the same name and stays
//! undetected. No health check fails, since a restart does not stop the other controller.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::api::{Pod, ReplicaSet, WorkloadKind};
use crate::controller::Mode;
use crate::controller::act::Writer;
use crate::controller::memory::Memory;
use crate::controller::memory::positions::Versions;
use crate::controller::view::cached_versions;
use crate::live::field_managers::{MANAGER, Manager};

/// Minimum time between two queries, over all ReplicaSets.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Minimum time between two reports, over all ReplicaSets. In between, suspicions only count.
const REPORT_INTERVAL: Duration = Duration::from_mins(1);

/// `explain` names another writer for this long after the last report.
const EXPLAINED_FOR: Duration = Duration::from_mins(2);

/// Reason of the warning event.
pub const OTHER_WRITER: &str = "OtherWriter";

/// When this daemon started to write, and what it knows of other writers. Only a worker with a
/// suspicion, and `explain`, take the one short lock.
#[derive(Debug, Default)]
pub struct OtherWriters {
    /// What the caches had shown by the take-over; unset while this daemon must not write.
    armed: OnceLock<Versions>,
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
        if state.queried.is_some_and(is_recent) {
            return false;
        }
        state.queried = Some(now);
        true
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

impl Mode {
    /// What another writer did within the last minutes.
    pub(in crate::controller) fn other_writer(&self, now: Instant) -> Option<String> {
        self.others()?.reported_within(EXPLAINED_FOR, now)
    }

    /// Records in `memory` that the watch showed a new pod. Call this before the handler observes
    /// its creation.
    pub(in crate::controller) fn suspect_pod(&self, memory: &mut Memory, pod: &Pod) {
        if let Some(armed) = self.others().and_then(|it| it.armed.get())
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
        let armed = self.others().and_then(|it| it.armed.get());
        memory.suspicion.saw_status(old, new, armed);
    }

    fn others(&self) -> Option<&OtherWriters> {
        match self {
            Self::Writes(writer) => Some(&writer.others),
            Self::DryRun(_) => None,
        }
    }
}

impl Writer {
    /// Starts reporting foreign writes. Later calls have no effect.
    pub(in crate::controller) fn start_detection(&self) {
        let others = &self.others;
        others.armed.get_or_init(|| cached_versions(&self.cache));
    }

    /// Follows up a suspicion of the watch threads. Blocks for one read if there is one.
    pub(in crate::controller) fn follow_suspicion(&self, rs: &ReplicaSet) {
        let take = |memory: &mut Memory| memory.suspicion.take();
        let suspects = self.memories.get(&rs.key, &rs.uid, take).flatten();
        let (others, Some(suspects)) = (&self.others, suspects) else {
            return;
        };
        let now = self.clock.now();
        if others.reported_within(REPORT_INTERVAL, now).is_none() {
            // A second controller goes on writing, so a later suspicion finds it, too.
            let name = suspects.pod.as_deref();
            let found = others.may_query(now).then(|| self.query_managers(rs, name));
            let Some((what, other)) = found.flatten() else {
                return;
            };
            let message = self.report_writer(rs, &what, &other);
            others.lock().reported = Some((now, message));
        }
        let pod = suspects.pod.map(|_| "pod");
        let status = suspects.status.map(|_| "status");
        for what in pod.into_iter().chain(status) {
            self.metrics.other_writers.seen(what);
        }
    }

    /// Queries who wrote this pod of `rs`, or its status. Returns the object and its writer, if
    /// that is another program.
    fn query_managers(&self, rs: &ReplicaSet, pod: Option<&str>) -> Option<(String, String)> {
        let (what, managers) = match pod {
            Some(name) => (format!("pod {name}"), self.live.owner_managers(rs, name)),
            None => (
                format!("the status of {}", rs.key),
                self.live.status_managers(&rs.key),
            ),
        };
        let unknown = |error| {
            log::debug!(
                object:% = self.kind.named(&rs.key), error:%;
                "cannot determine the writer of {what}"
            );
        };
        let managers = managers.map_err(unknown).ok()?;
        Some((what, foreign_manager(managers)?))
    }

    fn report_writer(&self, rs: &ReplicaSet, what: &str, other: &str) -> String {
        let message = format!(
            "{other} wrote {what}, which this daemon controls: two controllers undo each other's \
             work"
        );
        let way_out = way_out(self.kind);
        let object = self.kind.named(&rs.key);
        log::error!(object:% = object, then:% = way_out, writer = other; "{message}");
        let event = format!("{message}; {way_out}");
        self.pod_control.warn(rs, OTHER_WRITER, event);
        message
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

/// Returns the last of the other writers, unless an own write came later. In a fight, both write in
/// the same second.
fn foreign_manager(managers: Vec<Manager>) -> Option<String> {
    let (own, foreign): (Vec<_>, Vec<_>) = managers.into_iter().partition(|it| it.name == MANAGER);
    let own = own.into_iter().filter_map(|it| it.time).max();
    let last = foreign.into_iter().max_by_key(|it| it.time)?;
    (last.time >= own).then_some(last.name)
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
    fn a_write_of_another_program_after_the_last_own_one_is_foreign() {
        let (ours, other) = ("replicaset-controller", "kube-controller-manager");
        let foreign = |of: &[(&str, i64)]| foreign_manager(managers(of));
        for none in [&[][..], &[(ours, 6)], &[(other, 5), (ours, 6)]] {
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
        let is_raised = |memory: &mut Memory| memory.suspicion.take().is_some();
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
