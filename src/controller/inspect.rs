//! Everything that the controller knows of one ReplicaSet, gathered for whoever explains it. Reads
//! and copies; changes nothing, sends nothing.

use std::sync::Arc;

use super::ReplicaSetController;
use super::expectations::OpenExpectations;
use super::last_syncs::{LastError, LastSync};
use super::plan::RelatedPods;
use super::written_versions::Versions;
use crate::api::{ObjectKey, OwnerKey, Pod, ReplicaSet, Uid, WorkloadKind};
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
            burst_replicas: self.burst_replicas,
            uses_deletion_cost: self.gates.pod_deletion_cost,
            memory: Some(self.memory_of(&rs)),
            replica_set: rs,
        })
    }

    fn memory_of(&self, rs: &ReplicaSet) -> Memory {
        let (key, uid) = (&rs.key, &rs.uid);
        let cached = self.cached_versions();
        let written = self.written.written(key, uid);
        let holds_up = |written: &Versions| {
            self.gates.stale_controller_consistency
                && (!cached.pods.is_as_new_as(&written.pods)
                    || !cached.replica_sets.is_as_new_as(&written.replica_sets))
        };
        Memory {
            expectations: self.expectations.details(key, uid),
            unresolved_creations: self.unresolved.creations(key, uid),
            unresolved_deletions: self.unresolved.deletions(key, uid).under_way,
            waits_for: written.filter(holds_up),
            last_sync: self.last_syncs.last(key),
            last_error: self.last_syncs.error(key),
            queue: self.queue.state_of(key),
            cached,
        }
    }
}
