//! Objects in and out of the server as they are, past the API: what a file says is kept, also what
//! only a server may say.
//!
//! Kept is everything that a document has, its UID, times, generation and status included, so that
//! pods still belong to their ReplicaSets and a saved situation goes on where it was. Not kept is
//! `metadata.resourceVersion`, which belongs to one server. What a document lacks is filled in as for
//! an object that is created; a namespace that nobody describes is made.
//!
//! Not written out are events, leases and nodes, which the next server makes anew, and what every
//! cluster has: its first namespaces and the service accounts called `default`.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::create::create;
use super::objects::text;
use super::resource::Resource;
use super::status_error::StatusError;
use super::store::{State, key_of};
use super::{DevServer, INITIAL_NAMESPACES};

/// What is written out, in the order in which it is read in: owners before dependents, and quotas
/// after what they would refuse.
const WRITTEN: [Resource; 6] = [
    Resource::Namespaces,
    Resource::ServiceAccounts,
    Resource::ReplicationControllers,
    Resource::ReplicaSets,
    Resource::Pods,
    Resource::Quotas,
];

/// Members of the metadata that are not kept.
const DROPPED: [&str; 2] = ["resourceVersion", "selfLink"];

/// A document that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Which one, from 0.
    pub index: usize,
    /// Why.
    pub why: String,
}

impl DevServer {
    /// Takes in objects with `kind` and `apiVersion`, in an order that suits them. What is there
    /// already, such as the namespace `default`, stays as it is.
    ///
    /// # Errors
    /// All documents that cannot be taken; the others are in then.
    pub fn load(&self, documents: &[Value]) -> Result<(), Vec<Rejected>> {
        let mut rejected = Vec::new();
        let mut found: Vec<(Resource, usize)> = Vec::new();
        for (index, document) in documents.iter().enumerate() {
            match resource_of(document) {
                Ok(resource) => found.push((resource, index)),
                Err(why) => rejected.push(Rejected { index, why }),
            }
        }
        found.sort_by_key(|(resource, index)| (rank(*resource), *index));
        self.store.write(|state| {
            let mut keys = HashMap::new();
            let mut created = Vec::new();
            for (resource, index) in found {
                match load_one(state, resource, &documents[index], &mut keys, index) {
                    Ok(Some(key)) => created.push((resource, index, key)),
                    Ok(None) => {}
                    Err(why) => rejected.push(Rejected { index, why }),
                }
            }
            // Only when all are in, since nothing is let into a namespace that is going.
            for (resource, index, key) in created {
                keep(state, resource, &key, &documents[index]);
            }
        });
        rejected.sort_by_key(|rejected| rejected.index);
        if rejected.is_empty() {
            Ok(())
        } else {
            Err(rejected)
        }
    }

    /// All objects that [`DevServer::load`] would need to bring about the same situation.
    pub fn dump(&self) -> Vec<Value> {
        let mut documents = Vec::new();
        for resource in WRITTEN {
            for mut object in self.objects(resource.plural(), "") {
                let name = text(&object, "/metadata/name");
                let is_usual = match resource {
                    Resource::Namespaces => INITIAL_NAMESPACES.contains(&name),
                    Resource::ServiceAccounts => name == "default",
                    _ => false,
                };
                if is_usual {
                    continue;
                }
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
}

fn rank(resource: Resource) -> usize {
    let place = WRITTEN.iter().position(|written| *written == resource);
    // Whatever else there is depends on none of them, but for its namespace.
    place.unwrap_or(WRITTEN.len())
}

fn resource_of(document: &Value) -> Result<Resource, String> {
    let (kind, api_version) = (text(document, "/kind"), text(document, "/apiVersion"));
    if kind.is_empty() || api_version.is_empty() {
        return Err("it lacks kind or apiVersion".to_owned());
    }
    let mut all = Resource::ALL.into_iter();
    let found = all.find(|known| known.kind() == kind && known.api_version() == api_version);
    found.ok_or_else(|| format!("{kind} of {api_version} is not served here"))
}

/// Creates the object; answers its key, or `None` if it was there before anything was loaded.
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
            return Err(format!("{named} is there twice"));
        }
        if state.get(resource, &key).is_some() {
            return Ok(None);
        }
    }
    if let Some(namespace) = namespace {
        make_namespace(state, namespace).map_err(|refusal| message(&refusal))?;
    }
    let mut object = document.clone();
    if let Some(map) = object.as_object_mut() {
        map.remove("kind");
        map.remove("apiVersion");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|name, _| !DROPPED.contains(&name.as_str()));
    }
    let created = create(state, resource, namespace, object);
    let created = created.map_err(|refusal| message(&refusal))?;
    Ok(Some(created.key.to_string()))
}

fn make_namespace(state: &mut State, name: &str) -> Result<(), StatusError> {
    if state.get(Resource::Namespaces, name).is_some() {
        return Ok(());
    }
    let namespace = json!({"metadata": {"name": name}});
    create(state, Resource::Namespaces, None, namespace).map(|_| ())
}

fn namespace_of(document: &Value) -> &str {
    match text(document, "/metadata/namespace") {
        "" => "default",
        namespace => namespace,
    }
}

/// Puts back what creating has changed of the document's metadata and status.
fn keep(state: &mut State, resource: Resource, key: &str, document: &Value) {
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
    // What a quota has counted belongs to this server.
    if document["status"].is_object() && resource != Resource::Quotas {
        new["status"] = document["status"].clone();
    }
    if resource == Resource::Namespaces && document["spec"].is_object() {
        new["spec"] = document["spec"].clone();
    }
    if new != old {
        state.put(resource, key, new);
    }
}

fn message(refusal: &StatusError) -> String {
    let status = serde_json::to_value(refusal).unwrap_or_default();
    text(&status, "/message").to_owned()
}
