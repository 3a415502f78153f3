//! Which keys go first: those of ReplicaSets that miss pods or have too many, before those of which only
//! the status is out of date. Called on the watch threads, and once by the first worker.
//!
//! Decided by the state of the cache, not by the kind of event: whatever happened, a ReplicaSet for which
//! pods are due is never made to wait.

use super::ReplicaSetController;
use super::counts::Counts;
use super::expectations::Satisfaction;
use crate::api::{ObjectKey, OwnerKey, ReplicaSet, Selector};

impl ReplicaSetController {
    /// One pass over the caches, as soon as they are complete: whoever misses pods, has too many, or has
    /// some to adopt or to release goes before all who were only listed. Blocks on nothing.
    pub fn enqueue_those_with_work(&self) {
        for rs in self.cache.replica_sets() {
            let Ok(selector) = &rs.selector else { continue };
            let counts = self.count_tallies(&rs, selector);
            if counts.is_none_or(|counts| counts.replicas != rs.replicas.max(0)) {
                self.enqueue(&rs.key);
            }
        }
    }

    /// A pod of `rs` has changed, and the cache and the expectations show it already: now if pods are
    /// to be created or deleted, else as soon as a status may be written.
    pub(super) fn enqueue_owner(&self, rs: &ReplicaSet) {
        if self.take_over.stands_by() {
            // Whoever takes over looks at everything.
        } else if !self.cache.has_synced() {
            // The rest of its pods may be still to come. What is due is found once they are here.
            self.queue.add_low(rs.key.clone());
        } else if self.may_have_to_manage(rs) {
            self.enqueue(&rs.key);
        } else if let Some(left) = self.pace.left(&rs.key)
            && !self.has_arrived(rs)
        {
            self.queue.add_low_after(rs.key.clone(), left);
        } else {
            self.queue.add_low(rs.key.clone());
        }
    }

    /// Enqueues this key before all that can wait, unless we stand by.
    pub(super) fn enqueue(&self, key: &ObjectKey) {
        if !self.take_over.stands_by() {
            self.queue.add(key.clone());
        }
    }

    /// Enqueues this key among all that can wait, unless we stand by.
    pub(super) fn enqueue_low(&self, key: &ObjectKey) {
        if !self.take_over.stands_by() {
            self.queue.add_low(key.clone());
        }
    }

    /// True unless a sync would find as many pods as are wanted, or had to wait for others to be seen.
    fn may_have_to_manage(&self, rs: &ReplicaSet) -> bool {
        let tally = self.cache.tally_of_pods_owned_by(&self.owner_key(rs));
        let wanted = usize::try_from(rs.replicas).unwrap_or(0);
        let satisfaction = self.expectations.satisfied_expectations(&rs.key, &rs.uid);
        tally.n_active() != wanted && satisfaction != Satisfaction::Open
    }

    fn has_arrived(&self, rs: &ReplicaSet) -> bool {
        let counts = rs.selector.as_ref().ok();
        let counts = counts.and_then(|selector| self.quick_counts(rs, selector));
        counts.is_some_and(|counts| counts.arrive(rs))
    }

    /// The numbers that a sync would count, if the tallies are enough for that.
    pub(super) fn quick_counts(&self, rs: &ReplicaSet, selector: &Selector) -> Option<Counts> {
        let counts = self.count_tallies(rs, selector);
        counts.filter(|counts| !counts.depend_on_time(rs))
    }

    /// The same, with every Ready pod as an available one.
    pub(super) fn count_tallies(&self, rs: &ReplicaSet, selector: &Selector) -> Option<Counts> {
        let owned = self.cache.tally_of_pods_owned_by(&self.owner_key(rs));
        let orphans = self.cache.tally_of_orphans_in(&rs.key.namespace);
        let counts = Counts::of_tallies(rs, selector, &owned, &orphans)?;
        Some(Counts {
            terminating: counts.terminating.filter(|_| self.counts_terminating()),
            ..counts
        })
    }

    /// The key of the index "pods by owner" under which the pods of `rs` stand.
    pub(super) fn owner_key(&self, rs: &ReplicaSet) -> OwnerKey {
        OwnerKey::new(self.kind.kind, &rs.key, &rs.uid)
    }
}

#[cfg(test)]
impl ReplicaSetController {
    /// Compares the quick way to the numbers with the one that looks at every pod. Nobody may change the
    /// cache meanwhile.
    #[track_caller]
    pub(super) fn check_quick_counts(&self, key: &ObjectKey) {
        let Some(rs) = self.cache.replica_set(key) else {
            return;
        };
        let Ok(selector) = &rs.selector else { return };
        let owned = self.cache.pods_owned_by(&self.owner_key(&rs));
        let active = |pods: &[std::sync::Arc<crate::api::Pod>]| {
            let mut pods = pods.to_vec();
            pods.retain(|pod| pod.is_active());
            pods
        };
        let mut ours = active(&owned);
        let n_owned = ours.len();
        ours.retain(|pod| selector.matches(&pod.labels));
        let orphans = active(&self.cache.orphans_in(&key.namespace));
        let is_adopted = |pod: &std::sync::Arc<crate::api::Pod>| selector.matches(&pod.labels);
        let has_claims = ours.len() < n_owned || orphans.iter().any(is_adopted);
        let is_timed = rs.min_ready_seconds != 0 && ours.iter().any(|pod| pod.is_ready);
        let terminating = self.count_terminating(&owned, selector);
        let counted = Counts::of_pods(&rs, &ours, terminating, self.clock.wall());
        let expected = (!has_claims && !is_timed).then_some(counted);
        assert_eq!(self.quick_counts(&rs, selector), expected, "{key}");
    }
}

#[cfg(test)]
mod tests;
