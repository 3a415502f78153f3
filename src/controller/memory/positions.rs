//! How new the caches must be before a ReplicaSet is acted on, by version. Plain data without lock, clock
//! or I/O.
//!
//! Four things ask for a position:
//!
//! - *Own answers.* Each answer to a write names the version under which it was stored. Until the caches
//!   have reached the highest of them, a sync returns at once and writes nothing, status included. A
//!   version that never comes, as after a restore of the API server's store from a backup, is not waited
//!   for longer than an expectation is believed; then the API server is asked.
//! - *A changed spec.* Whoever wants certain pods to go first says so on the pods, and then lowers
//!   `replicas`. The two come through different watches, and what was written first may arrive last. So
//!   the choice of pods to delete waits until the pods' cache is as new as the spec.
//! - *Pods that went.* They may have gone because their owner goes: the garbage collector deletes them
//!   when it has seen that the ReplicaSet waits for them to go, which its watch may bring later than
//!   theirs. So pods are not created in their place until the ReplicaSets' cache is as new as the loss.
//! - *The take-over*, for all ReplicaSets together ([`take_over`](super::take_over)). Here is
//!   only noted for which of them the API server has confirmed the caches meanwhile.
//!
//! Since a quiet watch does not say how far it has come, the second and the third wait for
//! [`SETTLE_MAX`] only.
//!
//! DIFFERS: upstream (kubernetes `pkg/controller/util/consistency`) returns an error for the first
//! instead, comes back by rate-limited retry, and waits for ever. It does not wait for the others
//! (kubernetes/kubernetes#126138).

use std::time::{Duration, Instant};

use super::own_writes::EXPECTATIONS_TIMEOUT;
use crate::api::{ReplicaSet, ResourceVersion};
use crate::cache::REST_MAX;

/// The longest that a choice or a replacement waits, or a status for pods that were just created: what a
/// watch rests at most, twice, since a read may bring only a part of what has come, and 5 ms to decode it.
pub const SETTLE_MAX: Duration = REST_MAX
    .saturating_mul(2)
    .saturating_add(Duration::from_millis(5));

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

/// Whether a sync may rest on the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// They show everything that was written.
    Ready,
    /// They do not yet; waiting is worth while for this long.
    TooEarly(Duration),
    /// They should have long ago.
    Overdue,
}

/// The positions that one ReplicaSet asks for.
#[derive(Debug, Default)]
pub struct Positions {
    written: Option<Written>,
    spec: Option<Spec>,
    loss: Option<Loss>,
    /// Since the take-over, the API server was asked for this ReplicaSet.
    pub is_confirmed: bool,
}

#[derive(Debug)]
struct Written {
    versions: Versions,
    /// When the highest of them was written.
    since: Instant,
}

#[derive(Debug)]
struct Spec {
    generation: i64,
    /// Of the ReplicaSet as it was seen first: later ones may come of our own statuses.
    version: ResourceVersion,
    since: Instant,
}

/// Pods that went.
#[derive(Debug)]
struct Loss {
    /// Of the last event that said so.
    version: ResourceVersion,
    since: Instant,
    /// A sync has waited for it. Later losses then begin no new wait, or pods that go one after the
    /// other would keep a sync waiting for as long as they do.
    is_waited_for: bool,
}

impl Positions {
    /// Notes that a write was stored under `version`. The highest counts. A version that is empty or
    /// does not compare is not noted.
    pub fn wrote_at(&mut self, resource: Resource, version: &ResourceVersion, now: Instant) {
        // A version that does not even compare with itself can never be waited for.
        if version.compare(version).is_none() {
            return;
        }
        let written = self.written.get_or_insert_with(|| Written {
            versions: Versions::default(),
            since: now,
        });
        let highest = match resource {
            Resource::Pods => &mut written.versions.pods,
            Resource::ReplicaSets => &mut written.versions.replica_sets,
        };
        if highest.is_empty() || !highest.is_as_new_as(version) {
            *highest = version.clone();
            written.since = now;
        }
    }

    /// What was written and not seen in the caches by a sync yet.
    pub fn written(&self) -> Option<&Versions> {
        self.written.as_ref().map(|written| &written.versions)
    }

    /// True if the caches at `cached` show everything that was written.
    pub fn are_shown_by(&self, cached: &Versions) -> bool {
        self.written().is_none_or(|written| {
            cached.pods.is_as_new_as(&written.pods)
                && cached.replica_sets.is_as_new_as(&written.replica_sets)
        })
    }

    /// Forgets what was written.
    pub fn forget_written(&mut self) {
        self.written = None;
    }

    /// What a sync that finds the caches behind what was written does.
    pub fn patience(&self, now: Instant) -> Readiness {
        let Some(written) = &self.written else {
            return Readiness::Ready;
        };
        let age = now.saturating_duration_since(written.since);
        match EXPECTATIONS_TIMEOUT.saturating_sub(age) {
            Duration::ZERO => Readiness::Overdue,
            left => Readiness::TooEarly(left),
        }
    }

    /// Notes that a sync begins that has read `rs`. To be called before it writes a status, since that
    /// says that the spec was observed: a spec that a status has observed before this daemon saw it is
    /// not waited for, since its time is over.
    pub fn saw_spec(&mut self, rs: &ReplicaSet, now: Instant) {
        let is_known = self
            .spec
            .as_ref()
            .is_some_and(|spec| spec.generation == rs.generation);
        if !is_known && rs.status.observed_generation < rs.generation {
            self.spec = Some(Spec {
                generation: rs.generation,
                version: rs.resource_version.clone(),
                since: now,
            });
        }
    }

    /// How long no choice is made among pods of the cache at `pods`; `None` if it may be.
    pub fn left_to_choose(&self, pods: &ResourceVersion, now: Instant) -> Option<Duration> {
        let spec = self.spec.as_ref();
        let spec = spec.filter(|spec| !pods.is_as_new_as(&spec.version))?;
        left(spec.since, now)
    }

    /// Notes that a pod went, as an event of this version says.
    pub fn lost_pod(&mut self, version: &ResourceVersion, now: Instant) {
        let is_over = |loss: &Loss| left(loss.since, now).is_none();
        match &mut self.loss {
            // However many go one after the other, the wait counts from the first.
            Some(loss) if loss.is_waited_for || !is_over(loss) => loss.version = version.clone(),
            loss => {
                *loss = Some(Loss {
                    version: version.clone(),
                    since: now,
                    is_waited_for: false,
                });
            }
        }
    }

    /// How long no pods are created in place of some that went, with ReplicaSets of the cache at
    /// `replica_sets`; `None` if they may be.
    pub fn left_to_replace(
        &mut self,
        replica_sets: &ResourceVersion,
        now: Instant,
    ) -> Option<Duration> {
        let loss = self.loss.as_mut()?;
        let left = left(loss.since, now).filter(|_| !replica_sets.is_as_new_as(&loss.version));
        if left.is_some() {
            loss.is_waited_for = true;
        } else {
            self.loss = None;
        }
        left
    }

    /// True if nothing is left to wait for.
    pub fn are_over(&self, now: Instant) -> bool {
        let spec = self.spec.as_ref().map(|spec| spec.since);
        let loss = self.loss.as_ref().map(|loss| loss.since);
        let mut waits = spec.into_iter().chain(loss);
        self.written.is_none() && !self.is_confirmed && waits.all(|at| left(at, now).is_none())
    }
}

fn left(since: Instant, now: Instant) -> Option<Duration> {
    let left = SETTLE_MAX.saturating_sub(now.saturating_duration_since(since));
    (!left.is_zero()).then_some(left)
}
