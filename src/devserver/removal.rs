//! The end of an object: the check that nothing holds it, and its removal. Deletes call this under
//! the state lock, and so do updates that remove the last finalizer.

use std::sync::Arc;

use serde_json::Value;

use super::custom;
use super::objects::{entries, number};
use super::quota;
use super::resource::Resource;
use super::store::{Consequence, Object, State};

/// True for an object under deletion without finalizers and grace period.
pub(super) fn is_released(value: &Value) -> bool {
    value.pointer("/metadata/deletionTimestamp").is_some()
        && entries(value, "/metadata/finalizers").is_empty()
        && entries(value, "/spec/finalizers").is_empty()
        && number(value, "/metadata/deletionGracePeriodSeconds").unwrap_or(0) == 0
}

/// Removes an object and queues the garbage collection of its dependents.
pub(super) fn remove(state: &mut State, resource: Resource, key: &str, value: Value) -> Object {
    let object = state.remove(resource, key, value);
    if resource == Resource::Pods {
        quota::refresh(state, object.namespace());
    }
    if resource == Resource::Definitions {
        custom::remove_defined(state, &object.value());
    }
    let consequence = Consequence::Gone(Arc::clone(&object));
    state.consequences.push_back(consequence);
    object
}
