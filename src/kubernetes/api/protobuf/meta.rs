//! Metadata of objects and lists (apimachinery `pkg/apis/meta/v1/generated.proto`), and `Status`.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    Status as StatusObject, StatusCause, StatusDetails,
};
use prost::Message;

use super::{Envelope, ProtobufError, fields_of, text};
use crate::api::interner::Interner;
use crate::api::object_key::ControllerRef;
use crate::api::{CompactTimestamp, Labels, Uid};

#[derive(Clone, PartialEq, Message)]
pub struct ObjectMeta {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub namespace: String,
    #[prost(string, tag = "5")]
    pub uid: String,
    #[prost(string, tag = "6")]
    pub resource_version: String,
    #[prost(int64, tag = "7")]
    pub generation: i64,
    #[prost(message, optional, tag = "8")]
    pub creation: Option<Time>,
    #[prost(message, optional, tag = "9")]
    pub deletion: Option<Time>,
}

/// One entry of `metadata.ownerReferences`. The API server checks only that its texts are not
/// empty, so they may not be UTF-8.
#[derive(Clone, PartialEq, Message)]
pub struct OwnerReference {
    #[prost(bytes = "vec", tag = "1")]
    pub kind: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    pub name: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub uid: Vec<u8>,
    #[prost(bool, optional, tag = "6")]
    pub controller: Option<bool>,
}

/// `metadata` of a list.
#[derive(Clone, PartialEq, Message)]
pub struct ListMeta {
    #[prost(string, tag = "2")]
    pub resource_version: String,
    #[prost(string, tag = "3")]
    pub continue_token: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Time {
    /// Seconds since 1970. The API server writes them also if they are 0: an empty message is an
    /// absent time.
    #[prost(int64, optional, tag = "1")]
    pub seconds: Option<i64>,
    /// Additional nanoseconds.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// Field numbers, for partial decoding.
impl ObjectMeta {
    pub const NAME: u32 = 1;
    pub const GENERATE_NAME: u32 = 2;
    pub const NAMESPACE: u32 = 3;
    pub const UID: u32 = 5;
    pub const RESOURCE_VERSION: u32 = 6;
    pub const CREATION: u32 = 8;
    pub const DELETION: u32 = 9;
    pub const LABELS: u32 = 11;
    pub const ANNOTATIONS: u32 = 12;
    pub const OWNER_REFERENCES: u32 = 13;
    pub const FINALIZERS: u32 = 14;
    pub const MANAGED_FIELDS: u32 = 17;
}

/// Field numbers, for partial decoding.
impl OwnerReference {
    pub const KIND: u32 = 1;
    pub const NAME: u32 = 3;
    pub const UID: u32 = 4;
    pub const API_VERSION: u32 = 5;
    pub const CONTROLLER: u32 = 6;
    pub const BLOCK_OWNER_DELETION: u32 = 7;
}

impl From<Timestamp> for Time {
    /// Truncated to seconds, like the API server's timestamps (apimachinery
    /// `pkg/apis/meta/v1/time_proto.go:ProtoTime`).
    fn from(time: Timestamp) -> Self {
        Self {
            seconds: Some(time.as_second()),
            nanos: 0,
        }
    }
}

impl Time {
    /// The time in whole seconds, which is all that JSON has (apimachinery
    /// `pkg/apis/meta/v1/time_proto.go:Time.Unmarshal`); `None` for the empty message that encodes
    /// an absent time.
    pub fn compact(self) -> Option<CompactTimestamp> {
        (self != Self::default()).then(|| CompactTimestamp::from_second(self.seconds.unwrap_or(0)))
    }
}

/// The controller in one owner reference, if it names one.
pub(in crate::api) fn controller_in(
    reference: &[u8],
    interner: &mut Interner,
) -> Result<Option<Arc<ControllerRef>>, ProtobufError> {
    interner.controller_in(reference, |interner| {
        let reference = OwnerReference::decode(reference)?;
        let is_controller = reference.controller == Some(true);
        Ok(is_controller.then(|| share(&reference, interner)))
    })
}

/// The string map with this field number in a message.
pub(in crate::api) fn labels_in(message: &[u8], tag: u32) -> Result<Labels, ProtobufError> {
    let labels = fields_of(message, tag).map(|field| {
        let (key, value) = field?.entry()?;
        Ok((key, text(value)?))
    });
    labels.collect()
}

/// The annotations in `metadata`. The API server checks no value, so one may not be UTF-8.
pub fn annotations_in(
    metadata: &[u8],
) -> impl Iterator<Item = Result<(&str, Cow<'_, str>), ProtobufError>> {
    fields_of(metadata, ObjectMeta::ANNOTATIONS).map(|field| {
        let (key, value) = field?.entry()?;
        Ok((key, String::from_utf8_lossy(value)))
    })
}

fn share(reference: &OwnerReference, interner: &mut Interner) -> Arc<ControllerRef> {
    let text = |bytes| String::from_utf8_lossy(bytes);
    let kind = interner.text(&text(&reference.kind));
    interner.owner(ControllerRef {
        kind,
        name: Arc::from(&*text(&reference.name)),
        uid: Uid::new(&text(&reference.uid)),
    })
}

/// Decodes a `Status` with its envelope; returns `None` for another kind.
pub fn read_status(bytes: &[u8]) -> Result<Option<StatusObject>, ProtobufError> {
    let envelope = Envelope::open(bytes)?;
    if envelope.kind != "Status" {
        return Ok(None);
    }
    Ok(Some(StatusMessage::decode(envelope.raw)?.into_object()))
}

#[derive(Clone, PartialEq, Message)]
struct StatusMessage {
    #[prost(bytes = "vec", optional, tag = "2")]
    status: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "3")]
    message: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "4")]
    reason: Option<Vec<u8>>,
    #[prost(message, optional, tag = "5")]
    details: Option<DetailsMessage>,
    #[prost(int32, optional, tag = "6")]
    code: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct DetailsMessage {
    #[prost(bytes = "vec", optional, tag = "1")]
    name: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "2")]
    group: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "3")]
    kind: Option<Vec<u8>>,
    #[prost(message, repeated, tag = "4")]
    causes: Vec<CauseMessage>,
    #[prost(int32, optional, tag = "5")]
    retry_after_seconds: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "6")]
    uid: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct CauseMessage {
    #[prost(bytes = "vec", optional, tag = "1")]
    reason: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "2")]
    message: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "3")]
    field: Option<Vec<u8>>,
}

/// A message may quote bytes of the request, which need not be UTF-8.
fn optional_text(bytes: Option<Vec<u8>>) -> Option<String> {
    bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

impl StatusMessage {
    fn into_object(self) -> StatusObject {
        StatusObject {
            status: optional_text(self.status),
            message: optional_text(self.message),
            reason: optional_text(self.reason),
            details: self.details.map(DetailsMessage::into_object),
            // This encoding writes an absent number as zero.
            code: self.code.filter(|code| *code != 0),
            ..StatusObject::default()
        }
    }
}

impl DetailsMessage {
    fn into_object(self) -> StatusDetails {
        let causes = self.causes.into_iter().map(|cause| StatusCause {
            reason: optional_text(cause.reason),
            message: optional_text(cause.message),
            field: optional_text(cause.field),
        });
        let causes: Vec<StatusCause> = causes.collect();
        StatusDetails {
            name: optional_text(self.name),
            group: optional_text(self.group),
            kind: optional_text(self.kind),
            uid: optional_text(self.uid),
            causes: (!causes.is_empty()).then_some(causes),
            retry_after_seconds: self.retry_after_seconds.filter(|seconds| *seconds != 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use prost::Message;

    use super::{CauseMessage, DetailsMessage, StatusMessage, Time};
    use crate::api::Status;
    use crate::api::protobuf::Envelope;

    #[test]
    fn times_are_read_in_whole_seconds() {
        let time = |seconds, nanos| Time { seconds, nanos }.compact();
        assert_eq!(time(Some(7), 1), time(Some(7), 0));
        assert_eq!(time(Some(7), i32::MIN), time(Some(7), 0));
        let seconds = time(Some(7), 0).map(|time| time.timestamp().as_second());
        assert_eq!(seconds, Some(7));
    }

    #[test]
    fn only_an_empty_message_is_an_absent_time() {
        assert_eq!(Time::default().compact(), None);
        assert_eq!(Time::default().encoded_len(), 0);
        let epoch = Time::from(Timestamp::UNIX_EPOCH);
        assert_eq!(epoch.encode_to_vec(), [8, 0]);
        assert_eq!(epoch.compact(), Some(Timestamp::UNIX_EPOCH.into()));
    }

    fn sealed(kind: &str) -> Vec<u8> {
        let cause = CauseMessage {
            reason: Some(b"NamespaceTerminating".to_vec()),
            ..CauseMessage::default()
        };
        let message = StatusMessage {
            status: Some(b"Failure".to_vec()),
            message: Some(b"namespace \xff is being terminated".to_vec()),
            reason: Some(b"Forbidden".to_vec()),
            details: Some(DetailsMessage {
                causes: vec![cause],
                retry_after_seconds: Some(3),
                ..DetailsMessage::default()
            }),
            code: Some(403),
        };
        Envelope::seal_raw("v1", kind, &message.encode_to_vec())
    }

    #[test]
    fn a_status_decodes_as_in_json() {
        let status = Status::from_body(403, &sealed("Status"));
        assert_eq!((status.code(), status.reason()), (403, "Forbidden"));
        assert_eq!(status.to_string(), "namespace \u{fffd} is being terminated");
        assert!(status.is_namespace_terminating());
        assert_eq!(status.retry_after().map(|after| after.as_secs()), Some(3));
    }

    #[test]
    fn another_object_is_not_a_status() {
        let status = Status::from_body(500, &sealed("Pod"));
        assert_eq!(status.code(), 500);
        assert_eq!(
            status.to_string(),
            "the server responded with HTTP code 500 and a body that is not a Status"
        );
    }
}
