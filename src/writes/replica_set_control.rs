//! The two calls on a ReplicaSet itself: a live read, and the status update.

use std::fmt::Debug;

use super::WriteError;
use super::managers::{self, Manager};
use crate::api::interner::Interner;
use crate::api::{ObjectKey, ReplicaSet, ReplicaSetStatus, WorkloadKind};
use crate::client::{Client, Request};
use crate::stdx::stop::Stop;

/// Reads and updates ReplicaSets at the API server. Each call blocks for one request.
pub trait ReplicaSetControl: Debug + Send + Sync {
    /// The ReplicaSet as it is now, past every cache.
    ///
    /// # Errors
    /// As the API server or the connection says.
    fn get(&self, key: &ObjectKey) -> Result<ReplicaSet, WriteError>;

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

    fn send(&self, request: &Request) -> Result<ReplicaSet, WriteError> {
        if self.stop.is_stopped() {
            return Err(WriteError::Stopped);
        }
        let response = self.client.send(request)?;
        let object = ReplicaSet::from_answer(self.kind, &response.body, &mut Interner::default());
        object.map_err(|error| {
            WriteError::Unknown(format!("the answer is no {}: {error}", self.kind.kind))
        })
    }
}

impl ReplicaSetControl for RealReplicaSetControl {
    fn get(&self, key: &ObjectKey) -> Result<ReplicaSet, WriteError> {
        self.send(&Request::get(self.path(key)))
    }

    fn status_managers(&self, key: &ObjectKey) -> Result<Vec<Manager>, WriteError> {
        if self.stop.is_stopped() {
            return Err(WriteError::Stopped);
        }
        let response = self.client.send(&Request::get(self.path(key)))?;
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
