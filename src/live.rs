//! Live reads: requests to the API server that bypass the caches, for questions about the current
//! state. Nothing here changes the cluster.
//!
//! The controller uses the trait [`LiveReader`], so that a test can drive it on one thread with a
//! fake. [`RealLiveReader`] sends requests through [`crate::client`]. Reads return the error type
//! of writes: most reads verify the outcome of a write, and a failed read leaves that outcome
//! unknown.
//!
//! `metadata.managedFields` distinguishes the writers of a field ([`Manager`]).

pub mod real_live_reader;
pub mod workloads;

use std::fmt::Debug;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde::Deserialize;

use crate::api::{ObjectKey, Pod, ReplicaSet, ResourceVersion, Selector};
use crate::writes::WriteError;

pub use real_live_reader::RealLiveReader;
pub use workloads::Workloads;

/// Reads pods and ReplicaSets from the API server, without the caches. Unless noted otherwise, each
/// call blocks for one request and its retries.
pub trait LiveReader: Send + Sync {
    /// The current ReplicaSet.
    fn get_replica_set(&self, key: &ObjectKey) -> Result<ReplicaSet, WriteError>;

    /// The pod `name` in the namespace of `rs`; `None` if it does not exist.
    fn find_pod(&self, rs: &ReplicaSet, name: &str) -> Result<Option<Pod>, WriteError>;

    /// All pods in the namespace of `rs` that match `selector`. Blocks for one request per page.
    fn list_pods(&self, rs: &ReplicaSet, selector: &Selector) -> Result<Vec<Pod>, WriteError>;

    /// The newest versions at the API server of all pods and of all objects of this kind. They are
    /// two, since each resource may have its own history (kube-apiserver
    /// `--etcd-servers-overrides`). Lists objects in `namespace` only. Blocks for two requests.
    fn newest_versions(&self, namespace: &str) -> Result<[ResourceVersion; 2], WriteError>;

    /// The managers of the owner references of the pod `name`; empty if the pod is gone.
    fn owner_managers(&self, rs: &ReplicaSet, name: &str) -> Result<Vec<Manager>, WriteError>;

    /// Whether [`gang_workload`](Self::gang_workload) searches. Sends nothing.
    fn serves_workloads(&self) -> bool {
        false
    }

    /// The Workload that asks for gang scheduling and has the same owner as `rs`. Sends nothing
    /// where the API server serves no Workloads.
    fn gang_workload(&self, _rs: &ReplicaSet) -> Result<Option<String>, WriteError> {
        Ok(None)
    }
}

/// The field manager of this program's writes: the user agent up to its slash (apiserver
/// `pkg/endpoints/handlers/create.go:managerOrUserAgent`).
pub const MANAGER: &str = "replicaset-controller";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manager {
    pub name: String,
    /// Time of its last write.
    pub time: Option<Timestamp>,
}

/// The managers of the owner references of the object in `json`.
pub fn of_owner_references(json: &[u8]) -> Result<Vec<Manager>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Object {
        metadata: ObjectMeta,
    }
    let is_match = |entry: &ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        let owners = fields.map(|fields| &fields["f:metadata"]["f:ownerReferences"]);
        entry.subresource.is_none() && owners.is_some_and(|owners| !owners.is_null())
    };
    let object: Object = serde_json::from_slice(json)?;
    let entries = object.metadata.managed_fields.unwrap_or_default();
    let manager = |entry: ManagedFieldsEntry| Manager {
        name: entry.manager.unwrap_or_default(),
        time: entry.time.map(|time| time.0),
    };
    let entries = entries.into_iter().filter(is_match);
    Ok(entries.map(manager).collect())
}

#[cfg(test)]
mod tests {
    use super::{MANAGER, of_owner_references};
    use crate::client::ClientOptions;

    #[test]
    fn only_writers_of_owner_references_count() {
        let json = br#"{"metadata": {"managedFields": [
            {"manager": "a", "operation": "Update", "time": "2026-01-01T00:00:00Z",
             "fieldsV1": {"f:metadata": {"f:ownerReferences": {".": {}}}}},
            {"manager": "b", "operation": "Update", "fieldsV1": {"f:spec": {}}},
            {"manager": "c", "operation": "Update", "subresource": "status",
             "fieldsV1": {"f:status": {"f:replicas": {}}}},
            {"manager": "d", "operation": "Update", "subresource": "status",
             "fieldsV1": {"f:metadata": {"f:ownerReferences": {}}}}
        ]}}"#;
        let names = |managers: Vec<super::Manager>| -> Vec<String> {
            managers.into_iter().map(|manager| manager.name).collect()
        };
        assert_eq!(names(of_owner_references(json).expect("an object")), ["a"]);
        let none = of_owner_references(br#"{"metadata": {}}"#);
        assert_eq!(names(none.expect("an object")), [""; 0]);
    }

    #[test]
    fn the_manager_is_the_user_agent_up_to_its_slash() {
        let agent = ClientOptions::default().user_agent;
        assert_eq!(agent.split('/').next(), Some(MANAGER));
    }
}
