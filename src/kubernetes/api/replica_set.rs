//! A ReplicaSet: the fields that the controller reads, and the bytes that it sends back unchanged.
//! A ReplicationController decodes into the same type; of the fields that the controller reads,
//! only its selector has another form.

mod message;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use arcstr::ArcStr;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::compact_timestamp::CompactTimestamp;
use super::conditions::Condition;
use super::interner::Interner;
use super::json::Encoded;
use super::label_selector::{Labels, Selector, SelectorError};
use super::object_key::{ControllerRef, ObjectKey, ResourceVersion, Uid};
use super::policy::OptIns;
use super::protobuf;
use super::protobuf::{Envelope, Parts, ProtobufError, contents, last, text};
use super::workload_kind::{REPLICA_SET, WorkloadKind};
use crate::api::json::{JSON, MetadataJson, controller_of};
use crate::api::label_selector::LabelSelector;
use crate::api::workload_kind::SelectorForm;

#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaSet {
    pub key: ObjectKey,
    pub uid: Uid,
    pub resource_version: ResourceVersion,
    /// `metadata.generation`: counts the changes of `spec`.
    pub generation: i64,
    pub creation: Option<CompactTimestamp>,
    /// `metadata.deletionTimestamp`: set while the ReplicaSet is terminating.
    pub deletion: Option<CompactTimestamp>,
    /// Its own controller, such as a Deployment.
    pub controller: Option<Arc<ControllerRef>>,
    pub opt_ins: OptIns,
    /// `spec.replicas`; 1 if absent.
    pub replicas: i32,
    /// `spec.minReadySeconds`, in seconds.
    pub min_ready_seconds: i32,
    /// `spec.selector`, or why it is invalid.
    pub selector: Result<Selector, SelectorError>,
    /// `spec.template.metadata.labels`.
    pub template_labels: Labels,
    pub status: ReplicaSetStatus,
    /// `metadata` without `managedFields`, and `spec`, as received. Status updates send them back.
    carried: Option<Carried>,
}

/// The annotation with the number of a ReplicaSet in the sequence of its Deployment's rollouts
/// (kubernetes `pkg/controller/deployment/util/deployment_util.go:RevisionAnnotation`).
pub const REVISION: &str = "deployment.kubernetes.io/revision";

/// The annotation with `spec.replicas` of the Deployment when it last scaled the ReplicaSet
/// (kubernetes `pkg/controller/deployment/util/deployment_util.go:DesiredReplicasAnnotation`).
pub const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";

/// Kept in the received encoding, since any conversion would lose unknown fields.
#[derive(Clone, Debug, PartialEq)]
enum Carried {
    Json(CarriedJson),
    Protobuf(message::CarriedMessage),
}

/// `spec.template` as the API server sent it.
#[derive(Clone, Copy, Debug)]
pub enum Template<'a> {
    Json(&'a RawValue),
    Protobuf(&'a [u8]),
}

/// `status` of a ReplicaSet. Keeps unknown fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSetStatus {
    pub replicas: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub fully_labeled_replicas: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub ready_replicas: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub available_replicas: i32,
    /// Terminating pods. Absent differs from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating_replicas: Option<i32>,
    /// The generation that the counts refer to.
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
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
    pub fn from_json(json: &[u8], interner: &mut Interner) -> Result<Self, serde_json::Error> {
        Self::of_kind(&REPLICA_SET, json, interner)
    }

    /// Decodes an object of this kind from JSON.
    pub fn of_kind(
        kind: &WorkloadKind,
        json: &[u8],
        interner: &mut Interner,
    ) -> Result<Self, serde_json::Error> {
        read(kind, json, interner)
    }

    /// Decodes an object of this kind from its protobuf message, without the envelope.
    pub fn from_protobuf(
        kind: &WorkloadKind,
        message: &[u8],
        interner: &mut Interner,
    ) -> Result<Self, ProtobufError> {
        message::read(kind, message, interner)
    }

    /// Decodes one object of this kind from a response body in either encoding, without sharing
    /// values.
    pub fn from_answer(kind: &WorkloadKind, body: &[u8]) -> Result<Self, String> {
        let interner = &mut Interner::default();
        if !body.starts_with(&protobuf::MAGIC) {
            return Self::of_kind(kind, body, interner).map_err(|error| error.to_string());
        }
        let object = Envelope::open(body)
            .and_then(|envelope| Self::from_protobuf(kind, envelope.raw, interner));
        object.map_err(|error| error.to_string())
    }

    /// The ReplicaSet as a cache stores it. One that is settled at zero, such as an old revision of
    /// a Deployment, is stored without the received bytes of `metadata` and `spec`, which are most
    /// of its size. A scale-up is an event with the whole object, so the template is there before
    /// the first create.
    #[must_use]
    pub fn for_cache(mut self) -> Self {
        if self.is_settled_at_zero() {
            self.carried = None;
        }
        self
    }

    /// True if spec and status have zero replicas, and the status is of this spec.
    fn is_settled_at_zero(&self) -> bool {
        let status = &self.status;
        let n_terminating = status.terminating_replicas.unwrap_or(0);
        self.replicas == 0
            && status.replicas == 0
            && n_terminating == 0
            && status.observed_generation == self.generation
            && !self.is_terminating()
    }

    /// True if the object has the received bytes of `metadata` and `spec`, which creates and status
    /// updates need. Otherwise read it from the API server first.
    pub fn is_complete(&self) -> bool {
        self.carried.is_some()
    }

    /// `spec.template` as received; `None` if absent, or if the object is not
    /// [complete](Self::is_complete).
    pub fn template(&self) -> Option<Template<'_>> {
        match self.carried.as_ref()? {
            Carried::Json(carried) => carried.template().map(Template::Json),
            Carried::Protobuf(carried) => carried.template().map(Template::Protobuf),
        }
    }

    /// Which revision of its Deployment it is; `None` if it is of none, or if the object is not
    /// [complete](Self::is_complete).
    pub fn revision(&self) -> Option<i64> {
        self.annotation(REVISION)?.parse().ok()
    }

    /// An annotation that no field has; `None` also if the object is not
    /// [complete](Self::is_complete). Decodes the metadata.
    pub fn annotation(&self, name: &str) -> Option<String> {
        match self.carried.as_ref()? {
            Carried::Json(carried) => carried.annotation(name),
            Carried::Protobuf(carried) => carried.annotation(name),
        }
    }

    /// The topology key over which the template spreads its pods: that of the first constraint with
    /// `DoNotSchedule`, or else of the first with `ScheduleAnyway`. Decodes the template.
    pub fn topology_key(&self) -> Option<String> {
        self.template().and_then(topology_key)
    }

    /// The body of a status update: the object with another status. `spec` and `metadata` are the
    /// received bytes without `managedFields`.
    pub fn with_status(
        &self,
        kind: &WorkloadKind,
        status: &ReplicaSetStatus,
    ) -> Result<Encoded, serde_json::Error> {
        match &self.carried {
            Some(Carried::Json(carried)) => carried.with_status(kind, status),
            Some(Carried::Protobuf(carried)) => Ok(carried.with_status(kind, status)),
            None => Err(serde::ser::Error::custom("its spec must be read first")),
        }
    }

    pub fn is_terminating(&self) -> bool {
        self.deletion.is_some()
    }
}

fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

/// The parts that status updates send back.
#[derive(Clone, Debug)]
struct CarriedJson {
    /// Without `managedFields`.
    metadata: Box<RawValue>,
    spec: Box<RawValue>,
}

impl PartialEq for CarriedJson {
    fn eq(&self, other: &Self) -> bool {
        self.metadata.get() == other.metadata.get() && self.spec.get() == other.spec.get()
    }
}

fn read(
    kind: &WorkloadKind,
    json: &[u8],
    interner: &mut Interner,
) -> Result<ReplicaSet, serde_json::Error> {
    let object: ObjectJson<'_> = serde_json::from_slice(json)?;
    let metadata: MetadataJson<'_, OptIns> = serde_json::from_str(object.metadata.get())?;
    let spec: SpecJson<'_> = serde_json::from_str(object.spec.get())?;
    let template_labels = spec.template.and_then(|t| t.metadata).map(|m| m.labels);
    Ok(ReplicaSet {
        key: ObjectKey {
            namespace: interner.text(metadata.namespace.as_deref().unwrap_or_default()),
            name: ArcStr::from(&*metadata.name),
        },
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        generation: metadata.generation.unwrap_or(0),
        creation: metadata.creation_timestamp,
        deletion: metadata.deletion_timestamp,
        controller: controller_of(metadata.owner_references, interner),
        opt_ins: metadata.annotations.unwrap_or_default(),
        replicas: spec.replicas.unwrap_or(1),
        min_ready_seconds: spec.min_ready_seconds.unwrap_or(0),
        selector: Selector::new(read_selector(kind.selector, spec.selector)?),
        template_labels: interner.labels(template_labels.unwrap_or_default()),
        status: object.status.unwrap_or_default(),
        carried: Some(Carried::Json(CarriedJson {
            metadata: without_managed_fields(object.metadata)?,
            spec: object.spec.to_owned(),
        })),
    })
}

impl CarriedJson {
    fn annotation(&self, name: &str) -> Option<String> {
        let metadata: ObjectMeta = serde_json::from_str(self.metadata.get()).ok()?;
        metadata.annotations?.remove(name)
    }

    fn template(&self) -> Option<&RawValue> {
        #[derive(Deserialize)]
        struct Template<'a> {
            #[serde(borrow)]
            template: Option<&'a RawValue>,
        }
        let spec: Template<'_> = serde_json::from_str(self.spec.get()).ok()?;
        spec.template
    }

    fn with_status(
        &self,
        kind: &WorkloadKind,
        status: &ReplicaSetStatus,
    ) -> Result<Encoded, serde_json::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Body<'a> {
            api_version: &'a str,
            kind: &'a str,
            metadata: &'a RawValue,
            spec: &'a RawValue,
            status: &'a ReplicaSetStatus,
        }
        let bytes = serde_json::to_vec(&Body {
            api_version: kind.api_version,
            kind: kind.kind,
            metadata: &self.metadata,
            spec: &self.spec,
            status,
        })?;
        Ok(Encoded {
            media_type: JSON,
            bytes,
        })
    }
}

#[derive(Deserialize)]
struct ObjectJson<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
    #[serde(borrow)]
    spec: &'a RawValue,
    status: Option<ReplicaSetStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecJson<'a> {
    replicas: Option<i32>,
    min_ready_seconds: Option<i32>,
    #[serde(borrow)]
    selector: Option<&'a RawValue>,
    template: Option<TemplateJson>,
}

#[derive(Deserialize)]
struct TemplateJson {
    metadata: Option<TemplateMetadataJson>,
}

#[derive(Deserialize)]
struct TemplateMetadataJson {
    #[serde(default)]
    labels: Labels,
}

/// An absent selector becomes the default, which matches nothing.
fn read_selector(
    form: SelectorForm,
    selector: Option<&RawValue>,
) -> Result<LabelSelector, serde_json::Error> {
    let Some(selector) = selector else {
        return Ok(LabelSelector::default());
    };
    match form {
        SelectorForm::LabelSelector => serde_json::from_str(selector.get()),
        SelectorForm::Labels => Ok(LabelSelector {
            match_labels: serde_json::from_str(selector.get())?,
            ..LabelSelector::default()
        }),
    }
}

/// `managedFields` is more than half of many objects and the controller never reads it; upstream
/// drops it too. An update without the field leaves it unchanged on the server.
fn without_managed_fields(metadata: &RawValue) -> Result<Box<RawValue>, serde_json::Error> {
    let mut fields: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(metadata.get())?;
    fields.remove("managedFields");
    serde_json::value::to_raw_value(&fields)
}

/// Number of `topologySpreadConstraints` in a pod's spec.
const CONSTRAINTS: u32 = 33;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Constraint<'a> {
    #[serde(borrow)]
    topology_key: Option<Cow<'a, str>>,
    #[serde(borrow)]
    when_unsatisfiable: Option<Cow<'a, str>>,
}

/// The key of the first constraint that the scheduler must satisfy, or else of the first that it
/// tries to. `None` without one, and for a template that cannot be decoded.
fn topology_key(template: Template<'_>) -> Option<String> {
    let constraints = match template {
        Template::Json(json) => of_json(json.get()).ok()?,
        Template::Protobuf(message) => of_protobuf(message).ok()?,
    };
    let first = |when: &str| {
        let is_it = |it: &&Constraint<'_>| it.when_unsatisfiable.as_deref() == Some(when);
        let mut those = constraints.iter().filter(is_it);
        those.find_map(|it| it.topology_key.as_deref().filter(|key| !key.is_empty()))
    };
    first("DoNotSchedule")
        .or_else(|| first("ScheduleAnyway"))
        .map(str::to_owned)
}

fn of_json(json: &str) -> Result<Vec<Constraint<'_>>, serde_json::Error> {
    #[derive(Deserialize)]
    struct TemplateJson<'a> {
        #[serde(borrow)]
        spec: Option<SpecJson<'a>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct SpecJson<'a> {
        #[serde(borrow)]
        topology_spread_constraints: Option<Vec<Constraint<'a>>>,
    }
    let template: TemplateJson<'_> = serde_json::from_str(json)?;
    let constraints = template.spec.and_then(|it| it.topology_spread_constraints);
    Ok(constraints.unwrap_or_default())
}

fn of_protobuf(template: &[u8]) -> Result<Vec<Constraint<'_>>, ProtobufError> {
    let constraints = contents(last(template, Parts::SPEC)?, CONSTRAINTS);
    let constraints = constraints.map(|constraint| {
        let constraint = constraint?;
        Ok(Constraint {
            topology_key: Some(text(last(constraint, 2)?)?.into()),
            when_unsatisfiable: Some(text(last(constraint, 3)?)?.into()),
        })
    });
    constraints.collect()
}

#[cfg(test)]
mod tests;
