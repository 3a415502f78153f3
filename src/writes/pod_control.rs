//! Creating, deleting and patching pods on behalf of a ReplicaSet.

use std::fmt::Debug;

use super::WriteError;
use crate::api::{Pod, ReplicaSet, ResourceVersion, Uid};

/// Writes pods. Each call blocks for one request (and its retries). Events about the outcome are
/// recorded here, as upstream does in `pkg/controller/controller_utils.go:RealPodControl`.
pub trait PodControl: Debug + Send + Sync {
    /// Creates a pod called `name` from the template of `rs`, owned by `rs`.
    ///
    /// # Errors
    /// [`WriteError::Local`] before any request if the template cannot make a pod, otherwise as the
    /// API server or the connection says.
    fn create_pod(&self, rs: &ReplicaSet, name: &str) -> Result<CreatedPod, WriteError>;

    /// Deletes exactly this pod: one that was recreated under its name is left alone. That answers a
    /// conflict, of which no event is recorded here.
    ///
    /// # Errors
    /// As the API server or the connection says.
    fn delete_pod(&self, rs: &ReplicaSet, pod: &Pod) -> Result<(), WriteError>;

    /// Records a warning about `rs`. Never blocks.
    fn warn(&self, _rs: &ReplicaSet, _reason: &'static str, _message: String) {}

    /// Records that a pod of `rs` could not be deleted
    /// (kubernetes `pkg/controller/controller_utils.go:DeletePod`). Never blocks.
    fn warn_of_failed_delete(&self, rs: &ReplicaSet, error: &WriteError) {
        self.warn(rs, "FailedDelete", format!("Error deleting: {error}"));
    }

    /// Applies a strategic merge patch to a pod that `rs` adopts or releases. Records no event.
    ///
    /// # Errors
    /// As the API server or the connection says.
    fn patch_pod(
        &self,
        rs: &ReplicaSet,
        pod: &Pod,
        patch: Vec<u8>,
    ) -> Result<PatchedPod, WriteError>;
}

/// What the answer to a create says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreatedPod {
    /// The version under which the pod was stored; empty if the answer did not say.
    pub resource_version: ResourceVersion,
}

/// What the answer to a patch says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchedPod {
    /// The version under which the pod was stored; empty if the answer did not say.
    pub resource_version: ResourceVersion,
    /// UID of the pod's controller after the patch.
    pub controller: Option<Uid>,
}
