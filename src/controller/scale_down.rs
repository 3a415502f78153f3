//! How new the pods must be before a ReplicaSet whose spec has changed chooses among them.
//!
//! Whoever wants certain pods to go first says so on the pods, and then lowers `replicas`. The two come
//! through different watches, and the one of the pods may rest between its reads: what was written first
//! may arrive last. So the choice waits until the cache of pods is as new as the ReplicaSet; and since a
//! quiet watch does not say how far it has come, for a bounded time only.
//!
//! A spec that a status has observed before this daemon saw it is not waited for: its time is over.
//! Workers note and ask, watch threads forget; one lock, held for the length of a map operation.
//!
//! DIFFERS: upstream chooses among the pods that it happens to have (kubernetes/kubernetes#126138).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::api::{ObjectKey, ReplicaSet, ResourceVersion, Uid};
use crate::stdx::clock::Clock;

/// The longest that a choice waits: what the pods' watch rests at most (10 ms, `client::gather`), twice,
/// since a read may bring only a part of what has come, and some time to decode it.
const WAIT_MAX: Duration = Duration::from_millis(25);

/// ReplicaSets that are remembered before those whose time is over are forgotten.
const SWEEP_AT: usize = 64;

/// Since when which specs have been known that no status has observed yet.
#[derive(Debug)]
pub(super) struct ScaleDowns {
    clock: Arc<dyn Clock>,
    specs: Mutex<HashMap<ObjectKey, Spec>>,
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
        }
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
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, Spec>> {
        self.specs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
