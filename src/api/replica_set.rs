//! A ReplicaSet: what the controller reads of it, and the bytes that it carries untouched. A
//! ReplicationController is read as one too: of what the controller reads, only the selector is
//! written otherwise.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::conditions::Condition;
use super::interner::Interner;
use super::json::{OwnerReferenceJson, controller_of, null_is_default};
use super::label_selector::{LabelSelector, Selector, SelectorError};
use super::labels::Labels;
use super::object_key::ObjectKey;
use super::owner_reference::ControllerRef;
use super::resource_version::ResourceVersion;
use super::uid::Uid;
use super::workload_kind::{REPLICA_SET, SelectorForm, WorkloadKind};

/// What the controller knows of a ReplicaSet.
#[derive(Clone, Debug)]
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
    pub deletion: Option<Timestamp>,
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

#[derive(Clone, Debug)]
struct Carried {
    metadata: Box<RawValue>,
    spec: Box<RawValue>,
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
    /// Everything else.
    #[serde(flatten)]
    pub other: Map<String, Value>,
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
        let object: ObjectJson<'_> = serde_json::from_slice(json)?;
        let metadata: MetadataJson<'_> = serde_json::from_str(object.metadata.get())?;
        let spec: SpecJson<'_> = serde_json::from_str(object.spec.get())?;
        let template_labels = spec.template.and_then(|t| t.metadata).map(|m| m.labels);
        Ok(Self {
            key: ObjectKey {
                namespace: interner.text(metadata.namespace.as_deref().unwrap_or_default()),
                name: Arc::from(&*metadata.name),
            },
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            generation: metadata.generation.unwrap_or(0),
            deletion: metadata.deletion_timestamp,
            controller: controller_of(metadata.owner_references, interner),
            replicas: spec.replicas.unwrap_or(1),
            min_ready_seconds: spec.min_ready_seconds.unwrap_or(0),
            selector: Selector::new(&read_selector(kind.selector, spec.selector)?),
            template_labels: interner.labels(template_labels.unwrap_or_default()),
            status: object.status.unwrap_or_default(),
            carried: Carried {
                metadata: without_managed_fields(object.metadata)?,
                spec: object.spec.to_owned(),
            },
        })
    }

    /// True if the ReplicaSet is going away.
    pub fn is_terminating(&self) -> bool {
        self.deletion.is_some()
    }

    /// `spec.template` as the API server sent it; `None` if there is none.
    pub fn template(&self) -> Option<&RawValue> {
        #[derive(Deserialize)]
        struct Template<'a> {
            #[serde(borrow)]
            template: Option<&'a RawValue>,
        }
        let spec: Template<'_> = serde_json::from_str(self.carried.spec.get()).ok()?;
        spec.template
    }

    /// The whole object with another status: the body of a status update. `spec` and `metadata` are
    /// the bytes that came from the server, less `managedFields`.
    ///
    /// # Errors
    /// If the status cannot be written as JSON.
    pub fn to_json_with_status(
        &self,
        api_version: &str,
        kind: &str,
        status: &ReplicaSetStatus,
    ) -> Result<Vec<u8>, serde_json::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Body<'a> {
            api_version: &'a str,
            kind: &'a str,
            metadata: &'a RawValue,
            spec: &'a RawValue,
            status: &'a ReplicaSetStatus,
        }
        serde_json::to_vec(&Body {
            api_version,
            kind,
            metadata: &self.carried.metadata,
            spec: &self.carried.spec,
            status,
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
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default)]
    uid: Uid,
    #[serde(default)]
    resource_version: ResourceVersion,
    generation: Option<i64>,
    deletion_timestamp: Option<Timestamp>,
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

/// Absent stays absent, and so matches nothing.
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
            match_expressions: None,
        }),
    }
}

/// `managedFields` is the larger half of many objects and nothing reads it; upstream drops it too.
/// An update without the field leaves it as it is on the server.
fn without_managed_fields(metadata: &RawValue) -> Result<Box<RawValue>, serde_json::Error> {
    let mut fields: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(metadata.get())?;
    fields.remove("managedFields");
    serde_json::value::to_raw_value(&fields)
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
mod tests {
    use serde_json::{Value, json};

    use super::{Interner, ReplicaSet, ReplicaSetStatus};
    use crate::api::Labels;
    use crate::api::workload_kind::REPLICATION_CONTROLLER;

    fn read(object: &Value) -> ReplicaSet {
        let text = object.to_string();
        ReplicaSet::from_json(text.as_bytes(), &mut Interner::default()).expect("readable")
    }

    fn sample() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {
                "name": "web", "namespace": "default", "uid": "u-rs", "resourceVersion": "7",
                "generation": 3, "labels": {"x": "y"}, "annotations": {"a": "\"b\""},
                "managedFields": [{"manager": "m"}],
                "ownerReferences": [{"kind": "Deployment", "name": "d", "uid": "u-d", "controller": true}],
            },
            "spec": {
                "replicas": 4, "minReadySeconds": 5, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"futureField": {"deep": [1]}}},
                "futureSpec": true,
            },
            "status": {"replicas": 2, "futureCount": 9, "conditions": [{"type": "Other", "status": "True", "futureKey": 1}]},
        })
    }

    #[test]
    fn every_field_is_read() {
        let rs = read(&sample());
        assert_eq!(rs.key.to_string(), "default/web");
        assert_eq!(
            (rs.generation, rs.replicas, rs.min_ready_seconds),
            (3, 4, 5)
        );
        assert_eq!(rs.controller.as_ref().map(|c| &*c.name), Some("d"));
        assert!(
            rs.selector
                .expect("a valid selector")
                .matches(&rs.template_labels)
        );
        assert_eq!(
            (rs.status.replicas, rs.status.terminating_replicas),
            (2, None)
        );
    }

    #[test]
    fn absent_replicas_mean_one() {
        let rs = read(&json!({"metadata": {"name": "web"}, "spec": {}}));
        assert_eq!((rs.replicas, rs.min_ready_seconds), (1, 0));
        assert!(rs.template().is_none());
    }

    #[test]
    fn a_status_update_carries_all_that_it_does_not_know() {
        let rs = read(&sample());
        let status = ReplicaSetStatus {
            replicas: 4,
            terminating_replicas: Some(0),
            ..rs.status.clone()
        };
        let body = rs
            .to_json_with_status("apps/v1", "ReplicaSet", &status)
            .expect("JSON");
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        let mut expected = sample();
        expected["metadata"]
            .as_object_mut()
            .expect("an object")
            .remove("managedFields");
        expected["status"]["replicas"] = json!(4);
        expected["status"]["terminatingReplicas"] = json!(0);
        assert_eq!(body, expected);
    }

    fn read_controller(object: &Value) -> Result<ReplicaSet, serde_json::Error> {
        let text = object.to_string();
        let interner = &mut Interner::default();
        ReplicaSet::of_kind(&REPLICATION_CONTROLLER, text.as_bytes(), interner)
    }

    #[test]
    fn o_02_a_map_selector_is_one_of_equalities() {
        let mut object = sample();
        object["apiVersion"] = json!("v1");
        object["kind"] = json!("ReplicationController");
        object["spec"]["selector"] = json!({"app": "web", "tier": "front"});
        let rc = read_controller(&object).expect("readable");
        let selector = rc.selector.as_ref().expect("a valid selector");
        assert_eq!(selector.to_string(), "app=web,tier=front");
        assert_eq!((rc.generation, rc.replicas), (3, 4));
        // A key that would mean something in a label selector is a label like any other.
        object["spec"]["selector"] = json!({"matchLabels": "x"});
        let rc = read_controller(&object).expect("readable");
        assert_eq!(rc.selector.expect("valid").to_string(), "matchLabels=x");
        // What is sent back is what came, the selector too.
        let body = rc.carried.spec.get();
        let spec: Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(spec, object["spec"]);
    }

    #[test]
    fn o_02_no_selector_and_an_empty_one_match_nothing() {
        for selector in [Value::Null, json!({})] {
            let mut object = sample();
            object["spec"]["selector"] = selector;
            let rc = read_controller(&object).expect("readable");
            let selector = rc.selector.expect("valid");
            assert!(selector.is_empty() && !selector.matches(&Labels::default()));
        }
    }

    #[test]
    fn o_02_a_selector_that_is_no_map_of_labels_cannot_be_read() {
        let mut object = sample();
        object["spec"]["selector"] = json!({"matchLabels": {"app": "web"}});
        read_controller(&object).expect_err("a map of texts is wanted");
    }

    #[test]
    fn the_template_is_carried_whole() {
        let rs = read(&sample());
        let template: Value =
            serde_json::from_str(rs.template().expect("a template").get()).expect("JSON");
        assert_eq!(template, sample()["spec"]["template"]);
    }
}
