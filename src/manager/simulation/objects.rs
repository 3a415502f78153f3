//! The objects of the model: JSON, as the API server stores and returns them.

use std::sync::Arc;

use serde_json::{Value, json};

/// The only namespace with ReplicaSets.
pub(super) const NAMESPACE: &str = "default";

/// The name of the quota, while there is one.
pub(super) const QUOTA: &str = "few";

/// A kind of stored objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Pod,
    ReplicaSet,
    Lease,
    Event,
    Quota,
}

impl Kind {
    pub(super) fn of(resource: &str) -> Option<Self> {
        Some(match resource {
            "pods" => Self::Pod,
            "replicasets" => Self::ReplicaSet,
            "leases" => Self::Lease,
            "events" => Self::Event,
            "resourcequotas" => Self::Quota,
            _ => return None,
        })
    }

    pub(super) fn api_version(self) -> &'static str {
        match self {
            Self::Pod | Self::Event | Self::Quota => "v1",
            Self::ReplicaSet => "apps/v1",
            Self::Lease => "coordination.k8s.io/v1",
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::ReplicaSet => "ReplicaSet",
            Self::Lease => "Lease",
            Self::Event => "Event",
            Self::Quota => "ResourceQuota",
        }
    }

    pub(super) fn resource(self) -> &'static str {
        match self {
            Self::Pod => "pods",
            Self::ReplicaSet => "replicasets",
            Self::Lease => "leases",
            Self::Event => "events",
            Self::Quota => "resourcequotas",
        }
    }
}

/// A stored version of an object.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) revision: u64,
    pub(super) value: Value,
}

/// One change of the store.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) revision: u64,
    pub(super) is_deletion: bool,
    pub(super) is_new: bool,
    pub(super) object: Arc<Object>,
}

/// The line of a watch that reports `change`.
pub(super) fn frame(change: &Change) -> Vec<u8> {
    let type_ = match (change.is_deletion, change.is_new) {
        (true, _) => "DELETED",
        (false, true) => "ADDED",
        (false, false) => "MODIFIED",
    };
    line(type_, &change.object.value)
}

/// The event that ends a watch with this Status.
pub(super) fn error(status: &[u8]) -> Vec<u8> {
    line("ERROR", &serde_json::from_slice(status).unwrap_or_default())
}

/// A bookmark.
pub(super) fn bookmark(kind: Kind, revision: u64, ends_initial_events: bool) -> Vec<u8> {
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if ends_initial_events {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    let object =
        json!({"apiVersion": kind.api_version(), "kind": kind.name(), "metadata": metadata});
    line("BOOKMARK", &object)
}

fn line(type_: &str, object: &Value) -> Vec<u8> {
    let mut line = format!("{{\"type\":\"{type_}\",\"object\":{object}}}").into_bytes();
    line.push(b'\n');
    line
}

/// Kind, name and subresource of a path.
pub(super) fn target(path: &str) -> Option<(Kind, Option<&str>, Option<&str>)> {
    let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (["api", "v1", rest @ ..] | ["apis", _, _, rest @ ..]) = segments.as_slice() else {
        return None;
    };
    let rest = if rest.first() == Some(&"namespaces") {
        rest.get(2..)?
    } else {
        rest
    };
    let mut rest = rest.iter().copied();
    Some((Kind::of(rest.next()?)?, rest.next(), rest.next()))
}

/// The `managedFields` of a pod whose owner reference this client wrote.
pub(super) fn owned_by(manager: &str, at: &str) -> Value {
    let fields = json!({"f:metadata": {"f:ownerReferences": {}}});
    json!([{"manager": manager, "time": at, "fieldsV1": fields}])
}

/// True if the object is being deleted.
pub(super) fn is_terminating(object: &Object) -> bool {
    !object.value["metadata"]["deletionTimestamp"].is_null()
}

/// True if the pod counts for its owner.
pub(super) fn is_active(pod: &Value) -> bool {
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    !matches!(phase, "Succeeded" | "Failed") && pod["metadata"]["deletionTimestamp"].is_null()
}

/// True if the pod has lost the labels by which its ReplicaSet selects it, which then releases it.
pub(super) fn is_lost(pod: &Value) -> bool {
    pod["metadata"]["labels"]["app"] == "lost"
}

/// True if the pod counts for this owner while it is active.
pub(super) fn is_of(pod: &Object, owner: &str) -> bool {
    controller_of(&pod.value) == Some(owner) && !is_lost(&pod.value)
}

/// The condition of this type in an object's status.
pub(super) fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|it| it["type"] == type_)
}

/// UID of the object's controller.
pub(super) fn controller_of(object: &Value) -> Option<&str> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let controller = owners.iter().find(|owner| owner["controller"] == true)?;
    controller["uid"].as_str()
}

/// True if the labels of `object` match a selector such as `app=web,tier in (a)`.
pub(super) fn labels_match(object: &Value, selector: &str) -> bool {
    let labels = &object["metadata"]["labels"];
    let mut pairs = selector.split(',').filter(|pair| !pair.is_empty());
    pairs.all(|pair| {
        pair.split_once('=')
            .is_some_and(|(name, value)| labels[name] == value)
    })
}
