//! Everything that the controller knows about one ReplicaSet, for `explain`. Reads and copies;
//! changes and sends nothing.

use std::sync::Arc;

use crate::api::{ObjectKey, OwnerKey, Pod, ReplicaSet, Uid, WorkloadKind};
use crate::controller::ReplicaSetController;
use crate::controller::decide::plan::RelatedPods;
use crate::controller::memory::history::{LastError, LastSync};
use crate::controller::memory::own_writes::OpenExpectations;
use crate::controller::memory::positions::Versions;
use crate::workqueue::KeyState;

/// The input of the decisions about a ReplicaSet.
#[derive(Clone, Debug)]
pub struct ReplicaSetFacts {
    /// The kind of workload.
    pub kind: &'static WorkloadKind,
    /// The ReplicaSet.
    pub replica_set: Arc<ReplicaSet>,
    /// Pods that it controls.
    pub owned: Vec<Arc<Pod>>,
    /// Pods of its namespace without a controller.
    pub orphans: Vec<Arc<Pod>>,
    /// The pods of all ReplicaSets with the same controller, which determine how crowded a node is.
    pub related: Vec<Arc<Pod>>,
    /// Maximum pods created or deleted per sync.
    pub burst_replicas: usize,
    /// Whether the deletion order uses the deletion cost of pods.
    pub uses_deletion_cost: bool,
    /// The record of a running daemon; `None` without one.
    pub memory: Option<Memory>,
}

/// A running daemon's record of a ReplicaSet.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Own writes that the watch has not shown yet.
    pub expectations: Option<OpenExpectations>,
    /// Names of pods whose create has an unknown outcome.
    pub unresolved_creations: Vec<Arc<str>>,
    /// UIDs of pods whose delete has an unknown outcome.
    pub unresolved_deletions: Vec<Uid>,
    /// Versions that the caches must reach before the next sync; `None` if they have.
    pub waits_for: Option<Versions>,
    /// The positions of the caches.
    pub cached: Versions,
    /// The latest sync, if the record still holds it.
    pub last_sync: Option<LastSync>,
    /// The last error that no later success has cleared.
    pub last_error: Option<LastError>,
    /// The state of its key in the queue.
    pub queue: KeyState,
}

impl ReplicaSetController {
    /// Collects the state of the ReplicaSet `key`; `None` if the cache has none of that name. Takes
    /// several short locks in turn, so the parts may stem from different moments.
    pub fn inspect(&self, key: &ObjectKey) -> Option<ReplicaSetFacts> {
        let rs = self.cache.replica_set(key)?;
        let owner = OwnerKey::new(self.kind.kind, key, &rs.uid);
        let related = match &rs.selector {
            Ok(selector) => self.siblings(&rs, selector).related_pods(),
            Err(_) => Vec::new(),
        };
        Some(ReplicaSetFacts {
            kind: self.kind,
            owned: self.cache.pods_owned_by(&owner),
            orphans: self.cache.orphans_in(&key.namespace),
            related,
            burst_replicas: self.options.burst_replicas,
            uses_deletion_cost: self.options.gates.pod_deletion_cost,
            memory: Some(self.memory_of(&rs)),
            replica_set: rs,
        })
    }

    /// Returns the last sync of `rs`, for tests.
    #[cfg(test)]
    pub(in crate::controller) fn last_sync(&self, rs: &ReplicaSet) -> Option<LastSync> {
        self.memory_of(rs).last_sync
    }

    fn memory_of(&self, rs: &ReplicaSet) -> Memory {
        let (cached, now) = (self.cached_versions(), self.clock.now());
        let queue = self.queue.state_of(&rs.key);
        let known = self.memories.get(&rs.key, &rs.uid, |memory| {
            let (writes, positions) = (&memory.own_writes, &memory.positions);
            let is_held_up =
                self.options.gates.stale_controller_consistency && !positions.are_shown_by(&cached);
            Memory {
                expectations: writes.open(now),
                unresolved_creations: writes.unknown_creations().iter().cloned().collect(),
                unresolved_deletions: writes.unknown_deletions(now).under_way,
                waits_for: positions.written().filter(|_| is_held_up).cloned(),
                last_sync: memory.history.last_sync().cloned(),
                last_error: memory.history.last_error().cloned(),
                queue,
                cached: cached.clone(),
            }
        });
        known.unwrap_or(Memory {
            expectations: None,
            unresolved_creations: Vec::new(),
            unresolved_deletions: Vec::new(),
            waits_for: None,
            last_sync: None,
            last_error: None,
            queue,
            cached,
        })
    }
}
