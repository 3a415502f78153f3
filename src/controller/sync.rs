//! One sync of one ReplicaSet, from key to status
//! (kubernetes `pkg/controller/replicaset/replica_set.go:syncReplicaSet`).

use std::time::Duration;

use jiff::Timestamp;

use super::decide::availability::Availability;
use super::decide::counts::Counts;
use super::decide::plan::{LARGE, Plan};
use super::decide::{Decision, Facts, Pods, Rules, optional};
use super::freshness::Freshness;
use super::memory::Memory;
use super::memory::own_writes::Satisfaction;
use super::{ReplicaSetController, SyncError};
use crate::api::{ObjectKey, Pod, ReplicaSet, Selector};
use crate::stdx::turns;

/// How a sync without error ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncOutcome {
    /// The sync ran to its end.
    Synced,
    /// The caches are not new enough yet, or show another spec since, or this sync was to be large
    /// and got no permit. The event that ends the wait, a delay, or a returned permit requeues the
    /// key.
    TooEarly,
    /// The API server refused a create, and the wait for the next one is not over. Everything else
    /// ran to its end.
    HeldBack,
}

impl ReplicaSetController {
    /// Claims the pods of a ReplicaSet, creates or deletes pods, and writes the status. The queue
    /// never runs one key on two threads at once. Blocks for the requests.
    ///
    /// # Errors
    /// The first failure. The caller must requeue the key with back-off.
    pub fn sync_replica_set(&self, key: &ObjectKey) -> Result<SyncOutcome, SyncError> {
        // ORDER: the freshness check comes before the cache reads. Reads can then only be newer
        // than the check.
        turns::reached("sync: before the caches are read");
        let judged = self.cache.replica_set(key);
        let judged = judged.map(|rs| (self.freshness(&rs), rs));
        turns::reached("sync: between the freshness and the ReplicaSet");
        // The ReplicaSet is gone. Its record is all that remains to clean up.
        let Some(rs) = self.cache.replica_set(key) else {
            self.memories.forget(key, None);
            return Ok(SyncOutcome::Synced);
        };
        // No retry repairs a bad selector, so the sync succeeds, as upstream's does.
        let Ok(selector) = &rs.selector else {
            self.log_unusable_selector(&rs);
            return Ok(SyncOutcome::Synced);
        };
        // Another spec has come in between, and its event has enqueued the key.
        let is_same = |it: &ReplicaSet| it.uid == rs.uid && it.generation == rs.generation;
        let Some((freshness, _)) = judged.filter(|(_, judged)| is_same(judged)) else {
            return Ok(SyncOutcome::TooEarly);
        };
        let freshness = match freshness {
            Freshness::Verify(doubt) => self.verify(&rs, selector, doubt)?,
            known => known,
        };
        // A large sync without a permit still writes the status: it may hide a loss.
        let is_large = matches!(freshness, Freshness::Current(due) if due.n_pods() >= LARGE);
        let waits_for_permit = is_large && !self.queue.begin_large(key);
        let freshness = if waits_for_permit {
            Freshness::CountOnly(None)
        } else {
            freshness
        };
        let may = match freshness {
            Freshness::Current(due) => due,
            Freshness::CountOnly(_) => Plan::Nothing,
            not_now => return Ok(self.requeue(&rs, not_now)),
        };
        self.follow_suspicion(&rs);
        self.report_mistakes(&rs);

        let facts = self.collect_facts(&rs, selector, may)?;
        let decision = facts.decide();
        // Upstream also patches first: a pod that cannot be adopted must not count as a replica.
        let decision = self.claim_pods(&facts, decision)?;
        // The pods have changed since the freshness check, which permitted another kind of action.
        // If orphans have gone, no event enqueues the key.
        let is_current = matches!(freshness, Freshness::Current(_));
        if is_current && decision.plan != Plan::Nothing && !decision.acts {
            return Err(SyncError::Outdated(
                "the pods have changed meanwhile".to_owned(),
            ));
        }
        self.report_unreadable_marks(&facts, &decision);
        let decision = self.recheck_before_creating(&rs, decision);
        let managed = self.manage_replicas(&facts, &decision);
        self.note_creates(&rs, &decision, freshness, &managed);
        // The daemon stops or has lost its lease, so it sends no status either.
        if managed.as_ref().is_err_and(SyncError::is_stopped) {
            return managed.map(|()| SyncOutcome::Synced);
        }
        // The status goes out even after a failed create or delete, since it carries the failure.
        let failure = match &managed {
            Err(error) => Some(self.failure(decision.plan, &error.to_string())),
            Ok(()) => self.lasting_failure(&rs, &decision, freshness),
        };
        let is_held_back = failure.is_some();
        self.note_held_back(&rs, &decision);
        self.schedule_opt_ins(&rs, &decision);
        self.sync_status(&rs, &decision, failure.as_ref())?;
        self.delete_leftovers(&rs, &decision, managed.is_err());
        managed?;
        self.schedule_next_sync(&rs, &decision, freshness);
        Ok(if waits_for_permit {
            SyncOutcome::TooEarly
        } else if is_held_back {
            SyncOutcome::HeldBack
        } else {
            SyncOutcome::Synced
        })
    }

    /// Returns `decision`, but without creates if `rs` is being deleted by this time, or if lost
    /// pods may be part of that deletion. This sync's requests took time, and it read the pods
    /// after `rs`. The status is still written, because it reports the loss.
    fn recheck_before_creating(&self, rs: &ReplicaSet, mut decision: Decision) -> Decision {
        if !decision.acts || !matches!(decision.plan, Plan::Create(_)) {
            return decision;
        }
        // ORDER: the version is read first, so the ReplicaSet is at least as new as that version.
        let version = self.cache.replica_sets_resource_version();
        turns::reached("recheck: between the version and the ReplicaSet");
        let cached = self.cache.replica_set(&rs.key);
        let is_alive = cached.is_some_and(|it| it.uid == rs.uid && !it.is_terminating());
        let now = self.clock.now();
        let delay = |memory: &mut Memory| memory.positions.create_delay(&version, now);
        let delay = if is_alive {
            self.memories.get(&rs.key, &rs.uid, delay).flatten()
        } else {
            Some(Duration::ZERO)
        };
        if let Some(delay) = delay {
            decision.acts = false;
            self.queue.add_after(rs.key.clone(), delay);
        }
        decision
    }

    /// Collects the input of the decision. A no-op sync must be cheap, however many pods exist, so
    /// the pods are listed only if some must be created, deleted, adopted or released. Blocks for
    /// one LIST if the outcome of earlier deletes is unknown.
    ///
    /// # Errors
    /// If the LIST fails.
    fn collect_facts<'a>(
        &'a self,
        rs: &'a ReplicaSet,
        selector: &'a Selector,
        may: Plan,
    ) -> Result<Facts<'a>, SyncError> {
        let now = self.clock.wall();
        let counts = self.count_tallies(rs, selector);
        let reads_surplus = |counts: &Counts| {
            counts.replicas > rs.replicas.max(0) && optional::respects_marks(&self.policy_of(rs))
        };
        let counts = counts.filter(|counts| {
            may == Plan::Nothing
                && !rs.is_terminating()
                && !self.reads_failed_pods(rs)
                && !reads_surplus(counts)
        });
        let (pods, unresolved) = if let Some(counts) = counts {
            let (counts, next_check) = if counts.depend_on_time(rs) {
                self.count_available(rs, counts, now)
            } else {
                (counts, None)
            };
            (Pods::Counted { counts, next_check }, Vec::new())
        } else {
            let owner = self.owner_key(rs);
            let [owned, orphans] = self.cache.pods_for(&owner, &rs.key.namespace);
            let unresolved = match may {
                Plan::Delete(_) => self.deletions_to_retry(rs, selector, &owned)?,
                Plan::Create(_) | Plan::Nothing => Vec::new(),
            };
            (Pods::Listed { owned, orphans }, unresolved)
        };
        Ok(Facts {
            unresolved,
            may: Some(may),
            now,
            ..self.facts(rs, selector, pods)
        })
    }

    /// The input of a decision that may create and delete pods.
    pub(super) fn facts<'a>(
        &'a self,
        rs: &'a ReplicaSet,
        selector: &'a Selector,
        pods: Pods,
    ) -> Facts<'a> {
        Facts {
            rs,
            selector,
            pods,
            related_pods: Box::new(self.siblings(rs, selector)),
            unresolved: Vec::new(),
            may: None,
            rules: self.rules_for(rs),
            now: self.clock.wall(),
        }
    }

    /// The settings of a decision about `rs`.
    pub(super) fn rules_for(&self, rs: &ReplicaSet) -> Rules {
        Rules {
            burst_replicas: self.options.burst_replicas,
            uses_deletion_cost: self.options.gates.pod_deletion_cost,
            counts_terminating: self.counts_terminating(),
            policy: self.policy_of(rs),
        }
    }

    /// Returns `counts` with the pods that have been Ready for `minReadySeconds` as available, and
    /// the time until the next pod becomes available. Visits the pods in place, without a list of
    /// them.
    pub(super) fn count_available(
        &self,
        rs: &ReplicaSet,
        counts: Counts,
        now: Timestamp,
    ) -> (Counts, Option<Duration>) {
        let mut availability = Availability::default();
        // Every active pod matches the selector here; otherwise the tallies return no counts.
        let add = &mut |pod: &Pod| {
            if pod.is_active() {
                availability.add(pod, rs.min_ready_seconds, now);
            }
        };
        self.cache.visit_pods_owned_by(&self.owner_key(rs), add);
        let counts = Counts {
            // A pod may have become Ready after the tallies were read.
            available: availability.n_available.min(counts.ready),
            ..counts
        };
        (counts, availability.next_check)
    }

    /// Ends a sync that cannot run yet, and requeues the key for the time when it can.
    fn requeue(&self, rs: &ReplicaSet, not_now: Freshness) -> SyncOutcome {
        match not_now {
            Freshness::Wait(delay) if !delay.is_zero() => {
                self.queue.add_after(rs.key.clone(), delay);
            }
            _ => self.queue.add(rs.key.clone()),
        }
        SyncOutcome::TooEarly
    }

    /// Requeues the key for changes that no watch event announces.
    fn schedule_next_sync(&self, rs: &ReplicaSet, decision: &Decision, freshness: Freshness) {
        match freshness {
            Freshness::Current(_)
                if decision.plan == Plan::Nothing && decision.opt_ins.are_content() =>
            {
                self.note_converged(rs);
            }
            Freshness::CountOnly(Some(delay)) => self.queue.add_after(rs.key.clone(), delay),
            _ => {}
        }
        self.schedule_availability_check(rs, decision);
        let now = self.clock.now();
        let remaining = |memory: &mut Memory| memory.own_writes.remaining(now);
        match self.memories.get(&rs.key, &rs.uid, remaining).flatten() {
            Some(remaining) => {
                // DIFFERS: upstream waits for the next event of the ReplicaSet or its pods, or for
                // the periodic resync. A lost event, or a pod that appeared and vanished unseen,
                // wakes no key.
                self.queue.add_after(rs.key.clone(), remaining);
                // ORDER: the cache may have caught up before the key was registered. A second check
                // closes that gap.
                turns::reached("expectations: before the key is registered");
                self.memories.wake_when_shown(&rs.key);
                if self.check_expectations(rs) != Satisfaction::Open {
                    self.enqueue(&rs.key);
                }
            }
            // The watch showed every write before this sync returned. Those events found the
            // expectations still open and were queued with low priority, so requeue the key here.
            None if decision.acts => self.enqueue(&rs.key),
            None => {}
        }
    }

    /// Requeues the key for the time when the next Ready pod becomes available.
    pub(super) fn schedule_availability_check(&self, rs: &ReplicaSet, decision: &Decision) {
        let Counts {
            ready, available, ..
        } = decision.counts;
        if rs.min_ready_seconds <= 0 || ready == available {
            return;
        }
        let fallback = Duration::from_secs(rs.min_ready_seconds.unsigned_abs().into());
        // The requests of this sync took time, so the delay counts from this moment.
        let spent = self.clock.wall().duration_since(decision.now);
        let remaining = |next: Duration| next.saturating_sub(spent.unsigned_abs());
        let delay = decision.next_check.map_or(fallback, remaining);
        self.queue.add_low_after(rs.key.clone(), delay);
    }

    /// True if a decision about `rs` reads its Failed pods. Visits no pod.
    pub(super) fn reads_failed_pods(&self, rs: &ReplicaSet) -> bool {
        let policy = self.policy_of(rs);
        let n_failed = || {
            self.cache
                .tally_of_pods_owned_by(&self.owner_key(rs))
                .n_failed()
        };
        optional::reads_failed_pods(&policy, n_failed)
    }

    /// Records how many pods of `rs` wait for its back-off.
    pub(super) fn note_held_back(&self, rs: &ReplicaSet, decision: &Decision) {
        let n_held_back = decision.opt_ins.n_held_back();
        let note = |memory: &mut Memory| memory.history.note_held_back(n_held_back);
        if n_held_back > 0 {
            self.memories.with(&rs.key, &rs.uid, note);
        } else {
            // Without a record nothing was held back.
            self.memories.get(&rs.key, &rs.uid, note);
        }
    }

    /// Requeues the key for the times when an opt-in changes the decision without an event.
    pub(super) fn schedule_opt_ins(&self, rs: &ReplicaSet, decision: &Decision) {
        for next in decision.opt_ins.next() {
            if next.is_due {
                self.queue.add_after(rs.key.clone(), next.after);
            } else {
                self.queue.add_low_after(rs.key.clone(), next.after);
            }
        }
    }

    /// Records that `rs` has as many pods as its spec asks for.
    fn note_converged(&self, rs: &ReplicaSet) {
        let now = self.clock.now();
        let note = |memory: &mut Memory| memory.history.note_converged(rs, now);
        if let Some(after) = self.memories.get(&rs.key, &rs.uid, note).flatten() {
            self.metrics.converge.observe(after.as_secs_f64());
        }
    }

    /// Logs an unusable selector, once per generation: only a change of the spec can repair it.
    pub(super) fn log_unusable_selector(&self, rs: &ReplicaSet) {
        let note = |memory: &mut Memory| memory.history.note_unusable_selector(rs.generation);
        if let Err(error) = &rs.selector
            && self.memories.with(&rs.key, &rs.uid, note)
        {
            log::error!(
                object:% = self.kind.named(&rs.key), error:%;
                "the selector cannot be used, so this {} is not synced until its spec changes",
                self.kind.kind
            );
        }
    }
}

#[cfg(test)]
mod tests;
