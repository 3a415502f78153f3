//! The events of the simulated nodes and controllers.

use serde_json::{Value, json};

use crate::json::{add_missing, hash_of, number, text};
use crate::metadata::now;
use crate::resource::Resource;
use crate::store::{State, key_of};
use crate::write::{Part, create, replace};

/// Records an event about `object`, or counts it once more if there is one with the same reason and
/// `detail`. `event` has type, reason, message and source.
pub(crate) fn record(
    state: &mut State,
    resource: Resource,
    object: &Value,
    detail: &str,
    mut event: Value,
) {
    let key = key(object, detail, &event);
    let result = if let Some(known) = state.get(Resource::Events, &key).cloned() {
        event = known.value();
        event["count"] = json!(number(&event, "/count").unwrap_or(0) + 1);
        event["lastTimestamp"] = json!(now());
        replace(state, Resource::Events, &known, Part::Main, event)
    } else {
        let metadata = &object["metadata"];
        let name = key.rsplit('/').next();
        let rest = json!({
            "metadata": {"name": name}, "count": 1,
            "firstTimestamp": now(), "lastTimestamp": now(),
            "involvedObject": {
                "apiVersion": resource.api_version(), "kind": resource.kind(),
                "namespace": metadata["namespace"], "name": metadata["name"],
                "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
            },
            "reportingComponent": event["source"]["component"],
            "reportingInstance": text(&event, "/source/host"),
        });
        add_missing(&mut event, &rest);
        let namespace = text(object, "/metadata/namespace");
        create(state, Resource::Events, Some(namespace), event)
    };
    if let Err(error) = result {
        log::debug!("event {key}: {error:?}");
    }
}

/// As [`record`], unless there is such an event.
pub(crate) fn record_first(
    state: &mut State,
    resource: Resource,
    object: &Value,
    detail: &str,
    event: Value,
) {
    if state
        .get(Resource::Events, &key(object, detail, &event))
        .is_none()
    {
        record(state, resource, object, detail, event);
    }
}

fn key(object: &Value, detail: &str, event: &Value) -> String {
    let (uid, reason) = (text(object, "/metadata/uid"), text(event, "/reason"));
    let name = text(object, "/metadata/name");
    let name = format!("{name}.{:x}", hash_of(&(uid, reason, detail)));
    key_of(Some(text(object, "/metadata/namespace")), &name)
}
