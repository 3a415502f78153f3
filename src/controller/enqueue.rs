//! Which keys go first: those of ReplicaSets that miss pods or have too many, before those of which only
//! the status is out of date. Called on the watch threads, and once by the first worker.
//!
//! Decided by the state of the cache, not by the kind of event: whatever happened, a ReplicaSet for which
//! few pods are due is never made to wait, and one with many waits for other large ones only.

use std::time::Duration;

use super::ReplicaSetController;
#[cfg(test)]
use super::decide::Pods;
use super::decide::counts::Counts;
use super::decide::plan::{LARGE, plan};
use super::memory::Memory;
use super::memory::own_writes::Satisfaction;
#[cfg(test)]
use crate::api::Pod;
use crate::api::{ObjectKey, OwnerKey, ReplicaSet, Selector};
use crate::cache::PodTally;

/// Where a key goes in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Before all that can wait.
    First,
    /// Among those that have many pods to be created or deleted.
    Large,
    /// Among all that can wait.
    Low,
    /// The same, after this time.
    LowAfter(Duration),
}

impl Turn {
    /// Where a key goes for which so many pods are due.
    fn of(n_due: usize) -> Self {
        if n_due >= LARGE {
            Self::Large
        } else {
            Self::First
        }
    }
}

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

    /// As [`enqueue_owner_after`](Self::enqueue_owner_after), with nothing to note.
    pub(super) fn enqueue_owner(&self, rs: &ReplicaSet) {
        self.enqueue_owner_after(rs, |_| {});
    }

    /// `rs` or a pod of it has changed, and the cache shows it already; `observe` notes in the record of
    /// `rs` what that says. Enqueues its key before all that can wait if pods are to be created or
    /// deleted or its status hides a loss, else as soon as the status may be written.
    ///
    /// INVARIANT: a loss that the tallies cannot tell, since it depends on the time or on pods that
    /// are to be adopted or released, waits for no pause: the sync finds it, and holds back what is
    /// none.
    pub(super) fn enqueue_owner_after(&self, rs: &ReplicaSet, observe: impl FnOnce(&mut Memory)) {
        let owned = self.cache.tally_of_pods_owned_by(&self.owner_key(rs));
        let counts = rs.selector.as_ref().ok();
        let counts = counts.and_then(|selector| self.count(rs, selector, &owned));
        let counts = counts.map(|counts| self.comparable(rs, counts));
        let is_loss = counts.is_some_and(|counts| counts.are_a_loss(rs));
        let can_wait =
            counts.is_some_and(|counts| !counts.depend_on_time(rs) && counts.can_wait(rs));
        let n_due = self.n_planned(rs, &owned);
        let (has_synced, now) = (self.cache.has_synced(), self.clock.now());
        self.enqueue_by(rs, |memory| {
            observe(memory);
            let is_open = memory.own_writes.satisfaction(now) == Satisfaction::Open;
            match memory.status_throttle.remaining(now) {
                // The rest of its pods may be still to come. What is due is found once they are here.
                _ if !has_synced => Turn::Low,
                // Even if many pods are due, which then are left to others.
                _ if is_loss => Turn::First,
                _ if n_due > 0 && !is_open => Turn::of(n_due),
                Some(left) if can_wait => Turn::LowAfter(left),
                _ => Turn::Low,
            }
        });
    }

    /// Enqueues the key of `rs` before all that can wait, after `observe` has noted in the record of
    /// `rs` what has happened; but with many pods due only among those that have such too.
    pub(super) fn enqueue_after(&self, rs: &ReplicaSet, observe: impl FnOnce(&mut Memory)) {
        let owned = self.cache.tally_of_pods_owned_by(&self.owner_key(rs));
        let n_due = self.n_planned(rs, &owned);
        let now = self.clock.now();
        self.enqueue_by(rs, |memory| {
            observe(memory);
            let is_open = memory.own_writes.satisfaction(now) == Satisfaction::Open;
            Turn::of(if is_open { 0 } else { n_due })
        });
    }

    /// As [`enqueue_after`](Self::enqueue_after), with nothing to note, and also if there is no such
    /// ReplicaSet.
    pub(super) fn enqueue(&self, key: &ObjectKey) {
        match self.cache.replica_set(key) {
            Some(rs) => self.enqueue_after(&rs, |_| {}),
            None if self.memories.stands_by() => {}
            None => self.queue.add(key.clone()),
        }
    }

    /// Takes one turn out of the record of `rs`, and enqueues its key so, unless we stand by: whoever
    /// takes over looks at everything.
    fn enqueue_by(&self, rs: &ReplicaSet, turn: impl FnOnce(&mut Memory) -> Turn) {
        if self.memories.stands_by() {
            self.memories.get(&rs.key, &rs.uid, turn);
            return;
        }
        let key = rs.key.clone();
        match self.memories.with(&rs.key, &rs.uid, turn) {
            Turn::First => self.queue.add(key),
            Turn::Large => self.queue.add_large(key),
            Turn::Low => self.queue.add_low(key),
            Turn::LowAfter(left) => self.queue.add_low_after(key, left),
        }
    }

    /// Enqueues this key among all that can wait, unless we stand by.
    pub(super) fn enqueue_low(&self, key: &ObjectKey) {
        if !self.memories.stands_by() {
            self.queue.add_low(key.clone());
        }
    }

    /// How many pods a sync would create or delete that need not wait for others to be seen.
    fn n_planned(&self, rs: &ReplicaSet, owned: &PodTally) -> usize {
        if rs.is_terminating() {
            return 0;
        }
        plan(owned.n_active(), rs.replicas, self.options.burst_replicas).n_pods()
    }

    /// The numbers that a sync would count, with every Ready pod as an available one; `None` if
    /// some pod is to be adopted or released.
    pub(super) fn count_tallies(&self, rs: &ReplicaSet, selector: &Selector) -> Option<Counts> {
        let owned = self.cache.tally_of_pods_owned_by(&self.owner_key(rs));
        self.count(rs, selector, &owned)
    }

    /// The same, with the tally of its own pods at hand.
    fn count(&self, rs: &ReplicaSet, selector: &Selector, owned: &PodTally) -> Option<Counts> {
        let orphans = self.cache.tally_of_orphans_in(&rs.key.namespace);
        let counts = Counts::of_tallies(rs, selector, owned, &orphans)?;
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
        let orphans = Vec::new();
        let facts = self.facts(&rs, selector, Pods::Listed { owned, orphans });
        let counts = facts.decide().counts;
        drop(facts);
        Some((rs, counts))
    }
}

#[cfg(test)]
mod tests;
