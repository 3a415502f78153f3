//! The state of the server: every object, the one resource version, and a bounded history of
//! changes from which watches and lists of earlier versions are served. Pure but for one lock.
//!
//! Objects are kept as JSON text without `kind` and `apiVersion`: most of them are only ever sent,
//! and text is a tenth of the size of a tree of values.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use serde_json::{Value, json};

use super::resource::{N_RESOURCES, Resource};
use super::status_error::StatusError;
use crate::api::Labels;

/// One version of one object. Never changed.
#[derive(Debug)]
pub(super) struct Stored {
    /// `namespace/name`, or the name of an object outside namespaces.
    pub(super) key: Box<str>,
    pub(super) version: u64,
    pub(super) labels: Labels,
    /// The UIDs of its owners.
    pub(super) owners: Box<[Box<str>]>,
    /// True for a pod that has run to its end.
    pub(super) is_terminal: bool,
    /// The object without `kind` and `apiVersion`.
    pub(super) json: Box<[u8]>,
}

/// An object as it was at some version.
pub(super) type Object = Arc<Stored>;

/// What a watch calls a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Added,
    Modified,
    Deleted,
}

/// One change of one object.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) version: u64,
    pub(super) change: Change,
    /// The object after the change; of a deleted one its last state.
    pub(super) object: Object,
    /// The object before the change; `None` if it was added.
    pub(super) previous: Option<Object>,
}

/// Everything of one resource.
#[derive(Clone, Debug, Default)]
pub(super) struct Shelf {
    /// By key, which is the order of lists.
    pub(super) objects: BTreeMap<Box<str>, Object>,
    /// The latest changes, oldest first.
    pub(super) events: VecDeque<Event>,
    /// All changes up to this version may be missing from `events`.
    pub(super) forgotten: u64,
}

/// What differs from server to server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// Changes kept per resource.
    pub(super) history_length: usize,
    /// Whether dependents go when their owner goes, and contents when their namespace goes; and
    /// whether namespaces are born with their service account `default`.
    pub(super) garbage_collection: bool,
}

/// What has happened that other objects may have to follow.
#[derive(Clone, Debug)]
pub(super) enum Consequence {
    /// This was the object's last state.
    Gone(Object),
    /// An object with finalizers has been marked as being deleted.
    OwnerGoing(Resource, Box<str>),
    /// A namespace has been marked as being deleted.
    NamespaceGoing(Box<str>),
    /// The object has got owners, which may be gone already.
    Owned(Resource, Box<str>),
}

/// All resources and the version that they share.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) version: u64,
    pub(super) settings: Settings,
    /// A copy that is thrown away: what is stored in it gets no version.
    is_rehearsal: bool,
    /// What the garbage collector has still to follow up; nothing where there is none.
    pub(super) consequences: VecDeque<Consequence>,
    shelves: [Shelf; N_RESOURCES],
    /// Which resources have changed since the lock was taken.
    touched: [bool; N_RESOURCES],
}

/// The state behind its lock, shared by all connections.
#[derive(Debug)]
pub(super) struct Store {
    state: Mutex<State>,
    /// Says that there are consequences to be followed up.
    is_due: (Sender<()>, Receiver<()>),
    /// Given when the resource has changed, for watches that wait.
    changed: [Condvar; N_RESOURCES],
    /// How many watches there are.
    n_watches: AtomicUsize,
}

/// The version that an empty server has; what it creates for itself comes after it.
const FIRST_VERSION: u64 = 200;

/// Of the time of all watches together, the part of one look at the state.
const REST_PER_WATCH: Duration = Duration::from_micros(50);

impl Store {
    /// An empty store.
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            is_due: bounded(1),
            state: Mutex::new(State {
                version: FIRST_VERSION,
                settings,
                is_rehearsal: false,
                consequences: VecDeque::new(),
                shelves: std::array::from_fn(|_| Shelf::default()),
                touched: [false; N_RESOURCES],
            }),
            changed: std::array::from_fn(|_| Condvar::new()),
            n_watches: AtomicUsize::new(0),
        }
    }

    /// Counts one more watch.
    pub(super) fn add_watch(&self) {
        self.n_watches.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one watch less.
    pub(super) fn remove_watch(&self) {
        self.n_watches.fetch_sub(1, Ordering::Relaxed);
    }

    /// How long a watch leaves the state alone after it has looked at it. The more watches there
    /// are, the longer, so that they never wake one another more than twenty thousand times a second.
    pub(super) fn watch_rest(&self) -> Duration {
        let n_watches = self.n_watches.load(Ordering::Relaxed);
        REST_PER_WATCH.saturating_mul(u32::try_from(n_watches).unwrap_or(u32::MAX))
    }

    /// Looks at the state.
    pub(super) fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.lock())
    }

    /// Is sent to when there are consequences to be followed up.
    pub(super) fn consequences(&self) -> &Receiver<()> {
        &self.is_due.1
    }

    /// Changes the state and wakes the watches of what has changed.
    pub(super) fn write<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state);
        if !state.settings.garbage_collection {
            state.consequences.clear();
        }
        if !state.consequences.is_empty() {
            // One that is sent already says the same.
            self.is_due.0.try_send(()).unwrap_or_default();
        }
        let touched = std::mem::take(&mut state.touched);
        drop(state);
        for (changed, _) in self
            .changed
            .iter()
            .zip(touched)
            .filter(|(_, touched)| *touched)
        {
            changed.notify_all();
        }
        result
    }

    /// Does a change on a copy, which nobody else sees and nothing is kept of.
    pub(super) fn rehearse<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock().clone();
        state.is_rehearsal = true;
        change(&mut state)
    }

    /// Looks at the state until `look` finds something or `timeout` has passed since it last did
    /// not. Blocks for changes of `resource` only.
    pub(super) fn wait<T>(
        &self,
        resource: Resource,
        timeout: Duration,
        mut look: impl FnMut(&State) -> Option<T>,
    ) -> Option<T> {
        let state = self.lock();
        if let Some(found) = look(&state) {
            return Some(found);
        }
        let waited = self.changed[resource.index()].wait_timeout(state, timeout);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        look(&state)
    }

    /// Drops the history, so that whoever asks for a version before now is told that it is too old.
    pub(super) fn forget_history(&self) {
        self.write(|state| {
            let version = state.version;
            for shelf in &mut state.shelves {
                shelf.events.clear();
                shelf.forgotten = version;
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    pub(super) fn shelf(&self, resource: Resource) -> &Shelf {
        &self.shelves[resource.index()]
    }

    pub(super) fn get(&self, resource: Resource, key: &str) -> Option<&Object> {
        self.shelf(resource).objects.get(key)
    }

    /// The object as it is now, or that it is not there.
    pub(super) fn current(&self, resource: Resource, key: &str) -> Result<Object, StatusError> {
        let name = key.rsplit('/').next().unwrap_or(key);
        let object = self.get(resource, key).cloned();
        object.ok_or_else(|| StatusError::not_found(resource, name))
    }

    /// The objects of one namespace, or of all.
    pub(super) fn of_namespace(
        &self,
        resource: Resource,
        namespace: Option<&str>,
    ) -> impl Iterator<Item = &Object> {
        in_namespace(&self.shelf(resource).objects, namespace)
    }

    /// Stores `value` under a new version, as new or in place of what is there.
    pub(super) fn put(&mut self, resource: Resource, key: &str, value: Value) -> Object {
        let object = self.next_version(key, value);
        let shelf = &mut self.shelves[resource.index()];
        let previous = shelf.objects.insert(key.into(), Arc::clone(&object));
        let change = match previous {
            Some(_) => Change::Modified,
            None => Change::Added,
        };
        let is_as_before = previous
            .as_ref()
            .is_some_and(|previous| previous.owners == object.owners);
        if !object.owners.is_empty() && !is_as_before {
            let consequence = Consequence::Owned(resource, key.into());
            self.consequences.push_back(consequence);
        }
        self.remember(resource, change, Arc::clone(&object), previous);
        object
    }

    /// Removes an object; its last state is `value` under a new version.
    pub(super) fn remove(&mut self, resource: Resource, key: &str, value: Value) -> Object {
        let object = self.next_version(key, value);
        let shelf = &mut self.shelves[resource.index()];
        let previous = shelf.objects.remove(key);
        self.remember(resource, Change::Deleted, Arc::clone(&object), previous);
        object
    }

    fn next_version(&mut self, key: &str, mut value: Value) -> Object {
        if !self.is_rehearsal {
            self.version += 1;
            value["metadata"]["resourceVersion"] = json!(self.version.to_string());
        }
        Arc::new(Stored::new(key, self.version, &value))
    }

    fn remember(
        &mut self,
        resource: Resource,
        change: Change,
        object: Object,
        previous: Option<Object>,
    ) {
        let history_length = self.settings.history_length;
        let shelf = &mut self.shelves[resource.index()];
        shelf.events.push_back(Event {
            version: self.version,
            change,
            object,
            previous,
        });
        while shelf.events.len() > history_length {
            if let Some(event) = shelf.events.pop_front() {
                shelf.forgotten = event.version;
            }
        }
        self.touched[resource.index()] = true;
    }
}

impl Shelf {
    /// The changes after `version`, oldest first.
    pub(super) fn events_after(&self, version: u64) -> impl Iterator<Item = &Event> {
        let first = self
            .events
            .partition_point(|event| event.version <= version);
        self.events.range(first..)
    }

    /// All objects as they were at `version`; `None` if the history does not reach back so far.
    pub(super) fn objects_at(&self, version: u64) -> Option<BTreeMap<Box<str>, Object>> {
        if version < self.forgotten {
            return None;
        }
        let mut objects = self.objects.clone();
        let later = self.events.iter().rev();
        for event in later.take_while(|event| event.version > version) {
            match &event.previous {
                Some(previous) => {
                    objects.insert(event.object.key.clone(), Arc::clone(previous));
                }
                None => {
                    objects.remove(&event.object.key);
                }
            }
        }
        Some(objects)
    }
}

impl Stored {
    pub(super) fn new(key: &str, version: u64, value: &Value) -> Self {
        let labels = value["metadata"]["labels"].as_object();
        let labels = labels.into_iter().flatten().map(|(name, value)| {
            let value = value.as_str().unwrap_or_default();
            (name.as_str(), value)
        });
        let owners = value["metadata"]["ownerReferences"].as_array();
        let owners = owners.into_iter().flatten();
        let phase = value["status"]["phase"].as_str();
        Self {
            key: key.into(),
            version,
            labels: labels.collect(),
            owners: owners
                .filter_map(|owner| owner["uid"].as_str())
                .map(Box::from)
                .collect(),
            is_terminal: matches!(phase, Some("Succeeded" | "Failed")),
            json: serde_json::to_vec(value)
                .expect("JSON values have text keys")
                .into(),
        }
    }

    /// The namespace; empty for an object outside namespaces.
    pub(super) fn namespace(&self) -> &str {
        self.key
            .split_once('/')
            .map_or("", |(namespace, _)| namespace)
    }

    pub(super) fn name(&self) -> &str {
        self.key.split_once('/').map_or(&self.key, |(_, name)| name)
    }

    /// The object as a tree, without `kind` and `apiVersion`.
    pub(super) fn value(&self) -> Value {
        serde_json::from_slice(&self.json).expect("the text was written from a value")
    }

    /// Appends the object as it is sent by itself, with `kind` and `apiVersion`.
    pub(super) fn write_full(&self, resource: Resource, text: &mut Vec<u8>) {
        let (kind, api_version) = (resource.kind(), resource.api_version());
        let head = format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",");
        text.extend_from_slice(head.as_bytes());
        // An object always has metadata, so there is a member after the opening brace.
        text.extend_from_slice(&self.json[1..]);
    }
}

/// `namespace/name`, or only the name outside namespaces.
pub(super) fn key_of(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

/// The objects of one namespace, or of all, in the order of their keys.
pub(super) fn in_namespace<'a>(
    objects: &'a BTreeMap<Box<str>, Object>,
    namespace: Option<&str>,
) -> impl Iterator<Item = &'a Object> + use<'a> {
    let prefix = namespace.map(|namespace| format!("{namespace}/"));
    let from = prefix.clone().unwrap_or_default().into_boxed_str();
    objects
        .range(from..)
        .take_while(move |(key, _)| match &prefix {
            Some(prefix) => key.starts_with(prefix),
            None => true,
        })
        .map(|(_, object)| object)
}
