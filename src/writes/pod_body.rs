//! The bodies of pod requests, as pure functions.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::WriteError;
use crate::api::{ControllingReference, ReplicaSet, Uid, WorkloadKind};

/// The body that creates a pod called `name` from the template of `rs`: its labels, annotations,
/// finalizers and spec as the bytes that they are, and `rs` as the one controller
/// (kubernetes `pkg/controller/controller_utils.go:GetPodFromTemplate`).
///
/// DIFFERS: upstream leaves the name to the API server. `generateName` is set as upstream sets it,
/// because people and tools look for it, but the server uses `name`.
///
/// # Errors
/// [`WriteError::Local`] if the template has no labels or cannot be read.
pub fn create_body(
    rs: &ReplicaSet,
    kind: &WorkloadKind,
    name: &str,
) -> Result<Vec<u8>, WriteError> {
    if rs.template_labels.is_empty() {
        return Err(WriteError::Local(
            "unable to create pods, no labels".to_owned(),
        ));
    }
    let unreadable = |error| WriteError::Local(format!("the pod template is unreadable: {error}"));
    let template = rs.template().map_or("{}", RawValue::get);
    let template: TemplateJson<'_> = serde_json::from_str(template).map_err(unreadable)?;
    let metadata = template.metadata.unwrap_or_default();
    let pod = PodJson {
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
    };
    serde_json::to_vec(&pod).map_err(unreadable)
}

/// `generateName` of the pods of a ReplicaSet, and the beginning of their names.
pub fn generate_name(rs_name: &str) -> String {
    format!("{rs_name}-")
}

/// The body that deletes a pod only if it still has this UID.
pub fn delete_body(uid: &Uid) -> Vec<u8> {
    let options = DeleteOptionsJson {
        api_version: "v1",
        kind: "DeleteOptions",
        preconditions: PreconditionsJson { uid },
    };
    serde_json::to_vec(&options).expect("text always becomes JSON")
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

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DeleteOptionsJson<'a> {
    api_version: &'a str,
    kind: &'a str,
    preconditions: PreconditionsJson<'a>,
}

#[derive(Serialize)]
struct PreconditionsJson<'a> {
    uid: &'a Uid,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{create_body, delete_body};
    use crate::api::interner::Interner;
    use crate::api::workload_kind::REPLICA_SET;
    use crate::api::{ReplicaSet, Uid};

    fn replica_set(template: &Value) -> ReplicaSet {
        let object = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u-rs"},
            "spec": {"template": template},
        });
        ReplicaSet::from_json(object.to_string().as_bytes(), &mut Interner::default())
            .expect("a readable ReplicaSet")
    }

    #[test]
    fn a_09_the_pod_is_built_from_the_template() {
        let spec =
            json!({"containers": [{"name": "c", "image": "i"}], "noVersionKnowsThis": {"a": [1]}});
        let rs = replica_set(&json!({
            "metadata": {
                "labels": {"app": "web"}, "annotations": {"n": "\"v\""}, "finalizers": ["f/x"],
                "creationTimestamp": null, "name": "ignored",
            },
            "spec": spec,
        }));
        let body = create_body(&rs, &REPLICA_SET, "web-x2b4c").expect("a body");
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        let expected = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "web-x2b4c", "generateName": "web-", "labels": {"app": "web"},
                "annotations": {"n": "\"v\""}, "finalizers": ["f/x"],
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u-rs",
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": spec,
        });
        assert_eq!(body, expected);
    }

    #[test]
    fn a_12_a_template_without_labels_is_refused_here() {
        let rs = replica_set(&json!({"metadata": {}, "spec": {}}));
        let error = create_body(&rs, &REPLICA_SET, "web-x2b4c").expect_err("no labels");
        assert_eq!(error.to_string(), "unable to create pods, no labels");
    }

    #[test]
    fn the_spec_keeps_its_bytes() {
        let text = r#"{"metadata":{"name":"web","namespace":"shop","uid":"u"},"spec":{"template":
            {"metadata":{"labels":{"a":"b"}},"spec":{"big":12345678901234567890123, "f":1.10}}}}"#;
        let rs =
            ReplicaSet::from_json(text.as_bytes(), &mut Interner::default()).expect("readable");
        let body = create_body(&rs, &REPLICA_SET, "web-x2b4c").expect("a body");
        let body = String::from_utf8(body).expect("text");
        assert!(
            body.contains(r#"{"big":12345678901234567890123, "f":1.10}"#),
            "{body}"
        );
    }

    #[test]
    fn a_delete_names_the_uid() {
        let body: Value = serde_json::from_slice(&delete_body(&Uid::new("u-1"))).expect("JSON");
        let expected = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u-1"},
        });
        assert_eq!(body, expected);
    }
}
