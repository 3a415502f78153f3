//! A new pod in JSON.

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
    let template: TemplateJson<'_> = serde_json::from_str(template)?;
    let metadata = template.metadata.unwrap_or_default();
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
        spec: template.spec,
        other: template.other,
    })?;
    Ok(Encoded {
        media_type: JSON,
        bytes,
    })
}

#[derive(Deserialize)]
struct TemplateJson<'a> {
    #[serde(borrow)]
    metadata: Option<TemplateMetadataJson<'a>>,
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
    /// What later versions of the API may add beside `spec` goes into the pod at the same place.
    #[serde(borrow, flatten)]
    other: BTreeMap<Cow<'a, str>, &'a RawValue>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<&'a RawValue>,
    #[serde(flatten)]
    other: BTreeMap<Cow<'a, str>, &'a RawValue>,
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
