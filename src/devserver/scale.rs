//! The subresource `scale`: an object's replicas as an object of their own.

use serde_json::{Value, json};

use super::apply;
use super::objects::{number, text};
use super::plain::ScalePaths;
use super::resource::Resource;
use super::selector::selector_text;
use super::status_error::{FieldError, StatusError};
use super::store::{Object, State};
use super::update::{self, Part};

/// The `Scale` of an object.
pub(super) fn of(resource: Resource, object: &Object) -> Value {
    let value = object.value();
    let metadata = &value["metadata"];
    let paths = paths_of(resource);
    // The API server omits `replicas: 0`.
    let spec = match number(&value, paths.spec_replicas).unwrap_or(0) {
        0 => json!({}),
        replicas => json!({"replicas": replicas}),
    };
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": spec,
        "status": {
            "replicas": number(&value, paths.status_replicas).unwrap_or(0),
            "selector": selector_text(resource, &value),
        },
    })
}

fn paths_of(resource: Resource) -> ScalePaths {
    match resource {
        Resource::Plain(plain) => plain.scale,
        _ => ScalePaths::USUAL,
    }
}

/// Sets the number at `pointer`, and the maps that lead to it.
fn set_number(object: &mut Value, pointer: &str, number: i64) {
    let mut place = object;
    for name in pointer.split('/').skip(1) {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[name];
    }
    *place = json!(number);
}

/// Applies a `Scale` on behalf of the field manager `manager`; returns the updated object.
pub(super) fn put(
    state: &mut State,
    resource: Resource,
    key: &str,
    scale: &Value,
    manager: &str,
) -> Result<Object, StatusError> {
    let object = state.current(resource, key)?;
    let uid = text(scale, "/metadata/uid");
    let mut new = object.value();
    if !uid.is_empty() && uid != text(&new, "/metadata/uid") {
        return Err(StatusError::conflict(
            resource,
            object.name(),
            "the UID differs",
        ));
    }
    let replicas = number(scale, "/spec/replicas").unwrap_or(0);
    if i32::try_from(replicas).is_err() {
        return Err(StatusError::bad_request(format!(
            "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal number \
             {replicas} into Go struct field ScaleSpec.spec.replicas of type int32"
        )));
    }
    if replicas < 0 {
        let (value, why) = (replicas.to_string(), "must be greater than or equal to 0");
        let error = FieldError::invalid("spec.replicas", &value, why);
        return Err(StatusError::invalid_scale(object.name(), error));
    }
    new["metadata"]["resourceVersion"] = match text(scale, "/metadata/resourceVersion") {
        "" => json!(object.version.to_string()),
        version => json!(version),
    };
    let old = new.clone();
    set_number(&mut new, paths_of(resource).spec_replicas, replicas);
    let managers = apply::managers_after(resource, &old, &new, Part::Main, manager);
    update::replace_managed(state, resource, &object, Part::Main, new, managers)
}
