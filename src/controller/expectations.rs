//! What a ReplicaSet's own writes must still bring into the cache, by identity.
//!
//! Before pods are created their *names* are written down here, before pods are deleted their *UIDs*;
//! the watch threads strike out exactly what they see. While something is left, the sync neither
//! creates nor deletes, since its view does not show its own doings yet. A stranger's pod lowers
//! nothing.
//!
//! A pod that was stored and has gone while the watch was away is never seen. But the answer to its
//! create names the version under which it was stored; if the cache has come to that version without
//! the pod, the API server is asked instead of waiting for the expectation to expire.
//!
//! DIFFERS: upstream counts creations and expects deletions by name
//! (kubernetes `pkg/controller/controller_utils.go:ControllerExpectations`), so that unrelated pods
//! can satisfy an expectation or drive a counter below zero.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::api::{ObjectKey, ResourceVersion, Uid};
use crate::stdx::clock::Clock;
use crate::stdx::hash::{HashMap, HashSet};

/// After this long an expectation is not believed any more
/// (kubernetes `pkg/controller/controller_utils.go:ExpectationsTimeout`).
pub const EXPECTATIONS_TIMEOUT: Duration = Duration::from_mins(5);

/// The expectations of all ReplicaSets. Shared by the workers (who expect) and the watch threads
/// (who observe); one lock, held for the length of a map operation.
#[derive(Debug)]
pub struct Expectations {
    clock: Arc<dyn Clock>,
    entries: Mutex<HashMap<ObjectKey, Entry>>,
}

/// At most one owner per key is alive, so a new UID under a key makes the old entry void.
#[derive(Debug)]
struct Entry {
    owner: Uid,
    /// With the version under which each was stored; empty until that is known.
    creations: HashMap<Arc<str>, ResourceVersion>,
    deletions: HashSet<Uid>,
    since: Instant,
}

/// Whether a sync may act on what the cache shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Satisfaction {
    /// Everything expected was seen, or nothing was expected.
    Satisfied,
    /// Something is still to come.
    Open,
    /// Something never came within [`EXPECTATIONS_TIMEOUT`]. The cache may have missed it or may be
    /// far behind, so the caller has to ask the API server instead.
    Expired,
}

/// What a ReplicaSet is still to see of its own doings, in no order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenExpectations {
    /// Names of pods that were created.
    pub creations: Vec<Arc<str>>,
    /// UIDs of pods that were deleted.
    pub deletions: Vec<Uid>,
    /// How long ago they were written down.
    pub age: Duration,
}

impl Expectations {
    /// No expectations yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            entries: Mutex::default(),
        }
    }

    /// Expects pods of these names to appear. Replaces whatever was expected for the key before.
    pub fn expect_creations(
        &self,
        key: &ObjectKey,
        owner: &Uid,
        names: impl IntoIterator<Item = Arc<str>>,
    ) {
        self.expect(key, owner, names, []);
    }

    /// Expects pods of these UIDs to go. Replaces whatever was expected for the key before.
    pub fn expect_deletions(
        &self,
        key: &ObjectKey,
        owner: &Uid,
        pods: impl IntoIterator<Item = Uid>,
    ) {
        self.expect(key, owner, [], pods);
    }

    /// True if a pod of this name is still to be seen.
    pub fn expects_creation(&self, key: &ObjectKey, owner: &Uid, name: &str) -> bool {
        let entries = self.lock();
        let entry = entries.get(key).filter(|entry| entry.owner == *owner);
        entry.is_some_and(|entry| entry.creations.contains_key(name))
    }

    /// A pod of this name was seen, or will never be: its creation failed or was not tried.
    pub fn creation_observed(&self, key: &ObjectKey, owner: &Uid, name: &str) {
        self.observe(key, owner, |entry| entry.creations.remove(name));
    }

    /// The pod of this name was stored under `version`, if it is still to be seen.
    pub fn creation_answered(
        &self,
        key: &ObjectKey,
        owner: &Uid,
        name: &str,
        version: &ResourceVersion,
    ) {
        self.observe(key, owner, |entry| {
            let creation = entry.creations.get_mut(name)?;
            Some(std::mem::replace(creation, version.clone()))
        });
    }

    /// The names of pods that were stored up to `position`, where the pods' cache is, and are still to
    /// be seen.
    pub fn passed(
        &self,
        key: &ObjectKey,
        owner: &Uid,
        position: &ResourceVersion,
    ) -> Vec<Arc<str>> {
        let entries = self.lock();
        let entry = entries.get(key).filter(|entry| entry.owner == *owner);
        let creations = entry.into_iter().flat_map(|entry| &entry.creations);
        let is_passed = |version| position.compare(version).is_some_and(Ordering::is_ge);
        creations
            .filter(|(_, version)| is_passed(version))
            .map(|(name, _)| Arc::clone(name))
            .collect()
    }

    /// Expects a pod of another name instead, because `name` turned out to be taken.
    pub fn rename_creation(&self, key: &ObjectKey, owner: &Uid, name: &str, other: &Arc<str>) {
        self.observe(key, owner, |entry| {
            entry.creations.remove(name);
            let other = Arc::clone(other);
            entry.creations.insert(other, ResourceVersion::default())
        });
    }

    /// The pod with this UID was seen going away or gone, or its deletion failed.
    pub fn deletion_observed(&self, key: &ObjectKey, owner: &Uid, pod: &Uid) {
        self.observe(key, owner, |entry| entry.deletions.remove(pod));
    }

    /// Whether a sync of `owner` may act on what the cache shows. Ask this *before* the pods are
    /// listed, so that what arrives in between can only make the view newer.
    pub fn satisfied_expectations(&self, key: &ObjectKey, owner: &Uid) -> Satisfaction {
        let entries = self.lock();
        match entries.get(key) {
            Some(entry) if entry.owner == *owner && entry.is_open() => {
                if self.time_left_of(entry).is_zero() {
                    Satisfaction::Expired
                } else {
                    Satisfaction::Open
                }
            }
            _ => Satisfaction::Satisfied,
        }
    }

    /// How long until what is still expected of `owner` expires; `None` if nothing is.
    pub fn time_left(&self, key: &ObjectKey, owner: &Uid) -> Option<Duration> {
        let entries = self.lock();
        let entry = entries.get(key).filter(|entry| entry.owner == *owner)?;
        entry.is_open().then(|| self.time_left_of(entry))
    }

    /// Forgets what is expected for `key`: of `owner` only, or (with `None`) whoever owns it.
    pub fn delete_expectations(&self, key: &ObjectKey, owner: Option<&Uid>) {
        let mut entries = self.lock();
        if entries
            .get(key)
            .is_some_and(|entry| owner.is_none_or(|uid| entry.owner == *uid))
        {
            entries.remove(key);
        }
    }

    /// Forgets everything.
    pub fn forget_all(&self) {
        self.lock().clear();
    }

    /// How many creations and deletions of `owner` are still to be seen; `None` without a record.
    pub fn open(&self, key: &ObjectKey, owner: &Uid) -> Option<(usize, usize)> {
        let entries = self.lock();
        let entry = entries.get(key).filter(|entry| entry.owner == *owner)?;
        Some((entry.creations.len(), entry.deletions.len()))
    }

    /// What exactly is still to be seen of `owner`; `None` if nothing is.
    pub fn details(&self, key: &ObjectKey, owner: &Uid) -> Option<OpenExpectations> {
        let entries = self.lock();
        let entry = entries.get(key).filter(|entry| entry.owner == *owner)?;
        let details = || OpenExpectations {
            creations: entry.creations.keys().cloned().collect(),
            deletions: entry.deletions.iter().cloned().collect(),
            age: self.clock.now().saturating_duration_since(entry.since),
        };
        entry.is_open().then(details)
    }

    /// How many creations and deletions of all owners together are still to be seen.
    pub fn open_total(&self) -> (usize, usize) {
        let entries = self.lock();
        let add = |(creations, deletions): (usize, usize), entry: &Entry| {
            let (more, fewer) = (entry.creations.len(), entry.deletions.len());
            (creations + more, deletions + fewer)
        };
        entries.values().fold((0, 0), add)
    }

    /// Expects both. Replaces whatever was expected for the key before.
    pub fn expect(
        &self,
        key: &ObjectKey,
        owner: &Uid,
        creations: impl IntoIterator<Item = Arc<str>>,
        deletions: impl IntoIterator<Item = Uid>,
    ) {
        let unknown = ResourceVersion::default;
        let creations = creations.into_iter();
        let entry = Entry {
            owner: owner.clone(),
            creations: creations.map(|name| (name, unknown())).collect(),
            deletions: deletions.into_iter().collect(),
            since: self.clock.now(),
        };
        self.lock().insert(key.clone(), entry);
    }

    /// An expectation is believed for the whole of its time, the last moment included.
    fn time_left_of(&self, entry: &Entry) -> Duration {
        let age = self.clock.now().saturating_duration_since(entry.since);
        (EXPECTATIONS_TIMEOUT + Duration::from_nanos(1)).saturating_sub(age)
    }

    fn observe<R>(&self, key: &ObjectKey, owner: &Uid, strike: impl FnOnce(&mut Entry) -> R) {
        if let Some(entry) = self.lock().get_mut(key)
            && entry.owner == *owner
        {
            strike(entry);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn is_open(&self) -> bool {
        !self.creations.is_empty() || !self.deletions.is_empty()
    }
}

#[cfg(test)]
mod tests;
