//! Defaults and validation per kind. Pure functions on JSON trees without `kind` and `apiVersion`.

pub(crate) mod definition;
mod event;
pub(crate) mod labels;
pub(crate) mod meta;
mod node;
pub(crate) mod plain;
pub(crate) mod pod;
mod quota;
pub(crate) mod replica_set;
mod replication_controller;

use serde_json::{Map, Value, json};

use crate::resource::Resource;
use crate::status_error::FieldError;

/// Sets the API server's defaults on a created or changed object.
pub(crate) fn set_defaults(resource: Resource, object: &mut Value) {
    match resource {
        Resource::Pods => pod::set_defaults(object),
        Resource::ReplicaSets => {
            replica_set::set_defaults(object);
            // In Go the template is a struct, not a pointer, so every ReplicaSet has one.
            replica_set::set_template_defaults(&mut object["spec"]["template"]);
        }
        Resource::ReplicationControllers => replication_controller::set_defaults(object),
        Resource::Nodes => node::set_defaults(object),
        Resource::Quotas => quota::set_defaults(object),
        Resource::Events => event::set_defaults(object),
        Resource::Definitions => definition::set_defaults(object),
        Resource::Plain(plain) => plain::set_defaults(plain, object),
        _ => {}
    }
}

/// Sets the initial status of a new object, and discards the request's status.
pub(crate) fn set_first_status(resource: Resource, object: &mut Value) {
    object["status"] = match resource {
        Resource::Pods => json!({"phase": "Pending", "qosClass": pod::qos_class(object)}),
        Resource::ReplicaSets | Resource::ReplicationControllers => json!({"replicas": 0}),
        Resource::Namespaces => json!({"phase": "Active"}),
        Resource::Definitions => definition::status(object),
        Resource::Plain(plain) => return plain::set_first_status(plain, object),
        _ => return,
    };
}

/// Normalizes a written status as the API server does.
pub(crate) fn prepare_status(resource: Resource, old: &Value, new: &mut Value) {
    match resource {
        Resource::Pods => pod::prepare_status(old, new),
        Resource::ReplicaSets | Resource::ReplicationControllers => {
            replica_set::prepare_status(new);
        }
        _ => {}
    }
}

/// Restores what a write of the status does not change.
pub(crate) fn keep_all_but_status(resource: Resource, old: &Value, new: &mut Value) {
    if let Resource::Plain(_) = resource {
        plain::keep_all_but_status(old, new);
    } else {
        new["spec"] = old["spec"].clone();
    }
}

/// Restores the status, which only the subresource writes.
pub(crate) fn keep_status(old: &Value, new: &mut Value) {
    let Some(members) = new.as_object_mut() else {
        return;
    };
    members.remove("status");
    if let Some(status) = old.get("status") {
        members.insert("status".to_owned(), status.clone());
    }
}

/// True for a change that counts in `metadata.generation`.
pub(crate) fn is_changed(resource: Resource, old: &Value, new: &Value) -> bool {
    if !resource.is_custom() {
        return old.get("spec") != new.get("spec");
    }
    let rest = |object: &Value| {
        let mut object = object.clone();
        if let Some(members) = object.as_object_mut() {
            members.remove("metadata");
            members.retain(|name, _| name != "status" || !resource.has_status());
        }
        object
    };
    rest(old) != rest(new)
}

/// The validation errors of a new object.
pub(crate) fn validate(resource: Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = meta::validate(resource, object);
    match resource {
        Resource::Pods => errors.extend(pod::validate(object)),
        Resource::ReplicaSets => errors.extend(replica_set::validate(object)),
        Resource::ReplicationControllers => {
            errors.extend(replication_controller::validate(object));
        }
        Resource::Quotas => errors.extend(quota::validate(object)),
        Resource::Events => errors.extend(event::validate(object)),
        Resource::Definitions => errors.extend(definition::validate(object)),
        Resource::Plain(plain) => errors.extend(plain::validate(plain, object)),
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

/// The validation errors of a change from `old` to `new`, without those of the metadata.
pub(crate) fn validate_update(resource: Resource, old: &Value, new: &Value) -> Vec<FieldError> {
    match resource {
        Resource::Pods => pod::validate_update(old, new),
        Resource::ReplicaSets => replica_set::validate_update(old, new),
        Resource::ReplicationControllers => replication_controller::validate(new),
        Resource::Quotas => quota::validate(new),
        Resource::Definitions => definition::validate(new),
        Resource::Plain(plain) => plain::validate_update(plain, old, new),
        _ => Vec::new(),
    }
}

/// The validation errors of a written status.
pub(crate) fn validate_status(resource: Resource, new: &Value) -> Vec<FieldError> {
    match resource {
        Resource::ReplicaSets | Resource::ReplicationControllers => {
            replica_set::validate_status(new)
        }
        _ => Vec::new(),
    }
}

/// The text at `pointer`, or the empty string.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    let found = object.pointer(pointer);
    found.and_then(Value::as_str).unwrap_or_default()
}

/// The number at `pointer`, if any.
pub(crate) fn number(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer).and_then(Value::as_i64)
}

/// The entries of the list at `pointer`; empty without a list.
pub(crate) fn entries<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    let found = object.pointer(pointer).and_then(Value::as_array);
    found.map_or(&[], Vec::as_slice)
}

/// The member `name` as a map; replaces any other value with an empty map.
pub(crate) fn map_of<'a>(object: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    if !object[name].is_object() {
        object[name] = Value::Object(Map::new());
    }
    object[name]
        .as_object_mut()
        .expect("it was just made a map")
}

/// Sets the member `name` unless it exists.
pub(crate) fn set_default(map: &mut Map<String, Value>, name: &str, value: impl Into<Value>) {
    map.entry(name).or_insert_with(|| value.into());
}

/// Removes `null` members at every depth, because `null` means absent.
pub(crate) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(values) => values.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}
