//! Expectations: a ReplicaSet's own writes that the cache does not show yet, by identity, namely
//! the *names* of created pods and the *UIDs* of deleted pods. Plain data without lock, clock or
//! I/O.
//!
//! A write is in one of two states, or in both. While it is *expected*, the sync neither creates
//! nor deletes, because its view lacks its own writes. The watch threads observe exact identities,
//! so a foreign pod fulfils no expectation. A write is *unknown* if its response was lost or the
//! server gave up halfway. An unknown write blocks nothing, but the sync retries it first: a create
//! under the same name, so that it cannot create a second pod, and a delete of the same pod, so
//! that it cannot delete a second one. A retry that failed or was never sent proves nothing about
//! the first attempt.
//!
//! A write is settled by an event of its pod, by the pod's deletion, by a response with its
//! outcome, or by a position: a response names the version of the stored pod, so a cache that has
//! passed that version without the pod has missed it, and the sync queries the API server.
//!
//! DIFFERS: upstream counts creations and expects deletions by name (kubernetes
//! `pkg/controller/controller_utils.go:ControllerExpectations`), so unrelated pods can satisfy an
//! expectation or drive a counter below zero.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::api::{ResourceVersion, Uid};
use crate::stdx::hash::{HashMap, HashSet};

/// After this long an expectation expires (kubernetes
/// `pkg/controller/controller_utils.go:ExpectationsTimeout`).
pub const EXPECTATIONS_TIMEOUT: Duration = Duration::from_mins(5);

/// A delete without a response takes no effect later than this. The time counts from the moment at
/// which this daemon gave up on its last attempt. The API server gives up on a request after a
/// minute (apiserver `pkg/server/config.go:RequestTimeout`), and so does this daemon; the rest is a
/// margin for proxies in between.
pub const DELETE_ARRIVES_WITHIN: Duration = Duration::from_mins(5);

/// The writes of one ReplicaSet.
#[derive(Debug, Default)]
pub struct OwnWrites {
    /// Names of created pods, each with the version of the stored pod; empty until that is known.
    expected_creations: HashMap<Arc<str>, ResourceVersion>,
    /// UIDs of deleted pods.
    expected_deletions: HashSet<Uid>,
    /// When the expectations were set.
    since: Option<Instant>,
    /// Names under which a pod may or may not have been stored, and whether each try was answered.
    unknown_creations: BTreeMap<Arc<str>, bool>,
    /// UIDs of pods that may or may not have been deleted, each with the time of the latest
    /// attempt.
    unknown_deletions: BTreeMap<Uid, Instant>,
    /// True if the API server has been queried since the last write of unknown outcome.
    pub are_compared: bool,
}

/// Whether a sync may act on what the cache shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Satisfaction {
    /// The watch has shown everything expected, or nothing was expected.
    Satisfied,
    /// Some expectation is open.
    Open,
    /// Some expectation stayed open for [`EXPECTATIONS_TIMEOUT`]. The cache may have missed the
    /// event or may be far behind, so the caller has to query the API server.
    Expired,
}

/// The open expectations of a ReplicaSet, in no order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenExpectations {
    /// Names of created pods.
    pub creations: Vec<Arc<str>>,
    /// UIDs of deleted pods.
    pub deletions: Vec<Uid>,
    /// How long ago the expectations were set.
    pub age: Duration,
}

/// Deletes with an unknown outcome.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UnknownDeletions {
    /// Deletes that may still take effect.
    pub under_way: Vec<Uid>,
    /// Deletes that have either taken effect or never will.
    pub over: Vec<Uid>,
}

impl OwnWrites {
    /// Expects pods with these names to appear and pods with these UIDs to terminate. Replaces all
    /// earlier expectations.
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

    /// The watch showed a pod with this name, so its create is neither expected nor retried.
    pub fn creation_seen(&mut self, name: &str) {
        self.expected_creations.remove(name);
        self.unknown_creations.remove(name);
    }

    /// The response to the create of this pod names the stored `version`.
    pub fn creation_answered(&mut self, name: &str, version: &ResourceVersion) {
        self.unknown_creations.remove(name);
        if let Some(expected) = self.expected_creations.get_mut(name) {
            expected.clone_from(version);
        }
    }

    /// The create of this pod failed or was not sent, so it is not expected.
    pub fn creation_failed(&mut self, name: &str) {
        self.expected_creations.remove(name);
    }

    /// The outcome of the create of this pod is unknown, although it may have been answered.
    pub fn creation_is_unknown(&mut self, name: &Arc<str>, is_answered: bool) {
        let unknown = self.unknown_creations.entry(Arc::clone(name));
        *unknown.or_insert(true) &= is_answered;
        self.are_compared = false;
    }

    /// The create uses the name `other` instead of `name`, which is taken.
    pub fn rename_creation(&mut self, name: &str, other: &Arc<str>) {
        self.creation_seen(name);
        self.expected_creations
            .insert(Arc::clone(other), ResourceVersion::default());
    }

    /// True if a create of this name is expected or its outcome is unknown.
    pub fn has_creation(&self, name: &str) -> bool {
        self.expected_creations.contains_key(name) || self.is_unknown_creation(name)
    }

    /// True if the pod of this name may exist already.
    pub fn is_unknown_creation(&self, name: &str) -> bool {
        self.unknown_creations.contains_key(name)
    }

    /// The names of pods that may exist already: first those whose create may still arrive at the
    /// API server, because a try had no response.
    pub fn unknown_creations(&self) -> Vec<Arc<str>> {
        let mut creations: Vec<_> = self.unknown_creations.iter().collect();
        creations.sort_by_key(|(_, is_answered)| **is_answered);
        let names = creations.into_iter().map(|(name, _)| Arc::clone(name));
        names.collect()
    }

    /// The expected names of pods stored at or before `position`, the position of the pod cache.
    pub fn passed(&self, position: &ResourceVersion) -> Vec<Arc<str>> {
        let is_passed = |version| position.compare(version).is_some_and(Ordering::is_ge);
        let creations = self.expected_creations.iter();
        creations
            .filter(|(_, version)| is_passed(version))
            .map(|(name, _)| Arc::clone(name))
            .collect()
    }

    /// True if the pod with this UID is expected to terminate.
    pub fn expects_deletion(&self, pod: &Uid) -> bool {
        self.expected_deletions.contains(pod)
    }

    /// The watch showed that the pod with this UID no longer counts: it is terminating, finished or
    /// deleted, or has another controller.
    pub fn deletion_seen(&mut self, pod: &Uid) {
        self.expected_deletions.remove(pod);
        self.unknown_deletions.remove(pod);
    }

    /// The delete of the pod with this UID failed, so it is not expected.
    pub fn deletion_failed(&mut self, pod: &Uid) {
        self.expected_deletions.remove(pod);
    }

    /// The outcome of the delete of the pod with this UID is known.
    pub fn deletion_resolved(&mut self, pod: &Uid) {
        self.unknown_deletions.remove(pod);
    }

    /// The outcome of the delete of the pod with this UID is unknown.
    pub fn deletion_is_unknown(&mut self, pod: &Uid, now: Instant) {
        self.unknown_deletions.insert(pod.clone(), now);
        self.are_compared = false;
    }

    /// The deletes with an unknown outcome, in the order of their UIDs.
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

    /// Whether a sync may act on what the cache shows. Call this *before* listing the pods, so that
    /// events in between can only make the view newer.
    pub fn satisfaction(&self, now: Instant) -> Satisfaction {
        match self.remaining(now) {
            None => Satisfaction::Satisfied,
            Some(Duration::ZERO) => Satisfaction::Expired,
            Some(_) => Satisfaction::Open,
        }
    }

    /// How long until the open expectations expire; `None` if there are none. An expectation is
    /// valid for the full timeout, its last nanosecond included.
    pub fn remaining(&self, now: Instant) -> Option<Duration> {
        if self.n_expected() == (0, 0) {
            return None;
        }
        let age = now.saturating_duration_since(self.since?);
        Some((EXPECTATIONS_TIMEOUT + Duration::from_nanos(1)).saturating_sub(age))
    }

    /// Number of open creations and deletions.
    pub fn n_expected(&self) -> (usize, usize) {
        (self.expected_creations.len(), self.expected_deletions.len())
    }

    /// The open expectations; `None` if there are none.
    pub fn open(&self, now: Instant) -> Option<OpenExpectations> {
        self.remaining(now)?;
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

    /// True if no write is expected or unknown.
    pub fn is_empty(&self) -> bool {
        self.n_expected() == (0, 0)
            && self.unknown_creations.is_empty()
            && self.unknown_deletions.is_empty()
    }
}
