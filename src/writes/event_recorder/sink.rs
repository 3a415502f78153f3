//! Where events go. The thread `events` calls it, one event at a time.

use std::fmt::Debug;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

use super::event::Event;
use crate::api::Status;

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
    Refused(Box<Status>),
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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    metadata: AnswerMetadata,
    first_timestamp: Option<Time>,
    count: Option<u32>,
}

#[derive(Deserialize)]
struct AnswerMetadata {
    name: String,
}

impl Recorded {
    /// Reads the server's answer to `event`; what the answer lacks is as it was sent.
    ///
    /// # Errors
    /// [`SinkError::NoAnswer`] if the answer is no event.
    pub fn from_answer(event: &Event, body: &[u8]) -> Result<Self, SinkError> {
        let answer: Answer = serde_json::from_slice(body).map_err(|error| {
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
