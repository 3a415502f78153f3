//! The write to a ReplicaSet itself: its status.

use std::fmt::Debug;

use super::WriteError;
use crate::api::{ReplicaSet, ReplicaSetStatus, WorkloadKind};
use crate::client::{Client, Request};
use crate::stdx::stop::Stop;

/// Updates ReplicaSets at the API server. Each call blocks for one request.
pub trait ReplicaSetControl: Debug + Send + Sync {
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

/// The write as the API server takes it.
#[derive(Clone, Debug)]
pub struct RealReplicaSetControl {
    client: Client,
    kind: &'static WorkloadKind,
    stop: Stop,
}

impl RealReplicaSetControl {
    /// Writes to objects of `kind` through `client`, until `stop` is given: then it sends nothing any
    /// more.
    pub fn new(client: Client, kind: &'static WorkloadKind, stop: &Stop) -> Self {
        let stop = stop.clone();
        Self { client, kind, stop }
    }
}

impl ReplicaSetControl for RealReplicaSetControl {
    fn update_status(
        &self,
        rs: &ReplicaSet,
        status: &ReplicaSetStatus,
    ) -> Result<ReplicaSet, WriteError> {
        let body = rs.with_status(self.kind, status).map_err(|error| {
            WriteError::Local(format!("the status does not become JSON: {error}"))
        })?;
        let collection = self.kind.collection_path(Some(&rs.key.namespace));
        let path = format!("{collection}/{}/status", rs.key.name);
        // Who sent the object in this encoding answers in it too.
        let accept = body.media_type;
        let request = Request::put(path).object(body).accept(accept);
        if self.stop.is_stopped() {
            return Err(WriteError::Stopped);
        }
        let response = self.client.send(&request.on_behalf_of(&rs.uid))?;
        let object = ReplicaSet::from_answer(self.kind, &response.body);
        object.map_err(|error| {
            WriteError::Unknown(format!("the answer is no {}: {error}", self.kind.kind))
        })
    }
}
