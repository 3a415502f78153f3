//! Signs that another writer changed a ReplicaSet or one of its pods. Plain data without lock,
//! clock or I/O; [`other_writers`](crate::controller::other_writers) follows them up.

use std::sync::Arc;

use super::positions::Versions;
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

    /// Records that the watch showed a pod that this daemon does not expect.
    pub fn saw_pod(&mut self, pod: &Pod, armed: &Versions) {
        if !armed.pods.is_as_new_as(&pod.resource_version) {
            self.suspects.pod = Some(Arc::clone(&pod.key.name));
        }
    }

    /// Records that the watch showed a change from `old` to `new`. `armed` is `None` while this
    /// daemon must not write.
    pub fn saw_status(&mut self, old: &ReplicaSet, new: &ReplicaSet, armed: Option<&Versions>) {
        let version = &new.resource_version;
        let is_shown = |(own, _): &mut (ResourceVersion, _)| version.is_as_new_as(own);
        let own = self.own_status.take_if(is_shown);
        // An own status has replaced this one, or a list shows it in a later version.
        let is_own = self.own_status.is_some()
            || own.is_some_and(|(_, status)| are_alike(&status, &new.status));
        let is_changed = old.uid == new.uid && !are_alike(&old.status, &new.status);
        let is_new = armed.is_some_and(|armed| !armed.replica_sets.is_as_new_as(version));
        if is_changed && !is_own && is_new {
            self.suspects.status = Some(version.clone());
        }
    }

    /// Takes out what is suspected.
    pub fn take(&mut self) -> Option<Suspects> {
        let suspects = std::mem::take(&mut self.suspects);
        (suspects != Suspects::default()).then_some(suspects)
    }

    /// True if the suspicion may be dropped.
    pub fn is_over(&self) -> bool {
        self.suspects == Suspects::default() && self.own_status.is_none()
    }
}

/// True if the numbers are equal. Other clients may set conditions.
fn are_alike(a: &ReplicaSetStatus, b: &ReplicaSetStatus) -> bool {
    a.replicas == b.replicas
        && a.fully_labeled_replicas == b.fully_labeled_replicas
        && a.ready_replicas == b.ready_replicas
        && a.available_replicas == b.available_replicas
        && a.terminating_replicas == b.terminating_replicas
        && a.observed_generation == b.observed_generation
}

#[cfg(test)]
mod tests {
    use super::{Suspects, Suspicion};
    use crate::api::{ObjectKey, Pod, ReplicaSet};
    use crate::controller::memory::positions::Versions;
    use crate::controller::testing::replica_set;

    /// What the caches have shown when this daemon starts to write.
    fn armed() -> Versions {
        Versions {
            pods: "5".into(),
            replica_sets: "5".into(),
        }
    }

    /// A ReplicaSet in a version and with a status of so many pods.
    fn rs(version: &str, replicas: i32) -> ReplicaSet {
        let mut rs = replica_set("web", 1);
        rs.resource_version = version.into();
        rs.status.replicas = replicas;
        rs
    }

    fn pod(version: &str) -> Pod {
        Pod {
            key: ObjectKey::new("shop", "web-1"),
            resource_version: version.into(),
            ..Pod::default()
        }
    }

    /// Shows a change of the status.
    fn saw(suspicion: &mut Suspicion, old: &ReplicaSet, new: &ReplicaSet) {
        suspicion.saw_status(old, new, Some(&armed()));
    }

    #[test]
    fn a_write_from_before_the_take_over_raises_no_suspicion() {
        let mut suspicion = Suspicion::default();
        suspicion.saw_pod(&pod("5"), &armed());
        saw(&mut suspicion, &rs("4", 0), &rs("5", 1));
        assert_eq!(suspicion.take(), None);
        suspicion.saw_pod(&pod("6"), &armed());
        saw(&mut suspicion, &rs("5", 1), &rs("6", 2));
        let both = Suspects {
            pod: Some("web-1".into()),
            status: Some("6".into()),
        };
        assert_eq!(suspicion.take(), Some(both));
        assert_eq!(suspicion.take(), None);
    }

    #[test]
    fn nothing_is_suspected_while_this_daemon_must_not_write() {
        let mut suspicion = Suspicion::default();
        suspicion.saw_status(&rs("6", 0), &rs("7", 1), None);
        assert!(suspicion.is_over());
    }

    #[test]
    fn own_statuses_raise_no_suspicion_in_either_order() {
        let mut suspicion = Suspicion::default();
        suspicion.wrote_status(&rs("7", 1));
        saw(&mut suspicion, &rs("6", 0), &rs("7", 1));
        saw(&mut suspicion, &rs("7", 1), &rs("8", 2));
        suspicion.wrote_status(&rs("8", 2));
        assert!(suspicion.is_over());
    }

    #[test]
    fn an_own_status_is_kept_until_the_watch_shows_it() {
        let mut suspicion = Suspicion::default();
        suspicion.wrote_status(&rs("7", 1));
        assert!(!suspicion.is_over());
        saw(&mut suspicion, &rs("6", 0), &rs("7", 1));
        assert!(suspicion.is_over());
        saw(&mut suspicion, &rs("7", 1), &rs("8", 2));
        assert!(!suspicion.is_over());
    }

    #[test]
    fn the_first_of_two_own_statuses_is_no_foreign_one() {
        let mut suspicion = Suspicion::default();
        suspicion.wrote_status(&rs("7", 1));
        suspicion.wrote_status(&rs("8", 2));
        saw(&mut suspicion, &rs("6", 0), &rs("7", 1));
        saw(&mut suspicion, &rs("7", 1), &rs("8", 2));
        assert!(suspicion.is_over());
    }

    #[test]
    fn a_list_may_show_an_own_status_in_a_later_version() {
        for (shown, is_foreign) in [(1, false), (2, true)] {
            let mut suspicion = Suspicion::default();
            suspicion.wrote_status(&rs("7", 1));
            saw(&mut suspicion, &rs("6", 0), &rs("9", shown));
            assert_eq!(suspicion.take().is_some(), is_foreign);
        }
    }
}
