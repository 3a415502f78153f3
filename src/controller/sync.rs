//! One look at one ReplicaSet, from key to status
//! (kubernetes `pkg/controller/replicaset/replica_set.go:syncReplicaSet`).

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::availability::Availability;
use super::counts::Counts;
use super::manage::pod_key;
use super::memory::Memory;
use super::memory::history::{LastSync, SyncEnd};
use super::memory::own_writes::Satisfaction;
use super::memory::positions::{Readiness, Versions};
use super::plan::{Plan, plan};
use super::status::{Observation, calculate_status};
use super::{ReplicaSetController, SyncError};
use crate::api::label_selector::SelectorError;
use crate::api::{ObjectKey, Pod, ReplicaSet, Selector, Uid};
use crate::stdx::activity;
use crate::stdx::thread::catch_panic;
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
    /// Waits for a key of these lanes and syncs it; false once the queue is shut down and has none.
    pub fn process_next_work_item(&self, lanes: Lanes) -> bool {
        let wait = activity::enter("waits for a key", "");
        let key = self.queue.get_from(lanes);
        drop(wait);
        key.map(|key| self.process_for(&key, lanes)).is_some()
    }

    /// Syncs a key that was taken from the queue, and hands it back: done, or to be repeated with
    /// back-off. A panic is an error like any other.
    pub fn process(&self, key: &ObjectKey) {
        self.process_for(key, Lanes::All);
    }

    /// As [`process`](Self::process), but a worker that takes no large work hands it back for others.
    fn process_for(&self, key: &ObjectKey, lanes: Lanes) {
        let _sync = activity::enter("sync", key);
        let (at, began) = (self.clock.wall(), self.clock.now());
        let result = catch_panic(|| self.sync_for(key, lanes))
            .unwrap_or_else(|message| Err(SyncError::Panic(message)));
        if matches!(result, Ok(Outcome::TooLarge)) {
            self.queue.add_large(key.clone());
            self.queue.done(key);
            return;
        }
        let end = match &result {
            Ok(Outcome::Synced) => SyncEnd::Synced,
            Ok(Outcome::TooEarly | Outcome::TooLarge) => SyncEnd::TooEarly,
            Err(SyncError::Panic(_)) => SyncEnd::Panicked,
            Err(_) => SyncEnd::Failed,
        };
        let took = self.clock.now().saturating_duration_since(began);
        let error = result.as_ref().err().map(ToString::to_string);
        if let Some(rs) = self.cache.replica_set(key) {
            let note = |memory: &mut Memory| {
                memory.history.note_sync(LastSync { at, took, end }, error);
            };
            self.memories.with(key, &rs.uid, note);
        }
        match result {
            // A leader whose lease ran out while it was frozen may find that it leads still. Once the
            // daemon stops, the queue takes nothing any more.
            Err(error) if error.is_stopped() => self.queue.add_rate_limited(key.clone()),
            Err(error) => {
                let object = self.kind.named(key);
                log::warn!(object:% = object; "sync failed and is repeated: {error}");
                self.metrics.sync_ended(end);
                self.queue.add_rate_limited(key.clone());
            }
            Ok(outcome) => {
                self.metrics.sync_ended(end);
                // Who comes too early has no success that would end the back-off of an earlier failure.
                if outcome == Outcome::Synced {
                    self.queue.forget(key);
                }
            }
        }
        self.queue.done(key);
    }

    /// Looks at one ReplicaSet: claims its pods, creates or deletes some, writes its status. Never runs
    /// for one key on two threads at once. Blocks for the requests that this takes.
    ///
    /// # Errors
    /// The first thing that failed; then the key has to be synced again.
    pub fn sync_replica_set(&self, key: &ObjectKey) -> Result<Outcome, SyncError> {
        self.sync_for(key, Lanes::All)
    }

    fn sync_for(&self, key: &ObjectKey, lanes: Lanes) -> Result<Outcome, SyncError> {
        let owner = self.cache.replica_set(key).map(|rs| rs.uid.clone());
        let cached = || self.cached_versions();
        let readiness = self.memories.readiness(key, owner.as_ref(), cached);
        if let Readiness::TooEarly(left) = readiness {
            self.count_skip(key, owner.as_ref(), &cached());
            self.queue.add_after(key.clone(), left);
            return Ok(Outcome::TooEarly);
        }
        // ORDER: asked before the caches are read, which then are as new as this or newer.
        let is_proven = self.take_over_is_proven();
        let Some(rs) = self.cache.replica_set(key) else {
            self.memories.forget(key, None);
            if let Some(shadow) = &self.shadow {
                shadow.forget(key);
            }
            return Ok(Outcome::Synced);
        };
        let selector = match &rs.selector {
            Ok(selector) => selector,
            Err(error) => {
                self.log_unusable_selector(&rs, error);
                return Ok(Outcome::Synced);
            }
        };
        if let Some(shadow) = &self.shadow {
            self.decide_only(&rs, selector, shadow);
            return Ok(Outcome::Synced);
        }
        // A cache that lacks what was written so long ago may show a spec that nobody wants any more.
        if readiness == Readiness::Overdue && !self.confirm_spec(&rs)? {
            self.metrics.stale_owners_skips.inc();
            return Ok(Outcome::TooEarly);
        }
        self.look_for_other_writers(&rs);
        let began = self.clock.now();
        self.memories.with(key, &rs.uid, |memory| {
            memory.positions.saw_spec(&rs, began);
        });
        let needs_sync = self.may_manage(&rs, selector, readiness)?;
        let now = self.clock.wall();
        if let Some((counts, next_check)) = self.nothing_to_do(&rs, selector, needs_sync, now) {
            let observation = Observation {
                counts,
                failure: None,
                now,
            };
            self.bring_status_up_to_date(&rs, &observation)?;
            if needs_sync {
                self.note_converged(&rs);
            }
            self.plan_availability_check(&rs, || next_check, &observation);
            self.plan_expiry_check(&rs);
            return Ok(Outcome::Synced);
        }
        self.sync_pods(&rs, selector, needs_sync, is_proven, lanes)
    }

    /// What the status says of `rs` if no pod is to be adopted, released, created or deleted, and when
    /// the next pod becomes available. Looks at the pods only if their time counts, and never takes
    /// memory that grows with them: a sync that comes for nothing shall cost next to nothing.
    fn nothing_to_do(
        &self,
        rs: &ReplicaSet,
        selector: &Selector,
        needs_sync: bool,
        now: Timestamp,
    ) -> Option<(Counts, Option<Duration>)> {
        if rs.is_terminating() {
            return None;
        }
        let counts = self.count_tallies(rs, selector)?;
        if needs_sync && counts.replicas != rs.replicas.max(0) {
            return None;
        }
        if counts.depend_on_time(rs) {
            return Some(self.count_available(rs, counts, now));
        }
        Some((counts, None))
    }

    /// `counts` with those pods alone as available ones that have been Ready long enough, and when
    /// the next one will have been.
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

    /// The part of a sync that looks at every pod.
    fn sync_pods(
        &self,
        rs: &Arc<ReplicaSet>,
        selector: &Selector,
        needs_sync: bool,
        is_proven: bool,
        lanes: Lanes,
    ) -> Result<Outcome, SyncError> {
        // ORDER: asked before the pods are listed, which then are as new as this or newer.
        let (position, began) = (self.cache.pods_resource_version(), self.clock.now());
        let left = |memory: &mut Memory| memory.positions.left_to_choose(&position, began);
        let choice_waits = self.memories.get(&rs.key, &rs.uid, left).flatten();
        let owned = self.cache.pods_owned_by(&self.owner_key(rs));
        let orphans = self.cache.orphans_in(&rs.key.namespace);
        if lanes == Lanes::Small && self.is_large(rs, selector, needs_sync, &owned, &orphans) {
            return self.hand_over(rs, selector, &owned);
        }
        let candidates = owned
            .iter()
            .chain(&orphans)
            .filter(|pod| pod.is_active())
            .cloned();
        let active = self.claim_pods(rs, selector, candidates.collect())?;

        let plan = plan(active.len(), rs.replicas, self.burst_replicas);
        let acts = needs_sync && !rs.is_terminating() && plan != Plan::Nothing;
        if acts && !is_proven && !self.confirm_take_over(rs, selector)? {
            return Ok(Outcome::TooEarly);
        }
        let chooses = acts && matches!(plan, Plan::Delete(count) if count < active.len());
        if chooses && let Some(left) = choice_waits {
            self.queue.add_after(rs.key.clone(), left);
            return Ok(Outcome::TooEarly);
        }
        let creates = acts && matches!(plan, Plan::Create(_));
        let creation_waits = creates.then(|| self.creation_waits(rs)).flatten();
        if let Some(left) = creation_waits {
            self.queue.add_after(rs.key.clone(), left);
        }
        let acts = acts && creation_waits.is_none();
        let managed = if acts {
            self.manage_replicas(rs, selector, &active, plan)
        } else {
            Ok(())
        };
        if managed.as_ref().is_err_and(SyncError::is_stopped) {
            return managed.map(|()| Outcome::Synced);
        }
        let now = self.clock.wall();
        let terminating = self.count_terminating(&owned, selector);
        let observation = Observation {
            counts: Counts::of_pods(rs, &active, terminating, now),
            failure: managed
                .as_ref()
                .err()
                .map(|error| (plan, error.to_string())),
            now,
        };
        self.bring_status_up_to_date(rs, &observation)?;
        managed?;
        if needs_sync && plan == Plan::Nothing {
            self.note_converged(rs);
        }
        let next_check = || Availability::of(&active, rs.min_ready_seconds, now).next_check;
        self.plan_availability_check(rs, next_check, &observation);
        self.plan_expiry_check(rs);
        if acts {
            self.come_back_if_all_is_seen(rs);
        }
        Ok(Outcome::Synced)
    }

    /// How long no pods are created in place of some that went, which may go because `rs` does. The
    /// status, which tells of the loss, does not wait.
    fn creation_waits(&self, rs: &ReplicaSet) -> Option<Duration> {
        // ORDER: the version first, so that the ReplicaSet is as new as it or newer.
        let version = self.cache.replica_sets_resource_version();
        let cached = self.cache.replica_set(&rs.key);
        let goes_on = cached.is_some_and(|it| it.uid == rs.uid && !it.is_terminating());
        if !goes_on {
            return Some(Duration::ZERO);
        }
        let now = self.clock.now();
        let left = |memory: &mut Memory| memory.positions.left_to_replace(&version, now);
        self.memories.get(&rs.key, &rs.uid, left).flatten()
    }

    /// Counts a sync that came too early, by the cache that is behind: the ReplicaSets' only if the
    /// pods' is not.
    fn count_skip(&self, key: &ObjectKey, owner: Option<&Uid>, cached: &Versions) {
        let shows_pods = |memory: &mut Memory| {
            let written = memory.positions.written();
            written.is_none_or(|written| cached.pods.is_as_new_as(&written.pods))
        };
        let shows_pods = |owner| self.memories.get(key, owner, shows_pods);
        if owner.and_then(shows_pods) == Some(true) {
            self.metrics.stale_owners_skips.inc();
        } else {
            self.metrics.stale_pods_skips.inc();
        }
    }

    /// Writes the status if it is another one, now or as soon as it may be.
    fn bring_status_up_to_date(
        &self,
        rs: &Arc<ReplicaSet>,
        observation: &Observation,
    ) -> Result<(), SyncError> {
        let status = calculate_status(rs, observation);
        if let Some(left) = self.hold_back(rs, &status) {
            self.queue.add_low_after(rs.key.clone(), left);
            return Ok(());
        }
        let updated = self.update_replica_set_status(rs, status)?;
        self.record_replica_set(&updated);
        Ok(())
    }

    /// There are as many pods as wanted, after however long.
    fn note_converged(&self, rs: &ReplicaSet) {
        let now = self.clock.now();
        let note = |memory: &mut Memory| memory.history.note_converged(rs, now);
        if let Some(after) = self.memories.get(&rs.key, &rs.uid, note).flatten() {
            self.metrics.converge.observe(after.as_secs_f64());
        }
    }

    /// All that this sync has done may have been seen before it was done, by events that found the
    /// expectations still open and were in no hurry. Then more may be due now.
    fn come_back_if_all_is_seen(&self, rs: &ReplicaSet) {
        if self.satisfaction(rs) == Satisfaction::Satisfied {
            self.enqueue(&rs.key);
        }
    }

    /// Whether all that is expected of the own writes of `rs` was seen.
    pub(super) fn satisfaction(&self, rs: &ReplicaSet) -> Satisfaction {
        let now = self.clock.now();
        let satisfaction = |memory: &mut Memory| memory.own_writes.satisfaction(now);
        let satisfaction = self.memories.get(&rs.key, &rs.uid, satisfaction);
        satisfaction.unwrap_or(Satisfaction::Satisfied)
    }

    /// Whether the cache shows this ReplicaSet's own doings, so that pods may be created and deleted.
    ///
    /// ORDER: called before the pods are listed. A pod that arrives in between then only makes the list
    /// newer than the answer, never older.
    fn may_manage(
        &self,
        rs: &ReplicaSet,
        selector: &Selector,
        readiness: Readiness,
    ) -> Result<bool, SyncError> {
        let satisfaction = self.look_at_expectations(rs);
        match (satisfaction, readiness) {
            (Satisfaction::Open, _) => Ok(false),
            (Satisfaction::Satisfied, Readiness::Ready | Readiness::TooEarly(_)) => Ok(true),
            (Satisfaction::Satisfied, Readiness::Overdue) | (Satisfaction::Expired, _) => {
                let is_current = self.renew_expectations(rs, selector)?;
                let forget = |memory: &mut Memory| memory.positions.forget_written();
                self.memories.get(&rs.key, &rs.uid, forget);
                Ok(is_current)
            }
        }
    }

    /// What is still expected. A pod that the cache must show by its version and does not show has
    /// come and gone, or the cache is of another history than the answer, as after a restore of etcd:
    /// its expectation counts as expired, so that the API server decides.
    ///
    /// A pod of that name that is not controlled by `rs` is left to the expiry, which is the brake on
    /// a webhook that takes the owner off each new pod.
    fn look_at_expectations(&self, rs: &ReplicaSet) -> Satisfaction {
        let position = self.cache.pods_resource_version();
        let mut is_missing = false;
        let passed = |memory: &mut Memory| memory.own_writes.passed(&position);
        let passed = self.memories.get(&rs.key, &rs.uid, passed);
        for name in passed.into_iter().flatten() {
            match self.cache.pod(&pod_key(rs, &name)) {
                // The store shows a pod before its handler has struck it out.
                Some(pod) if pod.is_controlled_by(&rs.uid) => {
                    self.own_writes(rs, |writes| writes.creation_seen(&name));
                }
                Some(_) => {}
                None => is_missing = true,
            }
        }
        match self.satisfaction(rs) {
            Satisfaction::Open if is_missing => Satisfaction::Expired,
            satisfaction => satisfaction,
        }
    }

    pub(super) fn count_terminating(&self, owned: &[Arc<Pod>], selector: &Selector) -> Option<i32> {
        if !self.counts_terminating() {
            return None;
        }
        let is_counted = |pod: &&Arc<Pod>| {
            pod.is_terminating() && !pod.phase.is_terminal() && selector.matches(&pod.labels)
        };
        let count = owned.iter().filter(is_counted).count();
        Some(i32::try_from(count).unwrap_or(i32::MAX))
    }

    /// Comes back when the next ready pod becomes available by the passing of time alone.
    pub(super) fn plan_availability_check(
        &self,
        rs: &ReplicaSet,
        next_check: impl FnOnce() -> Option<Duration>,
        observation: &Observation,
    ) {
        let Counts {
            ready, available, ..
        } = observation.counts;
        if rs.min_ready_seconds <= 0 || ready == available {
            return;
        }
        let next = next_check();
        let fallback = Duration::from_secs(rs.min_ready_seconds.unsigned_abs().into());
        // The requests of this sync took time: what is left counts from now.
        let spent = self
            .clock
            .wall()
            .duration_since(observation.now)
            .unsigned_abs();
        let delay = next.map_or(fallback, |next| next.saturating_sub(spent));
        self.queue.add_low_after(rs.key.clone(), delay);
    }

    /// Comes back when the cache shows what was written, or when what is expected expires, since a pod
    /// that comes and goes unseen and an event that was lost wake nobody.
    ///
    /// DIFFERS: upstream comes back with the next event of the ReplicaSet or its pods, or with the
    /// periodic resync.
    fn plan_expiry_check(&self, rs: &ReplicaSet) {
        let now = self.clock.now();
        let left = |memory: &mut Memory| memory.own_writes.time_left(now);
        let Some(left) = self.memories.get(&rs.key, &rs.uid, left).flatten() else {
            return;
        };
        self.queue.add_after(rs.key.clone(), left);
        // ORDER: the cache may have come so far before the key was noted, so a second look closes the gap.
        self.memories.wake_when_shown(&rs.key);
        if self.look_at_expectations(rs) != Satisfaction::Open {
            self.enqueue(&rs.key);
        }
    }

    /// Once per generation: the next sync would say the same, and only a change of the spec helps.
    fn log_unusable_selector(&self, rs: &ReplicaSet, error: &SelectorError) {
        let note = |memory: &mut Memory| memory.history.note_unusable_selector(rs.generation);
        if self.memories.with(&rs.key, &rs.uid, note) {
            log::error!(
                object:% = self.kind.named(&rs.key);
                "the selector cannot be used, so this {} is left alone until its spec changes: {error}",
                self.kind.kind
            );
        }
    }
}

#[cfg(test)]
mod tests;
