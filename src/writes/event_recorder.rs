//! Events for people: aggregated, counted, filtered, and sent from a thread of their own.
//!
//! Callers meet [`queued`], which never blocks; the thread `events` runs [`worker`], which asks
//! [`correlator`] what to send and sends it to a [`sink`].

pub mod correlator;
pub mod event;
pub mod queued;
pub mod sink;
pub mod worker;

#[cfg(test)]
mod tests;

use std::fmt::Debug;

pub use event::Event;
pub use queued::{EventOptions, EventStats, QueuedEventRecorder};
pub use sink::{ClientEventSink, EventSink, Recorded, SinkError};
pub use worker::{EventWorker, event_recorder};

use crate::api::{ObjectKey, ResourceVersion, Uid};

/// Takes events without ever blocking the caller.
pub trait EventRecorder: Debug + Send + Sync {
    /// Records one event about `object`; dropped (and counted) if the queue is full.
    fn event(
        &self,
        object: &ObjectReference,
        type_: EventType,
        reason: &'static str,
        message: String,
    );
}

/// What an event is about: `involvedObject`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ObjectReference {
    /// `apiVersion`.
    pub api_version: &'static str,
    /// `kind`.
    pub kind: &'static str,
    /// Namespace and name.
    pub key: ObjectKey,
    /// `uid`.
    pub uid: Uid,
    /// `resourceVersion`.
    pub resource_version: ResourceVersion,
    /// `fieldPath`; empty for the object as a whole.
    pub field_path: &'static str,
}

/// `type` of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// All is well.
    Normal,
    /// Something needs a look.
    Warning,
}

impl EventType {
    /// The word in an event.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}
