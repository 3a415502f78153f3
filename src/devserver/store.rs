//! The server's state: every object, the resource version, and a bounded history of changes that
//! serves watches and lists at earlier versions. Pure except for one lock.
//!
//! Objects are stored as JSON text without `kind` and `apiVersion`. The server mostly just sends
//! them, and text takes a tenth of the memory of a value tree.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use serde_json::{Value, json};

use crate::api::Labels;
use crate::custom::Custom;
use crate::resource::{Resource, n_built_in};
use crate::status_error::StatusError;

#[derive(Debug)]
pub(crate) struct Stored {
    /// `namespace/name`, or the name alone for a cluster-scoped object.
    pub(crate) key: Box<str>,
    pub(crate) version: u64,
    pub(crate) labels: Labels,
    /// The UIDs of its owner references.
    pub(crate) owners: Box<[Box<str>]>,
    /// True for a pod that is Succeeded or Failed.
    pub(crate) is_terminal: bool,
    /// The object without `kind` and `apiVersion`.
    pub(crate) json: Box<[u8]>,
}

/// An object at some version.
pub(crate) type Object = Arc<Stored>;

/// The type of a change in watch terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
}

#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) version: u64,
    pub(crate) change: Change,
    /// The object after the change; the last state of a deleted object.
    pub(crate) object: Object,
    /// The object before the change; `None` for an added object.
    pub(crate) previous: Option<Object>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Collection {
    /// Keyed in list order.
    pub(crate) objects: BTreeMap<Box<str>, Object>,
    /// The latest changes, oldest first.
    pub(crate) events: VecDeque<Event>,
    /// The history may miss changes up to this version.
    pub(crate) forgotten: u64,
}

/// The changes to the objects of one resource, counted without a scan of the objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The version up to which the tally counts.
    pub version: u64,
    pub added: usize,
    pub deleted: usize,
    /// False if the history no longer covers the whole range, so the counts are too low.
    pub is_complete: bool,
}

/// The options of a server's store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Changes kept per resource.
    pub(crate) history_length: usize,
    /// Runs the garbage collector for dependents and for namespace contents, and creates the
    /// service account `default` in new namespaces.
    pub(crate) garbage_collection: bool,
    /// The controllers that act here, or beside the server.
    pub(crate) controllers: Arc<[String]>,
}

/// A change that the garbage collector must process.
#[derive(Clone, Debug)]
pub(crate) enum Consequence {
    /// The object was removed; this is its last state.
    Gone(Object),
    /// An object with finalizers began its deletion.
    OwnerDeleting(Resource, Box<str>),
    /// A namespace began its deletion.
    NamespaceDeleting(Box<str>),
    /// The object got new owners, which may be gone already.
    Owned(Resource, Box<str>),
}

/// Stands for the collection of a resource without objects so far.
static EMPTY: Collection = Collection {
    objects: BTreeMap::new(),
    events: VecDeque::new(),
    forgotten: 0,
};

/// The resources that are only stored share the last signal.
const N_SIGNALS: usize = Resource::KNOWN.len() + 1;

/// All resources and their common version.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) version: u64,
    pub(crate) settings: Settings,
    /// True in a copy for a dry run: writes get no new version.
    is_dry_run: bool,
    /// The queue of the garbage collector; stays empty without one.
    pub(crate) consequences: VecDeque<Consequence>,
    /// UIDs of owners that loaded objects name and that were not loaded. The garbage collector
    /// takes them for living, in the cluster that the objects were exported from.
    pub(crate) owners_elsewhere: HashSet<String>,
    /// The versions of the objects of every cluster, which an unchanged one still has.
    pub(crate) initial: HashSet<u64>,
    pub(crate) custom: Custom,
    /// By the index of the resource.
    collections: Vec<Collection>,
    /// The signals to give, for the changes since the lock was taken.
    touched: [bool; N_SIGNALS],
}

/// The state behind its lock, shared by all connections.
#[derive(Debug)]
pub(crate) struct Store {
    state: Mutex<State>,
    /// Signals that there are consequences to process.
    is_due: (Sender<()>, Receiver<()>),
    /// Notified when the resource has changed, for blocked watches.
    changed: [Condvar; N_SIGNALS],
    n_watches: AtomicUsize,
}

/// The version of an empty server; its initial objects get later versions.
const FIRST_VERSION: u64 = 200;

/// The pause per open watch after each read of the state.
const PAUSE_PER_WATCH: Duration = Duration::from_micros(50);

impl Store {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            is_due: bounded(1),
            state: Mutex::new(State {
                version: FIRST_VERSION,
                settings,
                is_dry_run: false,
                consequences: VecDeque::new(),
                owners_elsewhere: HashSet::new(),
                initial: HashSet::new(),
                custom: Custom::default(),
                collections: vec![Collection::default(); n_built_in()],
                touched: [false; N_SIGNALS],
            }),
            changed: std::array::from_fn(|_| Condvar::new()),
            n_watches: AtomicUsize::new(0),
        }
    }

    pub(crate) fn add_watch(&self) {
        self.n_watches.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove_watch(&self) {
        self.n_watches.fetch_sub(1, Ordering::Relaxed);
    }

    /// How long a watch pauses after a read of the state. The pause grows with the number of
    /// watches, so that all watches together read at most twenty thousand times a second.
    pub(crate) fn watch_pause(&self) -> Duration {
        let n_watches = self.n_watches.load(Ordering::Relaxed);
        PAUSE_PER_WATCH.saturating_mul(u32::try_from(n_watches).unwrap_or(u32::MAX))
    }

    pub(crate) fn read<T>(&self, view: impl FnOnce(&State) -> T) -> T {
        view(&self.lock())
    }

    /// Receives a signal when there are consequences to process.
    pub(crate) fn consequences(&self) -> &Receiver<()> {
        &self.is_due.1
    }

    /// Changes the state and wakes the watches of the changed resources.
    pub(crate) fn write<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state);
        if !state.settings.garbage_collection {
            state.consequences.clear();
        }
        if !state.consequences.is_empty() {
            // A full channel already carries the same signal.
            self.is_due.0.try_send(()).unwrap_or_default();
        }
        let touched = std::mem::take(&mut state.touched);
        // The woken watches need the lock, so it is released first.
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

    /// Applies a change to a copy of the state and discards the copy, for dry runs.
    pub(crate) fn dry_run<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock().clone();
        state.is_dry_run = true;
        change(&mut state)
    }

    /// Calls `view` and, if it finds nothing, waits for one change of `resource` or for `timeout`
    /// and calls it once more.
    pub(crate) fn wait<T>(
        &self,
        resource: Resource,
        timeout: Duration,
        mut view: impl FnMut(&State) -> Option<T>,
    ) -> Option<T> {
        let state = self.lock();
        if let Some(found) = view(&state) {
            return Some(found);
        }
        let waited = self.changed[signal_of(resource)].wait_timeout(state, timeout);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        view(&state)
    }

    /// Drops the history, so requests from earlier versions fail as too old.
    pub(crate) fn forget_history(&self) {
        self.write(|state| {
            let version = state.version;
            for collection in &mut state.collections {
                collection.events.clear();
                collection.forgotten = version;
            }
        });
    }

    /// The objects of one namespace, or of all namespaces, in list order.
    pub(crate) fn objects_of(&self, resource: Resource, namespace: Option<&str>) -> Vec<Value> {
        let objects: Vec<Object> =
            self.read(|state| state.of_namespace(resource, namespace).cloned().collect());
        objects.iter().map(|object| object.value()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    pub(crate) fn collection(&self, resource: Resource) -> &Collection {
        self.collections.get(resource.index()).unwrap_or(&EMPTY)
    }

    fn collection_mut(&mut self, resource: Resource) -> &mut Collection {
        let index = resource.index();
        if self.collections.len() <= index {
            self.collections.resize_with(index + 1, Collection::default);
        }
        &mut self.collections[index]
    }

    pub(crate) fn resources(&self) -> impl Iterator<Item = Resource> {
        Resource::built_in().chain(self.custom.served())
    }

    /// One resource for each collection: the first version of each.
    pub(crate) fn stored(&self) -> Vec<Resource> {
        let own = self
            .resources()
            .filter(|resource| resource.kept_as() == *resource);
        let mut stored: Vec<Resource> = own.collect();
        stored.dedup_by_key(|resource| resource.index());
        stored
    }

    /// The resource of the objects with this kind and version.
    pub(crate) fn resource_of(&self, kind: &str, api_version: &str) -> Option<Resource> {
        let mut all = self.resources();
        all.find(|known| known.kind() == kind && known.api_version() == api_version)
    }

    pub(crate) fn get(&self, resource: Resource, key: &str) -> Option<&Object> {
        self.collection(resource).objects.get(key)
    }

    /// The current object, or a 404 error.
    pub(crate) fn current(&self, resource: Resource, key: &str) -> Result<Object, StatusError> {
        let name = key.rsplit('/').next().unwrap_or(key);
        let object = self.get(resource, key).cloned();
        object.ok_or_else(|| StatusError::not_found(resource, name))
    }

    /// The objects of one namespace, or of all namespaces.
    pub(crate) fn of_namespace(
        &self,
        resource: Resource,
        namespace: Option<&str>,
    ) -> impl Iterator<Item = &Object> {
        in_namespace(&self.collection(resource).objects, namespace)
    }

    /// Stores `value` under a new version, as a new object or a replacement.
    pub(crate) fn put(&mut self, resource: Resource, key: &str, value: Value) -> Object {
        let object = self.next_version(key, value);
        let collection = self.collection_mut(resource);
        let previous = collection.objects.insert(key.into(), Arc::clone(&object));
        let change = match previous {
            Some(_) => Change::Modified,
            None => Change::Added,
        };
        let has_same_owners = previous
            .as_ref()
            .is_some_and(|previous| previous.owners == object.owners);
        if !object.owners.is_empty() && !has_same_owners {
            let consequence = Consequence::Owned(resource, key.into());
            self.consequences.push_back(consequence);
        }
        self.record(resource, change, Arc::clone(&object), previous);
        object
    }

    /// Removes an object; its last state is `value` under a new version.
    pub(crate) fn remove(&mut self, resource: Resource, key: &str, value: Value) -> Object {
        let object = self.next_version(key, value);
        let collection = self.collection_mut(resource);
        let previous = collection.objects.remove(key);
        self.record(resource, Change::Deleted, Arc::clone(&object), previous);
        object
    }

    fn next_version(&mut self, key: &str, mut value: Value) -> Object {
        if !self.is_dry_run {
            self.version += 1;
            value["metadata"]["resourceVersion"] = json!(self.version.to_string());
        }
        Arc::new(Stored::new(key, self.version, &value))
    }

    fn record(
        &mut self,
        resource: Resource,
        change: Change,
        object: Object,
        previous: Option<Object>,
    ) {
        let history_length = self.settings.history_length;
        let version = self.version;
        let collection = self.collection_mut(resource);
        collection.events.push_back(Event {
            version,
            change,
            object,
            previous,
        });
        while collection.events.len() > history_length {
            if let Some(event) = collection.events.pop_front() {
                collection.forgotten = event.version;
            }
        }
        self.touched[signal_of(resource)] = true;
        if resource == Resource::Definitions {
            let definitions = self.of_namespace(resource, None);
            let definitions: Vec<Value> = definitions.map(|object| object.value()).collect();
            self.custom.refresh(&definitions);
        }
    }

    /// Counts the changes of a resource after version `since` in a namespace; an empty `namespace`
    /// means all.
    pub(crate) fn tally(&self, resource: Resource, namespace: &str, since: u64) -> Tally {
        let collection = self.collection(resource);
        let mut tally = Tally {
            version: self.version,
            is_complete: collection.forgotten <= since,
            ..Tally::default()
        };
        let events = collection.events_after(since);
        let is_in = |object: &Object| namespace.is_empty() || object.namespace() == namespace;
        for event in events.filter(|event| is_in(&event.object)) {
            tally.added += usize::from(event.change == Change::Added);
            tally.deleted += usize::from(event.change == Change::Deleted);
        }
        tally
    }
}

impl Collection {
    /// The changes after `version`, oldest first.
    pub(crate) fn events_after(&self, version: u64) -> impl Iterator<Item = &Event> {
        let first = self
            .events
            .partition_point(|event| event.version <= version);
        self.events.range(first..)
    }

    /// All objects as of `version`; `None` if the history does not reach that far.
    pub(crate) fn objects_at(&self, version: u64) -> Option<BTreeMap<Box<str>, Object>> {
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
    pub(crate) fn new(key: &str, version: u64, value: &Value) -> Self {
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

    pub(crate) fn namespace(&self) -> &str {
        self.key
            .split_once('/')
            .map_or("", |(namespace, _)| namespace)
    }

    pub(crate) fn name(&self) -> &str {
        self.key.split_once('/').map_or(&self.key, |(_, name)| name)
    }

    /// The object as a value tree, without `kind` and `apiVersion`.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_slice(&self.json).expect("the text was written from a value")
    }

    /// Appends the object's JSON text with `kind` and `apiVersion`.
    pub(crate) fn write_full(&self, resource: Resource, text: &mut Vec<u8>) {
        let (kind, api_version) = (resource.kind(), resource.api_version());
        let head = format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",");
        text.extend_from_slice(head.as_bytes());
        // An object always has metadata, so a member follows the opening brace.
        text.extend_from_slice(&self.text(resource)[1..]);
    }

    /// The object's JSON text as this resource shows it, without `kind` and `apiVersion`.
    pub(crate) fn text(&self, resource: Resource) -> Cow<'_, [u8]> {
        if resource.row().renamed.is_empty() {
            return Cow::Borrowed(&self.json);
        }
        let value = resource.to_served(self.value());
        Cow::Owned(value.to_string().into_bytes())
    }
}

fn signal_of(resource: Resource) -> usize {
    resource.index().min(Resource::KNOWN.len())
}

/// `namespace/name`, or the name alone for a cluster-scoped object.
pub(crate) fn key_of(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

/// The objects of one namespace, or of all namespaces, in key order.
pub(crate) fn in_namespace<'a>(
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
