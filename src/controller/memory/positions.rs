//! Positions: resource versions that the caches must reach before a sync acts. Plain data without
//! lock, clock or I/O.
//!
//! - *Own writes.* Until the caches have reached the highest version in a response, a sync writes
//!   nothing, not even the status. After [`EXPECTATIONS_TIMEOUT`] it queries the API server.
//! - *A changed spec.* A user who wants certain pods deleted first annotates the pods, and then
//!   lowers `replicas`. The two changes arrive through different watches, possibly in reverse
//!   order. So the choice of pods to delete waits until the pod cache is as new as the spec.
//! - *Lost pods.* The garbage collector may have deleted them because their ReplicaSet is being
//!   deleted, and the pod watch may show that first. So the sync creates no replacements until the
//!   ReplicaSet cache is as new as the loss. A pod that the watch removes between the record and
//!   the list of pods is replaced all the same, and the garbage collector deletes that one too.
//! - *The take-over*, for all ReplicaSets together: `State::unproven` in `memory`.
//!
//! A quiet watch does not report its position, so the second and the third wait are limited to
//! [`SETTLE_MAX`].
//!
//! DIFFERS: in the first case upstream (kubernetes `pkg/controller/util/consistency`) returns an
//! error, requeues with rate limit, and waits without limit. Upstream does not wait in the other
//! cases (kubernetes/kubernetes#126138).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::own_writes::EXPECTATIONS_TIMEOUT;
use crate::api::{ObjectKey, ReplicaSet, ResourceVersion};
use crate::cache::READ_WAIT_MAX;
use crate::stdx::HashSet;

/// The longest wait of a delete for a spec, or of a create for a loss: twice the longest rest of a
/// watch, since one read may bring only part of the events, and 5 ms to decode it.
pub const SETTLE_MAX: Duration = READ_WAIT_MAX
    .saturating_mul(2)
    .saturating_add(Duration::from_millis(5));

/// The position that each cache has reached, or must reach. Empty: unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    pub pods: ResourceVersion,
    pub replica_sets: ResourceVersion,
}

impl Versions {
    /// The cache that is older than `target` at these positions; the pod cache if both are.
    pub(super) fn lagging(&self, target: &Self) -> Option<Resource> {
        if !self.pods.is_as_new_as(&target.pods) {
            Some(Resource::Pods)
        } else if !self.replica_sets.is_as_new_as(&target.replica_sets) {
            Some(Resource::ReplicaSets)
        } else {
            None
        }
    }

    fn of(&mut self, resource: Resource) -> &mut ResourceVersion {
        match resource {
            Resource::Pods => &mut self.pods,
            Resource::ReplicaSets => &mut self.replica_sets,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    Pods,
    ReplicaSets,
}

/// The positions that one ReplicaSet requires.
#[derive(Debug, Default)]
pub struct Positions {
    written: Option<Written>,
    spec: Option<Spec>,
    loss: Option<Loss>,
    /// True if the API server has confirmed the caches for this ReplicaSet since the take-over.
    pub is_confirmed: bool,
}

#[derive(Debug)]
struct Written {
    versions: Versions,
    /// When the highest version was written.
    since: Instant,
}

/// A spec that no status had observed when this daemon first saw it.
#[derive(Debug)]
struct Spec {
    generation: i64,
    /// Version of the ReplicaSet when this generation was first seen. Later versions may be own
    /// status writes.
    version: ResourceVersion,
    since: Instant,
}

/// Lost pods since the last sync that could have replaced them.
#[derive(Debug)]
struct Loss {
    /// Version of the latest loss.
    version: ResourceVersion,
    /// When the first was lost: a series must not delay the sync for as long as it lasts.
    since: Instant,
}

impl Positions {
    /// Records the version of a write. The highest version counts. An empty or incomparable version
    /// is ignored.
    pub fn wrote_at(&mut self, resource: Resource, version: &ResourceVersion, now: Instant) {
        // No cache ever reaches a version that does not compare with itself.
        if version.compare(version).is_none() {
            return;
        }
        let written = self.written.get_or_insert_with(|| Written {
            versions: Versions::default(),
            since: now,
        });
        let highest = written.versions.of(resource);
        if highest.is_empty() || !highest.is_as_new_as(version) {
            *highest = version.clone();
            written.since = now;
        }
    }

    /// Returns the written versions that no sync has found in the caches yet.
    pub fn written(&self) -> Option<&Versions> {
        self.written.as_ref().map(|written| &written.versions)
    }

    /// The cache that lacks an own write at these positions; the pod cache if both do.
    pub fn lagging(&self, cached: &Versions) -> Option<Resource> {
        cached.lagging(self.written()?)
    }

    /// The cache that lacks an own write at these positions, and how long a sync waits for it;
    /// zero if it has lagged for too long. Forgets the written versions if both caches show them.
    pub fn write_delay(&mut self, cached: &Versions, now: Instant) -> Option<(Resource, Duration)> {
        let Some(lagging) = self.lagging(cached) else {
            self.forget_written();
            return None;
        };
        let since = self.written.as_ref().map_or(now, |written| written.since);
        let age = now.saturating_duration_since(since);
        Some((lagging, EXPECTATIONS_TIMEOUT.saturating_sub(age)))
    }

    pub fn forget_written(&mut self) {
        self.written = None;
    }

    /// Records that a sync has read `rs`, and returns how long the choice of pods to delete must
    /// wait with the pod cache at `pods`; `None` if a sync may choose. If a status observed the
    /// spec before this daemon saw it, no sync waits for it.
    ///
    /// ORDER: call this before a status write, which declares the spec observed.
    pub fn spec_delay(
        &mut self,
        rs: &ReplicaSet,
        pods: &ResourceVersion,
        now: Instant,
    ) -> Option<Duration> {
        let is_known = |spec: &Spec| spec.generation == rs.generation;
        if !self.spec.as_ref().is_some_and(is_known) {
            let is_unobserved = rs.status.observed_generation < rs.generation;
            self.spec = is_unobserved.then(|| Spec {
                generation: rs.generation,
                version: rs.resource_version.clone(),
                since: now,
            });
        }
        self.recorded_spec_delay(pods, now)
    }

    /// As [`spec_delay`](Self::spec_delay), for the spec that the last sync recorded.
    pub fn recorded_spec_delay(&self, pods: &ResourceVersion, now: Instant) -> Option<Duration> {
        let spec = self.spec.as_ref()?;
        remaining(spec.since, now).filter(|_| !pods.is_as_new_as(&spec.version))
    }

    /// Records that the cache lacks a lost pod as of this version.
    pub fn lost_pod(&mut self, version: &ResourceVersion, now: Instant) {
        let since = self.loss.as_ref().map_or(now, |loss| loss.since);
        self.loss = Some(Loss {
            version: version.clone(),
            since,
        });
    }

    /// Returns how long creates must wait after a loss, with the ReplicaSet cache at
    /// `replica_sets`; `None` if a sync may create. The wait is over then.
    pub fn loss_delay(&mut self, replica_sets: &ResourceVersion, now: Instant) -> Option<Duration> {
        let loss = self.loss.as_ref()?;
        let remaining =
            remaining(loss.since, now).filter(|_| !replica_sets.is_as_new_as(&loss.version));
        if remaining.is_none() {
            self.loss = None;
        }
        remaining
    }

    /// True if no wait remains.
    pub fn are_over(&self, now: Instant) -> bool {
        let spec = self.spec.as_ref().map(|spec| spec.since);
        let loss = self.loss.as_ref().map(|loss| loss.since);
        let mut waits = spec.into_iter().chain(loss);
        self.written.is_none() && !self.is_confirmed && waits.all(|at| remaining(at, now).is_none())
    }
}

fn remaining(since: Instant, now: Instant) -> Option<Duration> {
    let remaining = SETTLE_MAX.saturating_sub(now.saturating_duration_since(since));
    (!remaining.is_zero()).then_some(remaining)
}

/// The keys that wait for the caches to reach a version, ordered by version, so that an event that
/// wakes no key costs the same however many keys wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    keys: HashSet<ObjectKey>,
    /// The version that each key waits for, first by pods, then by ReplicaSets.
    ///
    /// INVARIANT: each of `keys` has an entry in one of the two, at a version that it waits or
    /// waited for. Other keys may have entries too.
    order: [BTreeSet<(u64, ObjectKey)>; 2],
}

impl Waiting {
    /// Registers `key` to wait for these versions.
    pub(super) fn add(&mut self, key: &ObjectKey, versions: &Versions) {
        self.keys.insert(key.clone());
        let first = number(&versions.pods);
        self.order[0].insert((first, key.clone()));
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        self.keys.remove(key);
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Takes out the keys whose versions the caches at `cached` have reached. `written` returns the
    /// versions that a key waits for. Visits only keys whose next version was reached.
    pub(super) fn take_shown<'a>(
        &mut self,
        cached: &Versions,
        written: impl Fn(&ObjectKey) -> Option<&'a Versions>,
    ) -> Vec<ObjectKey> {
        let mut reached = Vec::new();
        for (order, cached) in self
            .order
            .iter_mut()
            .zip([&cached.pods, &cached.replica_sets])
        {
            // An incomparable position blocks no key.
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
            let Some(written) = written(&key).filter(|_| self.keys.contains(&key)) else {
                self.keys.remove(&key);
                continue;
            };
            match cached.lagging(written) {
                Some(Resource::Pods) => {
                    self.order[0].insert((number(&written.pods), key));
                }
                Some(Resource::ReplicaSets) => {
                    self.order[1].insert((number(&written.replica_sets), key));
                }
                None => {
                    self.keys.remove(&key);
                    shown.push(key);
                }
            }
        }
        shown
    }
}

/// The position of a version in the order. A non-numeric version comes first, so that each call
/// visits its key.
fn number(version: &ResourceVersion) -> u64 {
    version.number().unwrap_or(0)
}
