//! Events for people: aggregated, counted, filtered, and sent from a thread of their own.

use std::fmt::Debug;

use crate::api::{ObjectKey, ResourceVersion, Uid};

/// Takes events without ever blocking the caller.
pub trait EventRecorder: Debug + Send + Sync {
    /// Records one event about `object`; dropped (and counted) if the queue is full.
    fn event(&self, object: &ObjectReference, type_: EventType, reason: &str, message: String);
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
