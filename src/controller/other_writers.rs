//! Detects other controllers of the ReplicaSets that this daemon controls. Two controllers of one
//! ReplicaSet undo each other's work while each looks healthy, so this daemon reports a second one.
//!
//! The watch threads note a new pod that this daemon does not expect. The next sync of its
//! ReplicaSet queries the API server for the writer of its owner reference, so an own create with a
//! lost response never counts as foreign. Another instance of this program writes under the same
//! name and stays undetected.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::api::{Pod, ReplicaSet, ResourceVersion, WorkloadKind};
use crate::controller::Core;
use crate::controller::act::Writer;
use crate::controller::memory::Memory;
use crate::live::{MANAGER, Manager};

/// Minimum time between two queries, over all ReplicaSets.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Minimum time between two reports, over all ReplicaSets. In between, foreign pods only
/// increase the metric.
const REPORT_INTERVAL: Duration = Duration::from_mins(1);

/// `explain` names another writer for this long after the last report.
pub const EXPLAINED_FOR: Duration = Duration::from_mins(2);

pub const OTHER_WRITER: &str = "OtherWriter";

#[derive(Debug, Default)]
pub struct OtherWriters {
    /// The version of the pod cache at the failover; unset while this daemon must not write.
    armed: OnceLock<ResourceVersion>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    queried: Option<Instant>,
    /// The last report, and when it was made.
    reported: Option<(Instant, String)>,
}

impl OtherWriters {
    /// Starts reporting foreign pods that are newer than this version of the pod cache. Later calls
    /// have no effect.
    pub(super) fn start(&self, shown: ResourceVersion) {
        self.armed.get_or_init(|| shown);
    }

    /// Returns true if the last query is old enough, and counts that as a new query.
    fn may_query(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        let is_due = |then: Instant| now.saturating_duration_since(then) >= CHECK_INTERVAL;
        let may_query = state.queried.is_none_or(is_due);
        if may_query {
            state.queried = Some(now);
        }
        may_query
    }

    /// The last report, if it was made within `period`.
    fn reported_within(&self, period: Duration, now: Instant) -> Option<String> {
        let state = self.state.lock();
        let (at, message) = state.reported.as_ref()?;
        (now.saturating_duration_since(*at) < period).then(|| message.clone())
    }
}

impl Core {
    /// What another controller wrote lately, for `explain`.
    pub(crate) fn other_writer(&self, now: Instant) -> Option<String> {
        self.others.reported_within(EXPLAINED_FOR, now)
    }

    /// Records in `memory` that the watch showed this new pod, if this daemon did not create it.
    pub(super) fn note_foreign(&self, memory: &mut Memory, pod: &Pod) {
        if let Some(armed) = self.others.armed.get()
            && !armed.is_as_new_as(&pod.resource_version)
            && !memory.own_writes.has_creation(&pod.key.name)
        {
            memory.foreign_pod = Some(pod.key.name.clone());
        }
    }
}

impl Writer {
    /// Reports who created a foreign pod, if the watch threads noted one. Blocks for one read then.
    pub(super) fn report_other_writer(&self, rs: &ReplicaSet) {
        let Some(pod) = self.memories.get(rs, |it| it.foreign_pod.take()).flatten() else {
            return;
        };
        let (others, now) = (&self.others, self.clock.now());
        if others.reported_within(REPORT_INTERVAL, now).is_none() {
            // A second controller continues to write, so a later pod shows it, too.
            let other = others.may_query(now).then(|| self.query_owner(rs, &pod));
            let Some(other) = other.flatten() else {
                return;
            };
            let message = format!(
                "{other} created pod {pod} of a ReplicaSet that this daemon controls: two \
                 controllers may undo each other's work"
            );
            let remedy = remedy(self.kind);
            let object = self.kind.named(&rs.key);
            log::error!(object:% = object, then:% = remedy, writer = other; "{message}");
            let event = format!("{message}; {remedy}");
            self.pod_control.warn(rs, OTHER_WRITER, event);
            others.state.lock().reported = Some((now, message));
        }
        self.metrics.other_writer.with_label_values(&["pod"]).inc();
    }

    /// Queries who wrote the owner of this pod of `rs`, if that is another program.
    fn query_owner(&self, rs: &ReplicaSet, pod: &str) -> Option<String> {
        let managers = self.live.owner_managers(rs, pod).inspect_err(|error| {
            let object = self.kind.named(&rs.key);
            log::debug!(object:% = object, error:%; "cannot determine who wrote pod {pod}");
        });
        foreign_manager(managers.ok()?)
    }
}

/// How to stop one of two controllers.
pub fn remedy(kind: &WorkloadKind) -> String {
    format!(
        "stop one of them: this daemon, or kube-controller-manager's controller \
         (--controllers=*,-{}; the same for -deployment-controller, if this daemon runs that)",
        kind.controller
    )
}

/// Returns the last of the other writers, unless an own write came later. Two competing controllers
/// may write in the same second.
fn foreign_manager(managers: Vec<Manager>) -> Option<String> {
    let (own, foreign): (Vec<_>, Vec<_>) = managers.into_iter().partition(|it| it.name == MANAGER);
    let own = own.into_iter().filter_map(|it| it.time).max();
    let last = foreign.into_iter().max_by_key(|it| it.time)?;
    (last.time >= own).then_some(last.name)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{CHECK_INTERVAL, OtherWriters, REPORT_INTERVAL, foreign_manager};
    use crate::api::Pod;
    use crate::controller::memory::Memory;
    use crate::controller::testing::{fixture, owned_pod, replica_set};
    use crate::live::Manager;
    use crate::stdx::clock::Clock;
    use crate::stdx::testing::FakeClock;

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
    fn only_new_pods_that_it_did_not_create_are_foreign() {
        let rs = replica_set("web", 2);
        let fixture = fixture(&rs, []);
        let noted = || {
            let take = |memory: &mut Memory| memory.foreign_pod.take();
            fixture.controller.memories.get(&rs, take)
        };
        let pod = |name: &str, version: &str| Pod {
            resource_version: version.into(),
            ..owned_pod(name, &rs)
        };
        fixture.deliver_pod(pod("before", "3"));
        assert_eq!(noted().flatten(), None, "this daemon must not write yet");
        fixture.controller.start_detection();
        fixture.deliver_pod(pod("shown-late", "2"));
        assert_eq!(noted().flatten(), None);
        fixture.writer().expect(&rs, ["own".into()], []);
        fixture.deliver_pod(pod("own", "4"));
        assert_eq!(noted().flatten(), None);
        fixture.deliver_pod(pod("foreign", "5"));
        assert_eq!(noted().flatten().as_deref(), Some("foreign"));
    }

    /// The cache shows a pod before the watch thread handles its event.
    #[test]
    fn an_own_pod_found_before_its_event_is_not_reported() {
        let rs = replica_set("web", 1);
        let fixture = fixture(&rs, []);
        fixture.controller.start_detection();
        fixture.writer().expect(&rs, ["own".into()], []);
        let memories = &fixture.controller.memories;
        memories.with(&rs, |memory| {
            memory.own_writes.creation_answered("own", &"4".into());
        });
        let pod = Pod {
            resource_version: "4".into(),
            ..owned_pod("own", &rs)
        };
        let event = fixture.cache.pods.apply(pod).expect("a new pod");
        fixture.sync_ok("web");
        fixture.controller.handle_pod_event(&event);
        fixture.sync_ok("web");
        assert_eq!(fixture.writes.take_warnings(), [""; 0]);
        let is_over = |memory: &mut Memory| memory.own_writes.is_over(fixture.clock.now());
        assert_eq!(memories.get(&rs, is_over), Some(true));
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
        others.state.lock().reported = Some((clock.now(), "it".to_owned()));
        assert_eq!(reported().as_deref(), Some("it"));
        clock.advance(REPORT_INTERVAL);
        assert_eq!(reported(), None);
    }
}
