//! Unknown fields, for `fieldValidation`. The check decodes an object into the Kubernetes type of
//! its kind, encodes it again and reports the lost fields.
//!
//! DIFFERS: the server stores unknown fields, so that tests can see how a client handles them. The
//! check misses `null` fields and duplicate fields, and all fields of kinds that the server only
//! stores.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    Event, Namespace, Node, Pod, ReplicationController, ResourceQuota, ServiceAccount,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::resource::Resource;

/// Fields with quantities, which are numbers or texts in a request and texts in the Kubernetes
/// types.
const AMOUNTS: [&str; 5] = ["requests", "limits", "hard", "capacity", "overhead"];

/// The unknown fields of `object` (without `kind` and `apiVersion`), by path, such as
/// `spec.template.spec.containers[0].imagee`. Returns none for an object that does not decode as
/// its kind; other checks report that.
pub(super) fn unknown_fields(resource: Resource, object: &Value) -> Vec<String> {
    let known = match resource {
        Resource::Pods => round_trip::<Pod>(object),
        Resource::ReplicaSets => round_trip::<ReplicaSet>(object),
        Resource::ReplicationControllers => round_trip::<ReplicationController>(object),
        Resource::Namespaces => round_trip::<Namespace>(object),
        Resource::Events => round_trip::<Event>(object),
        Resource::Leases => round_trip::<Lease>(object),
        Resource::ServiceAccounts => round_trip::<ServiceAccount>(object),
        Resource::Quotas => round_trip::<ResourceQuota>(object),
        Resource::Nodes => round_trip::<Node>(object),
        Resource::Definitions | Resource::Plain(_) => None,
    };
    let mut lost = Vec::new();
    if let Some(known) = known {
        add_lost(object, &known, "", &mut lost);
    }
    lost
}

fn round_trip<T: DeserializeOwned + Serialize>(object: &Value) -> Option<Value> {
    let mut object = object.clone();
    amounts_as_texts(&mut object);
    let read: T = serde_json::from_value(object).ok()?;
    serde_json::to_value(read).ok()
}

fn amounts_as_texts(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member.as_object_mut() {
                    Some(amounts) if AMOUNTS.contains(&name.as_str()) => {
                        for amount in amounts.values_mut().filter(|amount| amount.is_number()) {
                            *amount = Value::String(amount.to_string());
                        }
                    }
                    _ => amounts_as_texts(member),
                }
            }
        }
        Value::Array(entries) => entries.iter_mut().for_each(amounts_as_texts),
        _ => {}
    }
}

fn add_lost(given: &Value, known: &Value, path: &str, lost: &mut Vec<String>) {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => {
            for (name, value) in given {
                let dot = if path.is_empty() { "" } else { "." };
                let path = format!("{path}{dot}{name}");
                match known.get(name) {
                    Some(known) => add_lost(value, known, &path, lost),
                    None if value.is_null() => {}
                    None => lost.push(path),
                }
            }
        }
        (Value::Array(given), Value::Array(known)) => {
            for (index, (given, known)) in given.iter().zip(known).enumerate() {
                add_lost(given, known, &format!("{path}[{index}]"), lost);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Resource, unknown_fields};

    #[track_caller]
    fn check(resource: Resource, object: &Value, expected: &[&str]) {
        assert_eq!(unknown_fields(resource, object), expected);
    }

    #[test]
    fn unknown_fields_are_reported_by_path() {
        let pod = json!({
            "metadata": {"name": "a", "label": {}, "annotations": {"any": "thing"}, "uid": null},
            "spec": {
                "containers": [
                    {"name": "c", "image": "x", "resources": {"requests": {"cpu": 1}}},
                    {"name": "d", "imagee": "x", "ports": [{"containerPort": 1, "name": "p"}]},
                ],
                "nodeSelector": {"any": "thing"},
            },
            "zzz": 1,
        });
        let unknown = ["metadata.label", "spec.containers[1].imagee", "zzz"];
        check(Resource::Pods, &pod, &unknown);
        let replica_set = json!({"spec": {"Replicas": 1, "template": {"spec": {"bogus": 1}}}});
        let unknown = ["spec.Replicas", "spec.template.spec.bogus"];
        check(Resource::ReplicaSets, &replica_set, &unknown);
        let quota = json!({"spec": {"hard": {"pods": 2}, "soft": {}}});
        check(Resource::Quotas, &quota, &["spec.soft"]);
    }
}
