//! The index of the ReplicaSets: by namespace, and by the UID of their controller.

use std::sync::Arc;

use super::store::{Indexed, Store};
use crate::api::{ObjectKey, ReplicaSet, ResourceVersion, Uid};

/// All ReplicaSets. Each is in the bucket of its namespace and, if it has a controller, in that
/// controller's.
pub type ReplicaSetStore = Store<ReplicaSet>;

/// A group of ReplicaSets that is queried together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReplicaSetBucket {
    /// ReplicaSets of a namespace.
    In(Arc<str>),
    /// ReplicaSets whose controller has this UID.
    ControlledBy(Uid),
}

impl Indexed for ReplicaSet {
    type Bucket = ReplicaSetBucket;
    type Tally = ();

    fn key(&self) -> &ObjectKey {
        &self.key
    }

    fn uid(&self) -> &Uid {
        &self.uid
    }

    fn resource_version(&self) -> &ResourceVersion {
        &self.resource_version
    }

    fn buckets(&self) -> [Option<ReplicaSetBucket>; 2] {
        let controller = self.controller.as_ref();
        [
            Some(ReplicaSetBucket::In(Arc::clone(&self.key.namespace))),
            controller.map(|controller| ReplicaSetBucket::ControlledBy(controller.uid.clone())),
        ]
    }

    fn count(&self, (): &mut ()) {}

    fn discount(&self, (): &mut ()) {}
}
