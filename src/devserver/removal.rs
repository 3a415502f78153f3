//! The end of an object: whether nothing holds it any more, and taking it away. Called under the lock
//! of the state, by deletes and by updates that take off a last finalizer.

use std::sync::Arc;

use serde_json::Value;

use super::objects::{entries, number};
use super::quota;
use super::resource::Resource;
use super::store::{Consequence, Object, State};

/// True for an object that is being deleted and that nothing holds any more.
pub(super) fn is_released(value: &Value) -> bool {
    value.pointer("/metadata/deletionTimestamp").is_some()
        && entries(value, "/metadata/finalizers").is_empty()
        && entries(value, "/spec/finalizers").is_empty()
        && number(value, "/metadata/deletionGracePeriodSeconds").unwrap_or(0) == 0
}

/// Takes an object away; what depends on it follows.
pub(super) fn remove(state: &mut State, resource: Resource, key: &str, value: Value) -> Object {
    let object = state.remove(resource, key, value);
    if resource == Resource::Pods {
        quota::refresh(state, object.namespace());
    }
    let consequence = Consequence::Gone(Arc::clone(&object));
    state.consequences.push_back(consequence);
    object
}
