//! A ReplicaSet: what the controller reads of it, and the bytes that it carries untouched. A
//! ReplicationController is read as one too: of what the controller reads, only the selector is
//! written otherwise.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::compact_timestamp::CompactTimestamp;
use super::conditions::Condition;
use super::encoded::Encoded;
use super::interner::Interner;
use super::json::null_is_default;
use super::label_selector::{Selector, SelectorError};
use super::labels::Labels;
use super::object_key::ObjectKey;
use super::owner_reference::ControllerRef;
use super::protobuf::{self, Envelope, ProtobufError};
use super::resource_version::ResourceVersion;
use super::uid::Uid;
use super::workload_kind::{REPLICA_SET, WorkloadKind};

mod json;
mod message;

/// What the controller knows of a ReplicaSet.
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
    /// `metadata.deletionTimestamp`: set on a ReplicaSet that is going away.
    pub deletion: Option<CompactTimestamp>,
    /// Its own controller, such as a Deployment.
    pub controller: Option<Arc<ControllerRef>>,
    /// `spec.replicas`; 1 where absent.
    pub replicas: i32,
    /// `spec.minReadySeconds`, in seconds.
    pub min_ready_seconds: i32,
    /// `spec.selector`, or why it cannot be used.
    pub selector: Result<Selector, SelectorError>,
    /// `spec.template.metadata.labels`.
    pub template_labels: Labels,
    /// `status`.
    pub status: ReplicaSetStatus,
    /// `metadata` without `managedFields`, and `spec`: as they came, for what is sent back.
    carried: Carried,
}

/// In the encoding in which the object came, since only so no field gets lost.
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

/// `status` of a ReplicaSet. Fields that this build does not know are carried along.
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
    /// Pods that are going away. Absent and 0 are different.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating_replicas: Option<i32>,
    /// The generation that these counts belong to.
    #[serde(skip_serializing_if = "is_zero_generation")]
    pub observed_generation: i64,
    /// Conditions, of this controller's type and of others.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_is_default"
    )]
    pub conditions: Vec<Condition>,
    /// Everything else, if it came as JSON.
    #[serde(flatten)]
    pub other: Map<String, Value>,
    /// Everything else, if it came as protobuf.
    #[serde(skip)]
    pub unknown: Vec<u8>,
}

impl ReplicaSet {
    /// Reads a ReplicaSet from the JSON of the API server.
    ///
    /// # Errors
    /// If the text is not JSON or a field that is read has another type than in `apps/v1`.
    pub fn from_json(json: &[u8], interner: &mut Interner) -> Result<Self, serde_json::Error> {
        Self::of_kind(&REPLICA_SET, json, interner)
    }

    /// Reads an object of this kind from the JSON of the API server.
    ///
    /// # Errors
    /// If the text is not JSON or a field that is read has another type than that kind has.
    pub fn of_kind(
        kind: &WorkloadKind,
        json: &[u8],
        interner: &mut Interner,
    ) -> Result<Self, serde_json::Error> {
        json::read(kind, json, interner)
    }

    /// Reads an object of this kind from its protobuf message, out of its envelope.
    ///
    /// # Errors
    /// If the bytes are no such message, or it has no name.
    pub fn from_protobuf(
        kind: &WorkloadKind,
        message: &[u8],
        interner: &mut Interner,
    ) -> Result<Self, ProtobufError> {
        message::read(kind, message, interner)
    }

    /// Reads one object of this kind from the body of an answer, which tells its encoding itself. It
    /// shares nothing with other objects.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn from_answer(kind: &WorkloadKind, body: &[u8]) -> Result<Self, String> {
        let interner = &mut Interner::default();
        if !body.starts_with(&protobuf::MAGIC) {
            return Self::of_kind(kind, body, interner).map_err(|error| error.to_string());
        }
        let object = Envelope::open(body)
            .and_then(|envelope| Self::from_protobuf(kind, envelope.raw, interner));
        object.map_err(|error| error.to_string())
    }

    /// `spec.template` as the API server sent it; `None` if there is none.
    pub fn template(&self) -> Option<Template<'_>> {
        match &self.carried {
            Carried::Json(carried) => carried.template().map(Template::Json),
            Carried::Protobuf(carried) => carried.template().map(Template::Protobuf),
        }
    }

    /// The whole object with another status: the body of a status update. `spec` and `metadata` are
    /// the bytes that came from the server, less `managedFields`.
    ///
    /// # Errors
    /// If the status cannot be written as JSON.
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

    /// True if the ReplicaSet is going away.
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
