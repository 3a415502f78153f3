//! Signs that another writer changed a ReplicaSet or one of its pods. Plain data without lock,
//! clock or I/O; [`other_writers`](crate::controller::observe::other_writers) follows them up.

use std::sync::Arc;

use jiff::Timestamp;

use crate::api::conditions::{REPLICA_FAILURE, get_condition};
use crate::api::{Pod, ReplicaSet, ReplicaSetStatus, ResourceVersion};

/// The suspicion about one ReplicaSet.
#[derive(Debug, Default)]
pub struct Suspicion {
    suspects: Suspects,
    /// The last own status, and its version, until the watch has shown it.
    own_status: Option<(ResourceVersion, ReplicaSetStatus)>,
}

/// Objects that another writer may have written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suspects {
    /// A pod that this daemon did not create.
    pub pod: Option<Arc<str>>,
    /// The version of a status that this daemon did not write.
    pub status: Option<ResourceVersion>,
}

impl Suspicion {
    /// Records that this daemon has stored the status of `rs`.
    pub fn wrote_status(&mut self, rs: &ReplicaSet) {
        let version = &rs.resource_version;
        if self.suspects.status.as_ref() == Some(version) {
            self.suspects.status = None;
        } else {
            self.own_status = Some((version.clone(), rs.status.clone()));
        }
    }

    /// Records that the watch showed a pod that this daemon, which writes since `armed`, does not
    /// expect.
    pub fn saw_pod(&mut self, pod: &Pod, armed: &Timestamp) {
        let is_new = |creation: &crate::api::CompactTimestamp| creation.timestamp() > *armed;
        if pod.creation.as_ref().is_some_and(is_new) {
            self.suspects.pod = Some(Arc::clone(&pod.key.name));
        }
    }

    /// Records that the watch showed a change from `old` to `new`. `is_armed` is false while this
    /// daemon must not write.
    pub fn saw_status(&mut self, old: &ReplicaSet, new: &ReplicaSet, is_armed: bool) {
        let version = &new.resource_version;
        let is_shown = |(own, _): &mut (ResourceVersion, _)| version.is_as_new_as(own);
        let own = self.own_status.take_if(is_shown);
        // An own status has replaced this one, or a list shows it in a later version.
        let is_own = self.own_status.is_some()
            || own.is_some_and(|(_, status)| is_alike(&status, &new.status));
        let is_changed = old.uid == new.uid && !is_alike(&old.status, &new.status);
        if is_changed && !is_own && is_armed {
            self.suspects.status = Some(version.clone());
        }
    }

    /// True if there is a suspicion.
    pub fn is_raised(&self) -> bool {
        self.suspects != Suspects::default()
    }

    /// Takes out the suspicion.
    pub fn take(&mut self) -> Suspects {
        std::mem::take(&mut self.suspects)
    }

    /// True if the suspicion may be dropped.
    pub fn is_over(&self) -> bool {
        !self.is_raised() && self.own_status.is_none()
    }
}

impl Suspects {
    /// The kinds of the suspects, as in the metric's label.
    pub fn kinds(&self) -> impl Iterator<Item = &'static str> {
        let pod = self.pod.as_ref().map(|_| "pod");
        pod.into_iter()
            .chain(self.status.as_ref().map(|_| "status"))
    }
}

/// True if the fields that this controller writes are equal. Conditions of other types belong to
/// other clients.
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
    use std::time::Duration;

    use super::Suspicion;
    use crate::api::{ObjectKey, Pod, ReplicaSet};
    use crate::controller::testing::replica_set;
    use crate::stdx::clock::{Clock, FakeClock};

    /// A ReplicaSet in this version, whose status counts this many pods.
    fn rs(version: &str, replicas: i32) -> ReplicaSet {
        let mut rs = replica_set("web", 1);
        rs.resource_version = version.into();
        rs.status.replicas = replicas;
        rs
    }

    fn pod(clock: &FakeClock) -> Pod {
        Pod {
            key: ObjectKey::new("shop", "web-1"),
            creation: Some(clock.wall().into()),
            ..Pod::default()
        }
    }

    #[test]
    fn a_pod_from_before_the_take_over_raises_no_suspicion() {
        let (mut suspicion, clock) = (Suspicion::default(), FakeClock::default());
        let (before, armed) = (pod(&clock), clock.wall());
        suspicion.saw_pod(&before, &armed);
        assert!(!suspicion.is_raised());
        clock.advance(Duration::from_secs(1));
        suspicion.saw_pod(&pod(&clock), &armed);
        assert!(suspicion.is_raised());
    }

    #[test]
    fn suspects_are_told_by_kind() {
        let (mut suspicion, clock) = (Suspicion::default(), FakeClock::default());
        let armed = clock.wall();
        clock.advance(Duration::from_secs(1));
        assert_eq!(suspicion.take().kinds().count(), 0);
        suspicion.saw_pod(&pod(&clock), &armed);
        assert!(suspicion.take().kinds().eq(["pod"]));
        suspicion.saw_pod(&pod(&clock), &armed);
        suspicion.saw_status(&rs("6", 0), &rs("7", 1), true);
        assert!(suspicion.take().kinds().eq(["pod", "status"]));
        assert!(!suspicion.is_raised());
    }

    #[test]
    fn nothing_is_suspected_while_this_daemon_must_not_write() {
        let mut suspicion = Suspicion::default();
        suspicion.saw_status(&rs("6", 0), &rs("7", 1), false);
        assert!(!suspicion.is_raised());
    }

    #[test]
    fn own_statuses_raise_no_suspicion_in_either_order() {
        let mut suspicion = Suspicion::default();
        suspicion.wrote_status(&rs("7", 1));
        suspicion.saw_status(&rs("6", 0), &rs("7", 1), true);
        suspicion.saw_status(&rs("7", 1), &rs("8", 2), true);
        suspicion.wrote_status(&rs("8", 2));
        assert!(suspicion.is_over());
    }

    #[test]
    fn an_own_status_is_kept_until_the_watch_shows_it() {
        let mut suspicion = Suspicion::default();
        suspicion.wrote_status(&rs("7", 1));
        assert!(!suspicion.is_over());
        suspicion.saw_status(&rs("6", 0), &rs("7", 1), true);
        assert!(suspicion.is_over());
        suspicion.saw_status(&rs("7", 1), &rs("8", 2), true);
        assert!(!suspicion.is_over());
    }

    #[test]
    fn the_first_of_two_own_statuses_is_no_foreign_one() {
        let mut suspicion = Suspicion::default();
        suspicion.wrote_status(&rs("7", 1));
        suspicion.wrote_status(&rs("8", 2));
        suspicion.saw_status(&rs("6", 0), &rs("7", 1), true);
        suspicion.saw_status(&rs("7", 1), &rs("8", 2), true);
        assert!(suspicion.is_over());
    }

    #[test]
    fn a_list_may_show_an_own_status_in_a_later_version() {
        for (shown, is_foreign) in [(1, false), (2, true)] {
            let mut suspicion = Suspicion::default();
            suspicion.wrote_status(&rs("7", 1));
            suspicion.saw_status(&rs("6", 0), &rs("9", shown), true);
            assert_eq!(suspicion.is_raised(), is_foreign);
        }
    }
}
