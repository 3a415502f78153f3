//! The destination of events: the API server, or a fake in tests. The thread `events` calls it, one
//! event at a time.

use std::fmt::Debug;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

use super::event::Event;
use crate::api::Status;
use crate::client::{Client, ClientError, Request};
use crate::stdx::report::report;

/// Stores events. Each call blocks for one request.
pub trait EventSink: Debug + Send {
    /// Stores a new event.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn create(&self, event: &Event) -> Result<Recorded, SinkError>;

    /// Updates count, time and message of the event of this name.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn patch(&self, event: &Event) -> Result<Recorded, SinkError>;
}

/// An event as the API server stored it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Name of the event.
    pub name: String,
    /// Time of the first occurrence.
    pub first_timestamp: Timestamp,
    /// Number of occurrences.
    pub count: u32,
}

/// Why an event was not stored.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The API server rejected it; a retry would fail too.
    #[error("{0}")]
    Refused(Status),
    /// The request cannot be built.
    #[error("{0}")]
    Local(String),
    /// No response, or an unreadable one. A retry may succeed.
    #[error("{0}")]
    NoResponse(String),
    /// The daemon is stopping; no request was sent.
    #[error("the daemon is stopping")]
    Stopped,
}

impl From<ClientError> for SinkError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Status(status) => Self::Refused(status),
            ClientError::Invalid(message) => Self::Local(message),
            ClientError::Stopped | ClientError::Fenced => Self::Stopped,
            ClientError::Transport(_) | ClientError::Decode(_) | ClientError::Credentials(_) => {
                Self::NoResponse(report(&error))
            }
        }
    }
}

/// Sends events to the API server.
#[derive(Clone, Debug)]
pub struct ClientEventSink {
    client: Client,
}

impl ClientEventSink {
    /// Sends through `client`, which should have its own throttle, so that events never delay pod
    /// writes.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    fn send(
        &self,
        event: &Event,
        request: Request,
        content_type: &'static str,
        body: serde_json::Result<Vec<u8>>,
    ) -> Result<Recorded, SinkError> {
        let body = body.map_err(|error| SinkError::Local(report(&error)))?;
        let request = request.body(content_type, body);
        // The worker retries by itself, and a stop must not wait for long.
        let request = request.retried_briefly();
        Recorded::from_response(event, &self.client.send(&request)?.body)
    }
}

impl EventSink for ClientEventSink {
    fn create(&self, event: &Event) -> Result<Recorded, SinkError> {
        let request = Request::post(events_path(event));
        self.send(event, request, "application/json", event.to_json())
    }

    fn patch(&self, event: &Event) -> Result<Recorded, SinkError> {
        let request = Request::patch(format!("{}/{}", events_path(event), event.name));
        let content_type = "application/strategic-merge-patch+json";
        self.send(event, request, content_type, event.to_patch())
    }
}

fn events_path(event: &Event) -> String {
    format!("/api/v1/namespaces/{}/events", event.namespace())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredEvent {
    metadata: StoredMetadata,
    first_timestamp: Option<Time>,
    count: Option<u32>,
}

#[derive(Deserialize)]
struct StoredMetadata {
    name: String,
}

impl Recorded {
    /// Decodes the server's response to `event`; missing fields keep the sent values.
    ///
    /// # Errors
    /// [`SinkError::NoResponse`] if the response is not an event.
    pub fn from_response(event: &Event, body: &[u8]) -> Result<Self, SinkError> {
        let stored: StoredEvent = serde_json::from_slice(body).map_err(|error| {
            SinkError::NoResponse(format!("the response is not an event: {error}"))
        })?;
        Ok(Self {
            name: stored.metadata.name,
            first_timestamp: stored
                .first_timestamp
                .map_or(event.first_timestamp, |time| time.0),
            count: stored.count.filter(|n| *n > 0).unwrap_or(event.count),
        })
    }
}
