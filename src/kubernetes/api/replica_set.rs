//! A ReplicaSet: the fields that the controller reads, and the bytes that it sends back unchanged.
//! A ReplicationController decodes into the same type; of the fields that the controller reads,
//! only its selector has another form.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::compact_timestamp::CompactTimestamp;
use super::conditions::Condition;
use super::encoded::Encoded;
use super::interner::Interner;
use super::label_selector::{Selector, SelectorError};
use super::labels::Labels;
use super::object_key::ObjectKey;
use super::opt_ins::OptIns;
use super::owner_reference::ControllerRef;
use super::protobuf::{self, Envelope, ProtobufError};
use super::resource_version::ResourceVersion;
use super::uid::Uid;
use super::workload_kind::{REPLICA_SET, WorkloadKind};

mod json;
mod message;
mod topology;

/// The decoded fields of a ReplicaSet.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaSet {
    /// Namespace and name.
    pub key: ObjectKey,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub resource_version: ResourceVersion,
    /// `metadata.generation`: counts the changes of `spec`.
    pub generation: i64,
    /// `metadata.creationTimestamp`.
    pub creation: Option<CompactTimestamp>,
    /// `metadata.deletionTimestamp`: set while the ReplicaSet is terminating.
    pub deletion: Option<CompactTimestamp>,
    /// Its own controller, such as a Deployment.
    pub controller: Option<Arc<ControllerRef>>,
    /// The annotations that opt in to behaviour beyond upstream's.
    pub opt_ins: OptIns,
    /// `spec.replicas`; 1 if absent.
    pub replicas: i32,
    /// `spec.minReadySeconds`, in seconds.
    pub min_ready_seconds: i32,
    /// `spec.selector`, or why it is invalid.
    pub selector: Result<Selector, SelectorError>,
    /// `spec.template.metadata.labels`.
    pub template_labels: Labels,
    /// `status`.
    pub status: ReplicaSetStatus,
    /// `metadata` without `managedFields`, and `spec`, as received. Status updates send them back.
    carried: Carried,
}

/// Kept in the received encoding, since any conversion would lose unknown fields.
#[derive(Clone, Debug, PartialEq)]
enum Carried {
    Json(json::CarriedJson),
    Protobuf(message::CarriedMessage),
}

/// `spec.template` as the API server sent it.
#[derive(Clone, Copy, Debug)]
pub enum Template<'a> {
    /// In JSON.
    Json(&'a RawValue),
    /// In protobuf.
    Protobuf(&'a [u8]),
}

/// `status` of a ReplicaSet. Keeps unknown fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSetStatus {
    /// Active pods.
    pub replicas: i32,
    /// Active pods with all labels of the template.
    #[serde(skip_serializing_if = "is_zero")]
    pub fully_labeled_replicas: i32,
    /// Active pods that are Ready.
    #[serde(skip_serializing_if = "is_zero")]
    pub ready_replicas: i32,
    /// Active pods that have been Ready for `minReadySeconds`.
    #[serde(skip_serializing_if = "is_zero")]
    pub available_replicas: i32,
    /// Terminating pods. Absent differs from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating_replicas: Option<i32>,
    /// The generation that the counts refer to.
    #[serde(skip_serializing_if = "is_zero_generation")]
    pub observed_generation: i64,
    /// Conditions of any type.
    #[serde(skip_serializing_if = "Vec::is_empty", with = "super::conditions")]
    pub conditions: Vec<Condition>,
    /// Unknown fields of an object decoded from JSON.
    #[serde(flatten)]
    pub other: Map<String, Value>,
    /// Unknown fields of an object decoded from protobuf.
    #[serde(skip)]
    pub unknown: Vec<u8>,
}

impl ReplicaSet {
    /// Decodes a ReplicaSet from JSON.
    ///
    /// # Errors
    /// If the text is not JSON or a decoded field has another type than in `apps/v1`.
    pub fn from_json(json: &[u8], interner: &mut Interner) -> Result<Self, serde_json::Error> {
        Self::of_kind(&REPLICA_SET, json, interner)
    }

    /// Decodes an object of this kind from JSON.
    ///
    /// # Errors
    /// If the text is not JSON or a decoded field has another type than in that kind.
    pub fn of_kind(
        kind: &WorkloadKind,
        json: &[u8],
        interner: &mut Interner,
    ) -> Result<Self, serde_json::Error> {
        json::read(kind, json, interner)
    }

    /// Decodes an object of this kind from its protobuf message, without the envelope.
    ///
    /// # Errors
    /// If the bytes are not such a message, or it has no name.
    pub fn from_protobuf(
        kind: &WorkloadKind,
        message: &[u8],
        interner: &mut Interner,
    ) -> Result<Self, ProtobufError> {
        message::read(kind, message, interner)
    }

    /// Decodes one object of this kind from a response body in either encoding, without sharing
    /// values.
    ///
    /// # Errors
    /// The reason as text.
    pub fn from_answer(kind: &WorkloadKind, body: &[u8]) -> Result<Self, String> {
        let interner = &mut Interner::default();
        if !body.starts_with(&protobuf::MAGIC) {
            return Self::of_kind(kind, body, interner).map_err(|error| error.to_string());
        }
        let object = Envelope::open(body)
            .and_then(|envelope| Self::from_protobuf(kind, envelope.raw, interner));
        object.map_err(|error| error.to_string())
    }

    /// `spec.template` as received; `None` if absent.
    pub fn template(&self) -> Option<Template<'_>> {
        match &self.carried {
            Carried::Json(carried) => carried.template().map(Template::Json),
            Carried::Protobuf(carried) => carried.template().map(Template::Protobuf),
        }
    }

    /// The topology key over which the template spreads its pods: that of the first constraint with
    /// `DoNotSchedule`, or else of the first with `ScheduleAnyway`. Decodes the template.
    pub fn topology_key(&self) -> Option<String> {
        self.template().and_then(topology::topology_key)
    }

    /// The body of a status update: the object with another status. `spec` and `metadata` are the
    /// received bytes without `managedFields`.
    ///
    /// # Errors
    /// If serialization of the status to JSON fails.
    pub fn with_status(
        &self,
        kind: &WorkloadKind,
        status: &ReplicaSetStatus,
    ) -> Result<Encoded, serde_json::Error> {
        match &self.carried {
            Carried::Json(carried) => carried.with_status(kind, status),
            Carried::Protobuf(carried) => Ok(carried.with_status(kind, status)),
        }
    }

    /// True if the ReplicaSet is terminating.
    pub fn is_terminating(&self) -> bool {
        self.deletion.is_some()
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &i32) -> bool {
    *count == 0
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero_generation(generation: &i64) -> bool {
    *generation == 0
}

#[cfg(test)]
mod tests;
