//! ReplicaSets (and ReplicationControllers): defaults, validation, and status counts.

use serde_json::{Map, Value, json};

use crate::api::label_selector::LabelSelector;
use crate::api::{Labels, Selector};
use crate::objects::{drop_nulls, labels, map_of, number, pod, set_default, text};
use crate::status_error::FieldError;

/// Status counts that the API server omits when they are 0.
const OMITTED_WHEN_ZERO: [&str; 4] = [
    "fullyLabeledReplicas",
    "readyReplicas",
    "availableReplicas",
    "observedGeneration",
];

/// Sets the defaults of a ReplicaSet.
///
/// DIFFERS: the API server drops unknown fields. Here they stay, so that a test can follow a field
/// from a template into a pod.
pub(crate) fn set_defaults(replica_set: &mut Value) {
    drop_nulls(&mut replica_set["spec"]);
    let spec = map_of(replica_set, "spec");
    set_default(spec, "replicas", 1);
    if spec.get("minReadySeconds") == Some(&json!(0)) {
        spec.remove("minReadySeconds");
    }
    if let Some(template) = spec.get_mut("template") {
        set_template_defaults(template);
    }
}

/// Sets the defaults of a pod template.
pub(crate) fn set_template_defaults(template: &mut Value) {
    map_of(template, "metadata");
    pod::set_spec_defaults(map_of(template, "spec"));
}

/// Normalizes a status as the API server does, without counts that are 0.
pub(crate) fn prepare_status(replica_set: &mut Value) {
    drop_nulls(&mut replica_set["status"]);
    let status = map_of(replica_set, "status");
    status.retain(|name, value| {
        let is_zero = *value == json!(0) && OMITTED_WHEN_ZERO.contains(&name.as_str());
        let is_empty = value.as_array().is_some_and(Vec::is_empty);
        !(is_zero || is_empty)
    });
    set_default(status, "replicas", 0);
}

pub(crate) fn validate(replica_set: &Value) -> Vec<FieldError> {
    let mut errors = validate_counts(replica_set);
    errors.extend(validate_selector(replica_set));
    let policy = text(replica_set, "/spec/template/spec/restartPolicy");
    if policy != "Always" {
        let value = json!(policy).to_string();
        let field = "spec.template.spec.restartPolicy";
        errors.push(FieldError::not_supported(field, &value, "\"Always\""));
    }
    errors.extend(labels::validate_metadata(
        replica_set,
        "spec.template.metadata",
    ));
    errors.extend(pod::validate_template_annotations(replica_set));
    errors.extend(pod::validate_containers(replica_set, "spec.template."));
    errors
}

/// The errors of the counts in the spec.
pub(crate) fn validate_counts(replica_set: &Value) -> Vec<FieldError> {
    let count = |name: &str| number(replica_set, &format!("/spec/{name}")).unwrap_or(0);
    let names = ["replicas", "minReadySeconds"];
    let negative = names.into_iter().filter(|name| count(name) < 0);
    let error = |name: &str| {
        let (field, value) = (format!("spec.{name}"), count(name).to_string());
        FieldError::invalid(&field, &value, "must be greater than or equal to 0")
    };
    negative.map(error).collect()
}

fn validate_selector(replica_set: &Value) -> Vec<FieldError> {
    let given = replica_set.pointer("/spec/template/metadata/labels");
    let empty = Map::new();
    let labels = given.and_then(Value::as_object).unwrap_or(&empty);
    let mismatch = || {
        let value = given.unwrap_or(&Value::Null).to_string();
        let why = "`selector` does not match template `labels`";
        FieldError::invalid("spec.template.metadata.labels", &value, why)
    };
    let Some(selector_value) = replica_set.pointer("/spec/selector") else {
        return vec![FieldError::required("spec.selector", ""), mismatch()];
    };
    let selector = serde_json::from_value::<LabelSelector>(selector_value.clone());
    let selector = selector
        .map_err(|error| error.to_string())
        .and_then(|selector| Selector::new(selector).map_err(|error| error.to_string()));
    let selector = match selector {
        Ok(selector) if selector.is_empty() => {
            let why = "empty selector is invalid for deployment";
            let value = selector_value.to_string();
            return vec![FieldError::invalid("spec.selector", &value, why)];
        }
        Ok(selector) => selector,
        Err(error) => {
            let value = selector_value.to_string();
            return vec![FieldError::invalid("spec.selector", &value, &error)];
        }
    };
    let pairs = labels.iter().map(|(name, value)| {
        let value = value.as_str().unwrap_or_default();
        (name.as_str(), value)
    });
    if selector.matches(&pairs.collect::<Labels>()) {
        return Vec::new();
    }
    vec![mismatch()]
}

/// A selector with its members in the API server's order.
fn selector_text(selector: &Value) -> String {
    let members = ["matchLabels", "matchExpressions"].into_iter();
    let members = members.filter_map(|name| {
        let value = selector.get(name)?;
        Some(format!("\"{name}\":{value}"))
    });
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

pub(crate) fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = validate(new);
    let (old, new) = (&old["spec"]["selector"], &new["spec"]["selector"]);
    if old != new {
        errors.push(FieldError::immutable("spec.selector", &selector_text(new)));
    }
    errors
}

/// kubernetes `pkg/apis/apps/validation:ValidateReplicaSetStatus`.
pub(crate) fn validate_status(replica_set: &Value) -> Vec<FieldError> {
    let count = |name: &str| number(replica_set, &format!("/status/{name}"));
    let value_of = |name: &str| count(name).unwrap_or(0);
    let invalid = |name: &str, why: &str| {
        let (field, value) = (format!("status.{name}"), value_of(name).to_string());
        FieldError::invalid(&field, &value, why)
    };
    let mut errors = Vec::new();
    let all = [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ];
    for name in all.into_iter().filter(|name| value_of(name) < 0) {
        errors.push(invalid(name, "must be greater than or equal to 0"));
    }
    for name in ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        if value_of(name) > value_of("replicas") {
            errors.push(invalid(name, "cannot be greater than status.replicas"));
        }
    }
    if value_of("availableReplicas") > value_of("readyReplicas") {
        let why = "cannot be greater than readyReplicas";
        errors.push(invalid("availableReplicas", why));
    }
    errors
}
