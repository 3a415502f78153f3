//! What the controller remembers of each ReplicaSet from one sync to the next: one record for each, in
//! one store with one lock, which is held for the length of a map operation and never while a request is
//! sent or a cache is read.
//!
//! Beside the records stands what a new leader has still to prove of the caches, for all of them together
//! ([`take_over`]).
//!
//! The parts of a record are plain data, each in a file of its own: what was written and not seen yet
//! ([`own_writes`]), how new the caches must be ([`positions`]), the names of the next pods
//! ([`pod_names`]), when the status may be written ([`status_throttle`]), what happened ([`history`]), and
//! what looks like somebody else's doing ([`suspicion`]).
//!
//! A record goes with its ReplicaSet ([`Memories::forget`]), or when nothing in it matters any more
//! ([`Memory::is_over`]) and twice as many records are there as the last sweep has left.

pub mod history;
pub mod own_writes;
pub mod pod_names;
pub mod positions;
pub mod status_throttle;
pub mod suspicion;
pub mod take_over;
mod waiting;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use self::history::History;
use self::own_writes::OwnWrites;
use self::pod_names::PodNames;
use self::positions::{Positions, Readiness, Versions};
use self::status_throttle::StatusThrottle;
use self::suspicion::Suspicion;
use self::take_over::TakeOver;
use self::waiting::Waiting;
use crate::api::{ObjectKey, Uid};
use crate::stdx::clock::Clock;
use crate::stdx::hash::HashMap;

/// Records that are kept before those that are over are swept.
const SWEEP_AT_LEAST: usize = 1024;

/// The records of all ReplicaSets. Shared by the workers, the watch threads and `lease`.
#[derive(Debug)]
pub struct Memories {
    clock: Arc<dyn Clock>,
    /// False: no sync waits for what was written.
    waits_for_written: bool,
    state: Mutex<State>,
    /// So that an event that can wake nobody takes no lock.
    n_waiting: AtomicUsize,
    /// So that a sync takes no lock for the take-over once all is proven.
    is_unproven: AtomicBool,
    stands_by: AtomicBool,
    /// True if the API server dropped `terminatingReplicas` from the last status that carried it. While a
    /// cluster is upgraded some of its API servers may, and others not.
    pub terminating_is_dropped: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    records: HashMap<ObjectKey, Memory>,
    /// INVARIANT: each has a record in which something was written.
    waiting: Waiting,
    take_over: TakeOver,
    /// Twice as many records as the last sweep has left, so that the cost of a sweep is spread over as
    /// many newcomers.
    sweep_at: usize,
}

/// What is remembered of one ReplicaSet.
#[derive(Debug)]
pub struct Memory {
    owner: Uid,
    /// What was written and not seen yet, by identity.
    pub own_writes: OwnWrites,
    /// How new the caches must be.
    pub positions: Positions,
    /// The names of the next pods.
    pub names: PodNames,
    /// When the status may be written.
    pub status_throttle: StatusThrottle,
    /// What happened.
    pub history: History,
    /// What looks like somebody else's doing.
    pub suspicion: Suspicion,
}

impl Memory {
    fn of(owner: &Uid) -> Self {
        Self {
            owner: owner.clone(),
            own_writes: OwnWrites::default(),
            positions: Positions::default(),
            names: PodNames::default(),
            status_throttle: StatusThrottle::default(),
            history: History::default(),
            suspicion: Suspicion::default(),
        }
    }

    /// True if forgetting it would change nothing.
    pub fn is_over(&self, now: Instant) -> bool {
        self.own_writes.is_empty()
            && self.positions.are_over(now)
            && self.names.is_empty()
            && self.status_throttle.remaining(now).is_none()
            && self.history.is_over(now)
            && self.suspicion.is_over(now)
    }
}

impl Memories {
    /// Nothing to remember yet. Unless `waits_for_written`, every sync finds the caches new enough;
    /// writes are noted all the same, since [`Self::wake_when_shown`] needs them.
    ///
    /// DIFFERS: upstream's store notes nothing then
    /// (kubernetes `pkg/controller/util/consistency:NewNoopConsistencyStore`).
    pub fn new(clock: Arc<dyn Clock>, waits_for_written: bool) -> Self {
        Self {
            clock,
            waits_for_written,
            state: Mutex::default(),
            n_waiting: AtomicUsize::new(0),
            is_unproven: AtomicBool::new(false),
            stands_by: AtomicBool::new(false),
            terminating_is_dropped: AtomicBool::new(false),
        }
    }

    /// Changes the record of `owner`, which is made if there is none. At most one owner of a key is
    /// alive, so the record of another one is void.
    pub fn with<R>(
        &self,
        key: &ObjectKey,
        owner: &Uid,
        change: impl FnOnce(&mut Memory) -> R,
    ) -> R {
        let mut state = self.lock();
        if state.records.len() >= state.sweep_at.max(SWEEP_AT_LEAST)
            && !state.records.contains_key(key)
        {
            let now = self.clock.now();
            state.records.retain(|_, memory| !memory.is_over(now));
            state.sweep_at = 2 * state.records.len();
        }
        if let Some(memory) = state.records.get_mut(key) {
            if memory.owner == *owner {
                return change(memory);
            }
            self.forget_in(&mut state, key);
        }
        let mut memory = Memory::of(owner);
        let result = change(&mut memory);
        state.records.insert(key.clone(), memory);
        result
    }

    /// Reads or changes the record of `owner`; `None` without one.
    pub fn get<R>(
        &self,
        key: &ObjectKey,
        owner: &Uid,
        change: impl FnOnce(&mut Memory) -> R,
    ) -> Option<R> {
        let mut state = self.lock();
        let memory = state.records.get_mut(key)?;
        (memory.owner == *owner).then(|| change(memory))
    }

    /// Changes all records.
    pub fn each(&self, mut change: impl FnMut(&mut Memory)) {
        self.lock().records.values_mut().for_each(&mut change);
    }

    /// Forgets a ReplicaSet that is gone: the one with UID `owner`, or (with `None`) whichever has the key.
    pub fn forget(&self, key: &ObjectKey, owner: Option<&Uid>) {
        let mut state = self.lock();
        let memory = state.records.get(key);
        if memory.is_some_and(|memory| owner.is_none_or(|owner| memory.owner == *owner)) {
            self.forget_in(&mut state, key);
        }
    }

    /// Whether the caches show everything written for `key` by `owner`, who has the key now, if anybody
    /// has. If it is too early the key is noted, and [`Self::advanced`] will name it. `cached` reads how
    /// far the caches have come; it is called up to twice and never under the lock.
    ///
    /// What another owner has written is not waited for: an answer to one of its last writes may have
    /// been noted after it was gone.
    pub fn readiness(
        &self,
        key: &ObjectKey,
        owner: Option<&Uid>,
        cached: impl Fn() -> Versions,
    ) -> Readiness {
        if self.settle(key, owner, &cached()) || !self.waits_for_written {
            return Readiness::Ready;
        }
        self.wake_when_shown(key);
        // ORDER: the caches may have moved between the first look and the note; from the note on the
        // watch threads tell, so a second look closes the gap.
        if self.settle(key, owner, &cached()) {
            return Readiness::Ready;
        }
        let now = self.clock.now();
        let patience = |owner| self.get(key, owner, |memory| memory.positions.patience(now));
        owner.and_then(patience).unwrap_or(Readiness::Ready)
    }

    /// Notes `key`, so that [`Self::advanced`] names it when the caches show what was written for it.
    pub fn wake_when_shown(&self, key: &ObjectKey) {
        let mut state = self.lock();
        let State {
            records, waiting, ..
        } = &mut *state;
        if let Some(written) = records.get(key).and_then(|it| it.positions.written()) {
            waiting.add(key, written);
            self.count_waiting(&state);
        }
    }

    /// Called by the watch threads when a cache has come to `cached`: the keys that waited for that.
    pub fn advanced(&self, cached: impl Fn() -> Versions) -> Vec<ObjectKey> {
        if self.n_waiting.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let cached = cached();
        let mut state = self.lock();
        let State {
            records, waiting, ..
        } = &mut *state;
        let written = |key: &ObjectKey| records.get(key)?.positions.written();
        let shown = waiting.take_shown(&cached, written);
        self.count_waiting(&state);
        shown
    }

    /// True while another may lead: no keys are collected. Takes no lock.
    pub fn stands_by(&self) -> bool {
        self.stands_by.load(Ordering::SeqCst)
    }

    /// Another may lead from now on, or none other any more.
    pub fn set_stands_by(&self, stands_by: bool) {
        self.stands_by.store(stands_by, Ordering::SeqCst);
    }

    /// Nothing that the caches show is proven to be as new as this moment, nor confirmed of any
    /// ReplicaSet.
    pub fn need_proof(&self) {
        let mut state = self.lock();
        state.take_over.need_proof();
        state.forget_confirmations();
        // ORDER: under the lock, so that a proof of before does not undo it.
        self.is_unproven.store(true, Ordering::SeqCst);
    }

    /// Whether it is still to be found out what the caches must reach.
    pub fn lacks_target(&self) -> bool {
        self.lock().take_over.lacks_target()
    }

    /// Notes what the caches must reach, if nobody has yet.
    pub fn set_target(&self, target: Versions) {
        self.lock().take_over.set_target(target);
    }

    /// Whether all that is read of the caches from now on is as new as the take-over. `cached` reads how
    /// far the caches have come; it is called at most once and never under the lock.
    pub fn is_proven(&self, cached: impl FnOnce() -> Versions) -> bool {
        if !self.is_unproven.load(Ordering::SeqCst) {
            return true;
        }
        let cached = cached();
        let mut state = self.lock();
        if state.take_over.prove(&cached) {
            self.is_unproven.store(false, Ordering::SeqCst);
            state.forget_confirmations();
        }
        state.take_over.is_proven()
    }

    /// How many creations and deletions of all ReplicaSets together are still to be seen.
    pub fn n_expected(&self) -> (usize, usize) {
        let state = self.lock();
        let add = |(creations, deletions): (usize, usize), memory: &Memory| {
            let (more, fewer) = memory.own_writes.n_expected();
            (creations + more, deletions + fewer)
        };
        state.records.values().fold((0, 0), add)
    }

    /// Forgets what was written for `key` if the caches show it; true if nothing is left.
    fn settle(&self, key: &ObjectKey, owner: Option<&Uid>, cached: &Versions) -> bool {
        let mut state = self.lock();
        let Some(memory) = state.records.get_mut(key) else {
            return true;
        };
        let is_shown = owner != Some(&memory.owner) || memory.positions.are_shown_by(cached);
        if is_shown {
            memory.positions.forget_written();
            state.waiting.remove(key);
            self.count_waiting(&state);
        }
        is_shown
    }

    fn forget_in(&self, state: &mut State, key: &ObjectKey) {
        state.records.remove(key);
        state.waiting.remove(key);
        self.count_waiting(state);
    }

    fn count_waiting(&self, state: &State) {
        self.n_waiting.store(state.waiting.len(), Ordering::SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Of which ReplicaSets the API server has confirmed the caches.
    fn forget_confirmations(&mut self) {
        for memory in self.records.values_mut() {
            memory.positions.is_confirmed = false;
        }
    }
}

#[cfg(test)]
mod tests;
