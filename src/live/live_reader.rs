//! The questions that a sync has for the API server.

use std::fmt::Debug;

use super::field_managers::Manager;
use crate::api::{ObjectKey, Pod, ReplicaSet, ResourceVersion, Selector};
use crate::writes::WriteError;

/// Reads pods and ReplicaSets at the API server, past every cache. Each call blocks for one request (and
/// its retries) unless it says otherwise.
pub trait LiveReader: Debug + Send + Sync {
    /// The ReplicaSet as it is now.
    ///
    /// # Errors
    /// As the API server or the connection says; a refusal that says so if there is none.
    fn get_replica_set(&self, key: &ObjectKey) -> Result<ReplicaSet, WriteError>;

    /// What is known of the pod `name` in the namespace of `rs`; `None` if there is none.
    ///
    /// # Errors
    /// As the API server or the connection says.
    fn find_pod(&self, rs: &ReplicaSet, name: &str) -> Result<Option<Pod>, WriteError>;

    /// All pods in the namespace of `rs` that `selector` matches. Blocks for one request a page.
    ///
    /// # Errors
    /// As the API server or the connection says.
    fn list_pods(&self, rs: &ReplicaSet, selector: &Selector) -> Result<Vec<Pod>, WriteError>;

    /// How far the API server has come now with all pods, and with all objects of this kind: two
    /// versions, since each may have a history of its own (kube-apiserver
    /// `--etcd-servers-overrides`). Only objects in `namespace` are looked at. Blocks for two
    /// requests.
    ///
    /// # Errors
    /// As the API server or the connection says.
    fn newest_versions(&self, namespace: &str) -> Result<[ResourceVersion; 2], WriteError>;

    /// Who wrote the owner references of the pod `name`; nobody if it is gone.
    ///
    /// # Errors
    /// As the API server or the connection says.
    fn owner_managers(&self, rs: &ReplicaSet, name: &str) -> Result<Vec<Manager>, WriteError>;

    /// Who wrote the status of the ReplicaSet.
    ///
    /// # Errors
    /// As the API server or the connection says.
    fn status_managers(&self, key: &ObjectKey) -> Result<Vec<Manager>, WriteError>;
}
