//! The types of an object's fields: text, number, list or map. The API server checks them while it
//! decodes, before any validation. Pure.
//!
//! DIFFERS: the table has only the fields that the server itself or a controller reads; other
//! fields may have any type.

use serde_json::Value;

use super::plain::Template;
use super::resource::Resource;
use crate::api::CompactTimestamp;

/// Maximum entries of one list.
const LIST_LENGTH_MAX: usize = 10_000;

/// An API type, with its name in error messages.
struct Struct {
    name: &'static str,
    members: &'static [(&'static str, Shape)],
}

#[derive(Clone, Copy)]
enum Shape {
    Text,
    Int32,
    Int64,
    Bool,
    Time,
    /// A map from text to text.
    Texts,
    TextList,
    One(&'static Struct),
    Many(&'static Struct),
}

use Shape::{Bool, Int32, Int64, Many, One, Text, TextList, Texts, Time};

static OWNER_REFERENCE: Struct = Struct {
    name: "OwnerReference",
    members: &[
        ("apiVersion", Text),
        ("kind", Text),
        ("name", Text),
        ("uid", Text),
        ("controller", Bool),
        ("blockOwnerDeletion", Bool),
    ],
};

static OBJECT_META: Struct = Struct {
    name: "ObjectMeta",
    members: &[
        ("name", Text),
        ("generateName", Text),
        ("namespace", Text),
        ("uid", Text),
        ("resourceVersion", Text),
        ("creationTimestamp", Time),
        ("deletionTimestamp", Time),
        ("labels", Texts),
        ("annotations", Texts),
        ("finalizers", TextList),
        ("ownerReferences", Many(&OWNER_REFERENCE)),
    ],
};

static CONTAINER: Struct = Struct {
    name: "Container",
    members: &[
        ("name", Text),
        ("image", Text),
        ("imagePullPolicy", Text),
        ("command", TextList),
        ("args", TextList),
    ],
};

static POD_SPEC: Struct = Struct {
    name: "PodSpec",
    members: &[
        ("containers", Many(&CONTAINER)),
        ("initContainers", Many(&CONTAINER)),
        ("restartPolicy", Text),
        ("terminationGracePeriodSeconds", Int64),
        ("activeDeadlineSeconds", Int64),
        ("nodeName", Text),
        ("nodeSelector", Texts),
        ("serviceAccountName", Text),
        ("hostNetwork", Bool),
        ("priority", Int32),
    ],
};

static CONDITION: Struct = Struct {
    name: "Condition",
    members: &[
        ("type", Text),
        ("status", Text),
        ("reason", Text),
        ("message", Text),
        ("lastTransitionTime", Time),
    ],
};

static CONTAINER_STATUS: Struct = Struct {
    name: "ContainerStatus",
    members: &[("name", Text), ("ready", Bool), ("restartCount", Int32)],
};

static POD_STATUS: Struct = Struct {
    name: "PodStatus",
    members: &[
        ("phase", Text),
        ("reason", Text),
        ("message", Text),
        ("conditions", Many(&CONDITION)),
        ("containerStatuses", Many(&CONTAINER_STATUS)),
        ("initContainerStatuses", Many(&CONTAINER_STATUS)),
    ],
};

static POD: Struct = Struct {
    name: "Pod",
    members: &[
        ("metadata", One(&OBJECT_META)),
        ("spec", One(&POD_SPEC)),
        ("status", One(&POD_STATUS)),
    ],
};

static POD_TEMPLATE_SPEC: Struct = Struct {
    name: "PodTemplateSpec",
    members: &[("metadata", One(&OBJECT_META)), ("spec", One(&POD_SPEC))],
};

static REQUIREMENT: Struct = Struct {
    name: "LabelSelectorRequirement",
    members: &[("key", Text), ("operator", Text), ("values", TextList)],
};

static LABEL_SELECTOR: Struct = Struct {
    name: "LabelSelector",
    members: &[
        ("matchLabels", Texts),
        ("matchExpressions", Many(&REQUIREMENT)),
    ],
};

static REPLICA_SET_SPEC: Struct = Struct {
    name: "ReplicaSetSpec",
    members: &[
        ("replicas", Int32),
        ("minReadySeconds", Int32),
        ("selector", One(&LABEL_SELECTOR)),
        ("template", One(&POD_TEMPLATE_SPEC)),
    ],
};

const COUNTS: &[(&str, Shape)] = &[
    ("replicas", Int32),
    ("fullyLabeledReplicas", Int32),
    ("readyReplicas", Int32),
    ("availableReplicas", Int32),
    ("terminatingReplicas", Int32),
    ("observedGeneration", Int64),
    ("conditions", Many(&CONDITION)),
];

static REPLICA_SET_STATUS: Struct = Struct {
    name: "ReplicaSetStatus",
    members: COUNTS,
};

static REPLICA_SET: Struct = Struct {
    name: "ReplicaSet",
    members: &[
        ("metadata", One(&OBJECT_META)),
        ("spec", One(&REPLICA_SET_SPEC)),
        ("status", One(&REPLICA_SET_STATUS)),
    ],
};

static CONTROLLER_SPEC: Struct = Struct {
    name: "ReplicationControllerSpec",
    members: &[
        ("replicas", Int32),
        ("minReadySeconds", Int32),
        ("selector", Texts),
        ("template", One(&POD_TEMPLATE_SPEC)),
    ],
};

static CONTROLLER_STATUS: Struct = Struct {
    name: "ReplicationControllerStatus",
    members: COUNTS,
};

static CONTROLLER: Struct = Struct {
    name: "ReplicationController",
    members: &[
        ("metadata", One(&OBJECT_META)),
        ("spec", One(&CONTROLLER_SPEC)),
        ("status", One(&CONTROLLER_STATUS)),
    ],
};

static WORKLOAD_SPEC: Struct = Struct {
    name: "Spec",
    members: REPLICA_SET_SPEC.members,
};

static WORKLOAD: Struct = Struct {
    name: "Object",
    members: &[
        ("metadata", One(&OBJECT_META)),
        ("spec", One(&WORKLOAD_SPEC)),
        ("status", One(&OTHER_SPEC)),
    ],
};

static CONFIG_MAP: Struct = Struct {
    name: "ConfigMap",
    members: &[
        ("metadata", One(&OBJECT_META)),
        ("data", Texts),
        ("binaryData", Texts),
        ("immutable", Bool),
    ],
};

static SECRET: Struct = Struct {
    name: "Secret",
    members: &[
        ("metadata", One(&OBJECT_META)),
        ("data", Texts),
        ("stringData", Texts),
        ("type", Text),
        ("immutable", Bool),
    ],
};

/// A custom resource; its members are as its author likes.
static CUSTOM: Struct = Struct {
    name: "Object",
    members: &[("metadata", One(&OBJECT_META))],
};

static OTHER_SPEC: Struct = Struct {
    name: "Spec",
    members: &[],
};

static OTHER: Struct = Struct {
    name: "Object",
    members: &[("metadata", One(&OBJECT_META)), ("spec", One(&OTHER_SPEC))],
};

/// Checks the field types of `object`; the error has the text of Go's decoder. `null` fits every
/// type.
pub(super) fn check(resource: Resource, object: &Value) -> Result<(), String> {
    let kind = match resource {
        Resource::Pods => &POD,
        Resource::ReplicaSets => &REPLICA_SET,
        Resource::ReplicationControllers => &CONTROLLER,
        _ if resource.is_custom() => &CUSTOM,
        Resource::Plain(plain) if plain.template != Template::None => &WORKLOAD,
        Resource::Plain(plain) => match plain.facts.kind {
            "ConfigMap" => &CONFIG_MAP,
            "Secret" => &SECRET,
            _ => &OTHER,
        },
        _ => &OTHER,
    };
    check_lengths(object)?;
    check_members(kind, object, "")?;
    if resource == Resource::Quotas {
        let hard = object.pointer("/spec/hard").and_then(Value::as_object);
        let mut amounts = hard.into_iter().flatten();
        if !amounts.all(|(_, amount)| is_quantity(amount)) {
            let rule = "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
            return Err(format!(
                "quantities must match the regular expression {rule}"
            ));
        }
    }
    Ok(())
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

fn check_members(kind: &Struct, object: &Value, path: &str) -> Result<(), String> {
    for (name, shape) in kind.members {
        let value = &object[*name];
        if !value.is_null() {
            let path = if path.is_empty() {
                (*name).to_owned()
            } else {
                format!("{path}.{name}")
            };
            check_shape(kind, *shape, value, &path)?;
        }
    }
    Ok(())
}

fn check_shape(kind: &Struct, shape: Shape, value: &Value, path: &str) -> Result<(), String> {
    let fits = |fits: bool, value: &Value, go_type: &str| {
        let name = kind.name;
        let found = go_name(value);
        let error = format!(
            "json: cannot unmarshal {found} into Go struct field {name}.{path} of type {go_type}"
        );
        if fits { Ok(()) } else { Err(error) }
    };
    match shape {
        Text => fits(value.is_string(), value, "string"),
        Bool => fits(value.is_boolean(), value, "bool"),
        Int32 => {
            let number = value.as_i64();
            let is_small = number.is_some_and(|number| i32::try_from(number).is_ok());
            fits(is_small, value, "int32")
        }
        Int64 => fits(value.is_i64(), value, "int64"),
        Time => {
            fits(value.is_string(), value, "string")?;
            let text = value.as_str().unwrap_or_default();
            // DIFFERS: upstream says which part it could not read.
            let error = format!("parsing time {value} as \"2006-01-02T15:04:05Z07:00\"");
            text.parse::<CompactTimestamp>().map(drop).or(Err(error))
        }
        Texts => {
            fits(value.is_object(), value, "map[string]string")?;
            let texts = value.as_object().into_iter().flatten();
            let mut others = texts.filter(|(_, text)| !(text.is_string() || text.is_null()));
            others.try_for_each(|(_, other)| fits(false, other, "string"))
        }
        TextList => {
            fits(value.is_array(), value, "[]string")?;
            let texts = value.as_array().into_iter().flatten();
            let mut others = texts.filter(|text| !(text.is_string() || text.is_null()));
            others.try_for_each(|other| fits(false, other, "string"))
        }
        One(inner) => {
            fits(value.is_object(), value, &format!("v1.{}", inner.name))?;
            check_members(inner, value, path)
        }
        Many(inner) => {
            fits(value.is_array(), value, &format!("[]v1.{}", inner.name))?;
            for entry in value.as_array().into_iter().flatten() {
                // DIFFERS: upstream reads `null` as an entry without members. This server keeps
                // what it is sent, and no API server serves `null` here.
                fits(entry.is_object(), entry, &format!("v1.{}", inner.name))?;
                check_members(inner, entry, path)?;
            }
            Ok(())
        }
    }
}

fn go_name(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(number) if number.is_f64() => format!("number {number}"),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Resource, check};

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
}
