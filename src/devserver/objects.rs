//! What the kinds of objects have of their own: defaults and validation. Pure functions on JSON
//! trees without `kind` and `apiVersion`.

mod event;
pub(super) mod labels;
pub(super) mod meta;
mod node;
pub(super) mod pod;
mod quota;
pub(super) mod replica_set;
mod replication_controller;

use serde_json::{Map, Value, json};

use super::resource::Resource;
use super::status_error::FieldError;

/// Sets what the API server sets where a request to create or to change says nothing.
pub(super) fn set_defaults(resource: Resource, object: &mut Value) {
    match resource {
        Resource::Pods => pod::set_defaults(object),
        Resource::ReplicaSets => {
            replica_set::set_defaults(object);
            // Here a template is no pointer in the API server's own types, so there always is one.
            replica_set::set_template_defaults(&mut object["spec"]["template"]);
        }
        Resource::ReplicationControllers => replication_controller::set_defaults(object),
        Resource::Nodes => node::set_defaults(object),
        Resource::Quotas => quota::set_defaults(object),
        Resource::Events => event::set_defaults(object),
        _ => {}
    }
}

/// Sets the status with which every object of a kind begins, whatever the request says.
pub(super) fn set_first_status(resource: Resource, object: &mut Value) {
    object["status"] = match resource {
        Resource::Pods => json!({"phase": "Pending", "qosClass": pod::qos_class(object)}),
        Resource::ReplicaSets | Resource::ReplicationControllers => json!({"replicas": 0}),
        Resource::Namespaces => json!({"phase": "Active"}),
        _ => return,
    };
}

/// Brings a status that is to be written into the form in which the API server keeps it.
pub(super) fn prepare_status(resource: Resource, old: &Value, new: &mut Value) {
    match resource {
        Resource::Pods => pod::prepare_status(old, new),
        Resource::ReplicaSets | Resource::ReplicationControllers => {
            replica_set::prepare_status(new);
        }
        _ => {}
    }
}

/// What is wrong with an object that is to be created.
pub(super) fn validate(resource: Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = meta::validate(resource, object);
    match resource {
        Resource::Pods => errors.extend(pod::validate(object)),
        Resource::ReplicaSets => errors.extend(replica_set::validate(object)),
        Resource::ReplicationControllers => {
            errors.extend(replication_controller::validate(object));
        }
        Resource::Quotas => errors.extend(quota::validate(object)),
        Resource::Events => errors.extend(event::validate(object)),
        Resource::Leases => {
            let seconds = number(object, "/spec/leaseDurationSeconds");
            if let Some(seconds) = seconds.filter(|seconds| *seconds <= 0) {
                let (field, value) = ("spec.leaseDurationSeconds", seconds.to_string());
                errors.push(FieldError::invalid(field, &value, "must be greater than 0"));
            }
        }
        _ => {}
    }
    errors
}

/// What is wrong with the step from `old` to `new`, apart from their metadata.
pub(super) fn validate_update(resource: Resource, old: &Value, new: &Value) -> Vec<FieldError> {
    match resource {
        Resource::Pods => pod::validate_update(old, new),
        Resource::ReplicaSets => replica_set::validate_update(old, new),
        Resource::ReplicationControllers => replication_controller::validate(new),
        Resource::Quotas => quota::validate(new),
        _ => Vec::new(),
    }
}

/// What is wrong with a status that is to be written.
pub(super) fn validate_status(resource: Resource, new: &Value) -> Vec<FieldError> {
    match resource {
        Resource::ReplicaSets | Resource::ReplicationControllers => {
            replica_set::validate_status(new)
        }
        _ => Vec::new(),
    }
}

/// The text at `pointer`, empty if there is none.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    let found = object.pointer(pointer);
    found.and_then(Value::as_str).unwrap_or_default()
}

/// The number at `pointer`, if there is one.
pub(super) fn number(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer).and_then(Value::as_i64)
}

/// The entries of the list at `pointer`, none if there is no list.
pub(super) fn entries<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    let found = object.pointer(pointer).and_then(Value::as_array);
    found.map_or(&[], Vec::as_slice)
}

/// The member `name` as a map; anything else that is there is replaced by an empty one.
pub(super) fn map_of<'a>(object: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    if !object[name].is_object() {
        object[name] = Value::Object(Map::new());
    }
    object[name]
        .as_object_mut()
        .expect("it was just made a map")
}

/// Sets the member `name` unless it is there.
pub(super) fn set_default(map: &mut Map<String, Value>, name: &str, value: impl Into<Value>) {
    map.entry(name).or_insert_with(|| value.into());
}

/// Takes away members that are `null`, at every depth: to say `null` is to say nothing.
pub(super) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(values) => values.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}
