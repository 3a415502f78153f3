//! Reading one's own writes: how far the cache must have come before a ReplicaSet is looked at again.
//!
//! Each answer to a write names the version under which it was stored. Until the cache has reached
//! the highest of them, a sync of that ReplicaSet returns at once and writes nothing, status included.
//! Nothing polls: whoever finds itself too early is noted, and the watch thread that brings the version
//! puts the key back into the queue.
//!
//! A version that never comes, as after a restore of the API server's store from a backup, is not
//! waited for longer than an expectation is believed; then the sync asks the API server.
//!
//! DIFFERS: upstream (kubernetes `pkg/controller/util/consistency`) returns an error instead, comes
//! back by rate-limited retry, and waits for ever.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::expectations::EXPECTATIONS_TIMEOUT;
use crate::api::{ObjectKey, ResourceVersion, Uid};
use crate::stdx::clock::Clock;
use crate::stdx::hash::{HashMap, HashSet};

/// How far a cache has come, or must have come, for both kinds of objects. Empty: not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// Of the pods.
    pub pods: ResourceVersion,
    /// Of the ReplicaSets.
    pub replica_sets: ResourceVersion,
}

/// Which of the two a write went to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Pods.
    Pods,
    /// ReplicaSets.
    ReplicaSets,
}

/// Whether a sync may rest on the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The cache shows everything that was written.
    Ready,
    /// It does not yet; waiting is worth while for this long.
    TooEarly(Duration),
    /// It should have long ago.
    Overdue,
}

/// The versions written for each ReplicaSet that the cache has not shown yet. Shared by workers and
/// watch threads; one lock, held for the length of a few map operations.
#[derive(Debug)]
pub struct WrittenVersions {
    clock: Arc<dyn Clock>,
    /// False: nobody waits for what was written.
    holds_up: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    records: HashMap<ObjectKey, Record>,
    /// Keys that are to be told, as a rule because their last sync came too early. INVARIANT: each
    /// has a record.
    waiting: HashSet<ObjectKey>,
    /// By pods, and by ReplicaSets, which version each of them waits for.
    /// INVARIANT: each of `waiting` stands in one of the two, at a version that its record asks for
    /// or asked for. Others may stand there too.
    order: [BTreeSet<(u64, ObjectKey)>; 2],
}

#[derive(Debug)]
struct Record {
    owner: Uid,
    written: Versions,
    /// When the highest of them was written.
    since: Instant,
}

impl WrittenVersions {
    /// Nothing written yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            holds_up: true,
            state: Mutex::default(),
        }
    }

    /// One that finds everybody ready. It notes writes all the same, since
    /// [`wake_when_shown`](Self::wake_when_shown) needs them.
    ///
    /// DIFFERS: upstream's notes nothing
    /// (kubernetes `pkg/controller/util/consistency:NewNoopConsistencyStore`).
    pub fn holding_up_nobody(clock: Arc<dyn Clock>) -> Self {
        Self {
            holds_up: false,
            ..Self::new(clock)
        }
    }

    /// Notes that a write for `owner` was stored under `version`. The highest counts; a record of
    /// another owner under the key is void. A version that is empty or does not compare is not noted.
    pub fn wrote_at(
        &self,
        key: &ObjectKey,
        owner: &Uid,
        resource: Resource,
        version: &ResourceVersion,
    ) {
        // A version that does not even compare with itself can never be waited for.
        if version.compare(version).is_none() {
            return;
        }
        let now = self.clock.now();
        let mut state = self.lock();
        if state
            .records
            .get(key)
            .is_some_and(|record| record.owner != *owner)
        {
            state.forget(key);
        }
        let record = state.records.entry(key.clone()).or_insert_with(|| Record {
            owner: owner.clone(),
            written: Versions::default(),
            since: now,
        });
        let written = match resource {
            Resource::Pods => &mut record.written.pods,
            Resource::ReplicaSets => &mut record.written.replica_sets,
        };
        if written.is_as_new_as(version) && !written.is_empty() {
            return;
        }
        *written = version.clone();
        record.since = now;
    }

    /// Whether the cache shows everything written for `key` by `owner`, who has the key now, if anybody
    /// has; then the record is dropped. If it is too early the key is noted, and [`Self::advanced`] will
    /// name it. `cached` reads how far the cache has come; it is called up to twice and never under the
    /// lock.
    ///
    /// What another owner has written is not waited for: an answer to one of its last writes may have
    /// been noted after it was gone.
    pub fn ensure_ready(
        &self,
        key: &ObjectKey,
        owner: Option<&Uid>,
        cached: impl Fn() -> Versions,
    ) -> Readiness {
        if self.drop_if_shown(key, owner, &cached()) || !self.holds_up {
            return Readiness::Ready;
        }
        let since = self.lock().wait(key);
        // ORDER: the cache may have moved between the first look and the note; from the note on the
        // watch threads tell, so a second look closes the gap.
        if self.drop_if_shown(key, owner, &cached()) {
            return Readiness::Ready;
        }
        let age = since.map(|since| self.clock.now().saturating_duration_since(since));
        match EXPECTATIONS_TIMEOUT.saturating_sub(age.unwrap_or_default()) {
            Duration::ZERO => Readiness::Overdue,
            left => Readiness::TooEarly(left),
        }
    }

    /// Notes `key`, as [`ensure_ready`](Self::ensure_ready) does if it is too early.
    pub fn wake_when_shown(&self, key: &ObjectKey) {
        self.lock().wait(key);
    }

    /// Which cache does not show yet what was written for `key`: the ReplicaSets' only if the pods' does.
    pub fn behind(&self, key: &ObjectKey, cached: &Versions) -> Resource {
        let state = self.lock();
        let record = state.records.get(key);
        if record.is_some_and(|record| cached.pods.is_as_new_as(&record.written.pods)) {
            Resource::ReplicaSets
        } else {
            Resource::Pods
        }
    }

    /// Called by the watch threads when the cache has come to `cached`: the keys that came too early
    /// before and are ready now.
    pub fn advanced(&self, cached: impl Fn() -> Versions) -> Vec<ObjectKey> {
        if self.lock().waiting.is_empty() {
            return Vec::new();
        }
        let cached = cached();
        self.lock().take_shown(&cached)
    }

    /// Forgets what was written for `key`: by `owner` only, or (with `None`) by whoever.
    pub fn clear(&self, key: &ObjectKey, owner: Option<&Uid>) {
        let mut state = self.lock();
        let record = state.records.get(key);
        if record.is_some_and(|record| owner.is_none_or(|uid| record.owner == *uid)) {
            state.forget(key);
        }
    }

    /// Forgets everything, who waits included.
    pub fn forget_all(&self) {
        *self.lock() = State::default();
    }

    /// What was written for `key` by `owner` and not seen in the cache by a sync yet.
    pub fn written(&self, key: &ObjectKey, owner: &Uid) -> Option<Versions> {
        let state = self.lock();
        let record = state
            .records
            .get(key)
            .filter(|record| record.owner == *owner)?;
        Some(record.written.clone())
    }

    fn drop_if_shown(&self, key: &ObjectKey, owner: Option<&Uid>, cached: &Versions) -> bool {
        let mut state = self.lock();
        let is_shown = state
            .records
            .get(key)
            .is_none_or(|record| owner != Some(&record.owner) || record.is_shown_by(cached));
        if is_shown {
            state.forget(key);
        }
        is_shown
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Since when the record of `key` is as it is.
    fn wait(&mut self, key: &ObjectKey) -> Option<Instant> {
        let record = self.records.get(key)?;
        if self.waiting.insert(key.clone()) {
            let first = number(&record.written.pods);
            self.order[0].insert((first, key.clone()));
        }
        Some(record.since)
    }

    /// The waiting keys whose records `cached` shows; they wait no longer. Looks at those only
    /// whose next version was reached.
    fn take_shown(&mut self, cached: &Versions) -> Vec<ObjectKey> {
        let mut reached = Vec::new();
        for (order, cached) in self
            .order
            .iter_mut()
            .zip([&cached.pods, &cached.replica_sets])
        {
            // What does not compare never blocks.
            let position = cached.number().unwrap_or(u64::MAX);
            while order
                .first()
                .is_some_and(|(version, _)| *version <= position)
            {
                reached.extend(order.pop_first());
            }
        }
        let mut shown = Vec::new();
        for (_, key) in reached {
            let Some(record) = self
                .records
                .get(&key)
                .filter(|_| self.waiting.contains(&key))
            else {
                continue;
            };
            if record.is_shown_by(cached) {
                self.waiting.remove(&key);
                shown.push(key);
            } else if cached.pods.is_as_new_as(&record.written.pods) {
                let next = number(&record.written.replica_sets);
                self.order[1].insert((next, key));
            } else {
                let next = number(&record.written.pods);
                self.order[0].insert((next, key));
            }
        }
        shown
    }

    fn forget(&mut self, key: &ObjectKey) {
        self.records.remove(key);
        self.waiting.remove(key);
    }
}

/// Where a version stands in the order; one that is no number at its beginning, so that it is
/// looked at each time.
fn number(version: &ResourceVersion) -> u64 {
    version.number().unwrap_or(0)
}

impl Record {
    fn is_shown_by(&self, cached: &Versions) -> bool {
        cached.pods.is_as_new_as(&self.written.pods)
            && cached.replica_sets.is_as_new_as(&self.written.replica_sets)
    }
}

#[cfg(test)]
mod tests;
