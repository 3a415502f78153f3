//! Which keys go first: those of ReplicaSets that miss pods or have too many, before those of which only
//! the status is out of date. Called on the watch threads, and once by the first worker.
//!
//! Decided by the state of the cache, not by the kind of event: whatever happened, a ReplicaSet for which
//! few pods are due is never made to wait, and one with many waits for other large ones only.

use std::sync::Arc;

use super::ReplicaSetController;
use super::counts::Counts;
use super::expectations::Satisfaction;
use super::plan::{LARGE, plan};
#[cfg(test)]
use crate::api::Pod;
use crate::api::{ObjectKey, OwnerKey, ReplicaSet, Selector};

impl ReplicaSetController {
    /// One pass over the caches, as soon as they are complete and we lead: everybody is looked at,
    /// and whoever misses pods, has too many, or has some to adopt or to release goes before all
    /// others. Blocks on nothing.
    pub fn enqueue_all(&self) {
        for rs in self.cache.replica_sets() {
            let has_work = rs.selector.as_ref().is_ok_and(|selector| {
                let counts = self.count_tallies(&rs, selector);
                counts.is_none_or(|counts| counts.replicas != rs.replicas.max(0))
            });
            if has_work {
                self.enqueue(&rs.key);
            } else {
                self.enqueue_low(&rs.key);
            }
        }
    }

    /// `rs` or a pod of it has changed, and the cache and the expectations show it already: before
    /// all that can wait if pods are to be created or deleted or its status hides a loss, else as
    /// soon as the status may be written.
    ///
    /// INVARIANT: a loss that the tallies cannot tell, since it depends on the time or on pods that
    /// are to be adopted or released, waits for no pause: the sync finds it, and holds back what is
    /// none.
    pub(super) fn enqueue_owner(&self, rs: &ReplicaSet) {
        if self.take_over.stands_by() {
            // Whoever takes over looks at everything.
            return;
        }
        if !self.cache.has_synced() {
            // The rest of its pods may be still to come. What is due is found once they are here.
            return self.queue.add_low(rs.key.clone());
        }
        let counts = rs.selector.as_ref().ok();
        let counts = counts.and_then(|selector| self.count_tallies(rs, selector));
        let counts = counts.map(|counts| self.comparable(rs, counts));
        if counts.is_some_and(|counts| counts.are_a_loss(rs)) {
            // Before all others even if many pods are due, which then are left to others.
            return self.queue.add(rs.key.clone());
        }
        if self.n_due(rs) > 0 {
            return self.enqueue(&rs.key);
        }
        let can_wait =
            counts.is_some_and(|counts| !counts.depend_on_time(rs) && counts.can_wait(rs));
        match self.pace.left(&rs.key) {
            Some(left) if can_wait => self.queue.add_low_after(rs.key.clone(), left),
            _ => self.queue.add_low(rs.key.clone()),
        }
    }

    /// Enqueues this key before all that can wait, unless we stand by; but with many pods due only
    /// among those that have such too.
    pub(super) fn enqueue(&self, key: &ObjectKey) {
        if self.take_over.stands_by() {
            return;
        }
        let is_large = |rs: Arc<ReplicaSet>| !rs.is_terminating() && self.n_due(&rs) >= LARGE;
        if self.cache.replica_set(key).is_some_and(is_large) {
            self.queue.add_large(key.clone());
        } else {
            self.queue.add(key.clone());
        }
    }

    /// Enqueues this key among all that can wait, unless we stand by.
    pub(super) fn enqueue_low(&self, key: &ObjectKey) {
        if !self.take_over.stands_by() {
            self.queue.add_low(key.clone());
        }
    }

    /// How many pods a sync would create or delete: none if there are as many as are wanted, or
    /// others have to be seen before.
    fn n_due(&self, rs: &ReplicaSet) -> usize {
        let tally = self.cache.tally_of_pods_owned_by(&self.owner_key(rs));
        let plan = plan(tally.n_active(), rs.replicas, self.burst_replicas);
        match self.expectations.satisfied_expectations(&rs.key, &rs.uid) {
            Satisfaction::Open => 0,
            Satisfaction::Satisfied | Satisfaction::Expired => plan.n_pods(),
        }
    }

    /// The numbers that a sync would count, with every Ready pod as an available one; `None` if
    /// some pod is to be adopted or released.
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
        let Some((rs, counted)) = self.count_every_pod(key) else {
            return;
        };
        let selector = rs.selector.as_ref().expect("its pods were counted");
        let owned = self.cache.pods_owned_by(&self.owner_key(&rs));
        let orphans = self.cache.orphans_in(&key.namespace);
        let is_ours = |pod: &std::sync::Arc<Pod>| selector.matches(&pod.labels);
        let is_active = |pod: &&std::sync::Arc<Pod>| pod.is_active();
        let has_claims = !owned.iter().filter(is_active).all(is_ours)
            || orphans.iter().filter(is_active).any(is_ours);
        let is_timed = rs.min_ready_seconds != 0 && counted.ready > 0;
        let quick = self.count_tallies(&rs, selector);
        let quick = quick.filter(|counts| !counts.depend_on_time(&rs));
        assert_eq!(
            quick,
            (!has_claims && !is_timed).then_some(counted),
            "{key}"
        );
    }

    /// What a sync would count before it adopts or releases any; `None` if it would not get that
    /// far.
    pub(super) fn count_every_pod(
        &self,
        key: &ObjectKey,
    ) -> Option<(std::sync::Arc<ReplicaSet>, Counts)> {
        let rs = self.cache.replica_set(key)?;
        let selector = rs.selector.as_ref().ok()?;
        let owned = self.cache.pods_owned_by(&self.owner_key(&rs));
        let terminating = self.count_terminating(&owned, selector);
        let mut ours = owned;
        ours.retain(|pod| pod.is_active() && selector.matches(&pod.labels));
        let counts = Counts::of_pods(&rs, &ours, terminating, self.clock.wall());
        Some((rs, counts))
    }
}

#[cfg(test)]
mod tests;
