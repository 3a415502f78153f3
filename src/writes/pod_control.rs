//! Creates, deletes and patches pods on behalf of a ReplicaSet.

use std::fmt::Debug;

use super::{WriteError, WrittenPod};
use crate::api::{Pod, ReplicaSet, ResourceVersion};

/// Writes pods. Each call blocks for one request and its retries. Like upstream's
/// `pkg/controller/controller_utils.go:RealPodControl`, it records events about the outcome.
pub trait PodControl: Debug + Send + Sync {
    /// Creates the pod `name` from the template of `rs`, owned by `rs`.
    ///
    /// # Errors
    /// [`WriteError::Local`] before any request if the template does not yield a pod, otherwise the
    /// error of the API server or the connection.
    fn create_pod(&self, rs: &ReplicaSet, name: &str) -> Result<WrittenPod, WriteError>;

    /// Deletes the pod with exactly this UID, and with this precondition. A pod that does not meet
    /// them stays, such as one recreated under the same name. The call then returns a conflict, for
    /// which it records no event.
    ///
    /// # Errors
    /// The error of the API server or the connection.
    fn delete_pod(
        &self,
        rs: &ReplicaSet,
        pod: &Pod,
        precondition: Precondition,
    ) -> Result<(), WriteError>;

    /// As [`delete_pod`](Self::delete_pod), but records no event.
    ///
    /// # Errors
    /// As [`delete_pod`](Self::delete_pod).
    fn delete_pod_quietly(
        &self,
        rs: &ReplicaSet,
        pod: &Pod,
        precondition: Precondition,
    ) -> Result<(), WriteError> {
        self.delete_pod(rs, pod, precondition)
    }

    /// Returns how many requests may be sent at once without delaying others. Never blocks.
    fn n_spare_requests(&self) -> usize {
        usize::MAX
    }

    /// Records a warning about `rs`. Never blocks.
    fn warn(&self, _rs: &ReplicaSet, _reason: &'static str, _message: String) {}

    /// Records that deleting a pod of `rs` failed (kubernetes
    /// `pkg/controller/controller_utils.go:DeletePod`). Never blocks.
    fn warn_of_failed_delete(&self, rs: &ReplicaSet, error: &WriteError) {
        self.warn(rs, "FailedDelete", format!("Error deleting: {error}"));
    }

    /// Applies a strategic merge patch to a pod that `rs` adopts or releases. Records no event.
    ///
    /// # Errors
    /// The error of the API server or the connection.
    fn patch_pod(
        &self,
        rs: &ReplicaSet,
        pod: &Pod,
        patch: Vec<u8>,
    ) -> Result<WrittenPod, WriteError>;
}

/// What must hold for a delete besides the UID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing.
    None,
    /// The stored pod has the version of the given one, so nobody has changed it since.
    SameVersion,
}

impl Precondition {
    /// The version that the stored pod must have; `None` if any will do.
    pub fn version_of(self, pod: &Pod) -> Option<&ResourceVersion> {
        match self {
            Self::None => None,
            Self::SameVersion => Some(&pod.resource_version),
        }
    }
}
