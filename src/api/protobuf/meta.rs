//! Metadata of objects and lists (apimachinery `pkg/apis/meta/v1/generated.proto`).

use std::collections::BTreeMap;

use jiff::Timestamp;
use prost::Message;

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

impl Time {
    /// The time; `None` for the zero that stands where a time is absent.
    pub fn timestamp(self) -> Option<Timestamp> {
        if self == Self::default() {
            return None;
        }
        Timestamp::new(self.seconds, self.nanos).ok()
    }
}
