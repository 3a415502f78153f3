//! The controller's view of the cache.

use std::fmt::Debug;
use std::sync::Arc;

use super::PodTally;
use crate::api::{ObjectKey, OwnerKey, Pod, ReplicaSet, ResourceVersion, Uid};

/// A read-only view of what the watches have delivered. No call blocks for longer than it takes to
/// copy the returned pointers, or to visit the objects that it names.
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

    /// Calls `visit` with each of [`pods_owned_by`](Self::pods_owned_by) without copying the list.
    /// Pod events wait meanwhile, so `visit` must be quick and must not call the cache.
    fn visit_pods_owned_by(&self, owner: &OwnerKey, visit: &mut dyn FnMut(&Pod));

    /// Calls `visit` with each pod. As above, but for all pods: some 10 ms for 50,000.
    fn visit_pods(&self, visit: &mut dyn FnMut(&Pod));

    /// All pods of a namespace without a controller.
    fn orphans_in(&self, namespace: &str) -> Vec<Arc<Pod>>;

    /// The tally of [`pods_owned_by`](Self::pods_owned_by); empty unless `owner` is a ReplicaSet or
    /// a ReplicationController.
    fn tally_of_pods_owned_by(&self, owner: &OwnerKey) -> PodTally;

    /// The tally of [`orphans_in`](Self::orphans_in).
    fn tally_of_orphans_in(&self, namespace: &Arc<str>) -> PodTally;

    /// True once the first lists of pods and ReplicaSets are complete and delivered to the
    /// handlers.
    fn has_synced(&self) -> bool;

    /// The resource version that the pods of this view have reached; empty if not known.
    fn pods_resource_version(&self) -> ResourceVersion;

    /// The resource version that the ReplicaSets of this view have reached; empty if not known.
    fn replica_sets_resource_version(&self) -> ResourceVersion;
}
