//! The two calls on a ReplicaSet itself: a live read, and the status update.

use std::fmt::Debug;

use super::WriteError;
use crate::api::{ObjectKey, ReplicaSet, ReplicaSetStatus};

/// Reads and updates ReplicaSets at the API server. Each call blocks for one request.
pub trait ReplicaSetControl: Debug + Send + Sync {
    /// The ReplicaSet as it is now, past every cache.
    ///
    /// # Errors
    /// As the API server or the connection says.
    fn get(&self, key: &ObjectKey) -> Result<ReplicaSet, WriteError>;

    /// Replaces the status of `rs`, on condition that the object still has the version of `rs`;
    /// answers the object as it is then.
    ///
    /// # Errors
    /// As the API server or the connection says; a conflict if the object has changed.
    fn update_status(
        &self,
        rs: &ReplicaSet,
        status: &ReplicaSetStatus,
    ) -> Result<ReplicaSet, WriteError>;
}
