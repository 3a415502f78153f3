//! One sync of one ReplicaSet, from key to status
//! (kubernetes `pkg/controller/replicaset/replica_set.go:syncReplicaSet`).

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::decide::availability::Availability;
use super::decide::counts::Counts;
use super::decide::plan::Plan;
use super::decide::{Decision, Facts, Pods, Rules};
use super::freshness::Freshness;
use super::memory::Memory;
use super::memory::own_writes::Satisfaction;
use super::{ReplicaSetController, SyncError};
use crate::api::{ObjectKey, Pod, ReplicaSet, Selector};
use crate::workqueue::Lanes;

/// How a sync without error ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The ReplicaSet was looked at from beginning to end.
    Synced,
    /// The cache does not show yet what it must; the event that brings it enqueues the key.
    TooEarly,
    /// Many pods are to be created, deleted, adopted or released, which this worker must leave to
    /// others. At most a status that shows a loss was written.
    TooLarge,
}

impl ReplicaSetController {
    /// Claims the pods of a ReplicaSet, creates or deletes some, writes its status. Never runs for one
    /// key on two threads at once. Blocks for the requests that this takes. A worker that takes keys of
    /// [`Lanes::Small`] does nothing for a ReplicaSet for which many pods are due.
    ///
    /// # Errors
    /// The first thing that failed; then the key has to be synced again.
    pub fn sync_replica_set(&self, key: &ObjectKey, lanes: Lanes) -> Result<Outcome, SyncError> {
        // ORDER: asked before the caches are read, which then are as new as the answer or newer.
        let freshness = self.freshness(key, lanes);
        let Some(rs) = self.cache.replica_set(key) else {
            self.memories.forget(key, None);
            return Ok(Outcome::Synced);
        };
        let Ok(selector) = &rs.selector else {
            self.log_unusable_selector(&rs);
            return Ok(Outcome::Synced);
        };
        let freshness = match freshness {
            Freshness::Verify(doubt) => self.verify(&rs, selector, doubt, lanes)?,
            known => known,
        };
        let may = match freshness {
            Freshness::Current(due) => due,
            Freshness::CountOnly(_) => Plan::Nothing,
            not_now => return self.come_back(&rs, selector, not_now),
        };
        self.follow_suspicion(&rs);

        let facts = self.gather(&rs, selector, may)?;
        // Patches come first, as upstream's: a pod that cannot be adopted does not count.
        let decision = self.claim_pods(&facts, facts.decide())?;
        let decision = self.look_again_before_creating(&rs, decision);
        let managed = self.manage_replicas(&facts, &decision);
        if managed.as_ref().is_err_and(SyncError::is_stopped) {
            return managed.map(|()| Outcome::Synced);
        }
        self.bring_status_up_to_date(&rs, &decision, managed.as_ref().err())?;
        managed?;
        self.schedule_next_look(&rs, &decision, freshness);
        Ok(Outcome::Synced)
    }

    /// `decision`, without creates if `rs` goes meanwhile, or if pods went that may have gone with it: the
    /// pods were read after it, and the requests of this sync took time. The status, which tells of the
    /// loss, does not wait.
    fn look_again_before_creating(&self, rs: &ReplicaSet, mut decision: Decision) -> Decision {
        if !decision.acts || !matches!(decision.plan, Plan::Create(_)) {
            return decision;
        }
        // ORDER: the version first, so that the ReplicaSet is as new as it or newer.
        let version = self.cache.replica_sets_resource_version();
        let cached = self.cache.replica_set(&rs.key);
        let goes_on = cached.is_some_and(|it| it.uid == rs.uid && !it.is_terminating());
        let now = self.clock.now();
        let left = |memory: &mut Memory| memory.positions.left_to_replace(&version, now);
        let left = if goes_on {
            self.memories.get(&rs.key, &rs.uid, left).flatten()
        } else {
            Some(Duration::ZERO)
        };
        if let Some(left) = left {
            decision.acts = false;
            self.queue.add_after(rs.key.clone(), left);
        }
        decision
    }

    /// All that the decision rests on. The pods themselves are looked at only if some are to be created,
    /// deleted, adopted or released: a sync that comes for nothing must be cheap, however many pods there
    /// are. Blocks for one LIST if deletions of unknown outcome have to be told apart.
    ///
    /// # Errors
    /// If the LIST fails.
    fn gather<'a>(
        &'a self,
        rs: &'a ReplicaSet,
        selector: &'a Selector,
        may: Plan,
    ) -> Result<Facts<'a>, SyncError> {
        let now = self.clock.wall();
        let counts = self.count_tallies(rs, selector);
        let counts = counts.filter(|_| may == Plan::Nothing && !rs.is_terminating());
        let (pods, unresolved) = if let Some(counts) = counts {
            let (counts, next_check) = if counts.depend_on_time(rs) {
                self.count_available(rs, counts, now)
            } else {
                (counts, None)
            };
            (Pods::Counted { counts, next_check }, Vec::new())
        } else {
            let owned = self.cache.pods_owned_by(&self.owner_key(rs));
            let orphans = self.cache.orphans_in(&rs.key.namespace);
            let unresolved = match may {
                Plan::Delete(_) => self.deletions_to_repeat(rs, selector, &owned)?,
                Plan::Create(_) | Plan::Nothing => Vec::new(),
            };
            (Pods::Listed { owned, orphans }, unresolved)
        };
        Ok(Facts {
            unresolved,
            may,
            now,
            ..self.facts(rs, selector, pods)
        })
    }

    /// What a decision rests on that may do nothing.
    pub(super) fn facts<'a>(
        &'a self,
        rs: &'a ReplicaSet,
        selector: &'a Selector,
        pods: Pods,
    ) -> Facts<'a> {
        let rules = Rules {
            burst_replicas: self.options.burst_replicas,
            uses_deletion_cost: self.options.gates.pod_deletion_cost,
            counts_terminating: self.counts_terminating(),
        };
        Facts {
            rs,
            selector,
            pods,
            related_pods: Box::new(self.siblings(rs, selector)),
            unresolved: Vec::new(),
            may: Plan::Nothing,
            rules,
            now: self.clock.wall(),
        }
    }

    /// `counts` with those pods alone as available ones that have been Ready long enough, and when
    /// the next one will have been. Takes no memory that grows with the pods.
    pub(super) fn count_available(
        &self,
        rs: &ReplicaSet,
        counts: Counts,
        now: Timestamp,
    ) -> (Counts, Option<Duration>) {
        let mut availability = Availability::default();
        // All that are active match the selector; else the tallies would not have been enough.
        let add = &mut |pod: &Pod| {
            if pod.is_active() {
                availability.add(pod, rs.min_ready_seconds, now);
            }
        };
        self.cache.visit_pods_owned_by(&self.owner_key(rs), add);
        let counts = Counts {
            // A pod may have turned Ready since the tallies were read.
            available: availability.n_available.min(counts.ready),
            ..counts
        };
        (counts, availability.next_check)
    }

    /// Leaves a ReplicaSet that cannot be synced now, so that its key comes again in time.
    fn come_back(
        &self,
        rs: &Arc<ReplicaSet>,
        selector: &Selector,
        not_now: Freshness,
    ) -> Result<Outcome, SyncError> {
        match not_now {
            Freshness::TooLarge => return self.hand_over(rs, selector),
            Freshness::Wait(left) if !left.is_zero() => self.queue.add_after(rs.key.clone(), left),
            _ => self.enqueue(&rs.key),
        }
        Ok(Outcome::TooEarly)
    }

    /// Enqueues the key again for what no event will tell.
    fn schedule_next_look(&self, rs: &ReplicaSet, decision: &Decision, freshness: Freshness) {
        match freshness {
            Freshness::Current(_) if decision.plan == Plan::Nothing => self.note_converged(rs),
            Freshness::CountOnly(Some(left)) => self.queue.add_after(rs.key.clone(), left),
            _ => {}
        }
        self.schedule_availability_check(rs, decision);
        let now = self.clock.now();
        let left = |memory: &mut Memory| memory.own_writes.time_left(now);
        match self.memories.get(&rs.key, &rs.uid, left).flatten() {
            Some(left) => {
                // DIFFERS: upstream comes back with the next event of the ReplicaSet or its pods, or with
                // the periodic resync. A pod that comes and goes unseen and an event that was lost wake
                // nobody.
                self.queue.add_after(rs.key.clone(), left);
                // ORDER: the cache may have come so far before the key was noted, so a second look closes
                // the gap.
                self.memories.wake_when_shown(&rs.key);
                if self.look_at_expectations(rs) != Satisfaction::Open {
                    self.enqueue(&rs.key);
                }
            }
            // The watch has shown every write before this sync returned; the events found the
            // expectations still open and were in no hurry.
            None if decision.acts => self.enqueue(&rs.key),
            None => {}
        }
    }

    /// Comes back when the next ready pod becomes available by the passing of time alone.
    pub(super) fn schedule_availability_check(&self, rs: &ReplicaSet, decision: &Decision) {
        let Counts {
            ready, available, ..
        } = decision.counts;
        if rs.min_ready_seconds <= 0 || ready == available {
            return;
        }
        let fallback = Duration::from_secs(rs.min_ready_seconds.unsigned_abs().into());
        // The requests of this sync took time: what is left counts from now.
        let spent = self.clock.wall().duration_since(decision.now);
        let left = |next: Duration| next.saturating_sub(spent.unsigned_abs());
        let delay = decision.next_check.map_or(fallback, left);
        self.queue.add_low_after(rs.key.clone(), delay);
    }

    /// There are as many pods as wanted, after however long.
    fn note_converged(&self, rs: &ReplicaSet) {
        let now = self.clock.now();
        let note = |memory: &mut Memory| memory.history.note_converged(rs, now);
        if let Some(after) = self.memories.get(&rs.key, &rs.uid, note).flatten() {
            self.metrics.converge.observe(after.as_secs_f64());
        }
    }

    /// Once per generation: the next sync would say the same, and only a change of the spec helps.
    pub(super) fn log_unusable_selector(&self, rs: &ReplicaSet) {
        let note = |memory: &mut Memory| memory.history.note_unusable_selector(rs.generation);
        if let Err(error) = &rs.selector
            && self.memories.with(&rs.key, &rs.uid, note)
        {
            log::error!(
                object:% = self.kind.named(&rs.key), error:%;
                "the selector cannot be used, so this {} is left alone until its spec changes",
                self.kind.kind
            );
        }
    }
}

#[cfg(test)]
mod tests;
