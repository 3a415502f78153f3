//! The interface between the election and its Lease, which tests fake, and the Lease at the API
//! server (client-go `tools/leaderelection/resourcelock/leaselock.go`). Called on the thread
//! `lease`; each call blocks for one request.

use std::fmt::Debug;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::LeaderElectionOptions;
use super::election::LeaderElectionRecord;
use crate::api::{ObjectKey, ResourceVersion, Uid};
use crate::client::{Client, ClientError, Request, Response};

/// The object that names the leader. Each call blocks for one request, for at most `limit` or
/// slightly longer.
pub trait Lock: Send {
    fn get(&mut self, limit: Duration) -> Result<LeaderElectionRecord, ClientError>;

    fn create(&mut self, record: &LeaderElectionRecord, limit: Duration)
    -> Result<(), ClientError>;

    /// Updates the object, on condition that it still has the version last read or written here.
    fn update(&mut self, record: &LeaderElectionRecord, limit: Duration)
    -> Result<(), ClientError>;

    /// The reference for events, from the object as last read or written here.
    fn reference(&self) -> LeaseReference;
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseReference {
    pub key: ObjectKey,
    pub uid: Uid,
    pub resource_version: ResourceVersion,
}

/// A Lease, as this process last read or wrote it.
///
/// Updates write back fields that this daemon does not know, since other programs may use them.
///
/// DIFFERS: upstream writes back the fields of its own types only, and drops `preferredHolder` and
/// `strategy` with each renewal.
pub struct LeaseLock {
    client: Client,
    key: ObjectKey,
    lease: Option<Value>,
}

impl LeaseLock {
    /// The Lease that `options` name. `client` should serve no other purpose, have no fence, and
    /// have the timeout [`LeaderElectionOptions::request_timeout`].
    pub fn new(client: Client, options: &LeaderElectionOptions) -> Self {
        Self {
            client,
            key: options.lease.clone(),
            lease: None,
        }
    }

    fn collection(&self) -> String {
        let namespace = &self.key.namespace;
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.key.name)
    }

    fn send(&mut self, request: Request) -> Result<LeaderElectionRecord, ClientError> {
        let Response { body, .. } = self.client.send(&request.once())?;
        let lease: Value = serde_json::from_slice(&body)?;
        if !lease["metadata"].is_object() {
            return Err(ClientError::Decode("it has no metadata".to_owned()));
        }
        let record = LeaderElectionRecord::from_spec(lease.get("spec"))?;
        self.lease = Some(lease);
        Ok(record)
    }
}

impl Lock for LeaseLock {
    fn get(&mut self, limit: Duration) -> Result<LeaderElectionRecord, ClientError> {
        self.send(Request::get(self.path()).timeout(limit))
    }

    fn create(
        &mut self,
        record: &LeaderElectionRecord,
        limit: Duration,
    ) -> Result<(), ClientError> {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": &*self.key.namespace, "name": &*self.key.name},
        });
        let body = with_record(lease, record);
        let request = Request::post(self.collection()).body("application/json", body);
        self.send(request.timeout(limit)).map(|_| ())
    }

    fn update(
        &mut self,
        record: &LeaderElectionRecord,
        limit: Duration,
    ) -> Result<(), ClientError> {
        let lease = self.lease.clone().ok_or_else(not_read)?;
        let body = with_record(lease, record);
        let request = Request::put(self.path()).body("application/json", body);
        self.send(request.timeout(limit)).map(|_| ())
    }

    fn reference(&self) -> LeaseReference {
        let metadata = |name: &str| {
            let lease = self.lease.as_ref();
            let value = lease.and_then(|lease| lease["metadata"][name].as_str());
            value.unwrap_or_default()
        };
        LeaseReference {
            key: self.key.clone(),
            uid: metadata("uid").into(),
            resource_version: metadata("resourceVersion").into(),
        }
    }
}

pub(super) fn not_read() -> ClientError {
    ClientError::Invalid("lease not initialized, call get or create first".to_owned())
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
