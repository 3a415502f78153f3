//! A ReplicaSet's own writes that the cache does not show yet, by identity: the *names* of pods that were
//! created, the *UIDs* of pods that were deleted. Plain data without lock, clock or I/O.
//!
//! A write is in one of two states, or in both. While it is *expected*, the sync neither creates nor
//! deletes, since its view does not show its own doings; the watch threads strike out exactly what they
//! see, so a stranger's pod lowers nothing. While its fate is *unknown*, because the answer was lost or
//! the server gave up in the middle, it blocks nothing, but it goes first: a create is repeated under the
//! same name, so that it cannot make a second pod, and a delete on the same pod, so that it cannot take a
//! second one. That a repetition was refused, or not even tried, says nothing about the first try.
//!
//! A write is settled by its pod, by the pod's going, by an answer that tells its fate, or by a position:
//! an answer names the version under which a pod was stored, so a cache that has come so far without the
//! pod has missed it, and the API server is asked.
//!
//! DIFFERS: upstream counts creations and expects deletions by name
//! (kubernetes `pkg/controller/controller_utils.go:ControllerExpectations`), so that unrelated pods
//! can satisfy an expectation or drive a counter below zero.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::api::{ResourceVersion, Uid};
use crate::stdx::hash::{HashMap, HashSet};

/// After this long an expectation is not believed any more
/// (kubernetes `pkg/controller/controller_utils.go:ExpectationsTimeout`).
pub const EXPECTATIONS_TIMEOUT: Duration = Duration::from_mins(5);

/// A delete without an answer takes no effect later than this. Counted from when we gave up on its
/// last try: the API server gives up on a request after a minute (apiserver
/// `pkg/server/config.go:RequestTimeout`), and so do we; the rest is for proxies in between.
const DELETE_ARRIVES_WITHIN: Duration = Duration::from_mins(5);

/// The writes of one ReplicaSet.
#[derive(Debug, Default)]
pub struct OwnWrites {
    /// Names of pods to appear, with the version under which each was stored; empty until that is known.
    expected_creations: HashMap<Arc<str>, ResourceVersion>,
    /// UIDs of pods to go.
    expected_deletions: HashSet<Uid>,
    /// When the expected ones were written down.
    since: Option<Instant>,
    /// Names under which a pod may or may not have been stored.
    unknown_creations: BTreeSet<Arc<str>>,
    /// UIDs of pods that may or may not have been deleted, with the time of the latest try.
    unknown_deletions: BTreeMap<Uid, Instant>,
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

/// Deletes of unknown fate.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UnknownDeletions {
    /// Those that may still take effect.
    pub under_way: Vec<Uid>,
    /// Those that have taken effect by now or never will.
    pub over: Vec<Uid>,
}

impl OwnWrites {
    /// Expects pods of these names to appear and pods of these UIDs to go, instead of whatever was
    /// expected before.
    pub fn expect(
        &mut self,
        creations: impl IntoIterator<Item = Arc<str>>,
        deletions: impl IntoIterator<Item = Uid>,
        now: Instant,
    ) {
        let unknown = ResourceVersion::default;
        let creations = creations.into_iter();
        self.expected_creations = creations.map(|name| (name, unknown())).collect();
        self.expected_deletions = deletions.into_iter().collect();
        self.since = Some(now);
    }

    /// A pod of this name was seen: it is there, so nothing is left to be expected or repeated.
    pub fn creation_seen(&mut self, name: &str) {
        self.expected_creations.remove(name);
        self.unknown_creations.remove(name);
    }

    /// The pod of this name was stored under `version`.
    pub fn creation_answered(&mut self, name: &str, version: &ResourceVersion) {
        self.unknown_creations.remove(name);
        if let Some(expected) = self.expected_creations.get_mut(name) {
            expected.clone_from(version);
        }
    }

    /// The pod of this name is not to be expected: its create failed, or was not tried.
    pub fn creation_failed(&mut self, name: &str) {
        self.expected_creations.remove(name);
    }

    /// The pod of this name may or may not be there.
    pub fn creation_is_unknown(&mut self, name: &Arc<str>) {
        self.unknown_creations.insert(Arc::clone(name));
    }

    /// A pod of another name is expected, because `name` turned out to be taken.
    pub fn rename_creation(&mut self, name: &str, other: &Arc<str>) {
        self.creation_seen(name);
        self.expected_creations
            .insert(Arc::clone(other), ResourceVersion::default());
    }

    /// Whether a create of this name is expected, or of unknown fate.
    pub fn has_creation(&self, name: &str) -> bool {
        self.expected_creations.contains_key(name) || self.unknown_creations.contains(name)
    }

    /// The names under which a pod may be there already, in their order.
    pub fn unknown_creations(&self) -> &BTreeSet<Arc<str>> {
        &self.unknown_creations
    }

    /// The expected names of pods that were stored up to `position`, where the pods' cache is.
    pub fn passed(&self, position: &ResourceVersion) -> Vec<Arc<str>> {
        let is_passed = |version| position.compare(version).is_some_and(Ordering::is_ge);
        let creations = self.expected_creations.iter();
        creations
            .filter(|(_, version)| is_passed(version))
            .map(|(name, _)| Arc::clone(name))
            .collect()
    }

    /// Whether the pod with this UID is expected to go.
    pub fn expects_deletion(&self, pod: &Uid) -> bool {
        self.expected_deletions.contains(pod)
    }

    /// The pod with this UID was seen going away, gone, or otherwise out of the count.
    pub fn deletion_seen(&mut self, pod: &Uid) {
        self.expected_deletions.remove(pod);
        self.unknown_deletions.remove(pod);
    }

    /// The pod with this UID is not expected to go: its delete failed.
    pub fn deletion_failed(&mut self, pod: &Uid) {
        self.expected_deletions.remove(pod);
    }

    /// It is known now whether the pod with this UID was deleted.
    pub fn deletion_resolved(&mut self, pod: &Uid) {
        self.unknown_deletions.remove(pod);
    }

    /// The pod with this UID may or may not have been deleted.
    pub fn deletion_is_unknown(&mut self, pod: &Uid, now: Instant) {
        self.unknown_deletions.insert(pod.clone(), now);
    }

    /// The deletes of unknown fate, in the order of their UIDs.
    pub fn unknown_deletions(&self, now: Instant) -> UnknownDeletions {
        let mut found = UnknownDeletions::default();
        for (pod, since) in &self.unknown_deletions {
            let is_over = now.saturating_duration_since(*since) > DELETE_ARRIVES_WITHIN;
            let list = if is_over {
                &mut found.over
            } else {
                &mut found.under_way
            };
            list.push(pod.clone());
        }
        found
    }

    /// Whether a sync may act on what the cache shows. Ask this *before* the pods are listed, so that
    /// what arrives in between can only make the view newer.
    pub fn satisfaction(&self, now: Instant) -> Satisfaction {
        match self.time_left(now) {
            None => Satisfaction::Satisfied,
            Some(Duration::ZERO) => Satisfaction::Expired,
            Some(_) => Satisfaction::Open,
        }
    }

    /// How long until what is still expected expires; `None` if nothing is. An expectation is believed
    /// for the whole of its time, the last moment included.
    pub fn time_left(&self, now: Instant) -> Option<Duration> {
        if self.n_expected() == (0, 0) {
            return None;
        }
        let age = now.saturating_duration_since(self.since?);
        Some((EXPECTATIONS_TIMEOUT + Duration::from_nanos(1)).saturating_sub(age))
    }

    /// How many creations and deletions are still to be seen.
    pub fn n_expected(&self) -> (usize, usize) {
        (self.expected_creations.len(), self.expected_deletions.len())
    }

    /// What exactly is still to be seen; `None` if nothing is.
    pub fn open(&self, now: Instant) -> Option<OpenExpectations> {
        self.time_left(now)?;
        Some(OpenExpectations {
            creations: self.expected_creations.keys().cloned().collect(),
            deletions: self.expected_deletions.iter().cloned().collect(),
            age: now.saturating_duration_since(self.since?),
        })
    }

    /// As [`Self::n_expected`]; `None` if nothing was ever expected.
    #[cfg(test)]
    pub fn expected(&self) -> Option<(usize, usize)> {
        self.since.map(|_| self.n_expected())
    }

    /// Expects nothing any more; what is of unknown fate stays.
    pub fn forget_expected(&mut self) {
        self.expected_creations = HashMap::default();
        self.expected_deletions = HashSet::default();
        self.since = None;
    }

    /// True if there is nothing to remember.
    pub fn is_empty(&self) -> bool {
        self.n_expected() == (0, 0)
            && self.unknown_creations.is_empty()
            && self.unknown_deletions.is_empty()
    }
}
