//! Metadata of objects and lists (apimachinery `pkg/apis/meta/v1/generated.proto`), and `Status`.

use std::borrow::Cow;
use std::sync::Arc;

use arcstr::ArcStr;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    Status as StatusObject, StatusCause, StatusDetails,
};
use prost::Message;

use super::{Envelope, Field, Fields, ProtobufError, fields_of, text};
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
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnerReference<'a> {
    kind: &'a [u8],
    name: &'a [u8],
    uid: &'a [u8],
    pub is_controller: bool,
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

impl<'a> OwnerReference<'a> {
    pub const KIND: u32 = 1;
    pub const NAME: u32 = 3;
    pub const UID: u32 = 4;
    pub const API_VERSION: u32 = 5;
    pub const CONTROLLER: u32 = 6;
    pub const BLOCK_OWNER_DELETION: u32 = 7;

    pub fn read(message: &'a [u8]) -> Result<Self, ProtobufError> {
        let mut reference = Self::default();
        for field in Fields::of(message) {
            let field = field?;
            match field.tag {
                Self::KIND => reference.kind = field.length_delimited()?,
                Self::NAME => reference.name = field.length_delimited()?,
                Self::UID => reference.uid = field.length_delimited()?,
                Self::CONTROLLER => reference.is_controller = field.varint()? != 0,
                _ => {}
            }
        }
        Ok(reference)
    }

    pub fn uid(&self) -> Uid {
        Uid::new(&String::from_utf8_lossy(self.uid))
    }
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
    let reference = OwnerReference::read(reference)?;
    let share = || {
        let kind = interner.text(&String::from_utf8_lossy(reference.kind));
        interner.owner(ControllerRef {
            kind,
            name: ArcStr::from(String::from_utf8_lossy(reference.name)),
            uid: reference.uid(),
        })
    };
    Ok(reference.is_controller.then(share))
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

/// Decodes a `Status` with its envelope; returns `None` for another kind.
pub fn read_status(bytes: &[u8]) -> Result<Option<StatusObject>, ProtobufError> {
    let envelope = Envelope::open(bytes)?;
    if envelope.kind != "Status" {
        return Ok(None);
    }
    let mut status = StatusObject::default();
    for field in Fields::of(envelope.raw) {
        let field = field?;
        match field.tag {
            2 => status.status = Some(any_text(field)),
            3 => status.message = Some(any_text(field)),
            4 => status.reason = Some(any_text(field)),
            5 => status.details = Some(details_in(field.bytes)?),
            6 => status.code = number(field),
            _ => {}
        }
    }
    Ok(Some(status))
}

fn details_in(message: &[u8]) -> Result<StatusDetails, ProtobufError> {
    let mut details = StatusDetails::default();
    for field in Fields::of(message) {
        let field = field?;
        match field.tag {
            1 => details.name = Some(any_text(field)),
            2 => details.group = Some(any_text(field)),
            3 => details.kind = Some(any_text(field)),
            4 => details
                .causes
                .get_or_insert_default()
                .push(cause_in(field.bytes)?),
            5 => details.retry_after_seconds = number(field),
            6 => details.uid = Some(any_text(field)),
            _ => {}
        }
    }
    Ok(details)
}

fn cause_in(message: &[u8]) -> Result<StatusCause, ProtobufError> {
    let mut cause = StatusCause::default();
    for field in Fields::of(message) {
        let field = field?;
        match field.tag {
            1 => cause.reason = Some(any_text(field)),
            2 => cause.message = Some(any_text(field)),
            3 => cause.field = Some(any_text(field)),
            _ => {}
        }
    }
    Ok(cause)
}

/// A message may quote bytes of the request, which need not be UTF-8.
fn any_text(field: Field<'_>) -> String {
    field.lossy().into_owned()
}

/// This encoding writes an absent number as zero.
fn number(field: Field<'_>) -> Option<i32> {
    let number = i32::try_from(field.number.cast_signed()).ok();
    number.filter(|number| *number != 0)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use prost::Message;

    use super::Time;
    use crate::api::Status;
    use crate::api::protobuf::{Envelope, put_bytes};

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
        let [mut cause, mut details, mut message] = [const { Vec::new() }; 3];
        put_bytes(1, b"NamespaceTerminating", &mut cause);
        put_bytes(4, cause, &mut details);
        details.extend_from_slice(&[5 << 3, 3]);
        put_bytes(2, b"Failure", &mut message);
        put_bytes(3, b"namespace \xff is being terminated", &mut message);
        put_bytes(4, b"Forbidden", &mut message);
        put_bytes(5, details, &mut message);
        // 403.
        message.extend_from_slice(&[6 << 3, 0x93, 3]);
        Envelope::seal_raw("v1", kind, &message)
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
