//! Kubernetes events: aggregated, counted, filtered, and sent on a separate thread.
//!
//! Callers use [`queued`], which never blocks. The thread `events` runs [`worker`], which passes
//! each event through [`correlator`] and sends the result to a [`sink`].

pub mod correlator;
pub mod event;
pub mod queued;
pub mod sink;
pub mod worker;

#[cfg(test)]
mod tests;

pub use event::Event;
pub use queued::{EventOptions, EventRecorder, EventStats};
pub use sink::{ClientEventSink, EventSink, Recorded, SinkError};
pub use worker::{EventWorker, event_recorder};

use crate::api::{ObjectKey, ResourceVersion, Uid};

/// The object of an event: `involvedObject`.
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
    /// `fieldPath`; empty for the whole object.
    pub field_path: &'static str,
}

/// `type` of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Normal operation.
    Normal,
    /// A problem that needs attention.
    Warning,
}

impl EventType {
    /// The value in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}
