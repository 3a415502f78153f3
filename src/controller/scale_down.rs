//! How new the pods must be before a ReplicaSet whose spec has changed chooses among them, and how new the
//! ReplicaSets before pods are created in place of some that go.
//!
//! Whoever wants certain pods to go first says so on the pods, and then lowers `replicas`. The two come
//! through different watches, and the one of the pods may rest between its reads: what was written first
//! may arrive last. So the choice waits until the cache of pods is as new as the ReplicaSet; and since a
//! quiet watch does not say how far it has come, for a bounded time only.
//!
//! The other way round, pods may go because their owner does: the garbage collector deletes them when it
//! has seen that the ReplicaSet waits for them to go, which its watch may bring later than theirs.
//!
//! A spec that a status has observed before this daemon saw it is not waited for: its time is over.
//! Workers note specs and ask, watch threads note losses and forget; two locks that are never held
//! together, each held for the length of a map operation.
//!
//! DIFFERS: upstream chooses among the pods that it happens to have (kubernetes/kubernetes#126138).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::api::{ObjectKey, ReplicaSet, ResourceVersion, Uid};
use crate::stdx::clock::Clock;

/// The longest that a choice waits: what the pods' watch rests at most (10 ms, `client::gather`), twice,
/// since a read may bring only a part of what has come, and some time to decode it.
const WAIT_MAX: Duration = Duration::from_millis(25);

/// ReplicaSets that are remembered before those whose time is over are forgotten.
const SWEEP_AT: usize = 64;

/// Since when which specs have been known that no status has observed yet. And since when pods have
/// gone.
#[derive(Debug)]
pub(super) struct ScaleDowns {
    clock: Arc<dyn Clock>,
    specs: Mutex<HashMap<ObjectKey, Spec>>,
    losses: Mutex<HashMap<ObjectKey, Loss>>,
    /// Twice as many losses as the last sweep has left, so that the cost of a sweep is spread over as
    /// many newcomers. Guarded by the lock of `losses`.
    sweep_losses_at: AtomicUsize,
}

/// Pods that went.
#[derive(Debug)]
struct Loss {
    owner: Uid,
    /// Of the last event that said so.
    version: ResourceVersion,
    since: Instant,
    /// A sync has waited for it. Later losses then begin no new wait, or pods that go one after the
    /// other would keep a sync waiting for as long as they do.
    is_waited_for: bool,
}

#[derive(Debug)]
struct Spec {
    owner: Uid,
    generation: i64,
    /// Of the ReplicaSet as it was seen first: later ones may come of our own statuses.
    version: ResourceVersion,
    since: Instant,
}

impl ScaleDowns {
    /// No spec has been seen.
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            specs: Mutex::default(),
            losses: Mutex::default(),
            sweep_losses_at: AtomicUsize::new(SWEEP_AT),
        }
    }

    /// Notes that a pod of `rs` goes, as an event of this version says.
    pub(super) fn lost(&self, rs: &ReplicaSet, version: &ResourceVersion) {
        let now = self.clock.now();
        let is_over = |loss: &Loss| now.saturating_duration_since(loss.since) >= WAIT_MAX;
        let mut losses = self.losses();
        if losses.len() >= self.sweep_losses_at.load(Ordering::Relaxed) {
            losses.retain(|_, loss| !is_over(loss));
            let sweep_at = SWEEP_AT.max(2 * losses.len());
            self.sweep_losses_at.store(sweep_at, Ordering::Relaxed);
        }
        let known = losses.get_mut(&rs.key);
        let goes_on = |loss: &&mut Loss| loss.is_waited_for || !is_over(loss);
        if let Some(loss) = known.filter(|loss| loss.owner == rs.uid).filter(goes_on) {
            // However many go one after the other, the wait counts from the first.
            loss.version = version.clone();
            return;
        }
        let loss = Loss {
            owner: rs.uid.clone(),
            version: version.clone(),
            since: now,
            is_waited_for: false,
        };
        losses.insert(rs.key.clone(), loss);
    }

    /// How long `rs` creates no pods in place of some that went, waiting for ReplicaSets newer than
    /// `replica_sets`; `None` if it may.
    pub(super) fn left_to_create(
        &self,
        rs: &ReplicaSet,
        replica_sets: &ResourceVersion,
    ) -> Option<Duration> {
        let now = self.clock.now();
        let mut losses = self.losses();
        let known = losses.get_mut(&rs.key);
        let loss = known.filter(|loss| loss.owner == rs.uid)?;
        let left = WAIT_MAX.saturating_sub(now.saturating_duration_since(loss.since));
        if left.is_zero() || replica_sets.is_as_new_as(&loss.version) {
            losses.remove(&rs.key);
            return None;
        }
        loss.is_waited_for = true;
        Some(left)
    }

    /// Notes that a sync begins that has read `rs`. To be called before it writes a status, since that
    /// says that the spec was observed.
    pub(super) fn seen(&self, rs: &ReplicaSet) {
        if rs.status.observed_generation >= rs.generation {
            return;
        }
        let now = self.clock.now();
        let mut specs = self.lock();
        let spec = specs.get(&rs.key);
        if spec.is_some_and(|spec| spec.owner == rs.uid && spec.generation == rs.generation) {
            return;
        }
        if specs.len() >= SWEEP_AT {
            specs.retain(|_, spec| now.saturating_duration_since(spec.since) < WAIT_MAX);
        }
        let spec = Spec {
            owner: rs.uid.clone(),
            generation: rs.generation,
            version: rs.resource_version.clone(),
            since: now,
        };
        specs.insert(rs.key.clone(), spec);
    }

    /// How long `rs` waits for pods newer than `pods`; `None` if it may choose among them.
    pub(super) fn left(&self, rs: &ReplicaSet, pods: &ResourceVersion) -> Option<Duration> {
        let now = self.clock.now();
        let specs = self.lock();
        let is_waited_for =
            |spec: &&Spec| spec.owner == rs.uid && !pods.is_as_new_as(&spec.version);
        let spec = specs.get(&rs.key).filter(is_waited_for)?;
        let left = WAIT_MAX.saturating_sub(now.saturating_duration_since(spec.since));
        (!left.is_zero()).then_some(left)
    }

    /// Forgets this ReplicaSet.
    pub(super) fn clear(&self, key: &ObjectKey) {
        self.lock().remove(key);
        self.losses().remove(key);
    }

    fn losses(&self) -> MutexGuard<'_, HashMap<ObjectKey, Loss>> {
        self.losses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, Spec>> {
        self.specs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
