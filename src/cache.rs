//! The local, read-only copy of the API server's pods and ReplicaSets.
//!
//! The controller sees only [`CacheView`]. [`Cache`] implements it with two [`Store`]s; one watch
//! thread writes each.
//!
//! # Locks
//!
//! Each [`Store`] has one `RwLock` around its objects, indexes and tallies. Its watch thread
//! writes; workers, `http-N` and `systemd` read. [`Store::visit`] and [`Store::visit_all`] run a
//! callback under the lock, so their callbacks only count.

mod collector;
pub mod decode;
pub mod encoding;
pub mod event;
mod json_frames;
mod json_items;
mod json_list;
mod json_object;
pub mod list_watch;
pub mod pod_tally;
pub mod pods;
mod protobuf_frames;
mod protobuf_list;
mod protobuf_object;
mod read_buffer;
pub mod reflector;
pub mod replica_sets;
pub mod resource_quotas;
pub mod stats;
pub mod store;
pub mod view;

use std::sync::Arc;

pub use event::CacheEvent;
pub use pod_tally::PodTally;
pub use pods::PodStore;
pub use replica_sets::ReplicaSetStore;
pub use resource_quotas::ResourceQuotaStore;
pub use store::Store;
pub use view::CacheView;

/// Maximum delay before a watch reads what has arrived.
pub use crate::client::READ_WAIT_MAX;

use self::pods::PodBucket;
use self::replica_sets::ReplicaSetBucket;
use crate::api::{ObjectKey, OwnerKey, Pod, ReplicaSet, ResourceVersion, Uid};

/// The pods and ReplicaSets that the watches have delivered. Clones share the same cache.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    /// Written by the thread `watch-pods`.
    pub pods: Arc<PodStore>,
    /// Written by the thread `watch-rs`.
    pub replica_sets: Arc<ReplicaSetStore>,
}

impl Cache {
    /// True once the first list of both stores has been delivered.
    pub fn has_synced(&self) -> bool {
        self.pods.has_synced() && self.replica_sets.has_synced()
    }
}

impl CacheView for Cache {
    fn replica_set(&self, key: &ObjectKey) -> Option<Arc<ReplicaSet>> {
        self.replica_sets.get(key)
    }

    fn replica_sets(&self) -> Vec<Arc<ReplicaSet>> {
        self.replica_sets.list()
    }

    fn replica_sets_in(&self, namespace: &str) -> Vec<Arc<ReplicaSet>> {
        self.replica_sets
            .bucket(&ReplicaSetBucket::In(namespace.into()))
    }

    fn replica_sets_controlled_by(&self, controller: &Uid) -> Vec<Arc<ReplicaSet>> {
        self.replica_sets
            .bucket(&ReplicaSetBucket::ControlledBy(controller.clone()))
    }

    fn pod(&self, key: &ObjectKey) -> Option<Arc<Pod>> {
        self.pods.get(key)
    }

    fn pods_owned_by(&self, owner: &OwnerKey) -> Vec<Arc<Pod>> {
        self.pods.bucket(&PodBucket::OwnedBy(owner.clone()))
    }

    fn visit_pods_owned_by(&self, owner: &OwnerKey, visit: &mut dyn FnMut(&Pod)) {
        self.pods.visit(&PodBucket::OwnedBy(owner.clone()), visit);
    }

    fn visit_pods(&self, visit: &mut dyn FnMut(&Pod)) {
        self.pods.visit_all(visit);
    }

    fn orphans_in(&self, namespace: &str) -> Vec<Arc<Pod>> {
        self.pods.bucket(&PodBucket::OrphansIn(namespace.into()))
    }

    fn tally_of_pods_owned_by(&self, owner: &OwnerKey) -> PodTally {
        self.pods.tally(&PodBucket::OwnedBy(owner.clone()))
    }

    fn tally_of_orphans_in(&self, namespace: &Arc<str>) -> PodTally {
        self.pods
            .tally(&PodBucket::OrphansIn(Arc::clone(namespace)))
    }

    fn has_synced(&self) -> bool {
        Self::has_synced(self)
    }

    fn pods_resource_version(&self) -> ResourceVersion {
        self.pods.resource_version()
    }

    fn replica_sets_resource_version(&self) -> ResourceVersion {
        self.replica_sets.resource_version()
    }
}
