//! ReplicationControllers, where they differ from ReplicaSets. The selector is a plain map and may
//! change. Selector and labels default to the template's labels.

use serde_json::{Map, Value, json};

use crate::objects::{entries, labels, map_of, pod, replica_set, text};
use crate::status_error::FieldError;

/// Sets the defaults (kubernetes `pkg/apis/core/v1/defaults.go:SetDefaults_ReplicationController`).
pub(crate) fn set_defaults(controller: &mut Value) {
    replica_set::set_defaults(controller);
    let of_template = controller
        .pointer("/spec/template/metadata/labels")
        .cloned();
    let Some(of_template) = of_template.filter(is_full) else {
        return;
    };
    let spec = map_of(controller, "spec");
    if !spec.get("selector").is_some_and(is_full) {
        spec.insert("selector".to_owned(), of_template.clone());
    }
    let metadata = map_of(controller, "metadata");
    if !metadata.get("labels").is_some_and(is_full) {
        metadata.insert("labels".to_owned(), of_template);
    }
}

fn is_full(map: &Value) -> bool {
    map.as_object().is_some_and(|map| !map.is_empty())
}

pub(crate) fn validate(controller: &Value) -> Vec<FieldError> {
    let mut errors = replica_set::validate_counts(controller);
    let selector = controller.pointer("/spec/selector");
    let selector = selector.and_then(Value::as_object);
    if selector.is_none_or(Map::is_empty) {
        errors.push(FieldError::required("spec.selector", ""));
    }
    if controller.pointer("/spec/template").is_none() {
        errors.push(FieldError::required("spec.template", ""));
        return errors;
    }
    let of_template = controller.pointer("/spec/template/metadata/labels");
    let of_template = of_template.unwrap_or(&Value::Null);
    let mut pairs = selector.into_iter().flatten();
    if !pairs.all(|(name, value)| of_template.get(name) == Some(value)) {
        let why = "`selector` does not match template `labels`";
        let field = "spec.template.metadata.labels";
        errors.push(FieldError::invalid(field, &of_template.to_string(), why));
    }
    errors.extend(labels::validate_metadata(
        controller,
        "spec.template.metadata",
    ));
    let policy = text(controller, "/spec/template/spec/restartPolicy");
    if policy != "Always" && !entries(controller, "/spec/template/spec/containers").is_empty() {
        let (value, field) = (
            json!(policy).to_string(),
            "spec.template.spec.restartPolicy",
        );
        errors.push(FieldError::not_supported(field, &value, "\"Always\""));
    }
    errors.extend(pod::validate_template_annotations(controller));
    errors.extend(pod::validate_containers(controller, "spec.template."));
    errors
}
