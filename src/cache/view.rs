//! The questions that the controller asks of the cache.

use std::fmt::Debug;
use std::sync::Arc;

use super::PodTally;
use crate::api::{ObjectKey, OwnerKey, Pod, ReplicaSet, ResourceVersion, Uid};

/// A read-only view of what the watches have delivered. No call blocks for longer than it takes to
/// copy the pointers that it answers, and none looks at more objects than it answers.
pub trait CacheView: Debug + Send + Sync {
    /// The ReplicaSet of this name.
    fn replica_set(&self, key: &ObjectKey) -> Option<Arc<ReplicaSet>>;

    /// All ReplicaSets, by ascending key.
    fn replica_sets(&self) -> Vec<Arc<ReplicaSet>>;

    /// All ReplicaSets of a namespace.
    fn replica_sets_in(&self, namespace: &str) -> Vec<Arc<ReplicaSet>>;

    /// All ReplicaSets whose controller has this UID.
    fn replica_sets_controlled_by(&self, controller: &Uid) -> Vec<Arc<ReplicaSet>>;

    /// The pod of this name.
    fn pod(&self, key: &ObjectKey) -> Option<Arc<Pod>>;

    /// All pods whose controller is `owner`, by kind, name and UID.
    fn pods_owned_by(&self, owner: &OwnerKey) -> Vec<Arc<Pod>>;

    /// Shows all [`pods_owned_by`](Self::pods_owned_by) one after the other, without a copy of the list.
    /// Events of pods wait meanwhile, so `visit` has to be quick and must not ask the cache.
    fn visit_pods_owned_by(&self, owner: &OwnerKey, visit: &mut dyn FnMut(&Pod));

    /// All pods of a namespace that have no controller.
    fn orphans_in(&self, namespace: &str) -> Vec<Arc<Pod>>;

    /// What is counted of [`pods_owned_by`](Self::pods_owned_by); nothing unless `owner` is a ReplicaSet
    /// or a ReplicationController.
    fn tally_of_pods_owned_by(&self, owner: &OwnerKey) -> PodTally;

    /// What is counted of [`orphans_in`](Self::orphans_in).
    fn tally_of_orphans_in(&self, namespace: &Arc<str>) -> PodTally;

    /// True once the first lists of pods and ReplicaSets are complete and have been told of.
    fn has_synced(&self) -> bool;

    /// How far the pods of this view have come; empty if not known.
    fn pods_resource_version(&self) -> ResourceVersion;

    /// How far the ReplicaSets of this view have come; empty if not known.
    fn replica_sets_resource_version(&self) -> ResourceVersion;
}
