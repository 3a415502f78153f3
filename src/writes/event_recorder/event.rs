//! One event with its name and its JSON. Pure.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Serialize;

use super::{EventType, ObjectReference};
use crate::stdx::uuid::random_uuid;

/// Namespace of events about cluster-scoped objects (apimachinery
/// `pkg/apis/meta/v1/types.go:NamespaceDefault`).
const NAMESPACE_DEFAULT: &str = "default";

/// Maximum length of an object's name, a DNS subdomain, in bytes (apimachinery
/// `pkg/util/validation/validation.go:DNS1123SubdomainMaxLength`).
const NAME_BYTES_MAX: usize = 253;

/// The fields of a core/v1 event that this daemon sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `metadata.name`.
    pub name: String,
    /// `involvedObject`.
    pub object: ObjectReference,
    /// `type`.
    pub type_: EventType,
    /// A machine-readable reason in one word.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: Arc<str>,
    /// The reporter: `source.component`.
    pub component: &'static str,
    /// `reportingComponent`.
    pub reporting_component: &'static str,
    /// Time of the first occurrence.
    pub first_timestamp: Timestamp,
    /// Time of the last occurrence.
    pub last_timestamp: Timestamp,
    /// Number of occurrences.
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

impl Event {
    /// `metadata.namespace`: the object's namespace, or `default` for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        match &*self.object.key.namespace {
            "" => NAMESPACE_DEFAULT,
            namespace => namespace,
        }
    }

    /// The complete event, for a create.
    ///
    /// # Errors
    /// If serialization to JSON fails.
    pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&self.to_object())
    }

    /// The strategic merge patch for a repeat: upstream's diff between this event and the same
    /// event without count, time and message (client-go
    /// `tools/record/events_cache.go:eventObserve`).
    ///
    /// # Errors
    /// If serialization to JSON fails.
    pub fn to_patch(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&CountPatch {
            count: self.count,
            last_timestamp: Time(self.last_timestamp),
            message: &self.message,
        })
    }

    fn to_object(&self) -> core::Event {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let ObjectReference { key, .. } = &self.object;
        core::Event {
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
        }
    }
}

/// Generates the name of an event about the object `involved`: that name plus the time in
/// nanoseconds, or a random UUID if the result is not a valid name (client-go
/// `tools/record/util/util.go:GenerateEventName`).
pub fn generate_event_name(involved: &str, unix_nanos: i128) -> String {
    let name = format!("{involved}.{unix_nanos:x}");
    if is_dns_subdomain(&name) {
        name
    } else {
        random_uuid()
    }
}

/// Checks for lower-case letters, digits and dashes in labels separated by dots; no label may start
/// or end with a dash.
fn is_dns_subdomain(name: &str) -> bool {
    let is_alphanumeric = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        let inside = |c: &u8| is_alphanumeric(*c) || *c == b'-';
        let ends = [bytes.first(), bytes.last()];
        bytes.iter().all(inside) && ends.iter().all(|c| c.is_some_and(|c| is_alphanumeric(*c)))
    };
    name.len() <= NAME_BYTES_MAX && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::{generate_event_name, is_dns_subdomain};

    #[test]
    fn k_14_the_name_is_object_and_time_or_a_uuid() {
        let name = |involved: &str| generate_event_name(involved, 105_999_103_295_324_396);
        assert_eq!(name("test-pod"), "test-pod.178959f726d80ec");
        let long = "a".repeat(300);
        for involved in [
            &long,
            "Test-Pod",
            "test_pod",
            "-test-pod",
            "pod-",
            "a..b",
            "",
            "ü",
        ] {
            let name = name(involved);
            assert!(is_dns_subdomain(&name), "{involved} became {name}");
            assert_eq!(name.len(), 36);
        }
    }
}
