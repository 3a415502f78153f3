//! Builds a new pod in JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::generate_name;
use crate::api::encoded::{Encoded, JSON};
use crate::api::{ControllingReference, ReplicaSet, WorkloadKind};

pub(super) fn create_body(
    rs: &ReplicaSet,
    kind: &WorkloadKind,
    name: &str,
    template: &str,
) -> Result<Encoded, serde_json::Error> {
    let mut template: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(template)?;
    let metadata = template.remove("metadata").map_or("null", RawValue::get);
    let metadata: Option<TemplateMetadataJson<'_>> = serde_json::from_str(metadata)?;
    let metadata = metadata.unwrap_or_default();
    let bytes = serde_json::to_vec(&PodJson {
        api_version: "v1",
        kind: "Pod",
        metadata: PodMetadataJson {
            name,
            generate_name: generate_name(&rs.key.name),
            labels: metadata.labels,
            annotations: metadata.annotations,
            finalizers: metadata.finalizers,
            owner_references: [ControllingReference::to(kind, &rs.key.name, &rs.uid)],
        },
        other_fields: template,
    })?;
    Ok(Encoded {
        media_type: JSON,
        bytes,
    })
}

#[derive(Default, Deserialize)]
struct TemplateMetadataJson<'a> {
    #[serde(borrow)]
    labels: Option<&'a RawValue>,
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
    #[serde(borrow)]
    finalizers: Option<&'a RawValue>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PodJson<'a> {
    api_version: &'a str,
    kind: &'a str,
    metadata: PodMetadataJson<'a>,
    /// `spec`, and fields that later API versions may add beside it.
    #[serde(flatten)]
    other_fields: BTreeMap<Cow<'a, str>, &'a RawValue>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PodMetadataJson<'a> {
    name: &'a str,
    generate_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finalizers: Option<&'a RawValue>,
    owner_references: [ControllingReference<'a>; 1],
}
