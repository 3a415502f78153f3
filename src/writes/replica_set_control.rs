//! Updates the status of a ReplicaSet, the only write to the object itself.

use std::fmt::Debug;

use super::WriteError;
use crate::api::{ReplicaSet, ReplicaSetStatus, WorkloadKind};
use crate::client::{Client, Request};

/// Updates ReplicaSets at the API server. Each call blocks for one request.
pub trait ReplicaSetControl: Debug + Send + Sync {
    /// Replaces the status of `rs`, on condition that the object still has the version of `rs`.
    /// Returns the updated object.
    ///
    /// # Errors
    /// The error of the API server or the connection; a conflict if the object has changed.
    fn update_status(
        &self,
        rs: &ReplicaSet,
        status: &ReplicaSetStatus,
    ) -> Result<ReplicaSet, WriteError>;
}

/// Implements [`ReplicaSetControl`] through a client.
#[derive(Clone, Debug)]
pub struct RealReplicaSetControl {
    client: Client,
    kind: &'static WorkloadKind,
}

impl RealReplicaSetControl {
    /// Writes to objects of `kind` through `client`. Sends no more requests after the client's stop
    /// signal.
    pub fn new(client: Client, kind: &'static WorkloadKind) -> Self {
        Self { client, kind }
    }
}

impl ReplicaSetControl for RealReplicaSetControl {
    fn update_status(
        &self,
        rs: &ReplicaSet,
        status: &ReplicaSetStatus,
    ) -> Result<ReplicaSet, WriteError> {
        let body = rs
            .with_status(self.kind, status)
            .map_err(|error| WriteError::Local(format!("cannot encode the status: {error}")))?;
        let collection = self.kind.collection_path(Some(&rs.key.namespace));
        let path = format!("{collection}/{}/status", rs.key.name);
        // A server that sent the object in this encoding also accepts and returns it.
        let accept = body.media_type;
        let request = Request::put(path).object(body).accept(accept);
        let request = request.on_behalf_of(&rs.key).retried_briefly();
        let response = self.client.send_unless_stopped(&request)?;
        let object = ReplicaSet::from_answer(self.kind, &response.body);
        object.map_err(|error| {
            WriteError::unknown(format!("the response is not a {}: {error}", self.kind.kind))
        })
    }
}
