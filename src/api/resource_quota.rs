//! A ResourceQuota, reduced to the room that its status shows for pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message;
use serde::Deserialize;

use super::interner::Interner;
use super::json::null_is_default;
use super::object_key::ObjectKey;
use super::protobuf::{ObjectMeta, Parts, ProtobufError};
use super::quantity::parse_quantity;
use super::resource_version::ResourceVersion;
use super::uid::Uid;

/// The fields of a ResourceQuota that the controller reads.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceQuota {
    /// Namespace and name.
    pub key: ObjectKey,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub resource_version: ResourceVersion,
    /// By resource that pods use, in ascending order: `status.hard` less `status.used`, zero while
    /// the usage is not counted.
    room: Box<[(Box<str>, f64)]>,
}

impl ResourceQuota {
    /// Decodes a ResourceQuota from JSON.
    ///
    /// # Errors
    /// If the text is not JSON or a decoded field has another type than in `v1`.
    pub fn from_json(json: &[u8], interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let object: ObjectJson = serde_json::from_slice(json)?;
        let metadata = object.metadata;
        Ok(Self {
            key: ObjectKey {
                namespace: interner.text(&metadata.namespace),
                name: metadata.name.into(),
            },
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            room: room(object.status.hard, &object.status.used),
        })
    }

    /// Decodes a ResourceQuota from its protobuf message, without the envelope.
    ///
    /// # Errors
    /// If the bytes are not such a message, or it has no name.
    pub fn from_protobuf(message: &[u8], interner: &mut Interner) -> Result<Self, ProtobufError> {
        let parts = Parts::of(message)?;
        let metadata = ObjectMeta::decode(parts.metadata)?;
        if metadata.name.is_empty() {
            return Err(ProtobufError::Missing("metadata.name"));
        }
        let status = StatusMessage::decode(parts.status)?;
        let texts = |amounts: BTreeMap<String, QuantityMessage>| {
            let amounts = amounts.into_iter();
            amounts.map(|(name, amount)| (name, amount.text)).collect()
        };
        Ok(Self {
            key: ObjectKey {
                namespace: interner.text(&metadata.namespace),
                name: Arc::from(metadata.name),
            },
            uid: Uid::new(&metadata.uid),
            resource_version: ResourceVersion::new(&metadata.resource_version),
            room: room(texts(status.hard), &texts(status.used)),
        })
    }

    /// True if this state of the quota may admit a pod that `earlier` refused: a resource has more
    /// room, or is not limited any more. Without an earlier state any room counts.
    ///
    /// A pod that takes a place never makes this true, so the answer to a sign of room is no new
    /// sign.
    pub fn shows_more_room_than(&self, earlier: Option<&Self>) -> bool {
        let earlier = earlier.map_or(&[][..], |it| &it.room);
        let of = |room: &[(Box<str>, f64)], name: &str| {
            let found = room.binary_search_by(|(known, _)| (**known).cmp(name));
            found.ok().map(|at| room[at].1)
        };
        let has_more =
            |(name, room): &(Box<str>, f64)| *room > of(earlier, name).unwrap_or(0.0).max(0.0);
        let is_lifted = |(name, _): &(Box<str>, f64)| of(&self.room, name).is_none();
        self.room.iter().any(has_more) || earlier.iter().any(is_lifted)
    }
}

fn room(hard: BTreeMap<String, String>, used: &BTreeMap<String, String>) -> Box<[(Box<str>, f64)]> {
    let room_of = |(name, limit): (String, String)| {
        let used = used.get(&name).and_then(|amount| parse_quantity(amount));
        let limit = parse_quantity(&limit);
        let room = limit.zip(used).map_or(0.0, |(limit, used)| limit - used);
        (name.into(), room)
    };
    let hard = hard.into_iter().filter(|(name, _)| is_used_by_pods(name));
    hard.map(room_of).collect()
}

/// True for the resources of which a quota counts what pods request (kubernetes
/// `pkg/quota/v1/evaluator/core/pods.go`).
fn is_used_by_pods(name: &str) -> bool {
    let is_of_claims = name == "requests.storage";
    let has_prefix = ["requests.", "limits.", "hugepages-"]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    let is_named = matches!(
        name,
        "pods" | "count/pods" | "cpu" | "memory" | "ephemeral-storage"
    );
    is_named || (has_prefix && !is_of_claims)
}

#[derive(Deserialize)]
struct ObjectJson {
    metadata: MetadataJson,
    #[serde(default, deserialize_with = "null_is_default")]
    status: StatusJson,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetadataJson {
    #[serde(default, deserialize_with = "null_is_default")]
    namespace: String,
    name: String,
    #[serde(default)]
    uid: Uid,
    #[serde(default)]
    resource_version: ResourceVersion,
}

#[derive(Default, Deserialize)]
struct StatusJson {
    #[serde(default, deserialize_with = "null_is_default")]
    hard: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "null_is_default")]
    used: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct StatusMessage {
    #[prost(btree_map = "string, message", tag = "1")]
    hard: BTreeMap<String, QuantityMessage>,
    #[prost(btree_map = "string, message", tag = "2")]
    used: BTreeMap<String, QuantityMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct QuantityMessage {
    #[prost(string, tag = "1")]
    text: String,
}

#[cfg(test)]
mod tests;
