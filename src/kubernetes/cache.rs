//! The local, read-only copy of the API server's pods and ReplicaSets.
//!
//! A [`Cache`] has two [`Store`]s. One watch thread writes each; the controller only reads.
//!
//! # Locks
//!
//! Each [`Store`] has one `RwLock` around its objects, indexes and tallies. Its watch thread
//! writes; workers, `http-N` and `systemd` read. [`Store::visit`] and [`Store::visit_all`] run a
//! callback under the lock, so their callbacks only count.

pub mod decode;
mod json_frames;
pub mod list_watch;
pub mod pods;
mod protobuf_frames;
pub mod reflector;
pub mod store;

use std::sync::Arc;

use self::pods::{PodBucket, ReplicaSetBucket};
use crate::api::{OwnerKey, Pod, ReplicaSet, Uid};
use arcstr::ArcStr;

pub use pods::{PodStore, PodTally, ReplicaSetStore};
pub use store::{CacheEvent, Store};

pub use crate::client::READ_WAIT_MAX;

/// The pods and ReplicaSets that the watches have delivered. Clones share the same cache.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    /// Written by the thread `watch-pods`.
    pub pods: Arc<PodStore>,
    /// Written by the thread `watch-rs`.
    pub replica_sets: Arc<ReplicaSetStore>,
}

/// A read-only view of what the watches have delivered. No call blocks for longer than it takes to
/// copy the returned pointers, or to visit the objects that it names.
impl Cache {
    pub fn replica_sets_in(&self, namespace: &str) -> Vec<Arc<ReplicaSet>> {
        self.replica_sets
            .bucket(&ReplicaSetBucket::In(namespace.into()))
    }

    pub fn replica_sets_controlled_by(&self, controller: &Uid) -> Vec<Arc<ReplicaSet>> {
        self.replica_sets
            .bucket(&ReplicaSetBucket::ControlledBy(controller.clone()))
    }

    /// All pods whose controller is `owner`, by kind, name and UID.
    pub fn pods_owned_by(&self, owner: &OwnerKey) -> Vec<Arc<Pod>> {
        self.pods.bucket(&PodBucket::OwnedBy(owner.clone()))
    }

    /// All pods whose controller is `owner`, and all of its namespace without a controller, at one
    /// moment.
    pub fn pods_for(&self, owner: &OwnerKey, namespace: &str) -> [Vec<Arc<Pod>>; 2] {
        let owned = PodBucket::OwnedBy(owner.clone());
        let orphans = PodBucket::OrphansIn(namespace.into());
        self.pods.buckets([&owned, &orphans])
    }

    pub fn orphans_in(&self, namespace: &str) -> Vec<Arc<Pod>> {
        self.pods.bucket(&PodBucket::OrphansIn(namespace.into()))
    }

    /// The tally of [`pods_owned_by`](Self::pods_owned_by); empty unless `owner` is a ReplicaSet or
    /// a ReplicationController.
    pub fn tally_of_pods_owned_by(&self, owner: &OwnerKey) -> PodTally {
        self.pods.tally(&PodBucket::OwnedBy(owner.clone()))
    }

    pub fn tally_of_orphans_in(&self, namespace: &ArcStr) -> PodTally {
        self.pods.tally(&PodBucket::OrphansIn(namespace.clone()))
    }

    /// True once the first lists of pods and ReplicaSets are complete and delivered to the
    /// handlers.
    pub fn has_synced(&self) -> bool {
        self.pods.has_synced() && self.replica_sets.has_synced()
    }
}
