//! Create: namespace checks, defaults, validation, quota, storage.

use serde_json::{Value, json};

use super::custom;
use super::objects::{self, meta, text};
use super::quota;
use super::resource::Resource;
use super::status_error::StatusError;
use super::store::{Object, State, key_of};

/// Creates `object` (without `kind` and `apiVersion`).
pub(super) fn create(
    state: &mut State,
    resource: Resource,
    namespace: Option<&str>,
    object: Value,
) -> Result<Object, StatusError> {
    create_managed(state, resource, namespace, object, None)
}

/// As [`create`], with the entries of `managedFields`.
pub(super) fn create_managed(
    state: &mut State,
    resource: Resource,
    namespace: Option<&str>,
    mut object: Value,
    managers: Option<Vec<Value>>,
) -> Result<Object, StatusError> {
    check_namespace(state, resource, namespace, &object)?;
    if !text(&object, "/metadata/resourceVersion").is_empty() {
        return Err(StatusError::version_on_create());
    }
    meta::prepare(resource, namespace, &mut object);
    if let Some(managers) = managers {
        object["metadata"]["managedFields"] = json!(managers);
    }
    objects::set_defaults(resource, &mut object);
    objects::set_first_status(resource, &mut object);
    prepare_by_kind(state, resource, namespace, &mut object);
    let name = text(&object, "/metadata/name").to_owned();
    // The order is upstream's: validation, quota admission, then the uniqueness of the name.
    let errors = objects::validate(resource, &object);
    if !errors.is_empty() {
        return Err(StatusError::invalid(resource, &name, errors));
    }
    if resource == Resource::Pods {
        quota::check(state, namespace.unwrap_or_default(), &name)?;
    }
    let key = key_of(namespace, &name);
    if let Some(found) = state.get(resource, &key) {
        let found = found.value();
        return Err(match found.pointer("/metadata/deletionTimestamp") {
            Some(_) => StatusError::still_exists(resource, &name),
            None => StatusError::already_exists(resource, &name),
        });
    }
    let object = state.put(resource, &key, object);
    match resource {
        Resource::Pods => quota::refresh(state, object.namespace()),
        Resource::Namespaces if state.settings.garbage_collection => {
            let account = json!({"metadata": {"name": "default"}});
            create(state, Resource::ServiceAccounts, Some(&name), account)?;
        }
        Resource::Definitions => custom::refresh(state),
        _ => {}
    }
    Ok(object)
}

fn check_namespace(
    state: &State,
    resource: Resource,
    namespace: Option<&str>,
    object: &Value,
) -> Result<(), StatusError> {
    let Some(namespace) = namespace else {
        return Ok(());
    };
    let own = text(object, "/metadata/namespace");
    if !own.is_empty() && own != namespace {
        return Err(StatusError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let Some(found) = state.get(Resource::Namespaces, namespace) else {
        return Err(StatusError::not_found(Resource::Namespaces, namespace));
    };
    if text(&found.value(), "/status/phase") == "Terminating" {
        let name = match text(object, "/metadata/name") {
            "" => text(object, "/metadata/generateName"),
            name => name,
        };
        return Err(StatusError::namespace_terminating(
            resource, name, namespace,
        ));
    }
    Ok(())
}

fn prepare_by_kind(state: &State, resource: Resource, namespace: Option<&str>, object: &mut Value) {
    match resource {
        Resource::Namespaces => {
            let name = object["metadata"]["name"].clone();
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
            object["spec"] = json!({"finalizers": ["kubernetes"]});
        }
        Resource::Quotas => {
            object["status"] = quota::status(state, namespace.unwrap_or_default(), object);
        }
        _ => {}
    }
}
