//! The trait for the live reads of a sync.

use std::fmt::Debug;

use super::field_managers::Manager;
use crate::api::{ObjectKey, Pod, ReplicaSet, ResourceVersion, Selector};
use crate::writes::WriteError;

/// Reads pods and ReplicaSets from the API server, without the caches. Unless noted otherwise, each
/// call blocks for one request and its retries.
pub trait LiveReader: Debug + Send + Sync {
    /// The current ReplicaSet.
    ///
    /// # Errors
    /// The error of the API server or the connection, including not found.
    fn get_replica_set(&self, key: &ObjectKey) -> Result<ReplicaSet, WriteError>;

    /// The pod `name` in the namespace of `rs`; `None` if it does not exist.
    ///
    /// # Errors
    /// The error of the API server or the connection.
    fn find_pod(&self, rs: &ReplicaSet, name: &str) -> Result<Option<Pod>, WriteError>;

    /// All pods in the namespace of `rs` that match `selector`. Blocks for one request per page.
    ///
    /// # Errors
    /// The error of the API server or the connection.
    fn list_pods(&self, rs: &ReplicaSet, selector: &Selector) -> Result<Vec<Pod>, WriteError>;

    /// The newest versions at the API server of all pods and of all objects of this kind. They are
    /// two, since each resource may have its own history (kube-apiserver
    /// `--etcd-servers-overrides`). Lists objects in `namespace` only. Blocks for two requests.
    ///
    /// # Errors
    /// The error of the API server or the connection.
    fn newest_versions(&self, namespace: &str) -> Result<[ResourceVersion; 2], WriteError>;

    /// The managers of the owner references of the pod `name`; empty if the pod is gone.
    ///
    /// # Errors
    /// The error of the API server or the connection.
    fn owner_managers(&self, rs: &ReplicaSet, name: &str) -> Result<Vec<Manager>, WriteError>;
}
