//! Deployments and ReplicaSets as this controller reads them, and the stores that hold them.
//!
//! Both watches ask for JSON: a pod template passes through untouched, with fields that this build
//! does not know. Only the fields that decide something are typed.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DeploymentStatus, DeploymentStrategy, ReplicaSetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::api::interner::Interner;
use crate::api::label_selector::{LabelSelector, SelectorError};
use crate::api::{
    ArcStr, ControllerRef, Labels, ObjectKey, Quantity, ResourceVersion, Selector, Uid,
};
use crate::cache::Store;
use crate::cache::decode::Decode;
use crate::cache::store::Indexed;

pub const DEPLOYMENT: &str = "Deployment";

pub const REPLICA_SET: &str = "ReplicaSet";

/// The label by which the ReplicaSets of one Deployment, and their pods, differ.
pub const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// All Deployments, in a bucket for each namespace.
pub type DeploymentStore = Store<Deployment>;

/// All ReplicaSets. Each is in exactly one bucket.
pub type ReplicaSetStore = Store<ReplicaSet>;

pub type Annotations = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq)]
pub struct Deployment {
    pub key: ObjectKey,
    pub uid: Uid,
    pub resource_version: ResourceVersion,
    pub generation: i64,
    pub is_terminating: bool,
    pub annotations: Annotations,
    /// `metadata` as read; a status update sends it back.
    pub metadata: Value,
    pub replicas: i32,
    pub selector: Value,
    /// The same, for matching.
    pub parsed_selector: Result<Selector, SelectorError>,
    pub template: Template,
    pub strategy: Strategy,
    pub min_ready_seconds: i32,
    /// `spec.revisionHistoryLimit`; `None`: unlimited.
    pub revision_history_limit: Option<usize>,
    pub paused: bool,
    /// `spec.progressDeadlineSeconds`; `None`: progress is not watched.
    pub progress_deadline: Option<i32>,
    pub status: DeploymentStatus,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// All old pods are deleted before new ones are created.
    Recreate,
    /// Old pods are replaced step by step.
    RollingUpdate {
        max_surge: IntOrString,
        max_unavailable: IntOrString,
    },
    /// A strategy that this build does not know.
    Unknown(String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaSet {
    pub key: ObjectKey,
    /// `metadata.uid`; empty before it is created.
    pub uid: Uid,
    pub resource_version: ResourceVersion,
    pub generation: i64,
    /// `metadata.creationTimestamp`.
    pub created: Timestamp,
    pub is_terminating: bool,
    pub labels: Labels,
    pub annotations: Annotations,
    pub controller: Option<ControllerRef>,
    pub replicas: i32,
    pub min_ready_seconds: i32,
    /// `spec.template` without the label [`POD_TEMPLATE_HASH`].
    pub template: Template,
    pub status: ReplicaSetStatus,
}

/// A pod template without the label [`POD_TEMPLATE_HASH`], as JSON with sorted keys and without
/// `null`s. Templates are equal if they differ only in the notation of amounts.
#[derive(Clone)]
pub struct Template {
    text: Arc<str>,
    /// The text with amounts in one notation; `None` if `text` has it.
    canonical: Option<Arc<str>>,
}

impl Template {
    pub fn new(mut template: Value) -> Self {
        remove_nulls(&mut template);
        if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
            if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
                labels.remove(POD_TEMPLATE_HASH);
            }
            metadata.retain(|_, value| value.as_object().is_none_or(|map| !map.is_empty()));
            if metadata.is_empty() {
                template.as_object_mut().map(|it| it.remove("metadata"));
            }
        }
        let text = template.to_string().into();
        let spec = template.get_mut("spec");
        let is_changed = spec.is_some_and(|spec| rewrite_amounts("spec", spec));
        Self {
            text,
            canonical: is_changed.then(|| template.to_string().into()),
        }
    }

    /// The text that equal templates have in common.
    pub fn canonical(&self) -> &str {
        self.canonical.as_ref().unwrap_or(&self.text)
    }

    /// The template as an object.
    pub fn to_value(&self) -> Value {
        serde_json::from_str(&self.text).expect("it was written as JSON")
    }
}

impl std::fmt::Debug for Template {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        self.canonical() == other.canonical()
    }
}

impl Eq for Template {}

/// Writes the amounts below `parent`, a part of a pod's spec, in one notation, as the API server
/// does not: it keeps both `1Gi` and `1073741824`. True if one changed.
fn rewrite_amounts(parent: &str, value: &mut Value) -> bool {
    let mut is_changed = false;
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                is_changed |= match (parent, name.as_str()) {
                    ("limits" | "requests" | "overhead", _)
                    | ("emptyDir", "sizeLimit")
                    | ("resourceFieldRef", "divisor") => rewrite_amount(value),
                    ("resources", "limits" | "requests") | ("spec", "overhead") => {
                        rewrite_amounts(name, value)
                    }
                    // The keys of this map are the user's.
                    (_, "limits" | "requests" | "overhead") => false,
                    _ => rewrite_amounts(name, value),
                };
            }
        }
        Value::Array(items) => {
            for item in items {
                is_changed |= rewrite_amounts(parent, item);
            }
        }
        _ => {}
    }
    is_changed
}

fn rewrite_amount(value: &mut Value) -> bool {
    let canonical = Quantity::read(value).map(|it| Value::String(it.canonical()));
    let canonical = canonical.filter(|canonical| canonical != value);
    canonical.map(|it| *value = it).is_some()
}

fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

#[derive(Deserialize)]
struct DeploymentJson {
    metadata: Value,
    #[serde(default)]
    spec: DeploymentSpecJson,
    #[serde(default)]
    status: Option<DeploymentStatus>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeploymentSpecJson {
    replicas: Option<i32>,
    selector: Value,
    template: Value,
    strategy: Option<DeploymentStrategy>,
    min_ready_seconds: Option<i32>,
    revision_history_limit: Option<i32>,
    paused: Option<bool>,
    progress_deadline_seconds: Option<i32>,
}

#[derive(Deserialize)]
struct ReplicaSetJson {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: ReplicaSetSpecJson,
    #[serde(default)]
    status: Option<ReplicaSetStatus>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReplicaSetSpecJson {
    replicas: Option<i32>,
    min_ready_seconds: Option<i32>,
    template: Value,
}

fn key_of(metadata: &ObjectMeta) -> ObjectKey {
    let text = |text: &Option<String>| ArcStr::from(text.as_deref().unwrap_or_default());
    ObjectKey::new(text(&metadata.namespace), text(&metadata.name))
}

fn uid_of(metadata: &ObjectMeta) -> Uid {
    Uid::new(metadata.uid.as_deref().unwrap_or_default())
}

fn version_of(metadata: &ObjectMeta) -> ResourceVersion {
    ResourceVersion::new(metadata.resource_version.as_deref().unwrap_or_default())
}

fn controller_of(metadata: &ObjectMeta) -> Option<ControllerRef> {
    let mut owners = metadata.owner_references.iter().flatten();
    let owner = owners.find(|it| it.controller == Some(true))?;
    Some(ControllerRef {
        kind: owner.kind.as_str().into(),
        name: owner.name.as_str().into(),
        uid: Uid::new(&owner.uid),
    })
}

impl From<Option<DeploymentStrategy>> for Strategy {
    /// As the API server does, an absent strategy is a rolling update by a quarter.
    fn from(strategy: Option<DeploymentStrategy>) -> Self {
        let strategy = strategy.unwrap_or_default();
        let quarter = || IntOrString::String("25%".to_owned());
        match strategy.type_.as_deref() {
            None | Some("" | "RollingUpdate") => {
                let update = strategy.rolling_update.unwrap_or_default();
                Self::RollingUpdate {
                    max_surge: update.max_surge.unwrap_or_else(quarter),
                    max_unavailable: update.max_unavailable.unwrap_or_else(quarter),
                }
            }
            Some("Recreate") => Self::Recreate,
            Some(other) => Self::Unknown(other.to_owned()),
        }
    }
}

impl Deployment {
    /// True if the selector is empty and would select everything (upstream warns and then ignores
    /// such a Deployment).
    pub fn selects_all(&self) -> bool {
        self.selector.as_object().is_some_and(Map::is_empty)
    }

    /// True if the selector matches `labels`; an empty or invalid one matches nothing.
    pub fn selects(&self, labels: &Labels) -> bool {
        let selector = self.parsed_selector.as_ref();
        selector.is_ok_and(|selector| selector.matches(labels))
    }

    /// Decodes a Deployment from JSON.
    ///
    /// # Errors
    /// If the text is not JSON, or not such an object.
    pub fn from_json(json: &[u8]) -> Result<Self, serde_json::Error> {
        let DeploymentJson {
            metadata,
            spec,
            status,
        } = serde_json::from_slice(json)?;
        let known = ObjectMeta::deserialize(&metadata)?;
        // As `math.MaxInt32` in `spec`, which the API documents as "no limit".
        let limited = |limit: Option<i32>| limit.filter(|limit| *limit != i32::MAX);
        let selector = match &spec.selector {
            Value::Null => LabelSelector::default(),
            // From text, since its fields borrow.
            selector => serde_json::from_str(&selector.to_string())?,
        };
        Ok(Self {
            key: key_of(&known),
            uid: uid_of(&known),
            resource_version: version_of(&known),
            generation: known.generation.unwrap_or_default(),
            is_terminating: known.deletion_timestamp.is_some(),
            annotations: known.annotations.unwrap_or_default(),
            metadata,
            replicas: spec.replicas.unwrap_or(1),
            selector: spec.selector,
            parsed_selector: Selector::new(selector),
            template: Template::new(spec.template),
            strategy: spec.strategy.into(),
            min_ready_seconds: spec.min_ready_seconds.unwrap_or_default(),
            revision_history_limit: limited(spec.revision_history_limit)
                .map(|limit| usize::try_from(limit).unwrap_or_default()),
            paused: spec.paused.unwrap_or_default(),
            progress_deadline: limited(spec.progress_deadline_seconds),
            status: status.unwrap_or_default(),
        })
    }
}

impl ReplicaSet {
    pub fn wants_pods(&self) -> bool {
        self.replicas > 0
    }

    pub fn available(&self) -> i32 {
        self.status.available_replicas.unwrap_or_default()
    }

    pub fn is_controlled_by(&self, owner: &Uid) -> bool {
        self.controller.as_ref().is_some_and(|it| it.uid == *owner)
    }

    /// The order of creation; the name decides among those of one second.
    pub fn creation_order(&self) -> (Timestamp, &str) {
        (self.created, &self.key.name)
    }

    /// Decodes a ReplicaSet from JSON.
    ///
    /// # Errors
    /// If the text is not JSON, or not such an object.
    pub fn from_json(json: &[u8]) -> Result<Self, serde_json::Error> {
        let ReplicaSetJson {
            metadata,
            spec,
            status,
        } = serde_json::from_slice(json)?;
        Ok(Self {
            key: key_of(&metadata),
            controller: controller_of(&metadata),
            uid: uid_of(&metadata),
            resource_version: version_of(&metadata),
            generation: metadata.generation.unwrap_or_default(),
            created: metadata
                .creation_timestamp
                .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            is_terminating: metadata.deletion_timestamp.is_some(),
            labels: metadata.labels.unwrap_or_default().into_iter().collect(),
            annotations: metadata.annotations.unwrap_or_default(),
            replicas: spec.replicas.unwrap_or(1),
            min_ready_seconds: spec.min_ready_seconds.unwrap_or_default(),
            template: Template::new(spec.template),
            status: status.unwrap_or_default(),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReplicaSetBucket {
    /// ReplicaSets whose controller has this UID.
    ControlledBy(Uid),
    /// ReplicaSets of a namespace without a controller.
    OrphansIn(ArcStr),
}

impl Indexed for Deployment {
    type Bucket = ArcStr;
    type Tally = ();

    fn identity(&self) -> (&ObjectKey, &Uid, &ResourceVersion) {
        (&self.key, &self.uid, &self.resource_version)
    }

    fn buckets(&self) -> [Option<ArcStr>; 2] {
        [Some(self.key.namespace.clone()), None]
    }
}

impl Indexed for ReplicaSet {
    type Bucket = ReplicaSetBucket;
    type Tally = ();

    fn identity(&self) -> (&ObjectKey, &Uid, &ResourceVersion) {
        (&self.key, &self.uid, &self.resource_version)
    }

    fn buckets(&self) -> [Option<ReplicaSetBucket>; 2] {
        let bucket = match &self.controller {
            Some(controller) => ReplicaSetBucket::ControlledBy(controller.uid.clone()),
            None => ReplicaSetBucket::OrphansIn(self.key.namespace.clone()),
        };
        [Some(bucket), None]
    }
}

impl Decode for Deployment {
    type Object = Self;

    const KIND: &'static str = DEPLOYMENT;
    const RESOURCE: &'static str = "deployments";

    fn from_json(json: &[u8], _: &mut Interner) -> Result<Self, serde_json::Error> {
        Self::from_json(json)
    }
}

impl Decode for ReplicaSet {
    type Object = Self;

    const KIND: &'static str = REPLICA_SET;
    const RESOURCE: &'static str = "replicasets";
    // Distinguishes this watch's metrics from the ReplicaSet controller's.
    const LABEL: &'static str = "replicasets-of-deployments";

    fn from_json(json: &[u8], _: &mut Interner) -> Result<Self, serde_json::Error> {
        Self::from_json(json)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Template;

    #[test]
    fn templates_are_equal_whatever_the_notation_of_amounts() {
        let template = |amounts: [&str; 3], storage: &str| {
            let [memory, size, divisor] = amounts;
            Template::new(json!({
                "metadata": {"annotations": {"limits": storage}},
                "spec": {
                    "containers": [{
                        "env": [{"valueFrom": {"resourceFieldRef": {"divisor": divisor}}}],
                        "resources": {"limits": {"memory": memory}, "requests": {"cpu": divisor}},
                    }],
                    "nodeSelector": {"storage": storage, "overhead": storage},
                    "overhead": {"memory": memory},
                    "volumes": [{"emptyDir": {"sizeLimit": size}}],
                },
            }))
        };
        let written = template(["1073741824", "1000000", "1e0"], "1Gi");
        let other = template(["1Gi", "1M", "1"], "1Gi");
        assert_eq!(written, other);
        assert_eq!(other.canonical, None, "no second text without need");
        let limits = "/spec/containers/0/resources/limits/memory";
        let sent = written.to_value().pointer(limits).cloned();
        assert_eq!(sent, Some(Value::from("1073741824")), "as written");
        assert_ne!(written, template(["1025Mi", "1M", "1"], "1Gi"));
        assert_ne!(written, template(["1Gi", "1M", "1"], "1073741824"));
    }
}
