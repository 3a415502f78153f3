//! Everything that the controller knows of one ReplicaSet, gathered for whoever explains it. Reads
//! and copies; changes nothing, sends nothing.

use std::sync::Arc;

use crate::api::{ObjectKey, OwnerKey, Pod, ReplicaSet, Uid, WorkloadKind};
use crate::controller::ReplicaSetController;
use crate::controller::decide::plan::RelatedPods;
use crate::controller::memory::history::{LastError, LastSync};
use crate::controller::memory::own_writes::OpenExpectations;
use crate::controller::memory::positions::Versions;
use crate::workqueue::KeyState;

/// What decides what happens with a ReplicaSet.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The kind of workload.
    pub kind: &'static WorkloadKind,
    /// The ReplicaSet.
    pub replica_set: Arc<ReplicaSet>,
    /// Pods whose controller it is.
    pub owned: Vec<Arc<Pod>>,
    /// Pods of its namespace without a controller.
    pub orphans: Vec<Arc<Pod>>,
    /// The pods of all ReplicaSets that share its controller, which decide how crowded a node is.
    pub related: Vec<Arc<Pod>>,
    /// The most pods that one sync creates or deletes.
    pub burst_replicas: usize,
    /// Whether the deletion cost of pods counts.
    pub uses_deletion_cost: bool,
    /// What a running daemon remembers; `None` where none was asked.
    pub memory: Option<Memory>,
}

/// What a running daemon remembers of a ReplicaSet.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Own writes that the watch has not shown yet.
    pub expectations: Option<OpenExpectations>,
    /// Names of pods whose creation had an unknown outcome.
    pub unresolved_creations: Vec<Arc<str>>,
    /// UIDs of pods whose deletion had an unknown outcome.
    pub unresolved_deletions: Vec<Uid>,
    /// Versions that the cache must reach before the next sync; `None` if it is there.
    pub waits_for: Option<Versions>,
    /// How far the cache has come.
    pub cached: Versions,
    /// The latest sync, if it is not too long ago.
    pub last_sync: Option<LastSync>,
    /// What went wrong and was not put right since.
    pub last_error: Option<LastError>,
    /// Where its key stands in the queue.
    pub queue: KeyState,
}

impl ReplicaSetController {
    /// What is known of the ReplicaSet `key`; `None` if the cache has none of that name. Takes several
    /// short locks one after the other, so the parts need not be of one moment.
    pub fn inspect(&self, key: &ObjectKey) -> Option<Facts> {
        let rs = self.cache.replica_set(key)?;
        let owner = OwnerKey::new(self.kind.kind, key, &rs.uid);
        let related = match &rs.selector {
            Ok(selector) => self.siblings(&rs, selector).related_pods(),
            Err(_) => Vec::new(),
        };
        Some(Facts {
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

    /// The last sync of `rs`, for tests.
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
