//! Delete: preconditions, grace periods, finalizers, propagation.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::body::DeleteOptions;
use crate::json::{entries, has_finalizer, is_deleting, map_of, number, text};
use crate::resource::Resource;
use crate::status_error::StatusError;
use crate::store::{Consequence, Object, State};
use crate::write::{is_released, remove};
use crate::{metadata, workload};

/// The finalizer for which the garbage collector orphans the dependents of a deleted owner.
pub(crate) const ORPHAN: &str = "orphan";

/// The finalizer that keeps a deleted owner until the garbage collector has deleted its dependents.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// The namespaces that cannot be deleted (apiserver
/// `pkg/admission/plugin/namespace/lifecycle:immortalNamespaces`).
const IMMORTAL_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];

#[derive(Debug)]
pub(crate) enum Deleted {
    /// The object is removed; this is its last state.
    Gone(Object),
    /// The object stays until its grace period ends or its last finalizer is removed.
    Stays(Object),
}

pub(crate) fn delete(
    state: &mut State,
    resource: Resource,
    key: &str,
    options: &DeleteOptions,
) -> Result<Deleted, StatusError> {
    let object = state.current(resource, key)?;
    let mut value = object.value();
    check_preconditions(resource, &object, &value, options)?;
    match resource {
        Resource::Namespaces => delete_namespace(state, &object, value),
        Resource::Pods => {
            let is_due_earlier = begin_grace_period(&mut value, options);
            // During a grace period, only a delete with a shorter one has an effect.
            let runs = number(&value, "/metadata/deletionGracePeriodSeconds") != Some(0);
            if !is_due_earlier && runs {
                return Ok(Deleted::Stays(object));
            }
            let is_changed = set_policy_finalizer(resource, &mut value, options);
            if !is_due_earlier && !is_changed {
                return Ok(Deleted::Stays(object));
            }
            // As in upstream, watches see the deletion mark first and the removal second.
            let deleting = state.put(resource, key, value.clone());
            if is_released(&value) {
                return Ok(Deleted::Gone(remove(state, resource, key, value)));
            }
            Ok(Deleted::Stays(deleting))
        }
        _ => {
            let is_changed = set_policy_finalizer(resource, &mut value, options);
            if entries(&value, "/metadata/finalizers").is_empty() {
                return Ok(Deleted::Gone(remove(state, resource, key, value)));
            }
            let was_deleting = is_deleting(&value);
            if was_deleting && !is_changed {
                return Ok(Deleted::Stays(object));
            }
            if !was_deleting {
                value["metadata"]["deletionTimestamp"] = json!(metadata::now());
                value["metadata"]["deletionGracePeriodSeconds"] = json!(0);
                metadata::bump_generation(&mut value);
            }
            let deleting = state.put(resource, key, value);
            let consequence = Consequence::OwnerDeleting(resource, key.into());
            state.consequences.push_back(consequence);
            Ok(Deleted::Stays(deleting))
        }
    }
}

fn check_preconditions(
    resource: Resource,
    object: &Object,
    value: &Value,
    options: &DeleteOptions,
) -> Result<(), StatusError> {
    let version = object.version.to_string();
    let (wanted, uid) = (&options.preconditions, text(value, "/metadata/uid"));
    let of_version = &wanted.resource_version;
    let named = [
        ("UID", &wanted.uid, uid, "deleted and then recreated"),
        ("ResourceVersion", of_version, &version, "modified"),
    ];
    for (what, wanted, found, happened) in named {
        let Some(wanted) = wanted.as_ref().filter(|wanted| *wanted != found) else {
            continue;
        };
        // Namespaces have their own check before the generic one, with different messages
        // (kubernetes `pkg/registry/core/namespace/storage/storage.go:Delete`).
        return Err(if resource == Resource::Namespaces {
            let why = format!(
                "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: \
                 {found}"
            );
            StatusError::conflict(resource, object.name(), &why)
        } else {
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record \
                 ({found}). The object might have been {happened}"
            );
            StatusError::precondition(resource, object.name(), &why)
        });
    }
    Ok(())
}

/// Sets the pod's deletion time. Returns false if the pod is terminating already and this delete
/// does not shorten its grace period (apiserver
/// `pkg/registry/rest/delete.go:BeforeDelete`, kubernetes
/// `pkg/registry/core/pod/strategy.go:CheckGracefulDelete`).
fn begin_grace_period(pod: &mut Value, options: &DeleteOptions) -> bool {
    let was_deleting = is_deleting(pod);
    let mut seconds = options
        .grace_period_seconds
        .or_else(|| number(pod, "/spec/terminationGracePeriodSeconds"))
        .unwrap_or(0);
    if seconds < 0 {
        seconds = 1;
    }
    let mut begun = jiff::Timestamp::now();
    if was_deleting {
        let running = number(pod, "/metadata/deletionGracePeriodSeconds").unwrap_or(0);
        if options.grace_period_seconds.is_none() || seconds >= running {
            return false;
        }
        let due: Option<jiff::Timestamp> = text(pod, "/metadata/deletionTimestamp").parse().ok();
        let first = due.and_then(|it| {
            it.checked_sub(jiff::SignedDuration::from_secs(running))
                .ok()
        });
        begun = first.unwrap_or(begun);
    } else if text(pod, "/spec/nodeName").is_empty() || workload::is_terminal(pod) {
        seconds = 0;
    }
    // The API server accepts any grace period, even one that ends beyond the last timestamp.
    let due = begun.checked_add(jiff::SignedDuration::from_secs(seconds));
    let due = due.unwrap_or(jiff::Timestamp::MAX);
    pod["metadata"]["deletionTimestamp"] = json!(metadata::time_text(due));
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(seconds);
    if !was_deleting {
        metadata::bump_generation(pod);
    }
    true
}

/// Records the propagation policies Orphan and Foreground as a finalizer, which the garbage
/// collector removes. Returns true if the finalizers change (apiserver
/// `pkg/registry/generic/registry/store.go:deletionFinalizersForGarbageCollection`).
fn set_policy_finalizer(resource: Resource, value: &mut Value, options: &DeleteOptions) -> bool {
    if resource == Resource::Events {
        // Nothing depends on an event, so no finalizer is needed (kubernetes
        // `pkg/registry/core/event/strategy.go:DefaultGarbageCollectionPolicy`).
        return false;
    }
    let old = entries(value, "/metadata/finalizers");
    let has = |finalizer: &str| old.contains(&json!(finalizer));
    let (orphans, waits) = match (
        options.propagation_policy.as_deref(),
        options.orphan_dependents,
    ) {
        (Some(policy), _) => (policy == "Orphan", policy == "Foreground"),
        (None, Some(orphans)) => (orphans, false),
        (None, None) if has(ORPHAN) || has(FOREGROUND) => (has(ORPHAN), has(FOREGROUND)),
        // ReplicationControllers orphan by default, because the kind is older than the garbage
        // collector.
        (None, None) => (resource == Resource::ReplicationControllers, false),
    };
    let ours = [json!(ORPHAN), json!(FOREGROUND)];
    let others = old.iter().filter(|finalizer| !ours.contains(finalizer));
    let mut new: Vec<Value> = others.cloned().collect();
    if orphans {
        new.push(json!(ORPHAN));
    }
    if waits {
        new.push(json!(FOREGROUND));
    }
    let is_changed = new != old;
    let metadata = map_of(value, "metadata");
    if new.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".to_owned(), json!(new));
    }
    is_changed
}

/// The options for the garbage collector's delete of `value`: Background, unless an earlier delete
/// chose another policy.
pub(crate) fn collector_options(value: &Value) -> DeleteOptions {
    let has = |finalizer: &str| has_finalizer(value, finalizer);
    let policy = match (has(ORPHAN), has(FOREGROUND)) {
        (true, _) => "Orphan",
        (_, true) => "Foreground",
        _ => "Background",
    };
    with_policy(policy)
}

pub(crate) fn with_policy(policy: &str) -> DeleteOptions {
    DeleteOptions {
        propagation_policy: Some(policy.to_owned()),
        ..DeleteOptions::default()
    }
}

fn delete_namespace(
    state: &mut State,
    object: &Object,
    mut value: Value,
) -> Result<Deleted, StatusError> {
    let name = object.name();
    if IMMORTAL_NAMESPACES.contains(&name) {
        let why = "this namespace may not be deleted";
        return Err(StatusError::forbidden(Resource::Namespaces, name, why));
    }
    if !is_deleting(&value) {
        value["metadata"]["deletionTimestamp"] = json!(metadata::now());
        value["status"]["phase"] = json!("Terminating");
        let object = state.put(Resource::Namespaces, name, value);
        let consequence = Consequence::NamespaceDeleting(name.into());
        state.consequences.push_back(consequence);
        return Ok(Deleted::Stays(object));
    }
    Ok(Deleted::Stays(Arc::clone(object)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{DeleteOptions, begin_grace_period};

    #[test]
    fn a_shorter_grace_period_counts_from_the_first_delete() {
        let options = |seconds| DeleteOptions {
            grace_period_seconds: Some(seconds),
            ..DeleteOptions::default()
        };
        let mut pod = json!({"metadata": {
            "deletionTimestamp": "2026-01-01T12:00:30Z", "deletionGracePeriodSeconds": 30,
        }});
        assert!(!begin_grace_period(&mut pod, &options(40)));
        assert!(begin_grace_period(&mut pod, &options(20)));
        let expected = json!({
            "deletionTimestamp": "2026-01-01T12:00:20Z", "deletionGracePeriodSeconds": 20,
        });
        assert_eq!(pod["metadata"], expected);
    }
}
