//! Metadata of objects and lists (apimachinery `pkg/apis/meta/v1/generated.proto`).

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use prost::Message;

use super::ProtobufError;
use super::wire::{fields_of, text};
use crate::api::interner::Interner;
use crate::api::owner_reference::ControllerRef;
use crate::api::{CompactTimestamp, Labels, Uid};

/// `metadata` of an object, without the lists, of which a user may write 100,000s of entries.
#[derive(Clone, PartialEq, Message)]
pub struct ObjectMeta {
    /// `name`.
    #[prost(string, tag = "1")]
    pub name: String,
    /// `namespace`.
    #[prost(string, tag = "3")]
    pub namespace: String,
    /// `uid`.
    #[prost(string, tag = "5")]
    pub uid: String,
    /// `resourceVersion`.
    #[prost(string, tag = "6")]
    pub resource_version: String,
    /// `generation`.
    #[prost(int64, tag = "7")]
    pub generation: i64,
    /// `creationTimestamp`.
    #[prost(message, optional, tag = "8")]
    pub creation: Option<Time>,
    /// `deletionTimestamp`.
    #[prost(message, optional, tag = "9")]
    pub deletion: Option<Time>,
}

/// One entry of `metadata.ownerReferences`. The API server checks only that its texts are not
/// empty, so they may not be UTF-8.
#[derive(Clone, PartialEq, Message)]
pub struct OwnerReference {
    /// `kind`.
    #[prost(bytes = "vec", tag = "1")]
    pub kind: Vec<u8>,
    /// `name`.
    #[prost(bytes = "vec", tag = "3")]
    pub name: Vec<u8>,
    /// `uid`.
    #[prost(bytes = "vec", tag = "4")]
    pub uid: Vec<u8>,
    /// `controller`.
    #[prost(bool, optional, tag = "6")]
    pub controller: Option<bool>,
}

/// `metadata` of a list.
#[derive(Clone, PartialEq, Message)]
pub struct ListMeta {
    /// `resourceVersion`.
    #[prost(string, tag = "2")]
    pub resource_version: String,
    /// `continue`.
    #[prost(string, tag = "3")]
    pub continue_token: String,
}

/// A point in time.
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
    /// Field number of `name`.
    pub const NAME: u32 = 1;
    /// Field number of `generateName`.
    pub const GENERATE_NAME: u32 = 2;
    /// Field number of `namespace`.
    pub const NAMESPACE: u32 = 3;
    /// Field number of `uid`.
    pub const UID: u32 = 5;
    /// Field number of `resourceVersion`.
    pub const RESOURCE_VERSION: u32 = 6;
    /// Field number of `creationTimestamp`.
    pub const CREATION: u32 = 8;
    /// Field number of `deletionTimestamp`.
    pub const DELETION: u32 = 9;
    /// Field number of `labels`.
    pub const LABELS: u32 = 11;
    /// Field number of `annotations`.
    pub const ANNOTATIONS: u32 = 12;
    /// Field number of `ownerReferences`.
    pub const OWNER_REFERENCES: u32 = 13;
    /// Field number of `finalizers`.
    pub const FINALIZERS: u32 = 14;
    /// Field number of `managedFields`.
    pub const MANAGED_FIELDS: u32 = 17;
}

/// Field numbers, for partial decoding.
impl OwnerReference {
    /// Field number of `kind`.
    pub const KIND: u32 = 1;
    /// Field number of `name`.
    pub const NAME: u32 = 3;
    /// Field number of `uid`.
    pub const UID: u32 = 4;
    /// Field number of `apiVersion`.
    pub const API_VERSION: u32 = 5;
    /// Field number of `controller`.
    pub const CONTROLLER: u32 = 6;
    /// Field number of `blockOwnerDeletion`.
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
///
/// # Errors
/// If the bytes are not an owner reference.
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
///
/// # Errors
/// If the bytes are not a message, or the field is no map of strings.
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

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use prost::Message;

    use super::Time;

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
}
