//! Revisions of a Deployment: how its ReplicaSets are named, numbered, annotated and found.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSetStatus;
use serde_json::{Map, Value, json};

use crate::api::replica_set::DESIRED_REPLICAS;
pub(crate) use crate::api::replica_set::REVISION;
use crate::api::{ControllerRef, ObjectKey, ResourceVersion, Uid};
use crate::fenceposts::max_replicas;
use crate::objects::{Annotations, DEPLOYMENT, Deployment, POD_TEMPLATE_HASH, ReplicaSet};

/// The earlier numbers of a ReplicaSet to which a Deployment was rolled back.
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";

/// `spec.replicas` plus `maxSurge` of the Deployment at that time.
const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";

/// The revision that a client of an API that no longer exists asked to roll back to.
pub(crate) const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";

/// Annotations that are not copied between a Deployment and its ReplicaSets.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    ROLLBACK_TO,
];

/// Maximum length of the annotation [`REVISION_HISTORY`]: a few hundred revisions.
const HISTORY_MAX: usize = 2000;

/// Maximum length of an object's name (apimachinery
/// `pkg/util/validation/validation.go:DNS1123SubdomainMaxLength`).
const NAME_MAX: usize = 253;

/// The characters of hashes in names: no vowels, so that no offensive words result (apimachinery
/// `pkg/util/rand/rand.go`).
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The revision of a ReplicaSet: 0 without the annotation, `None` if it is not a number.
pub(crate) fn revision_of(annotations: &Annotations) -> Option<i64> {
    annotations
        .get(REVISION)
        .map_or(Some(0), |it| it.parse().ok())
}

pub(crate) fn max_revision<'a>(sets: impl Iterator<Item = &'a Annotations>) -> i64 {
    sets.filter_map(revision_of).max().unwrap_or(0).max(0)
}

/// The second highest revision (upstream: `lastRevision`); zero if there is none.
pub(crate) fn previous_revision<'a>(sets: impl Iterator<Item = &'a Annotations>) -> i64 {
    let mut revisions: Vec<i64> = sets.filter_map(revision_of).collect();
    revisions.sort_unstable();
    revisions.iter().rev().nth(1).copied().unwrap_or(0)
}

/// A number of replicas in an annotation; `None` without one and if it is invalid.
fn replicas_in(annotations: &Annotations, key: &str) -> Option<i32> {
    let n: i32 = annotations.get(key)?.parse().ok()?;
    Some(n).filter(|n| *n >= 0)
}

/// `spec.replicas` of the Deployment when it last scaled the ReplicaSet.
pub(crate) fn desired_replicas_of(annotations: &Annotations) -> Option<i32> {
    replicas_in(annotations, DESIRED_REPLICAS)
}

/// The maximum pods of the Deployment when it last scaled the ReplicaSet.
pub(crate) fn max_replicas_of(rs: &ReplicaSet) -> Option<i32> {
    replicas_in(&rs.annotations, MAX_REPLICAS)
}

/// Records the Deployment's size on a ReplicaSet.
pub(crate) fn set_replicas(annotations: &mut Annotations, d: &Deployment) {
    for (key, n) in [
        (DESIRED_REPLICAS, d.replicas),
        (MAX_REPLICAS, max_replicas(d)),
    ] {
        annotations.insert(key.to_owned(), n.to_string());
    }
}

/// Copies the Deployment's annotations to its new ReplicaSet, and gives it at least this revision.
/// The number that it had moves to the history: the Deployment was rolled back to it.
pub(crate) fn set_revision(annotations: &mut Annotations, d: &Deployment, revision: i64) {
    copy_annotations(annotations, &d.annotations);
    let earlier = annotations.get(REVISION).cloned();
    let number = match &earlier {
        Some(text) if !text.is_empty() => text.parse(),
        _ => Ok(0),
    };
    // Keep a value that is not a number: a user has set it.
    let Ok(number) = number else { return };
    if number >= revision {
        return;
    }
    annotations.insert(REVISION.to_owned(), revision.to_string());
    if let Some(earlier) = earlier {
        let history = annotations.entry(REVISION_HISTORY.to_owned()).or_default();
        append_revision(history, &earlier);
    }
}

/// Appends a revision to a history and drops the oldest entries beyond the maximum length.
fn append_revision(history: &mut String, revision: &str) {
    if revision.len() > HISTORY_MAX {
        return;
    }
    while !history.is_empty() && history.len() + 1 + revision.len() > HISTORY_MAX {
        let first = history.find(',').map_or(history.len(), |comma| comma + 1);
        history.drain(..first);
    }
    if !history.is_empty() {
        history.push(',');
    }
    history.push_str(revision);
}

fn copy_annotations(to: &mut Annotations, from: &Annotations) {
    let copied = from
        .iter()
        .filter(|(key, _)| !NOT_COPIED.contains(&&***key));
    to.extend(copied.map(|(key, value)| (key.clone(), value.clone())));
}

/// The annotations of a Deployment that is rolled back to a ReplicaSet with the annotations `of`:
/// otherwise `kubernetes.io/change-cause` would still describe the revision that was rolled back.
pub(crate) fn rolled_back(d: &Deployment, of: &Annotations) -> Annotations {
    let mut annotations = d.annotations.clone();
    annotations.retain(|key, _| NOT_COPIED.contains(&&**key) && key != ROLLBACK_TO);
    copy_annotations(&mut annotations, of);
    annotations
}

/// The revision that the Deployment asks to be rolled back to; zero is the last one.
pub(crate) fn rollback_to(d: &Deployment) -> Option<i64> {
    d.annotations.get(ROLLBACK_TO)?.parse().ok()
}

/// The value of the label [`POD_TEMPLATE_HASH`] for the Deployment's template. A new collision
/// count changes the hash.
///
/// DIFFERS: upstream hashes a dump of Go's structure, so its hash, and the name of the ReplicaSet,
/// differ for the same template. That is harmless: they differ between Kubernetes versions too, and
/// ReplicaSets are matched by template.
pub(crate) fn template_hash(d: &Deployment) -> String {
    let mut hash = 0x811c_9dc5_u32;
    // FNV-1a.
    let mut write = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    };
    write(d.template.canonical().as_bytes());
    if let Some(count) = d.status.collision_count {
        write(&count.to_le_bytes());
    }
    let digits = hash.to_string();
    let encoded = digits
        .bytes()
        .map(|it| ALPHABET[usize::from(it) % ALPHABET.len()]);
    encoded.map(char::from).collect()
}

/// The ReplicaSet for the Deployment's template as it will be created, without pods.
pub(crate) fn new_replica_set(d: &Deployment, hash: &str, now: Timestamp) -> ReplicaSet {
    let mut name: String = d.key.name.to_string();
    name.truncate(NAME_MAX - 1 - hash.len());
    let mut annotations = Annotations::new();
    set_replicas(&mut annotations, d);
    ReplicaSet {
        key: ObjectKey::new(d.key.namespace.clone(), format!("{name}-{hash}")),
        uid: Uid::default(),
        resource_version: ResourceVersion::default(),
        generation: 1,
        created: now,
        is_terminating: false,
        labels: labels_in(&with_hash(d, hash)),
        annotations,
        controller: Some(ControllerRef {
            kind: DEPLOYMENT.into(),
            name: d.key.name.clone(),
            uid: d.uid.clone(),
        }),
        replicas: 0,
        min_ready_seconds: d.min_ready_seconds,
        template: d.template.clone(),
        status: ReplicaSetStatus::default(),
    }
}

/// The Deployment's template with the label [`POD_TEMPLATE_HASH`].
fn with_hash(d: &Deployment, hash: &str) -> Value {
    let mut template = d.template.to_value();
    template["metadata"]["labels"][POD_TEMPLATE_HASH] = json!(hash);
    template
}

fn labels_in(template: &Value) -> crate::api::Labels {
    let labels = template["metadata"]["labels"].as_object();
    let labels = labels.into_iter().flatten();
    labels
        .filter_map(|(key, value)| Some((key, value.as_str()?)))
        .collect()
}

/// The object to create: [`new_replica_set`] with the template, and a selector that matches only
/// its own pods.
pub(crate) fn to_object(d: &Deployment, rs: &ReplicaSet, hash: &str) -> Value {
    let template = with_hash(d, hash);
    let mut selector = d.selector.clone();
    selector["matchLabels"][POD_TEMPLATE_HASH] = json!(hash);
    json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": &*rs.key.name,
            "namespace": &*rs.key.namespace,
            "labels": template["metadata"]["labels"],
            "annotations": rs.annotations,
            "ownerReferences": [owner_reference(d)],
        },
        "spec": {
            "replicas": rs.replicas,
            "minReadySeconds": rs.min_ready_seconds,
            "selector": selector,
            "template": template,
        },
    })
}

/// The reference by which the Deployment controls its ReplicaSets.
pub(crate) fn owner_reference(d: &Deployment) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": DEPLOYMENT,
        "name": &*d.key.name,
        "uid": d.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// The members of `new` that `old` lacks or has with another value, as a merge patch.
pub(crate) fn changes(old: &Annotations, new: &Annotations) -> Map<String, Value> {
    let changed = new
        .iter()
        .filter(|(key, value)| old.get(*key) != Some(*value));
    changed
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect()
}
