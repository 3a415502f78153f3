//! Decodes and encodes a ReplicaSet in JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Carried, ReplicaSet, ReplicaSetStatus};
use crate::api::encoded::{Encoded, JSON};
use crate::api::interner::Interner;
use crate::api::json::{OwnerReferenceJson, controller_of};
use crate::api::label_selector::{LabelSelector, Selector};
use crate::api::workload_kind::{SelectorForm, WorkloadKind};
use crate::api::{CompactTimestamp, Labels, ObjectKey, OptIns, ResourceVersion, Uid};

/// The parts that status updates send back.
#[derive(Clone, Debug)]
pub(super) struct CarriedJson {
    /// Without `managedFields`.
    metadata: Box<RawValue>,
    spec: Box<RawValue>,
}

impl PartialEq for CarriedJson {
    fn eq(&self, other: &Self) -> bool {
        self.metadata.get() == other.metadata.get() && self.spec.get() == other.spec.get()
    }
}

pub(super) fn read(
    kind: &WorkloadKind,
    json: &[u8],
    interner: &mut Interner,
) -> Result<ReplicaSet, serde_json::Error> {
    let object: ObjectJson<'_> = serde_json::from_slice(json)?;
    let metadata: MetadataJson<'_> = serde_json::from_str(object.metadata.get())?;
    let spec: SpecJson<'_> = serde_json::from_str(object.spec.get())?;
    let template_labels = spec.template.and_then(|t| t.metadata).map(|m| m.labels);
    Ok(ReplicaSet {
        key: ObjectKey {
            namespace: interner.text(metadata.namespace.as_deref().unwrap_or_default()),
            name: Arc::from(&*metadata.name),
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
        carried: Carried::Json(CarriedJson {
            metadata: without_managed_fields(object.metadata)?,
            spec: object.spec.to_owned(),
        }),
    })
}

impl CarriedJson {
    pub(super) fn template(&self) -> Option<&RawValue> {
        #[derive(Deserialize)]
        struct Template<'a> {
            #[serde(borrow)]
            template: Option<&'a RawValue>,
        }
        let spec: Template<'_> = serde_json::from_str(self.spec.get()).ok()?;
        spec.template
    }

    pub(super) fn with_status(
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
struct MetadataJson<'a> {
    #[serde(borrow)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "crate::api::json::name")]
    name: Cow<'a, str>,
    #[serde(default)]
    uid: Uid,
    #[serde(default)]
    resource_version: ResourceVersion,
    generation: Option<i64>,
    creation_timestamp: Option<CompactTimestamp>,
    deletion_timestamp: Option<CompactTimestamp>,
    annotations: Option<OptIns>,
    #[serde(borrow)]
    owner_references: Option<Vec<OwnerReferenceJson<'a>>>,
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
