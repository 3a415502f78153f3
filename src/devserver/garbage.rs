//! What goes when something else has gone: dependents after their owner, contents with their
//! namespace. Only where [`super::store::Settings::garbage_collection`] is on; a control plane without
//! the controllers that do this leaves everything as it is, and so does this server then.
//!
//! It runs on a thread of its own, `dev-gc`, a moment after the request that deletes, as in a
//! cluster: a watch of the owner has time to bring that it goes before a watch of its dependents
//! brings that they do.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::select;
use serde_json::{Value, json};

use super::delete::{self, FOREGROUND, ORPHAN};
use super::objects::{entries, text};
use super::resource::Resource;
use super::store::{Consequence, Object, State, Store, key_of};
use super::update::{self, Part};
use crate::stdx::stop::Stop;
use crate::stdx::thread;

/// Resources whose objects have owners.
const DEPENDENTS: [Resource; 3] = [
    Resource::ReplicaSets,
    Resource::ReplicationControllers,
    Resource::Pods,
];

/// How long what has happened waits at least to be followed up.
pub(super) const COLLECTED_AFTER: Duration = Duration::from_millis(20);

/// Starts the thread `dev-gc`, which follows up what happens in `store` until `stop` is given.
///
/// # Errors
/// If the system refuses a thread.
pub(super) fn start(store: &Arc<Store>, stop: &Stop) -> io::Result<JoinHandle<()>> {
    let (store, stopping) = (Arc::clone(store), stop.clone());
    thread::try_spawn("dev-gc", stop, move || {
        loop {
            select! {
                recv(store.consequences()) -> _ => {}
                recv(stopping.receiver()) -> _ => return,
            }
            // ORDER: taken before the wait, so that what happens meanwhile waits as long.
            let due = store.write(|state| mem::take(&mut state.consequences));
            if stopping.wait_timeout(COLLECTED_AFTER) {
                return;
            }
            store.write(|state| follow_up(state, due));
        }
    })
}

/// Follows up what is due, and what happens by that.
fn follow_up(state: &mut State, due: VecDeque<Consequence>) {
    let later = mem::replace(&mut state.consequences, due);
    while let Some(consequence) = state.consequences.pop_front() {
        match consequence {
            Consequence::Gone(object) => is_gone(state, &object),
            Consequence::OwnerGoing(resource, key) => owner_is_going(state, resource, &key),
            Consequence::NamespaceGoing(name) => namespace_is_going(state, &name),
            Consequence::Owned(resource, key) => is_owned(state, resource, &key),
        }
    }
    state.consequences = later;
}

fn owner_is_going(state: &mut State, resource: Resource, key: &str) {
    let Some(owner) = state.get(resource, key).map(Arc::clone) else {
        return;
    };
    let value = owner.value();
    let has = |finalizer: &str| entries(&value, "/metadata/finalizers").contains(&json!(finalizer));
    let uid = text(&value, "/metadata/uid").to_owned();
    if has(ORPHAN) {
        for (resource, dependent) in dependents(state, &owner, &uid) {
            disown(state, resource, &dependent, &uid);
        }
        take_off_finalizer(state, resource, key, ORPHAN);
    } else if has(FOREGROUND) {
        for (resource, dependent) in dependents(state, &owner, &uid) {
            begin_delete(state, resource, &dependent.key);
        }
        finish_foreground(state, resource, key);
    }
}

fn is_gone(state: &mut State, object: &Object) {
    let value = object.value();
    let uid = text(&value, "/metadata/uid");
    // A pod owns nothing, and looking through all other pods for each that goes would be slow.
    let is_pod = value.pointer("/spec/containers").is_some();
    if !is_pod {
        for (resource, dependent) in dependents(state, object, uid) {
            if dependent.owners.len() > 1 {
                disown(state, resource, &dependent, uid);
            } else {
                begin_delete(state, resource, &dependent.key);
            }
        }
    }
    for owner in entries(&value, "/metadata/ownerReferences") {
        let kind = text(owner, "/kind");
        let mut kinds = DEPENDENTS.into_iter();
        if let Some(resource) = kinds.find(|resource| resource.kind() == kind) {
            let key = key_of(Some(object.namespace()), text(owner, "/name"));
            finish_foreground(state, resource, &key);
        }
    }
    finish_namespace(state, object.namespace());
}

/// Deletes an object none of whose owners is there: a controller has created it while its owner went.
/// Owners of kinds that are not served here may be anywhere.
fn is_owned(state: &mut State, resource: Resource, key: &str) {
    let Some(object) = state.get(resource, key).map(Arc::clone) else {
        return;
    };
    let value = object.value();
    let owners = entries(&value, "/metadata/ownerReferences").iter();
    let fates: Vec<OwnerFate> = owners
        .map(|owner| fate_of(state, object.namespace(), owner))
        .collect();
    let is_left_alone = !fates.is_empty() && fates.iter().all(|fate| *fate == OwnerFate::Gone);
    if is_left_alone || fates.contains(&OwnerFate::TakesItAlong) {
        begin_delete(state, resource, key);
    }
}

/// What an owner reference comes to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OwnerFate {
    /// The owner is there, or of a kind that this server does not have.
    MayBeThere,
    /// It waits for its dependents to go, those that it has got since as well.
    TakesItAlong,
    Gone,
}

fn fate_of(state: &State, namespace: &str, reference: &Value) -> OwnerFate {
    let kind = text(reference, "/kind");
    let mut kinds = DEPENDENTS.into_iter();
    let Some(resource) = kinds.find(|resource| resource.kind() == kind) else {
        return OwnerFate::MayBeThere;
    };
    let key = key_of(Some(namespace), text(reference, "/name"));
    let owner = state.get(resource, &key).map(|found| found.value());
    match owner {
        Some(owner) if text(&owner, "/metadata/uid") == text(reference, "/uid") => {
            if entries(&owner, "/metadata/finalizers").contains(&json!(FOREGROUND)) {
                OwnerFate::TakesItAlong
            } else {
                OwnerFate::MayBeThere
            }
        }
        _ => OwnerFate::Gone,
    }
}

fn namespace_is_going(state: &mut State, namespace: &str) {
    for resource in Resource::ALL.into_iter().filter(|r| r.is_namespaced()) {
        let objects = state.of_namespace(resource, Some(namespace));
        let keys: Vec<Box<str>> = objects.map(|object| object.key.clone()).collect();
        for key in keys {
            begin_delete(state, resource, &key);
        }
    }
    finish_namespace(state, namespace);
}

/// The objects of the owner's namespace that name it among their owners.
fn dependents(state: &State, owner: &Object, uid: &str) -> Vec<(Resource, Object)> {
    let mut found = Vec::new();
    for resource in DEPENDENTS {
        for object in state.of_namespace(resource, Some(owner.namespace())) {
            if object.owners.iter().any(|owner| **owner == *uid) {
                found.push((resource, Arc::clone(object)));
            }
        }
    }
    found
}

fn begin_delete(state: &mut State, resource: Resource, key: &str) {
    let Some(value) = state.get(resource, key).map(|object| object.value()) else {
        return;
    };
    let options = delete::collector_options(&value);
    // The only refusals are of objects that may not be deleted.
    if let Err(refusal) = delete::delete(state, resource, key, &options) {
        log::debug!("collecting {key}: {refusal:?}");
    }
}

fn disown(state: &mut State, resource: Resource, dependent: &Object, uid: &str) {
    let mut value = dependent.value();
    let owners = entries(&value, "/metadata/ownerReferences").iter();
    let kept: Vec<Value> = owners
        .filter(|owner| text(owner, "/uid") != uid)
        .cloned()
        .collect();
    value["metadata"]["ownerReferences"] = json!(kept);
    change(state, resource, dependent, value);
}

fn take_off_finalizer(state: &mut State, resource: Resource, key: &str, finalizer: &str) {
    let Some(object) = state.get(resource, key).map(Arc::clone) else {
        return;
    };
    let mut value = object.value();
    let finalizers = entries(&value, "/metadata/finalizers").iter();
    let kept: Vec<Value> = finalizers
        .filter(|entry| **entry != json!(finalizer))
        .cloned()
        .collect();
    value["metadata"]["finalizers"] = json!(kept);
    change(state, resource, &object, value);
}

fn change(state: &mut State, resource: Resource, object: &Object, value: Value) {
    if let Err(refusal) = update::replace(state, resource, object, Part::Main, value) {
        log::debug!("collecting {}: {refusal:?}", object.key);
    }
}

/// Lets an owner go that waited for its last dependent.
fn finish_foreground(state: &mut State, resource: Resource, key: &str) {
    let Some(owner) = state.get(resource, key).map(Arc::clone) else {
        return;
    };
    let value = owner.value();
    let waits = value.pointer("/metadata/deletionTimestamp").is_some()
        && entries(&value, "/metadata/finalizers").contains(&json!(FOREGROUND));
    if waits && dependents(state, &owner, text(&value, "/metadata/uid")).is_empty() {
        take_off_finalizer(state, resource, key, FOREGROUND);
    }
}

/// Lets a namespace go that waited for its last object.
fn finish_namespace(state: &mut State, namespace: &str) {
    let Some(object) = state.get(Resource::Namespaces, namespace).map(Arc::clone) else {
        return;
    };
    let mut value = object.value();
    if text(&value, "/status/phase") != "Terminating" {
        return;
    }
    let mut resources = Resource::ALL.into_iter().filter(|r| r.is_namespaced());
    let is_empty = resources.all(|resource| {
        let mut objects = state.of_namespace(resource, Some(namespace));
        objects.next().is_none()
    });
    if is_empty {
        value["spec"] = json!({});
        state.remove(Resource::Namespaces, namespace, value);
    }
}
