//! Positions: resource versions that the caches must reach before a sync acts. Plain data without
//! lock, clock or I/O.
//!
//! - *Own writes.* Until the caches have reached the highest version in a response, a sync writes
//!   nothing, not even the status. After [`EXPECTATIONS_TIMEOUT`] it queries the API server.
//! - *A changed spec.* A user who wants certain pods deleted first annotates the pods, and then
//!   lowers `replicas`. The two changes arrive through different watches, possibly in reverse
//!   order. So the choice of pods to delete waits until the pod cache is as new as the spec, except
//!   in a rollout that respects no marks.
//! - *Lost pods.* The garbage collector may have deleted them because their ReplicaSet is being
//!   deleted, and the pod watch may show that first. So the sync creates no replacements until the
//!   ReplicaSet cache is as new as the loss. A pod that the watch removes between the record and
//!   the list of pods is replaced all the same, and the garbage collector deletes that one too.
//! - *The failover*, for all ReplicaSets together: `State::unproven` in `memory`.
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
    /// The generation of a spec that no status had observed when this daemon first saw it, and the
    /// version of the ReplicaSet then. Later versions may be own status writes.
    spec: Option<(i64, Awaited)>,
    /// The version of the latest loss, and the time of the first since the last sync that could
    /// have replaced it: a series must not delay the sync for as long as it lasts.
    loss: Option<Awaited>,
    /// True if the API server has confirmed the caches for this ReplicaSet since the failover.
    pub is_confirmed: bool,
}

#[derive(Debug)]
struct Written {
    versions: Versions,
    /// When the highest version was written.
    since: Instant,
}

/// A version for which a sync waits at most [`SETTLE_MAX`].
#[derive(Debug)]
struct Awaited {
    version: ResourceVersion,
    since: Instant,
}

impl Awaited {
    fn remaining(&self, now: Instant) -> Option<Duration> {
        let remaining = SETTLE_MAX.saturating_sub(now.saturating_duration_since(self.since));
        (!remaining.is_zero()).then_some(remaining)
    }

    /// How long a sync waits with the cache at `cached`; `None` if it need not.
    fn delay(&self, cached: &ResourceVersion, now: Instant) -> Option<Duration> {
        self.remaining(now)
            .filter(|_| !cached.is_as_new_as(&self.version))
    }
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
        let is_known = |(generation, _): &(i64, Awaited)| *generation == rs.generation;
        if !self.spec.as_ref().is_some_and(is_known) {
            let awaited = Awaited {
                version: rs.resource_version.clone(),
                since: now,
            };
            let is_unobserved = rs.status.observed_generation < rs.generation;
            self.spec = is_unobserved.then_some((rs.generation, awaited));
        }
        self.recorded_spec_delay(pods, now)
    }

    /// As [`spec_delay`](Self::spec_delay), for the spec that the last sync recorded.
    pub fn recorded_spec_delay(&self, pods: &ResourceVersion, now: Instant) -> Option<Duration> {
        self.spec.as_ref()?.1.delay(pods, now)
    }

    /// Records that the cache lacks a lost pod as of this version.
    pub fn lost_pod(&mut self, version: &ResourceVersion, now: Instant) {
        let since = self.loss.as_ref().map_or(now, |loss| loss.since);
        let version = version.clone();
        self.loss = Some(Awaited { version, since });
    }

    /// Returns how long creates must wait after a loss, with the ReplicaSet cache at
    /// `replica_sets`; `None` if a sync may create. The wait is over then.
    pub fn loss_delay(&mut self, replica_sets: &ResourceVersion, now: Instant) -> Option<Duration> {
        let delay = self.loss.as_ref()?.delay(replica_sets, now);
        if delay.is_none() {
            self.loss = None;
        }
        delay
    }

    pub fn are_over(&self, now: Instant) -> bool {
        let spec = self.spec.as_ref().map(|(_, spec)| spec);
        let mut waits = spec.into_iter().chain(&self.loss);
        self.written.is_none() && !self.is_confirmed && waits.all(|it| it.remaining(now).is_none())
    }
}

/// The keys that wait for the caches to reach a version, ordered by version, so that an event that
/// wakes no key costs the same however many keys wait: first by pods, then by ReplicaSets. A key
/// that waits no more may have an entry too.
#[derive(Debug, Default)]
pub(super) struct Waiting([BTreeSet<(u64, ObjectKey)>; 2]);

impl Waiting {
    pub(super) fn add(&mut self, key: &ObjectKey, versions: &Versions) {
        self.0[0].insert((number(&versions.pods), key.clone()));
    }

    pub(super) fn remove(&mut self, key: &ObjectKey, versions: &Versions) {
        self.0[0].remove(&(number(&versions.pods), key.clone()));
        self.0[1].remove(&(number(&versions.replica_sets), key.clone()));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(BTreeSet::is_empty)
    }

    /// Takes out the keys whose versions the caches at `cached` have reached. `written` returns the
    /// versions that a key waits for. Visits only keys whose next version was reached.
    pub(super) fn take_shown<'a>(
        &mut self,
        cached: &Versions,
        written: impl Fn(&ObjectKey) -> Option<&'a Versions>,
    ) -> Vec<ObjectKey> {
        let mut reached = Vec::new();
        for (order, cached) in self.0.iter_mut().zip([&cached.pods, &cached.replica_sets]) {
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
            let Some(written) = written(&key) else {
                continue;
            };
            match cached.lagging(written) {
                Some(Resource::Pods) => drop(self.0[0].insert((number(&written.pods), key))),
                Some(Resource::ReplicaSets) => {
                    self.0[1].insert((number(&written.replica_sets), key));
                }
                None => shown.push(key),
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
