//! The index of the pods: by owner, and those without one by namespace. Each group that a controller
//! here asks about is counted.

use std::sync::Arc;

use super::pod_tally::PodTally;
use super::store::{Indexed, Store};
use crate::api::workload_kind::{REPLICA_SET, REPLICATION_CONTROLLER};
use crate::api::{ObjectKey, OwnerKey, Pod, ResourceVersion, Uid};

/// All pods. Each stands in exactly one bucket.
pub type PodStore = Store<Pod>;

/// A group of pods that is looked up together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PodBucket {
    /// Those with this controller.
    OwnedBy(OwnerKey),
    /// Those of a namespace that have no controller.
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

/// Nobody asks for the numbers of other owners' pods, of which each may have labels of its own, as those
/// of an indexed Job and of a StatefulSet have.
fn is_counted(pod: &Pod) -> bool {
    let kinds = [REPLICA_SET.kind, REPLICATION_CONTROLLER.kind];
    let controller = pod.controller.as_deref();
    controller.is_none_or(|controller| kinds.contains(&&*controller.kind))
}
