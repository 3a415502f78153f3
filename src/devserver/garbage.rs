//! Garbage collection: dependents are deleted after their owner, and contents with their namespace.
//! Runs only with [`crate::store::Settings::garbage_collection`]. Without it, the server keeps all
//! dependents, like a control plane without these controllers.
//!
//! The thread `dev-gc` runs a moment after the deleting request, as in a cluster. The watch of the
//! owner can thus deliver the deletion before the watch of the dependents does.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, mem};

use crossbeam_channel::select;
use serde_json::{Value, json};

use crate::body::DeleteOptions;
use crate::delete::{FOREGROUND, ORPHAN};
use crate::json::{entries, has_finalizer, is_deleting, text};
use crate::resource::Resource;
use crate::stdx::stop::Stop;
use crate::stdx::thread;
use crate::store::{Consequence, Object, State, Store, key_of};
use crate::write::Part;
use crate::{delete, write};

/// Minimum delay between a change and its garbage collection.
pub(crate) const COLLECTED_AFTER: Duration = Duration::from_millis(20);

/// Starts the thread `dev-gc`, which processes the consequences in `store` until `stop`.
///
/// # Errors
/// If the thread cannot start.
pub(crate) fn start(store: &Arc<Store>, stop: &Stop) -> io::Result<JoinHandle<()>> {
    let (store, stopping) = (Arc::clone(store), stop.clone());
    thread::try_spawn("dev-gc", stop, move || {
        loop {
            select! {
                recv(store.consequences()) -> _ => {}
                recv(stopping.receiver()) -> _ => return,
            }
            // ORDER: taken before the wait, so that later consequences wait as long.
            let due = store.write(|state| mem::take(&mut state.consequences));
            if stopping.wait_timeout(COLLECTED_AFTER) {
                return;
            }
            store.write(|state| process(state, due));
        }
    })
}

/// Processes the due consequences and those that follow from them.
fn process(state: &mut State, due: VecDeque<Consequence>) {
    let later = mem::replace(&mut state.consequences, due);
    while let Some(consequence) = state.consequences.pop_front() {
        match consequence {
            Consequence::Gone(object) => on_removed(state, &object),
            Consequence::OwnerDeleting(resource, key) => on_owner_deleting(state, resource, &key),
            Consequence::NamespaceDeleting(name) => on_namespace_deleting(state, &name),
            Consequence::Owned(resource, key) => on_owned(state, resource, &key, None),
        }
    }
    state.consequences = later;
}

fn on_owner_deleting(state: &mut State, resource: Resource, key: &str) {
    let Some(owner) = state.get(resource, key).map(Arc::clone) else {
        return;
    };
    let value = owner.value();
    let uid = text(&value, "/metadata/uid").to_owned();
    if has_finalizer(&value, ORPHAN) {
        for (resource, dependent) in dependents(state, &owner, &uid) {
            remove_owners(state, resource, &dependent.key, &[&uid]);
        }
        remove_finalizer(state, resource, key, ORPHAN);
    } else if has_finalizer(&value, FOREGROUND) {
        for (resource, dependent) in dependents(state, &owner, &uid) {
            on_owned(state, resource, &dependent.key, None);
        }
        finish_foreground(state, resource, key);
    }
}

fn on_removed(state: &mut State, object: &Object) {
    let value = object.value();
    let uid = text(&value, "/metadata/uid");
    if !is_pod(&value) {
        for (resource, dependent) in dependents(state, object, uid) {
            on_owned(state, resource, &dependent.key, Some(uid));
        }
    }
    // An owner in foreground deletion may have waited for this object.
    for owner in entries(&value, "/metadata/ownerReferences") {
        if let Some((resource, key)) = owner_key(state, object.namespace(), owner) {
            finish_foreground(state, resource, &key);
        }
    }
    finish_namespace(state, object.namespace());
}

/// What an owner does to its dependents (`classifyReferences` in pkg/controller/garbagecollector).
#[derive(PartialEq)]
enum Owner {
    Keeps,
    Gone,
    /// It waits for the deletion of its dependents.
    Waits,
}

/// Deletes an object that no owner keeps; otherwise removes the references to the owners that do
/// not keep it (`attemptToDeleteItem` in pkg/controller/garbagecollector). The owner `removed` is
/// known to be gone, even if its kind is no longer served.
fn on_owned(state: &mut State, resource: Resource, key: &str, removed: Option<&str>) {
    let Some(object) = state.get(resource, key).map(Arc::clone) else {
        return;
    };
    let value = object.value();
    let (mut keep, mut waits, mut lost) = (false, false, Vec::new());
    for reference in entries(&value, "/metadata/ownerReferences") {
        let uid = text(reference, "/uid");
        let owner = match removed {
            Some(removed) if removed == uid => Owner::Gone,
            _ => owner(state, object.namespace(), reference),
        };
        keep |= owner == Owner::Keeps;
        waits |= owner == Owner::Waits;
        if owner != Owner::Keeps {
            lost.push(uid);
        }
    }
    if lost.is_empty() {
        return;
    }
    if keep {
        remove_owners(state, resource, key, &lost);
        return;
    }
    // Its dependents go before it does, unless one of them waits for it in turn.
    let dependents = if waits && !is_pod(&value) {
        dependents(state, &object, text(&value, "/metadata/uid"))
    } else {
        Vec::new()
    };
    let mut values = dependents.iter().map(|(_, dependent)| dependent.value());
    let is_circle = values.any(|dependent| waits_for_dependents(&dependent));
    let options = if !dependents.is_empty() && !is_circle {
        delete::with_policy("Foreground")
    } else {
        delete::collector_options(&value)
    };
    begin_delete(state, resource, key, &options);
}

fn owner(state: &State, namespace: &str, reference: &Value) -> Owner {
    let Some((resource, key)) = owner_key(state, namespace, reference) else {
        return Owner::Keeps;
    };
    let uid = text(reference, "/uid");
    let owner = state.get(resource, &key).map(|found| found.value());
    match owner {
        Some(owner) if text(&owner, "/metadata/uid") == uid => {
            if waits_for_dependents(&owner) {
                Owner::Waits
            } else {
                Owner::Keeps
            }
        }
        _ if state.owners_elsewhere.contains(uid) => Owner::Keeps,
        _ => Owner::Gone,
    }
}

/// Pods own nothing, and a scan of all other pods for each pod would be slow.
fn is_pod(value: &Value) -> bool {
    value.pointer("/spec/containers").is_some()
}

fn waits_for_dependents(value: &Value) -> bool {
    is_deleting(value) && has_finalizer(value, FOREGROUND)
}

/// The resource and key of an owner; `None` for a kind that is not served, and for an owner in a
/// namespace whose dependent is in none. Their existence cannot be checked.
fn owner_key(state: &State, namespace: &str, reference: &Value) -> Option<(Resource, String)> {
    let kind = text(reference, "/kind");
    let resource = state.resource_of(kind, text(reference, "/apiVersion"))?;
    if resource.is_namespaced() && namespace.is_empty() {
        return None;
    }
    let namespace = resource.is_namespaced().then_some(namespace);
    Some((resource, key_of(namespace, text(reference, "/name"))))
}

fn on_namespace_deleting(state: &mut State, namespace: &str) {
    for resource in namespaced(state) {
        let objects = state.of_namespace(resource, Some(namespace));
        let keys: Vec<Box<str>> = objects.map(|object| object.key.clone()).collect();
        for key in keys {
            if let Some(object) = state.get(resource, &key) {
                let options = delete::collector_options(&object.value());
                begin_delete(state, resource, &key, &options);
            }
        }
    }
    finish_namespace(state, namespace);
}

fn namespaced(state: &State) -> impl Iterator<Item = Resource> + use<> {
    let all = state.stored().into_iter();
    all.filter(|resource| resource.is_namespaced())
}

/// The objects in the owner's namespace that reference it; for an owner without a namespace, in
/// all namespaces.
fn dependents(state: &State, owner: &Object, uid: &str) -> Vec<(Resource, Object)> {
    let mut found = Vec::new();
    let namespace = Some(owner.namespace()).filter(|namespace| !namespace.is_empty());
    // Nothing owns events, of which there may be many.
    let resources = state.stored().into_iter();
    for resource in resources.filter(|resource| *resource != Resource::Events) {
        for object in state.of_namespace(resource, namespace) {
            if object.owners.iter().any(|owner| **owner == *uid) {
                found.push((resource, Arc::clone(object)));
            }
        }
    }
    found
}

fn begin_delete(state: &mut State, resource: Resource, key: &str, options: &DeleteOptions) {
    // Only objects that must not be deleted return an error here.
    if let Err(error) = delete::delete(state, resource, key, options) {
        log::debug!("collecting {key}: {error:?}");
    }
}

fn remove_owners(state: &mut State, resource: Resource, key: &str, uids: &[&str]) {
    drop_entries(state, resource, key, "ownerReferences", |owner| {
        uids.contains(&text(owner, "/uid"))
    });
}

fn remove_finalizer(state: &mut State, resource: Resource, key: &str, finalizer: &str) {
    drop_entries(state, resource, key, "finalizers", |entry| {
        *entry == finalizer
    });
}

/// Removes entries from a list in the metadata.
fn drop_entries(
    state: &mut State,
    resource: Resource,
    key: &str,
    list: &str,
    goes: impl Fn(&Value) -> bool,
) {
    let Some(object) = state.get(resource, key).map(Arc::clone) else {
        return;
    };
    let mut value = object.value();
    if let Some(entries) = value["metadata"][list].as_array_mut() {
        entries.retain(|entry| !goes(entry));
    }
    if let Err(error) = write::replace(state, resource, &object, Part::Main, value) {
        log::debug!("collecting {key}: {error:?}");
    }
}

/// Removes the finalizer of an owner that waited for its last dependent with `blockOwnerDeletion`.
fn finish_foreground(state: &mut State, resource: Resource, key: &str) {
    let Some(owner) = state.get(resource, key).map(Arc::clone) else {
        return;
    };
    let value = owner.value();
    if !waits_for_dependents(&value) {
        return;
    }
    let uid = text(&value, "/metadata/uid");
    let blocks = |reference: &Value| {
        text(reference, "/uid") == uid && reference["blockOwnerDeletion"] == true
    };
    let mut dependents = dependents(state, &owner, uid).into_iter();
    let is_blocked = dependents.any(|(_, it)| {
        entries(&it.value(), "/metadata/ownerReferences")
            .iter()
            .any(blocks)
    });
    if !is_blocked {
        remove_finalizer(state, resource, key, FOREGROUND);
    }
}

/// Removes a namespace that waited for its last object.
fn finish_namespace(state: &mut State, namespace: &str) {
    let Some(object) = state.get(Resource::Namespaces, namespace).map(Arc::clone) else {
        return;
    };
    let mut value = object.value();
    if text(&value, "/status/phase") != "Terminating" {
        return;
    }
    let is_empty = namespaced(state).all(|resource| {
        let mut objects = state.of_namespace(resource, Some(namespace));
        objects.next().is_none()
    });
    if is_empty {
        value["spec"] = json!({});
        state.remove(Resource::Namespaces, namespace, value);
    }
}
