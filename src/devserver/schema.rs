//! The fields of an object: their types, and those that its kind does not have. The API server
//! checks both while it decodes, before any validation. Pure.
//!
//! DIFFERS: the table of types has only the fields that the server itself, a controller or kubectl
//! reads; other fields may have any type. The server stores unknown fields, so that tests can see
//! how a client handles them. The check of unknown fields misses `null` fields and duplicate
//! fields, and all fields of kinds that the server only stores.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    Event, Namespace, Node, Pod, ReplicationController, ResourceQuota, ServiceAccount,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::CompactTimestamp;
use crate::resource::Resource;
use crate::types::{Kind, Many, Member, fields_of};

/// Maximum entries of one list.
const LIST_LENGTH_MAX: usize = 10_000;

/// Checks the field types of `object`; the error has the text of Go's decoder. `null` fits every
/// type.
pub(crate) fn check(resource: Resource, object: &Value) -> Result<(), String> {
    check_lengths(object)?;
    let kind = match resource.kind() {
        _ if resource.is_custom() => "CustomObject",
        kind if fields_of(kind).is_some() => kind,
        _ => "Object",
    };
    check_members(kind, object, "")
}

/// DIFFERS: upstream bounds only the bytes of a request. Here a list merge holds the store's lock,
/// and every other request waits for it.
fn check_lengths(value: &Value) -> Result<(), String> {
    match value {
        Value::Array(entries) if entries.len() > LIST_LENGTH_MAX => {
            let n_entries = entries.len();
            Err(format!(
                "a list has {n_entries} entries, and the dev server takes {LIST_LENGTH_MAX}"
            ))
        }
        Value::Array(entries) => entries.iter().try_for_each(check_lengths),
        Value::Object(members) => members.values().try_for_each(check_lengths),
        _ => Ok(()),
    }
}

fn check_members(kind: &'static str, object: &Value, path: &str) -> Result<(), String> {
    for member in fields_of(kind).unwrap_or_default() {
        let value = &object[member.name];
        if !value.is_null() && member.kind != Kind::Skipped {
            let dot = if path.is_empty() { "" } else { "." };
            let place = Place {
                kind,
                path: format!("{path}{dot}{}", member.name),
            };
            place.check(member, value)?;
        }
    }
    Ok(())
}

/// A field in error messages: the type that has it, and its path.
struct Place {
    kind: &'static str,
    path: String,
}

impl Place {
    fn check(&self, member: &Member, value: &Value) -> Result<(), String> {
        let may_be_null = matches!(member.kind, Kind::Text | Kind::Bytes);
        let go_type = go_type(member.kind);
        match member.many {
            Many::One => self.check_one(member.kind, value),
            Many::List => {
                self.fits(value.is_array(), value, &format!("[]{go_type}"))?;
                let entries = value.as_array().into_iter().flatten();
                // DIFFERS: upstream reads `null` as an entry without members. This server keeps
                // what it is sent, and no API server serves `null` here.
                let mut entries = entries.filter(|entry| !(may_be_null && entry.is_null()));
                entries.try_for_each(|entry| self.check_one(member.kind, entry))
            }
            Many::Map => {
                self.fits(value.is_object(), value, &format!("map[string]{go_type}"))?;
                let entries = value.as_object().into_iter().flatten();
                let mut entries = entries.filter(|(_, entry)| !(may_be_null && entry.is_null()));
                entries.try_for_each(|(_, entry)| self.check_one(member.kind, entry))
            }
        }
    }

    fn check_one(&self, kind: Kind, value: &Value) -> Result<(), String> {
        let fits = match kind {
            Kind::Bool => value.is_boolean(),
            Kind::Int32 => value.as_i64().is_some_and(|it| i32::try_from(it).is_ok()),
            Kind::Int64 => value.is_i64(),
            Kind::IntOrString => value.is_i64() || value.is_string(),
            Kind::Quantity if !is_quantity(value) => {
                let rule = "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
                return Err(format!(
                    "quantities must match the regular expression {rule}"
                ));
            }
            Kind::Quantity | Kind::Skipped => true,
            Kind::Message(_) => value.is_object(),
            Kind::Text | Kind::Bytes | Kind::Time | Kind::MicroTime => value.is_string(),
        };
        self.fits(fits, value, &go_type(kind))?;
        match kind {
            Kind::Message(inner) => check_members(inner, value, &self.path),
            Kind::Time => {
                let text = value.as_str().unwrap_or_default();
                // DIFFERS: upstream says which part it could not read.
                let error = format!("parsing time {value} as \"2006-01-02T15:04:05Z07:00\"");
                text.parse::<CompactTimestamp>().map(drop).or(Err(error))
            }
            _ => Ok(()),
        }
    }

    fn fits(&self, fits: bool, value: &Value, go_type: &str) -> Result<(), String> {
        let Self { kind, path } = self;
        let found = match value {
            Value::Number(number) if number.is_f64() => format!("number {number}"),
            value => json_type(value).to_owned(),
        };
        let error = || {
            format!(
                "json: cannot unmarshal {found} into Go struct field {kind}.{path} of type {go_type}"
            )
        };
        fits.then_some(()).ok_or_else(error)
    }
}

fn go_type(kind: Kind) -> String {
    let name = match kind {
        Kind::Bytes => "[]uint8",
        Kind::Int32 => "int32",
        Kind::Int64 => "int64",
        Kind::Bool => "bool",
        Kind::Quantity => "resource.Quantity",
        Kind::IntOrString => "intstr.IntOrString",
        Kind::Message(name) => return format!("v1.{name}"),
        _ => "string",
    };
    name.to_owned()
}

/// How Go's decoder calls the type of a JSON value.
pub(crate) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// True for a quantity, with or without a unit.
fn is_quantity(value: &Value) -> bool {
    let Some(text) = value.as_str() else {
        return value.is_number();
    };
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let unit = digits.trim_start_matches(|c: char| "eEinumkKMGTP".contains(c));
    let exponent = unit.strip_prefix(['+', '-']).unwrap_or(unit);
    digits.len() < text.len() && exponent.bytes().all(|byte| byte.is_ascii_digit())
}

/// Fields with quantities, which are numbers or texts in a request and texts in the Kubernetes
/// types.
const AMOUNTS: [&str; 5] = ["requests", "limits", "hard", "capacity", "overhead"];

/// The unknown fields of `object` (without `kind` and `apiVersion`), by path, such as
/// `spec.template.spec.containers[0].imagee`. Returns none for an object that does not decode as
/// its kind; other checks report that.
pub(crate) fn unknown_fields(resource: Resource, object: &Value) -> Vec<String> {
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

    use super::{Resource, check, unknown_fields};

    #[track_caller]
    fn wrong(object: &Value, expected: &str) {
        let error = check(Resource::ReplicaSets, object).expect_err("a wrong shape");
        assert_eq!(error, format!("json: cannot unmarshal {expected}"));
    }

    #[test]
    fn wrong_types_get_the_error_texts_of_go() {
        wrong(
            &json!({"spec": {"replicas": "x"}}),
            "string into Go struct field ReplicaSetSpec.spec.replicas of type int32",
        );
        wrong(
            &json!({"spec": {"replicas": 1.5}}),
            "number 1.5 into Go struct field ReplicaSetSpec.spec.replicas of type int32",
        );
        wrong(
            &json!({"spec": {"template": {"spec": {"containers": {}}}}}),
            "object into Go struct field PodSpec.spec.template.spec.containers of type \
             []v1.Container",
        );
        wrong(
            &json!({"metadata": {"labels": {"a": 1}}}),
            "number into Go struct field ObjectMeta.metadata.labels of type string",
        );
        wrong(
            &json!({"metadata": {"labels": []}}),
            "array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
        );
        wrong(
            &json!({"metadata": "x"}),
            "string into Go struct field ReplicaSet.metadata of type v1.ObjectMeta",
        );
        wrong(
            &json!({"spec": []}),
            "array into Go struct field ReplicaSet.spec of type v1.ReplicaSetSpec",
        );
        let fine = json!({
            "metadata": {"labels": {"a": null}, "creationTimestamp": null},
            "spec": {"replicas": null},
        });
        assert_eq!(check(Resource::ReplicaSets, &fine), Ok(()));
    }
    #[test]
    fn times_that_no_controller_could_read_are_refused() {
        let status = |time| json!({"status": {"conditions": [{"lastTransitionTime": time}]}});
        let fine = status(json!("2026-01-01T00:00:00Z"));
        assert_eq!(check(Resource::ReplicaSets, &fine), Ok(()));
        for wrong in [json!("2026-21-01T00:00:00Z"), json!(""), json!(5)] {
            check(Resource::ReplicaSets, &status(wrong)).expect_err("no time");
        }
    }

    #[test]
    fn entries_of_a_list_are_maps() {
        wrong(
            &json!({"status": {"conditions": [{}, null]}}),
            "null into Go struct field ReplicaSetStatus.status.conditions of type v1.Condition",
        );
    }

    #[track_caller]
    fn check_unknown(resource: Resource, object: &Value, expected: &[&str]) {
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
        check_unknown(Resource::Pods, &pod, &unknown);
        let replica_set = json!({"spec": {"Replicas": 1, "template": {"spec": {"bogus": 1}}}});
        let unknown = ["spec.Replicas", "spec.template.spec.bogus"];
        check_unknown(Resource::ReplicaSets, &replica_set, &unknown);
        let quota = json!({"spec": {"hard": {"pods": 2}, "soft": {}}});
        check_unknown(Resource::Quotas, &quota, &["spec.soft"]);
    }
}
