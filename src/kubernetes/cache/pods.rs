//! The index of the pods: by owner, and orphans by namespace. The store keeps a tally of each group
//! that the controller queries.

use std::sync::Arc;

use super::pod_tally::PodTally;
use super::store::{Indexed, Store};
use crate::api::workload_kind::{REPLICA_SET, REPLICATION_CONTROLLER};
use crate::api::{ObjectKey, OwnerKey, Pod, ResourceVersion, Uid};

/// All pods. Each is in exactly one bucket.
pub type PodStore = Store<Pod>;

/// A group of pods that is queried together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PodBucket {
    /// Pods with this controller.
    OwnedBy(OwnerKey),
    /// Pods of a namespace without a controller.
    OrphansIn(Arc<str>),
}

impl Indexed for Pod {
    type Bucket = PodBucket;
    type Tally = PodTally;

    fn key(&self) -> &ObjectKey {
        &self.key
    }

    fn uid(&self) -> &Uid {
        &self.uid
    }

    fn resource_version(&self) -> &ResourceVersion {
        &self.resource_version
    }

    fn buckets(&self) -> [Option<PodBucket>; 2] {
        let bucket = match self.owner_key() {
            Some(owner) => PodBucket::OwnedBy(owner),
            None => PodBucket::OrphansIn(Arc::clone(&self.key.namespace)),
        };
        [Some(bucket), None]
    }

    fn count(&self, tally: &mut PodTally) {
        if is_counted(self) {
            tally.add(self);
        }
    }

    fn discount(&self, tally: &mut PodTally) {
        if is_counted(self) {
            tally.remove(self);
        }
    }
}

/// Returns whether `pod` counts in a tally. The controller never queries the tallies of other
/// owners, and each of their pods may have its own labels, as those of an indexed Job and of a
/// StatefulSet do.
fn is_counted(pod: &Pod) -> bool {
    let kinds = [REPLICA_SET.kind, REPLICATION_CONTROLLER.kind];
    let controller = pod.controller.as_deref();
    controller.is_none_or(|controller| kinds.contains(&&*controller.kind))
}
