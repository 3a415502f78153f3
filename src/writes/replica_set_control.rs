//! The calls on a ReplicaSet itself: live reads, and the status update.

use std::fmt::Debug;

use serde::Deserialize;

use super::WriteError;
use super::managers::{self, Manager};
use crate::api::workload_kind::collection_path;
use crate::api::{ObjectKey, ReplicaSet, ReplicaSetStatus, ResourceVersion, WorkloadKind};
use crate::client::{Client, Request, Response};
use crate::stdx::stop::Stop;

/// Reads and updates ReplicaSets at the API server. Each call blocks for one request.
pub trait ReplicaSetControl: Debug + Send + Sync {
    /// The ReplicaSet as it is now, past every cache.
    ///
    /// # Errors
    /// As the API server or the connection says.
    fn get(&self, key: &ObjectKey) -> Result<ReplicaSet, WriteError>;

    /// How far the API server has come now with all pods, and with all objects of this kind: two
    /// versions, since each may have a history of its own (kube-apiserver
    /// `--etcd-servers-overrides`). Only objects in `namespace` are looked at. Blocks for two
    /// requests.
    ///
    /// # Errors
    /// As the API server or the connection says.
    fn newest_versions(&self, _namespace: &str) -> Result<[ResourceVersion; 2], WriteError> {
        Ok(Default::default())
    }

    /// Who wrote the status of the ReplicaSet, asked past every cache.
    ///
    /// # Errors
    /// As the API server or the connection says.
    fn status_managers(&self, _key: &ObjectKey) -> Result<Vec<Manager>, WriteError> {
        Ok(Vec::new())
    }

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

#[derive(Deserialize)]
struct ListJson {
    metadata: ListMetadataJson,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadataJson {
    resource_version: String,
}

/// The calls as the API server takes them.
#[derive(Clone, Debug)]
pub struct RealReplicaSetControl {
    client: Client,
    kind: &'static WorkloadKind,
    stop: Stop,
}

impl RealReplicaSetControl {
    /// Calls through `client` on objects of `kind`, until `stop` is given: then it sends nothing any
    /// more.
    pub fn new(client: Client, kind: &'static WorkloadKind, stop: &Stop) -> Self {
        let stop = stop.clone();
        Self { client, kind, stop }
    }

    fn path(&self, key: &ObjectKey) -> String {
        let collection = self.kind.collection_path(Some(&key.namespace));
        format!("{collection}/{}", key.name)
    }

    fn answer(&self, request: &Request) -> Result<Response, WriteError> {
        if self.stop.is_stopped() {
            return Err(WriteError::Stopped);
        }
        Ok(self.client.send(request)?)
    }

    fn newest_version(&self, collection: String) -> Result<ResourceVersion, WriteError> {
        // Without a version of its own a list is the server's newest state, not what it remembers.
        let response = self.answer(&Request::get(collection).query("limit", "1"))?;
        let list: ListJson = serde_json::from_slice(&response.body)
            .map_err(|error| WriteError::Unknown(format!("the answer is no list: {error}")))?;
        Ok(list.metadata.resource_version.as_str().into())
    }

    fn send(&self, request: &Request) -> Result<ReplicaSet, WriteError> {
        let response = self.answer(request)?;
        let object = ReplicaSet::from_answer(self.kind, &response.body);
        object.map_err(|error| {
            WriteError::Unknown(format!("the answer is no {}: {error}", self.kind.kind))
        })
    }
}

impl ReplicaSetControl for RealReplicaSetControl {
    fn get(&self, key: &ObjectKey) -> Result<ReplicaSet, WriteError> {
        self.send(&Request::get(self.path(key)))
    }

    fn newest_versions(&self, namespace: &str) -> Result<[ResourceVersion; 2], WriteError> {
        let pods = collection_path("/api/v1", "pods", Some(namespace));
        Ok([
            self.newest_version(pods)?,
            self.newest_version(self.kind.collection_path(Some(namespace)))?,
        ])
    }

    fn status_managers(&self, key: &ObjectKey) -> Result<Vec<Manager>, WriteError> {
        let response = self.answer(&Request::get(self.path(key)))?;
        managers::of_status(&response.body).map_err(|error| {
            WriteError::Unknown(format!("the answer is no {}: {error}", self.kind.kind))
        })
    }

    fn update_status(
        &self,
        rs: &ReplicaSet,
        status: &ReplicaSetStatus,
    ) -> Result<ReplicaSet, WriteError> {
        let body = rs.with_status(self.kind, status).map_err(|error| {
            WriteError::Local(format!("the status does not become JSON: {error}"))
        })?;
        let path = format!("{}/status", self.path(&rs.key));
        // Who sent the object in this encoding answers in it too.
        let accept = body.media_type;
        let request = Request::put(path).object(body).accept(accept);
        self.send(&request.on_behalf_of(&rs.uid))
    }
}
