//! How long a ReplicaSet takes from a change of its spec to the first request, and to the end.
//!
//! Watch threads note changes, workers note what came of them. Only ReplicaSets on their way are held.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::api::{ObjectKey, ReplicaSet, Uid};
use crate::stdx::clock::Clock;

/// The ReplicaSets that are on their way to what their specs ask for; one lock, held for the length of
/// a map operation.
#[derive(Debug)]
pub(super) struct Progress {
    clock: Arc<dyn Clock>,
    changes: Mutex<HashMap<ObjectKey, Change>>,
}

#[derive(Debug)]
struct Change {
    owner: Uid,
    /// What the spec's change made of it.
    generation: i64,
    since: Instant,
    is_requested: bool,
}

impl Change {
    fn concerns(&self, rs: &ReplicaSet) -> bool {
        self.owner == rs.uid && self.generation == rs.generation
    }
}

impl Progress {
    /// Nothing has changed yet.
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            changes: Mutex::default(),
        }
    }

    /// Notes that the watch brought `rs`, which was `old` before. It counts as a change if no controller
    /// has seen its generation yet: so the ReplicaSets that a start finds in order do not.
    pub(super) fn seen(&self, old: Option<&ReplicaSet>, rs: &ReplicaSet) {
        let is_new = old.is_none_or(|old| old.uid != rs.uid || old.generation != rs.generation);
        if !is_new || rs.status.observed_generation >= rs.generation || rs.is_terminating() {
            return;
        }
        let change = Change {
            owner: rs.uid.clone(),
            generation: rs.generation,
            since: self.clock.now(),
            is_requested: false,
        };
        self.lock().insert(rs.key.clone(), change);
    }

    /// Notes that a pod of `rs` is going to be created or deleted; how long that took, if it is the
    /// first one since the last change.
    pub(super) fn requested(&self, rs: &ReplicaSet) -> Option<Duration> {
        let mut changes = self.lock();
        let change = changes
            .get_mut(&rs.key)
            .filter(|change| change.concerns(rs))?;
        if change.is_requested {
            return None;
        }
        change.is_requested = true;
        let since = change.since;
        drop(changes);
        Some(self.clock.now().saturating_duration_since(since))
    }

    /// Notes that `rs` has as many pods as it wants; how long that took, if it was on its way.
    pub(super) fn converged(&self, rs: &ReplicaSet) -> Option<Duration> {
        let mut changes = self.lock();
        changes.get(&rs.key).filter(|change| change.concerns(rs))?;
        let change = changes.remove(&rs.key)?;
        drop(changes);
        Some(self.clock.now().saturating_duration_since(change.since))
    }

    /// Forgets the change of `key`: of `owner` only, or (with `None`) of whoever has the key.
    pub(super) fn clear(&self, key: &ObjectKey, owner: Option<&Uid>) {
        let mut changes = self.lock();
        let change = changes.get(key);
        if change.is_some_and(|change| owner.is_none_or(|uid| change.owner == *uid)) {
            changes.remove(key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, Change>> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
