//! Kubernetes events: aggregated, counted, filtered, and sent on a separate thread.
//!
//! Callers put events into a bounded queue, which never blocks. The thread `events` runs
//! [`worker`], which passes each event through [`correlator`] and sends the result to an
//! [`EventSink`].

pub mod correlator;
pub mod worker;

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::Sender;
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Serialize};

use self::correlator::Occurrence;
use crate::api::object_key::is_subdomain;
use crate::api::{ObjectKey, ResourceVersion, Uid};
use crate::client::{Client, ClientError, Request};
use crate::stdx::clock::Clock;
use crate::stdx::escape::shortened;
use crate::stdx::random_uuid;
use crate::stdx::turns::Spot;

pub use worker::{EventWorker, event_recorder};

/// The object of an event: `involvedObject`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ObjectReference {
    pub api_version: &'static str,
    pub kind: &'static str,
    pub key: ObjectKey,
    pub uid: Uid,
    pub resource_version: ResourceVersion,
    /// `fieldPath`; empty for the whole object.
    pub field_path: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    Normal,
    Warning,
}

impl EventType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Namespace of events about cluster-scoped objects (apimachinery
/// `pkg/apis/meta/v1/types.go:NamespaceDefault`).
const NAMESPACE_DEFAULT: &str = "default";

/// The fields of a core/v1 event that this daemon sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub name: String,
    pub object: ObjectReference,
    pub type_: EventType,
    pub reason: &'static str,
    pub message: Arc<str>,
    /// The reporter: `source.component`.
    pub component: &'static str,
    pub reporting_component: &'static str,
    pub first_timestamp: Timestamp,
    pub last_timestamp: Timestamp,
    pub count: u32,
}

/// The fields that a repeat changes in the stored event.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CountPatch<'a> {
    count: u32,
    last_timestamp: Time,
    /// Omitted if empty, as in upstream's diff against an event with an empty message.
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
}

const TEXT_KEYS: &str = "JSON values have text keys";

impl Event {
    /// `metadata.namespace`: the object's namespace, or `default` for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        match &*self.object.key.namespace {
            "" => NAMESPACE_DEFAULT,
            namespace => namespace,
        }
    }

    /// The strategic merge patch for a repeat: upstream's diff between this event and the same
    /// event without count, time and message (client-go
    /// `tools/record/events_cache.go:eventObserve`).
    pub fn to_patch(&self) -> Vec<u8> {
        let patch = CountPatch {
            count: self.count,
            last_timestamp: Time(self.last_timestamp),
            message: &self.message,
        };
        serde_json::to_vec(&patch).expect(TEXT_KEYS)
    }

    /// The complete event, for a create.
    pub fn to_json(&self) -> Vec<u8> {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let ObjectReference { key, .. } = &self.object;
        let event = core::Event {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace().to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: core::ObjectReference {
                api_version: some(self.object.api_version),
                kind: some(self.object.kind),
                namespace: some(&key.namespace),
                name: some(&key.name),
                uid: some(&self.object.uid.to_string()),
                resource_version: some(&self.object.resource_version.to_string()),
                field_path: some(self.object.field_path),
            },
            type_: Some(self.type_.as_str().to_owned()),
            reason: Some(self.reason.to_string()),
            message: Some(self.message.to_string()),
            source: Some(core::EventSource {
                component: Some(self.component.to_owned()),
                host: None,
            }),
            reporting_component: Some(self.reporting_component.to_owned()),
            reporting_instance: Some(String::new()),
            first_timestamp: Some(Time(self.first_timestamp)),
            last_timestamp: Some(Time(self.last_timestamp)),
            count: Some(i32::try_from(self.count).unwrap_or(i32::MAX)),
            ..core::Event::default()
        };
        serde_json::to_vec(&event).expect(TEXT_KEYS)
    }
}

/// Generates the name of an event about the object `involved`: that name plus the time in
/// nanoseconds, or a random UUID if the result is not a valid name (client-go
/// `tools/record/util/util.go:GenerateEventName`).
pub fn generate_event_name(involved: &str, unix_nanos: i128) -> String {
    let name = format!("{involved}.{unix_nanos:x}");
    if is_subdomain(&name) {
        name
    } else {
        random_uuid()
    }
}

/// Queue size; the recorder drops and counts events beyond it (apimachinery `pkg/watch/mux.go`,
/// client-go `tools/record/event.go:maxQueuedEvents`).
const QUEUE_MAX: usize = 1000;

#[derive(Clone, Copy, Debug)]
pub struct EventOptions {
    /// The reporting component, such as `replicaset-controller`.
    pub component: &'static str,
    pub retry_delay: Duration,
}

impl EventOptions {
    /// Upstream's value: 10 s between attempts (client-go
    /// `tools/record/event.go:defaultSleepDuration`).
    pub fn new(component: &'static str) -> Self {
        Self {
            component,
            retry_delay: Duration::from_secs(10),
        }
    }
}

/// Accepts events without blocking the caller, and passes them to the thread `events`.
#[derive(Debug)]
pub struct EventRecorder {
    /// Bounded by `QUEUE_MAX`. When it is full, the recorder drops and counts
    /// events.
    sender: Sender<Occurrence>,
    pub counters: Arc<Counters>,
    clock: Arc<dyn Clock>,
}

impl EventRecorder {
    /// Records one event about `object`. If the queue is full, drops and counts it.
    pub fn event(
        &self,
        object: &ObjectReference,
        type_: EventType,
        reason: &'static str,
        message: &str,
    ) {
        let message: Arc<str> = shortened(message.into()).into();
        log::debug!(
            "event {} {reason} {}={}: {message}",
            type_.as_str(),
            object.kind.to_ascii_lowercase(),
            object.key
        );
        let occurrence = Occurrence {
            object: object.clone(),
            type_,
            reason,
            message,
            at: self.clock.wall(),
        };
        match self.sender.try_send(occurrence) {
            Ok(()) => self.counters.arrived.wake(),
            Err(error) => self.counters.dropped(error.is_full()),
        }
    }
}

/// The counters that recorder and worker share.
#[derive(Debug, Default)]
pub struct Counters {
    /// Stored by the API server.
    pub written: AtomicU64,
    /// Filtered because there were too many about one object.
    pub filtered: AtomicU64,
    pub failed: AtomicU64,
    /// Dropped because the queue was full or the thread had ended.
    pub dropped: AtomicU64,
    /// Where the thread `events` of a simulation waits.
    arrived: Spot,
    /// Set from the first dropped event until the thread has emptied the queue, to log a flood only
    /// once.
    is_dropping: AtomicBool,
}

impl Counters {
    /// Counts a dropped event; `is_full` distinguishes a full queue from an ended thread.
    fn dropped(&self, is_full: bool) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        if is_full && !self.is_dropping.swap(true, Ordering::Relaxed) {
            log::warn!("the event queue is full; events may be dropped until it is empty");
        }
    }

    /// Ends the dropping state once the queue is empty.
    fn end_of_burst(&self, is_empty: bool) {
        if is_empty && self.is_dropping.swap(false, Ordering::Relaxed) {
            let n_dropped = self.dropped.load(Ordering::Relaxed);
            log::warn!("the event queue is empty again; {n_dropped} events dropped so far");
        }
    }
}

/// Stores events. Each call blocks for one request.
pub trait EventSink: Send {
    fn create(&self, event: &Event) -> Result<Recorded, ClientError>;

    /// Updates count, time and message of the event of this name.
    fn patch(&self, event: &Event) -> Result<Recorded, ClientError>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub name: String,
    pub first_timestamp: Timestamp,
    pub count: u32,
}

#[derive(Clone)]
pub struct ClientEventSink {
    client: Client,
}

impl ClientEventSink {
    /// Sends through `client`, which should have its own throttle, so that events never delay pod
    /// writes.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    fn send(&self, event: &Event, request: Request) -> Result<Recorded, ClientError> {
        // The worker retries by itself, and a stop must not wait for long.
        let request = request.retried_briefly();
        Recorded::from_response(event, &self.client.send(&request)?.body)
    }
}

impl EventSink for ClientEventSink {
    fn create(&self, event: &Event) -> Result<Recorded, ClientError> {
        let request = Request::post(events_path(event));
        self.send(event, request.body("application/json", event.to_json()))
    }

    fn patch(&self, event: &Event) -> Result<Recorded, ClientError> {
        let request = Request::patch(format!("{}/{}", events_path(event), event.name));
        let content_type = "application/strategic-merge-patch+json";
        self.send(event, request.body(content_type, event.to_patch()))
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
    pub fn from_response(event: &Event, body: &[u8]) -> Result<Self, ClientError> {
        let stored: StoredEvent = serde_json::from_slice(body)?;
        Ok(Self {
            name: stored.metadata.name,
            first_timestamp: stored
                .first_timestamp
                .map_or(event.first_timestamp, |time| time.0),
            count: stored.count.filter(|n| *n > 0).unwrap_or(event.count),
        })
    }
}

#[cfg(test)]
mod tests;
