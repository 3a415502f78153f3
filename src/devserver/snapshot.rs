//! Loads and exports objects without the API's checks on server-owned fields.
//!
//! A loaded object keeps all fields of its document, including UID, times, generation and status.
//! Pods thus still belong to their ReplicaSets, and a saved state continues where it stopped. Only
//! `metadata.resourceVersion` is dropped, because it belongs to one server. The server fills
//! missing fields as for a create, and creates missing namespaces, and service accounts and
//! priority classes that pods and templates name.
//!
//! The export omits events, leases and nodes, which the next server creates again. It also omits
//! the unchanged objects of every cluster, such as the initial namespaces.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use crate::json::{entries, strip_kind, text};
use crate::resource::Resource;
use crate::status_error::StatusError;
use crate::store::{State, Store, key_of};
use crate::write::{create, priority_classes};

/// The exported resources in load order: owners before dependents, and quotas after the objects
/// that they would reject. Other resources depend only on these.
const EXPORTED: [Resource; 7] = [
    Resource::Namespaces,
    Resource::Definitions,
    Resource::ServiceAccounts,
    Resource::ReplicationControllers,
    Resource::ReplicaSets,
    Resource::Pods,
    Resource::Quotas,
];

/// Metadata fields to drop.
const DROPPED: [&str; 2] = ["resourceVersion", "selfLink"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The document's index, from 0.
    pub index: usize,
    pub why: String,
}

/// Loads objects with `kind` and `apiVersion`, owners before dependents. Existing objects stay
/// unchanged, but for those of every cluster, such as the namespace `default`.
///
/// # Errors
/// All documents that failed to load; the others are loaded.
pub(crate) fn load(store: &Store, documents: &[Value]) -> Result<(), Vec<Rejected>> {
    let mut rejected = Vec::new();
    let mut order: Vec<usize> = (0..documents.len()).collect();
    order.sort_by_key(|index| (rank(&documents[*index]), *index));
    store.write(|state| {
        let mut keys = HashMap::new();
        let mut created = Vec::new();
        for index in order {
            let document = &documents[index];
            // Only now, because an earlier document may define the resource.
            let loaded = resource_of(state, document).and_then(|resource| {
                let key = load_one(state, resource, document, &mut keys, index)?;
                Ok(key.map(|key| (resource, index, key)))
            });
            match loaded {
                Ok(loaded) => created.extend(loaded),
                Err(why) => rejected.push(Rejected { index, why }),
            }
        }
        // After all creates, because a terminating namespace accepts no objects.
        for (resource, index, key) in created {
            restore(state, resource, &key, &documents[index]);
        }
        state.owners_elsewhere.extend(owners_elsewhere(documents));
    });
    rejected.sort_by_key(|rejected| rejected.index);
    if rejected.is_empty() {
        Ok(())
    } else {
        Err(rejected)
    }
}

/// The UIDs of the owners that the documents name and do not contain.
fn owners_elsewhere(documents: &[Value]) -> impl Iterator<Item = String> {
    let loaded: HashSet<&str> = documents
        .iter()
        .map(|it| text(it, "/metadata/uid"))
        .collect();
    let owners = documents
        .iter()
        .flat_map(|it| entries(it, "/metadata/ownerReferences"));
    let uids = owners.map(|owner| text(owner, "/uid"));
    uids.filter(move |uid| !loaded.contains(uid))
        .map(str::to_owned)
}

/// Exports all objects that [`load`] needs to restore the state.
pub(crate) fn dump(store: &Store) -> Vec<Value> {
    let mut documents = Vec::new();
    for resource in store.read(exported) {
        let changed = store.read(|state| {
            let all = state.of_namespace(resource, None);
            let changed = all.filter(|object| !state.initial.contains(&object.version));
            changed.cloned().collect::<Vec<_>>()
        });
        for mut object in changed.iter().map(|object| object.value()) {
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.retain(|name, _| !DROPPED.contains(&name.as_str()));
            }
            let mut document = Map::new();
            document.insert("apiVersion".to_owned(), json!(resource.api_version()));
            document.insert("kind".to_owned(), json!(resource.kind()));
            document.extend(object.as_object().cloned().unwrap_or_default());
            documents.push(Value::Object(document));
        }
    }
    documents
}

/// The exported resources, and all that are only stored.
fn exported(state: &State) -> Vec<Resource> {
    let stored = state.stored().into_iter();
    let plain = stored.filter(|resource| matches!(resource, Resource::Plain(_)));
    EXPORTED.into_iter().chain(plain).collect()
}

fn rank(document: &Value) -> usize {
    let place = EXPORTED.iter().position(|it| it.is_of(document));
    place.unwrap_or(EXPORTED.len())
}

fn resource_of(state: &State, document: &Value) -> Result<Resource, String> {
    let (kind, api_version) = (text(document, "/kind"), text(document, "/apiVersion"));
    if kind.is_empty() || api_version.is_empty() {
        return Err("an object without kind or apiVersion".to_owned());
    }
    let found = state.resource_of(kind, api_version);
    found.ok_or_else(|| format!("{kind} of {api_version} is not served here"))
}

/// Creates the object and returns its key, or `None` if it existed before the load. The document of
/// an initial object takes its place.
fn load_one(
    state: &mut State,
    resource: Resource,
    document: &Value,
    keys: &mut HashMap<(Resource, String), usize>,
    index: usize,
) -> Result<Option<String>, String> {
    let namespace = resource.is_namespaced().then(|| namespace_of(document));
    let name = text(document, "/metadata/name");
    let named = format!("{} {}", resource.kind(), key_of(namespace, name));
    if !name.is_empty() {
        let key = key_of(namespace, name);
        if keys.insert((resource, key.clone()), index).is_some() {
            return Err(format!("duplicate object: {named}"));
        }
        if let Some(found) = state.get(resource, &key).cloned() {
            if !state.initial.contains(&found.version) {
                return Ok(None);
            }
            // A namespace has nothing but what `restore` sets, and objects that need it.
            if resource == Resource::Namespaces {
                return Ok(Some(key));
            }
            state.remove(resource, &key, found.value());
        }
    }
    if let Some(namespace) = namespace {
        create_missing(state, Resource::Namespaces, None, namespace)
            .map_err(|error| message(&error))?;
        for spec in ["/spec", "/spec/template/spec"] {
            let named = |name: &str| text(document, &format!("{spec}/{name}"));
            let accounts = ["serviceAccountName", "serviceAccount"].map(named);
            for account in accounts {
                create_missing(state, Resource::ServiceAccounts, Some(namespace), account)
                    .map_err(|error| message(&error))?;
            }
            let (classes, class) = (priority_classes(), named("priorityClassName"));
            create_missing(state, classes, None, class).map_err(|error| message(&error))?;
        }
    }
    let mut object = document.clone();
    strip_kind(&mut object);
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|name, _| !DROPPED.contains(&name.as_str()));
    }
    let created = create(state, resource, namespace, object);
    Ok(Some(
        created.map_err(|error| message(&error))?.key.to_string(),
    ))
}

/// Creates an object that others need. Its own document may follow, and takes its place.
fn create_missing(
    state: &mut State,
    resource: Resource,
    namespace: Option<&str>,
    name: &str,
) -> Result<(), StatusError> {
    if name.is_empty() || state.get(resource, &key_of(namespace, name)).is_some() {
        return Ok(());
    }
    let created = create(
        state,
        resource,
        namespace,
        json!({"metadata": {"name": name}}),
    )?;
    if resource != Resource::Namespaces {
        state.initial.insert(created.version);
    }
    Ok(())
}

fn namespace_of(document: &Value) -> &str {
    match text(document, "/metadata/namespace") {
        "" => "default",
        namespace => namespace,
    }
}

/// Restores the document's metadata and status, which the create changed.
fn restore(state: &mut State, resource: Resource, key: &str, document: &Value) {
    let Some(object) = state.get(resource, key).cloned() else {
        return;
    };
    let old = object.value();
    let mut new = old.clone();
    let metadata = document["metadata"].as_object().into_iter().flatten();
    for (name, value) in metadata.filter(|(name, _)| !DROPPED.contains(&name.as_str())) {
        if !value.is_null() {
            new["metadata"][name] = value.clone();
        }
    }
    // The usage of a quota belongs to this server.
    if document["status"].is_object() && resource != Resource::Quotas {
        new["status"] = document["status"].clone();
    }
    if resource == Resource::Namespaces {
        new["metadata"]["labels"]["kubernetes.io/metadata.name"] = json!(key);
        if document["spec"].is_object() {
            new["spec"] = document["spec"].clone();
        }
    }
    if new != old {
        state.put(resource, key, new);
    }
}

fn message(error: &StatusError) -> String {
    error.message().to_owned()
}
