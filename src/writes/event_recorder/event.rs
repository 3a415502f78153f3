//! One event as it will stand in the cluster, its name and its JSON. Pure.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Serialize;

use super::{EventType, ObjectReference};

/// Where events about objects without a namespace live
/// (apimachinery `pkg/apis/meta/v1/types.go:NamespaceDefault`).
const NAMESPACE_DEFAULT: &str = "default";

/// An object's name is a DNS subdomain of up to this many bytes
/// (apimachinery `pkg/util/validation/validation.go:DNS1123SubdomainMaxLength`).
const NAME_BYTES_MAX: usize = 253;

/// An event of core/v1, as far as this daemon fills it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `metadata.name`.
    pub name: String,
    /// `involvedObject`.
    pub object: ObjectReference,
    /// `type`.
    pub type_: EventType,
    /// One word for machines.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: Arc<str>,
    /// Who says so: `source.component`.
    pub component: &'static str,
    /// `reportingComponent`.
    pub reporting_component: &'static str,
    /// When this was first seen.
    pub first_timestamp: Timestamp,
    /// When this was last seen.
    pub last_timestamp: Timestamp,
    /// How often this was seen.
    pub count: u32,
}

/// What a repeated event changes of the one that is stored.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CountPatch<'a> {
    count: u32,
    last_timestamp: Time,
    /// An empty message is no change, as upstream's comparison with an empty one has it.
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
}

impl Event {
    /// `metadata.namespace`: that of the object, or `default` if it has none.
    pub fn namespace(&self) -> &str {
        match &*self.object.key.namespace {
            "" => NAMESPACE_DEFAULT,
            namespace => namespace,
        }
    }

    /// The whole event, for a create.
    ///
    /// # Errors
    /// If it cannot be written as JSON.
    pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&self.to_object())
    }

    /// What a repeat changes, as a strategic merge patch: upstream's difference between this event
    /// and the same one without count, time and message
    /// (client-go `tools/record/events_cache.go:eventObserve`).
    ///
    /// # Errors
    /// If it cannot be written as JSON.
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

/// The name of an event about the object `involved`: that name and the time in nanoseconds, or a
/// random UUID where that would be no valid name
/// (client-go `tools/record/util/util.go:GenerateEventName`).
pub fn generate_event_name(involved: &str, unix_nanos: i128) -> String {
    let name = format!("{involved}.{unix_nanos:x}");
    if is_dns_subdomain(&name) {
        name
    } else {
        random_uuid(fastrand::u128(..))
    }
}

/// Lower-case letters, digits and dashes, in parts divided by dots that begin and end with no dash.
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

/// `random` as a UUID of version 4.
fn random_uuid(random: u128) -> String {
    let versioned = random & !(0xf << 76) | 4 << 76;
    let bits = versioned & !(0b11 << 62) | 0b10 << 62;
    let hex = format!("{bits:032x}");
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::{generate_event_name, is_dns_subdomain, random_uuid};

    #[test]
    fn k_14_the_name_is_the_object_and_the_time_or_at_least_valid() {
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

    #[test]
    fn random_names_have_the_form_of_uuids() {
        assert_eq!(random_uuid(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(
            random_uuid(u128::MAX),
            "ffffffff-ffff-4fff-bfff-ffffffffffff"
        );
    }
}
