//! A ReplicaSet's own writes that the cache does not show yet, by identity: created pods by their
//! *names*, deleted pods by their *UIDs*. Plain data without lock, clock or I/O.
//!
//! While a write is *expected*, the sync neither creates nor deletes. A write of *unknown* outcome
//! blocks nothing, but the sync repeats it first, under the same name or on the same pod, so that
//! it cannot create or delete a second one. A repetition that failed proves nothing about the first
//! attempt.
//!
//! A name under which no pod was stored is *returned*. A rejected one is chosen before all others,
//! so the error message stays the same, and the recorder counts up the event.
//!
//! New names depend only on the ReplicaSet's UID and resource version. A daemon that is killed and
//! restarted during a scale-up finds the same version, because the status write follows the
//! creates, and chooses the *same* names ([`pod_name`]): the API server rejects those that exist
//! already. This does not hold if another client wrote the ReplicaSet meanwhile.
//!
//! DIFFERS: upstream counts creations and expects deletions by name (kubernetes
//! `pkg/controller/controller_utils.go:ControllerExpectations`), so unrelated pods can satisfy an
//! expectation or drive a counter below zero. Upstream has no names to retry: the API server names
//! the pod.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::api::{ArcStr, ReplicaSet, ResourceVersion, Uid};
use crate::stdx::hash;
use crate::writes::pod_body::pod_name;

/// After this long an expectation expires (kubernetes
/// `pkg/controller/controller_utils.go:ExpectationsTimeout`).
pub const EXPECTATIONS_TIMEOUT: Duration = Duration::from_mins(5);

/// A write without a response takes no effect later than this after its last attempt. The API
/// server gives up on a request after a minute (apiserver `pkg/server/config.go:RequestTimeout`);
/// the rest is a margin for proxies in between.
pub const ARRIVES_WITHIN: Duration = Duration::from_mins(5);

/// What a sync may do, by the record alone or by the whole decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum May {
    /// Create and delete pods.
    #[default]
    Act,
    /// Everything but that: it only reports. An event, or this delay, brings the next sync.
    Report(Option<Duration>),
    /// Nothing, not even a status: the caches lag. An event, or this delay, brings the next sync.
    Wait(Duration),
    /// Nothing before it has queried the API server.
    Verify(Doubt),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// A written version is overdue for so long that the cached spec may be outdated too.
    Overdue,
    /// The watch did not show a created or deleted pod in time, or skipped it.
    Unseen,
    /// The caches may be older than the previous leader's writes.
    Failover,
    /// More writes have an unknown outcome than this sync would repeat, or one is so old that it
    /// has no effect any more.
    Unknown,
}

#[derive(Debug, Default)]
pub struct OwnWrites {
    /// The creates that are expected or of unknown outcome, by name.
    creations: BTreeMap<ArcStr, Creation>,
    /// Names under which no pod was stored, in the order of the returns: those of rejected creates,
    /// and those of creates that were not sent. The latter count only for the version that they
    /// were chosen for.
    returned: [Vec<ArcStr>; 2],
    /// The version whose names are chosen, and the index of the next one in the cycle.
    sequence: Option<Box<(ResourceVersion, u64)>>,
    expected_deletions: BTreeSet<Uid>,
    /// When the expectations were set; `None` if they have expired.
    pub(in crate::controller) since: Option<Instant>,
    /// UIDs of pods that may or may not have been deleted, each with the time of the latest
    /// attempt.
    unknown_deletions: BTreeMap<Uid, Instant>,
    /// True if the API server has been queried since the last write of unknown outcome.
    pub are_compared: bool,
}

#[derive(Debug, Default)]
struct Creation {
    /// If it is expected: the version of the stored pod; empty until that is known.
    expected: Option<ResourceVersion>,
    /// If a pod may or may not have been stored: whether each try was answered, and when the last
    /// one ended.
    unknown: Option<(bool, Instant)>,
}

impl Creation {
    fn is_over(&self) -> bool {
        self.expected.is_none() && self.unknown.is_none()
    }

    /// True if its outcome is unknown, and it may still take effect.
    fn is_under_way(&self, now: Instant) -> bool {
        self.unknown.is_some_and(|(_, at)| may_arrive(at, now))
    }
}

/// Why a name is chosen again, in the order of the choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returned {
    /// The API server rejected the create.
    Rejected,
    /// The create was not sent.
    Untried,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenExpectations {
    pub creations: Vec<ArcStr>,
    pub deletions: Vec<Uid>,
    pub age: Duration,
}

impl OwnWrites {
    /// Expects pods with these names to appear and pods with these UIDs to terminate. Replaces all
    /// earlier expectations.
    pub fn expect(
        &mut self,
        creations: impl IntoIterator<Item = ArcStr>,
        deletions: impl IntoIterator<Item = Uid>,
        now: Instant,
    ) {
        self.creations.retain(|_, creation| {
            creation.expected = None;
            !creation.is_over()
        });
        for name in creations {
            self.expect_creation(name);
        }
        self.expected_deletions = deletions.into_iter().collect();
        self.since = Some(now);
    }

    fn expect_creation(&mut self, name: ArcStr) {
        let creation = self.creations.entry(name).or_default();
        creation.expected = Some(ResourceVersion::default());
    }

    /// Chooses `count` names for pods of `rs`: first the returned ones, then new ones.
    pub fn choose_names(&mut self, rs: &ReplicaSet, count: usize) -> Vec<ArcStr> {
        self.forget_versions_before(&rs.resource_version);
        let mut names = Vec::with_capacity(count);
        for returned in &mut self.returned {
            names.extend(returned.drain(..returned.len().min(count - names.len())));
        }
        let version = &rs.resource_version;
        // A non-numeric version does not count the versions before it.
        let start = || version.number().unwrap_or_else(|| hash(version));
        let (_, next) = &mut **self
            .sequence
            .get_or_insert_with(|| Box::new((version.clone(), start())));
        while names.len() < count {
            names.push(pod_name(rs, *next).into());
            *next = next.wrapping_add(1);
        }
        names
    }

    /// Ends the sequence of an older version, except for rejected names.
    pub fn forget_versions_before(&mut self, version: &ResourceVersion) {
        if self.sequence.as_ref().is_none_or(|it| it.0 != *version) {
            self.sequence = None;
            self.returned[Returned::Untried as usize].clear();
        }
    }

    /// The watch, or a sync that looked into the cache, has found the pod with this name.
    pub fn creation_seen(&mut self, name: &str) {
        self.creations.remove(name);
        for returned in &mut self.returned {
            returned.retain(|it| **it != *name);
        }
    }

    /// The response to the create of this pod names the stored `version`.
    pub fn creation_answered(&mut self, name: &str, version: &ResourceVersion) {
        self.update(name, |creation| {
            creation.unknown = None;
            creation.expected = creation.expected.as_ref().map(|_| version.clone());
        });
    }

    /// The create of this pod failed or was not sent, so it is not expected. Without a stored pod
    /// its name may be chosen again.
    pub fn creation_failed(&mut self, name: &ArcStr, returned: Option<Returned>) {
        let was_known = self.creations.contains_key(name);
        self.update(name, |creation| creation.expected = None);
        if let Some(why) = returned
            && was_known
            && !self.creations.contains_key(name)
        {
            self.returned[why as usize].push(name.clone());
        }
    }

    fn update(&mut self, name: &str, change: impl FnOnce(&mut Creation)) {
        if let Some(creation) = self.creations.get_mut(name) {
            change(creation);
            if creation.is_over() {
                self.creations.remove(name);
            }
        }
    }

    /// The outcome of the create of this pod is unknown, although it may have been answered. If the
    /// watch has shown the pod, it is known.
    pub fn creation_is_unknown(&mut self, name: &str, is_answered: bool, now: Instant) {
        let Some(creation) = self.creations.get_mut(name) else {
            return;
        };
        creation.expected = None;
        let was_answered = creation.unknown.is_none_or(|(it, _)| it);
        creation.unknown = Some((was_answered && is_answered, now));
        self.are_compared = false;
    }

    /// The create uses another name, which this returns, because this one is taken.
    pub fn rename_creation(&mut self, rs: &ReplicaSet, name: &str) -> ArcStr {
        self.creation_seen(name);
        let other = self.choose_names(rs, 1).pop().expect("one name was chosen");
        self.expect_creation(other.clone());
        other
    }

    /// True if a create of this name is expected, or its outcome is unknown.
    pub fn has_creation(&self, name: &str) -> bool {
        self.creations.contains_key(name)
    }

    /// The names of pods that may exist already: first those whose create may still arrive at the
    /// API server, because a try had no response.
    pub fn unknown_creations(&self) -> Vec<ArcStr> {
        let unknown = |(name, it): (_, &Creation)| Some((it.unknown?.0, ArcStr::clone(name)));
        let mut unknown: Vec<_> = self.creations.iter().filter_map(unknown).collect();
        unknown.sort();
        unknown.into_iter().map(|(_, name)| name).collect()
    }

    /// Those of them whose create may still take effect.
    pub fn creations_under_way(&self, now: Instant) -> Vec<ArcStr> {
        let mut names = self.unknown_creations();
        names.retain(|name| self.creations[name].is_under_way(now));
        names
    }

    /// The expected names of pods stored at or before `position`, the position of the pod cache.
    pub fn passed(&self, position: &ResourceVersion) -> Vec<ArcStr> {
        let is_passed = |version| position.compare(version).is_some_and(Ordering::is_ge);
        self.expected_creations()
            .filter(|(_, version)| is_passed(version))
            .map(|(name, _)| name.clone())
            .collect()
    }

    fn expected_creations(&self) -> impl Iterator<Item = (&ArcStr, &ResourceVersion)> {
        let creations = self.creations.iter();
        creations.filter_map(|(name, it)| Some((name, it.expected.as_ref()?)))
    }

    pub fn expects_deletion(&self, pod: &Uid) -> bool {
        self.expected_deletions.contains(pod)
    }

    /// The watch showed that the pod with this UID no longer counts: it is terminating, finished or
    /// deleted, or has another controller.
    pub fn deletion_seen(&mut self, pod: &Uid) {
        self.expected_deletions.remove(pod);
        self.unknown_deletions.remove(pod);
    }

    pub fn deletion_failed(&mut self, pod: &Uid) {
        self.expected_deletions.remove(pod);
    }

    pub fn deletion_resolved(&mut self, pod: &Uid) {
        self.unknown_deletions.remove(pod);
    }

    /// If the watch has shown the deletion, its outcome is known.
    pub fn deletion_is_unknown(&mut self, pod: &Uid, now: Instant) {
        if self.expects_deletion(pod) {
            self.unknown_deletions.insert(pod.clone(), now);
            self.are_compared = false;
        }
    }

    /// The pods whose delete has an unknown outcome: first those whose delete has taken effect or
    /// never will, and how many these are.
    pub fn unknown_deletions(&self, now: Instant) -> (Vec<Uid>, usize) {
        let pods = self.unknown_deletions.iter();
        let (under_way, over): (Vec<_>, Vec<_>) = pods.partition(|(_, at)| may_arrive(**at, now));
        let n_over = over.len();
        let all = over.into_iter().chain(under_way);
        (all.map(|(pod, _)| pod.clone()).collect(), n_over)
    }

    /// What a sync may do by the expectations (kubernetes
    /// `pkg/controller/controller_utils.go:ControllerExpectations.SatisfiedExpectations`). After
    /// [`EXPECTATIONS_TIMEOUT`] the cache may have missed an event, or may be far behind.
    pub fn may(&self, now: Instant) -> May {
        match self.remaining(now) {
            None => May::Act,
            Some(Duration::ZERO) => May::Verify(Doubt::Unseen),
            open => May::Report(open),
        }
    }

    /// How long until the open expectations expire; `None` if there are none. An expectation is
    /// valid for the full timeout, its last nanosecond included.
    pub fn remaining(&self, now: Instant) -> Option<Duration> {
        if self.expected_deletions.is_empty() && self.expected_creations().next().is_none() {
            return None;
        }
        let left = |since| {
            let age = now.saturating_duration_since(since);
            (EXPECTATIONS_TIMEOUT + Duration::from_nanos(1)).saturating_sub(age)
        };
        Some(self.since.map_or(Duration::ZERO, left))
    }

    /// Ends the wait for what is expected: a panic may have kept some of it from being sent.
    pub fn expire(&mut self) {
        self.since = None;
    }

    pub fn n_expected(&self) -> (usize, usize) {
        let n_creations = self.expected_creations().count();
        (n_creations, self.expected_deletions.len())
    }

    pub fn open(&self, now: Instant) -> Option<OpenExpectations> {
        self.remaining(now)?;
        let age = |since| now.saturating_duration_since(since);
        let creations = self.expected_creations();
        Some(OpenExpectations {
            creations: creations.map(|(name, _)| name.clone()).collect(),
            deletions: self.expected_deletions.iter().cloned().collect(),
            age: self.since.map_or(EXPECTATIONS_TIMEOUT, age),
        })
    }

    /// True if nothing is expected or returned, no write of unknown outcome may still take effect,
    /// and no sequence has started.
    pub fn is_over(&self, now: Instant) -> bool {
        let is_over = |it: &Creation| it.expected.is_none() && !it.is_under_way(now);
        self.creations.values().all(is_over)
            && self.returned.iter().all(Vec::is_empty)
            && self.sequence.is_none()
            && self.expected_deletions.is_empty()
            && !self
                .unknown_deletions
                .values()
                .any(|at| may_arrive(*at, now))
    }
}

/// True if a write without a response may still take effect, after its last attempt at this time.
fn may_arrive(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) <= ARRIVES_WITHIN
}

/// Chooses more names than `names`, until there are `count` and none of the new ones is taken.
pub fn take(
    mut names: Vec<ArcStr>,
    count: usize,
    choose: impl Fn(usize) -> Vec<ArcStr>,
    is_taken: impl Fn(&str) -> bool,
) -> Vec<ArcStr> {
    while names.len() < count {
        for name in choose(count - names.len()) {
            if !is_taken(&name) && !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}
