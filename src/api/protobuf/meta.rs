//! Metadata of objects and lists (apimachinery `pkg/apis/meta/v1/generated.proto`).

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use prost::Message;

use crate::api::Uid;
use crate::api::interner::Interner;
use crate::api::owner_reference::ControllerRef;

/// `metadata` of an object.
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
    /// `labels`.
    #[prost(btree_map = "string, string", tag = "11")]
    pub labels: BTreeMap<String, String>,
    /// `annotations`.
    #[prost(btree_map = "string, string", tag = "12")]
    pub annotations: BTreeMap<String, String>,
    /// `ownerReferences`.
    #[prost(message, repeated, tag = "13")]
    pub owner_references: Vec<OwnerReference>,
}

/// One entry of `metadata.ownerReferences`.
#[derive(Clone, PartialEq, Message)]
pub struct OwnerReference {
    /// `kind`.
    #[prost(string, tag = "1")]
    pub kind: String,
    /// `name`.
    #[prost(string, tag = "3")]
    pub name: String,
    /// `uid`.
    #[prost(string, tag = "4")]
    pub uid: String,
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
    /// Since 1970, in seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// And nanoseconds.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl ObjectMeta {
    /// Number of the field `managedFields`, which is not read.
    pub const MANAGED_FIELDS: u32 = 17;
}

impl From<Timestamp> for Time {
    /// To the second, as the API server keeps it
    /// (apimachinery `pkg/apis/meta/v1/time_proto.go:ProtoTime`).
    fn from(time: Timestamp) -> Self {
        Self {
            seconds: time.as_second(),
            nanos: 0,
        }
    }
}

impl Time {
    /// The time; `None` for the zero that stands where a time is absent.
    pub fn timestamp(self) -> Option<Timestamp> {
        if self == Self::default() {
            return None;
        }
        Timestamp::new(self.seconds, self.nanos).ok()
    }
}

/// The first reference with `controller: true`.
pub(in crate::api) fn controller_of(
    references: &[OwnerReference],
    interner: &mut Interner,
) -> Option<Arc<ControllerRef>> {
    let reference = references
        .iter()
        .find(|reference| reference.controller == Some(true))?;
    let kind = interner.text(&reference.kind);
    Some(interner.owner(ControllerRef {
        kind,
        name: Arc::from(&*reference.name),
        uid: Uid::new(&reference.uid),
    }))
}
