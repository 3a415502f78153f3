//! Decides when a key is synced next, and with which priority: after an event, after a sync, and
//! after a failover. ReplicaSets with missing or surplus pods have priority over those with only an
//! outdated status. The state of the cache decides that, not the kind of event. The watch threads
//! and the workers call this code.

use std::time::{Duration, Instant};

use super::Core;
use super::decide::plan::{Next, Plan, plan};
use super::decide::status::Counts;
use super::decide::{May, Step};
use super::memory::Memory;
use crate::api::{ObjectKey, ReplicaSet, Selector};
use crate::cache::PodTally;
use crate::stdx::turns;
use crate::workqueue::Priority;

impl Core {
    /// Enqueues every cached ReplicaSet. The first worker calls this once the caches have synced
    /// and this daemon leads. ReplicaSets with pods to create, delete, adopt or release have
    /// priority. Never blocks.
    pub fn enqueue_all(&self) {
        for rs in self.cache.replica_sets.list() {
            // After a start nearly every key is a no-op. The few with work must not wait behind
            // them.
            let has_work = rs.selector.as_ref().is_ok_and(|selector| {
                let owned = self.cache.tally_of_pods_owned_by(&self.owner_key(&rs));
                let counts = self.count(&rs, selector, &owned);
                counts.is_none_or(|counts| counts.replicas != rs.replicas.max(0))
            });
            let priority = if has_work {
                Priority::High
            } else {
                Priority::Low
            };
            self.add_to_queue(&rs.key, priority, Duration::ZERO);
        }
    }

    /// Enqueues `rs` after a change of it or of its pods that the cache shows already. `observe`
    /// updates the record of `rs` first. The key has high priority if `is_first`, if pods must be
    /// created or deleted, or if the status hides a loss; otherwise it waits until the status may
    /// be written.
    ///
    /// INVARIANT: a loss that the tallies cannot show, because it depends on the time or on pods to
    /// adopt or release, is never delayed. The sync finds it, and defers the status if there is no
    /// loss.
    pub(super) fn observe_and_enqueue(
        &self,
        rs: &ReplicaSet,
        is_first: bool,
        observe: impl FnOnce(&mut Memory),
    ) {
        let owned = self.cache.tally_of_pods_owned_by(&self.owner_key(rs));
        let counts = rs.selector.as_ref().ok();
        let counts = counts.and_then(|selector| self.count(rs, selector, &owned));
        let counts = counts.map(|it| it.with_terminating(!self.memories.drops_terminating(rs)));
        let is_loss = counts.is_some_and(|counts| counts.is_loss(rs));
        let can_wait =
            counts.is_some_and(|counts| !counts.depend_on_time(rs) && counts.is_mere_progress(rs));
        let burst = self.options.burst_replicas;
        let plan = match plan(owned.n_active(), rs.replicas, burst) {
            _ if rs.is_terminating() => Plan::Nothing,
            plan => plan,
        };
        let (has_synced, now) = (self.cache.has_synced(), self.clock.now());
        let place = |memory: &mut Memory| {
            observe(memory);
            let is_urgent = is_loss || may_act(memory, rs, plan, now);
            let delay = memory.next_status.filter(|_| can_wait);
            let delay = delay.map(|at| at.saturating_duration_since(now));
            match delay {
                _ if is_first => (Priority::High, Duration::ZERO),
                // The first list may still bring more pods. `enqueue_all` finds the work
                // afterwards.
                _ if !has_synced => (Priority::Low, Duration::ZERO),
                _ if is_urgent => (Priority::High, Duration::ZERO),
                delay => (Priority::Low, delay.unwrap_or_default()),
            }
        };
        if self.memories.is_standby() {
            self.memories.get(rs, place);
            return;
        }
        let place = self.memories.observe(rs, place);
        let (priority, delay) = place.unwrap_or((Priority::High, Duration::ZERO));
        self.add_to_queue(&rs.key, priority, delay);
    }

    /// Enqueues this key before all keys that can wait.
    pub(super) fn enqueue(&self, key: &ObjectKey) {
        self.add_to_queue(key, Priority::High, Duration::ZERO);
    }

    /// Adds this key to the queue, after a delay. A standby adds none: the new leader enqueues
    /// every ReplicaSet.
    pub(super) fn add_to_queue(&self, key: &ObjectKey, priority: Priority, delay: Duration) {
        if !self.memories.is_standby() {
            self.queue.add_with(key.clone(), priority, delay);
        }
    }

    /// Adds to `next` when the next sync may act, after the writes of this sync, `step`.
    pub(super) fn next_after_own_writes(&self, key: &ObjectKey, step: &Step, next: &mut Next) {
        if !step.acts() {
            return;
        }
        // The events of its writes that came during this sync found the key in progress, or the
        // expectations still open, so they may have enqueued it with low priority.
        turns::reached("expectations: before the key is registered");
        let may = self.capture_record(key).may;
        let now = self.clock.now();
        next.to_act(match may {
            May::Wait(delay) | May::Report(Some(delay)) => now + delay,
            May::Act | May::Report(None) | May::Verify(_) => now,
        });
    }

    /// Requeues the key for the time when it needs the next sync, if no event brings it earlier.
    pub(super) fn requeue(&self, key: &ObjectKey, next: Next) {
        let now = self.clock.now();
        for (priority, at) in [(Priority::High, next.high), (Priority::Low, next.low)] {
            if let Some(at) = at {
                self.add_to_queue(key, priority, at.saturating_duration_since(now));
            }
        }
    }

    /// Returns the counts that a sync of `rs` would find if `owned` is the tally of its pods. Every
    /// Ready pod counts as available. `None` if some pod must be adopted or released.
    pub(crate) fn count(
        &self,
        rs: &ReplicaSet,
        selector: &Selector,
        owned: &PodTally,
    ) -> Option<Counts> {
        let orphans = self.cache.tally_of_orphans_in(&rs.key.namespace);
        let counts = Counts::of_tallies(rs, selector, owned, &orphans)?;
        Some(counts.with_terminating(self.counts_terminating()))
    }
}

/// True if a sync may execute `plan`: with open expectations it neither creates nor deletes, and
/// during the back-off after a rejection it does not create.
fn may_act(memory: &Memory, rs: &ReplicaSet, plan: Plan, now: Instant) -> bool {
    let waits = |(of, wait): (i64, Option<_>)| of == rs.generation && wait.is_some();
    let creates_wait = || memory.rejected(now).is_some_and(waits);
    plan != Plan::Nothing
        && !matches!(memory.own_writes.may(now), May::Report(_))
        && !(matches!(plan, Plan::Create(_)) && creates_wait())
}

#[cfg(test)]
mod tests;
