//! Where events go: to the API server, or in tests to whatever stands in for it. The thread `events`
//! calls it, one event at a time.

use std::fmt::Debug;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

use super::event::Event;
use crate::api::Status;
use crate::client::{Client, ClientError, Request};
use crate::stdx::report::report;

/// How long the server may take to answer for one event: short, so that at the stop a server that
/// hangs costs the daemon a small part of its time.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Stores events. Each call blocks for one request.
pub trait EventSink: Debug + Send {
    /// Stores a new event.
    ///
    /// # Errors
    /// As [`SinkError`] says.
    fn create(&self, event: &Event) -> Result<Recorded, SinkError>;

    /// Changes count, time and message of the event of this name.
    ///
    /// # Errors
    /// As [`SinkError`] says.
    fn patch(&self, event: &Event) -> Result<Recorded, SinkError>;
}

/// An event as the server has it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Its name.
    pub name: String,
    /// When it was first seen.
    pub first_timestamp: Timestamp,
    /// How often it was seen.
    pub count: u32,
}

/// An event that was not stored.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The API server said no, and would again.
    #[error("{0}")]
    Refused(Status),
    /// No request can be made of it.
    #[error("{0}")]
    Local(String),
    /// No answer, or none that makes sense. Trying again may help.
    #[error("{0}")]
    NoAnswer(String),
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
                Self::NoAnswer(report(&error))
            }
        }
    }
}

/// Writes events to the API server.
#[derive(Clone, Debug)]
pub struct ClientEventSink {
    client: Client,
}

impl ClientEventSink {
    /// Sends by `client`, which should have a throttle of its own, so that events never slow pods.
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
        let request = request.body(content_type, body).timeout(REQUEST_TIMEOUT);
        Recorded::from_answer(event, &self.client.send(&request)?.body)
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
    /// Reads the server's answer to `event`; what the answer lacks is as it was sent.
    ///
    /// # Errors
    /// [`SinkError::NoAnswer`] if the answer is no event.
    pub fn from_answer(event: &Event, body: &[u8]) -> Result<Self, SinkError> {
        let answer: StoredEvent = serde_json::from_slice(body).map_err(|error| {
            SinkError::NoAnswer(format!("the answer is not the event: {error}"))
        })?;
        Ok(Self {
            name: answer.metadata.name,
            first_timestamp: answer
                .first_timestamp
                .map_or(event.first_timestamp, |time| time.0),
            count: answer.count.unwrap_or(event.count),
        })
    }
}
