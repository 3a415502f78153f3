//! The interface between the election and its Lease, which tests fake, and the Lease at the API
//! server (client-go `tools/leaderelection/resourcelock/leaselock.go`). Called on the thread
//! `lease`; each call blocks for one request.

use std::fmt::Debug;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::LeaderElectionOptions;
use super::election::LeaderElectionRecord;
use crate::api::Status;
use crate::client::{Client, ClientError, Request, Response};

/// The object that names the leader. Each call blocks for one request, for at most `limit` or
/// slightly longer.
pub trait Lock: Send {
    fn get(&mut self, limit: Duration) -> Result<LeaderElectionRecord, LockError>;

    fn create(&mut self, record: &LeaderElectionRecord, limit: Duration) -> Result<(), LockError>;

    /// Updates the object, on condition that it still has the version last read or written here.
    fn update(&mut self, record: &LeaderElectionRecord, limit: Duration) -> Result<(), LockError>;

    /// The reference for events, from the object as last read or written here.
    fn reference(&self) -> LeaseReference;
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseReference {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum LockError {
    #[error("{0}")]
    Client(#[from] ClientError),
    #[error("lease not initialized, call get or create first")]
    NotRead,
    #[error("the response is not a Lease: {0}")]
    Unreadable(String),
}

impl LockError {
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Client(error) if error.status().is_some_and(Status::is_not_found))
    }

    /// True if the write certainly had no effect.
    pub fn is_without_effect(&self) -> bool {
        match self {
            Self::Client(error) => {
                error.is_unsent() || error.status().is_some_and(|status| status.code() < 500)
            }
            Self::NotRead => true,
            Self::Unreadable(_) => false,
        }
    }
}

/// A Lease, as this process last read or wrote it.
///
/// Updates write back fields that this daemon does not know, since other programs may use them.
///
/// DIFFERS: upstream writes back the fields of its own types only, and drops `preferredHolder` and
/// `strategy` with each renewal.
pub struct LeaseLock {
    client: Client,
    namespace: String,
    name: String,
    lease: Option<Value>,
}

impl LeaseLock {
    /// The Lease that `options` name. `client` should serve no other purpose, have no fence, and
    /// have the timeout [`LeaderElectionOptions::request_timeout`].
    pub fn new(client: Client, options: &LeaderElectionOptions) -> Self {
        Self {
            client,
            namespace: options.namespace.clone(),
            name: options.name.clone(),
            lease: None,
        }
    }

    fn collection(&self) -> String {
        let namespace = &self.namespace;
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }

    fn send(&mut self, request: Request) -> Result<LeaderElectionRecord, LockError> {
        let Response { body, .. } = self.client.send(&request.once())?;
        let unreadable = |error: serde_json::Error| LockError::Unreadable(error.to_string());
        let lease: Value = serde_json::from_slice(&body).map_err(unreadable)?;
        if !lease["metadata"].is_object() {
            return Err(LockError::Unreadable("it has no metadata".to_owned()));
        }
        let record = LeaderElectionRecord::from_spec(lease.get("spec")).map_err(unreadable)?;
        self.lease = Some(lease);
        Ok(record)
    }
}

impl Lock for LeaseLock {
    fn get(&mut self, limit: Duration) -> Result<LeaderElectionRecord, LockError> {
        self.send(Request::get(self.path()).timeout(limit))
    }

    fn create(&mut self, record: &LeaderElectionRecord, limit: Duration) -> Result<(), LockError> {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": self.namespace, "name": self.name},
        });
        let body = with_record(lease, record);
        let request = Request::post(self.collection()).body("application/json", body);
        self.send(request.timeout(limit)).map(|_| ())
    }

    fn update(&mut self, record: &LeaderElectionRecord, limit: Duration) -> Result<(), LockError> {
        let lease = self.lease.clone().ok_or(LockError::NotRead)?;
        let body = with_record(lease, record);
        let request = Request::put(self.path()).body("application/json", body);
        self.send(request.timeout(limit)).map(|_| ())
    }

    fn reference(&self) -> LeaseReference {
        let metadata = |name: &str| {
            let lease = self.lease.as_ref();
            let value = lease.and_then(|lease| lease["metadata"][name].as_str());
            value.unwrap_or_default().to_owned()
        };
        LeaseReference {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: metadata("uid"),
            resource_version: metadata("resourceVersion"),
        }
    }
}

/// Returns `lease` as JSON with this record. A `spec` that is not a map becomes one.
fn with_record(mut lease: Value, record: &LeaderElectionRecord) -> Vec<u8> {
    let spec = &mut lease["spec"];
    if !spec.is_object() {
        *spec = Value::Object(Map::new());
    }
    record.write_into(spec.as_object_mut().expect("it is a map"));
    lease.to_string().into_bytes()
}
