//! The objects of one kind as the watch has delivered them, with the controller's indexes.
//!
//! One watch thread writes the store, and every syncing thread reads it. One `RwLock` guards all
//! state. A thread holds it only to copy pointers or to move them in and out. The store frees
//! dropped objects after it has released the lock, and returns the changes as [`CacheEvent`]s for
//! the writer to deliver.
//!
//! An object costs one pointer and two slot numbers in the table, and one pointer in each of its
//! buckets. Because the table knows the slots, removing one of 10,000 pods from its owner's bucket
//! touches two entries.

use std::fmt::Debug;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use parking_lot::RwLock;

use crate::api::{ObjectKey, ResourceVersion, Uid};
use crate::stdx::stop::Latch;
use crate::stdx::{HashMap, HashSet, SHRINK_FACTOR};

/// Maximum buckets of an object.
const BUCKETS_MAX: usize = 2;

/// The interface of the objects in a [`Store`].
pub trait Indexed: Debug + PartialEq + Send + Sync + 'static {
    /// Names one group of objects that is queried together.
    type Bucket: Clone + Debug + Eq + Hash + Send + Sync;

    /// The counts of the objects in one bucket. Cloning copies at most a pointer.
    type Tally: Clone + Debug + Default + Send + Sync;

    /// Its key, its UID and its version.
    fn identity(&self) -> (&ObjectKey, &Uid, &ResourceVersion);

    fn key(&self) -> &ObjectKey {
        self.identity().0
    }

    fn uid(&self) -> &Uid {
        self.identity().1
    }

    fn resource_version(&self) -> &ResourceVersion {
        self.identity().2
    }

    /// The buckets of the object. Each position of the array has its own kind of bucket, so an
    /// object is never in one bucket twice.
    fn buckets(&self) -> [Option<Self::Bucket>; BUCKETS_MAX];

    /// Adds this object to the counts. Without counts there is nothing to add.
    fn count(&self, _: &mut Self::Tally) {}

    /// Removes this object, which was counted, from the counts.
    fn discount(&self, _: &mut Self::Tally) {}
}

/// An object on the wire that this build cannot decode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadKey {
    pub key: ObjectKey,
    /// Its UID; empty if that could not be decoded either.
    pub uid: Uid,
}

#[derive(Debug)]
pub struct Store<T: Indexed> {
    state: RwLock<State<T>>,
    synced: Arc<Latch>,
}

#[derive(Debug)]
struct State<T: Indexed> {
    entries: Table<T>,
    /// INVARIANT: every object of `entries` is once in each of its buckets, at the slot in its
    /// entry. Nothing else is in a bucket, and no bucket is empty.
    buckets: HashMap<T::Bucket, Group<T>>,
    resource_version: ResourceVersion,
}

/// The objects of one bucket.
#[derive(Debug)]
struct Group<T: Indexed> {
    objects: Vec<Arc<T>>,
    /// INVARIANT: counts all of `objects` and nothing else.
    tally: T::Tally,
}

impl<T: Indexed> Store<T> {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn get(&self, key: &ObjectKey) -> Option<Arc<T>> {
        let state = self.state.read();
        let entry = state.entries.get(key)?;
        Some(Arc::clone(&entry.object))
    }

    pub fn bucket(&self, bucket: &T::Bucket) -> Vec<Arc<T>> {
        let [objects] = self.buckets([bucket]);
        objects
    }

    /// The objects of several buckets at one moment: none is in two of them on its way from one to
    /// another.
    pub fn buckets<const N: usize>(&self, buckets: [&T::Bucket; N]) -> [Vec<Arc<T>>; N] {
        let state = self.state.read();
        buckets.map(|bucket| {
            let group = state.buckets.get(bucket);
            group.map_or_else(Vec::new, |group| group.objects.clone())
        })
    }

    /// Calls `visit` with each object of one bucket. Writers wait meanwhile, so `visit` must be
    /// quick and must not call this store.
    pub fn visit(&self, bucket: &T::Bucket, visit: &mut dyn FnMut(&T)) {
        let state = self.state.read();
        let objects = state.buckets.get(bucket).map(|group| &group.objects);
        objects
            .into_iter()
            .flatten()
            .for_each(|object| visit(object));
    }

    /// As [`visit`](Self::visit), but with all objects, in no order: some 10 ms for 50,000.
    pub fn visit_all(&self, visit: &mut dyn FnMut(&T)) {
        let state = self.state.read();
        state.entries.objects().for_each(|object| visit(object));
    }

    /// The counts of the objects of one bucket, for the cost of copying a pointer.
    pub fn tally(&self, bucket: &T::Bucket) -> T::Tally {
        let state = self.state.read();
        let group = state.buckets.get(bucket);
        group.map_or_else(T::Tally::default, |group| group.tally.clone())
    }

    pub fn list(&self) -> Vec<Arc<T>> {
        let state = self.state.read();
        let mut objects: Vec<_> = state.entries.objects().map(Arc::clone).collect();
        drop(state);
        objects.sort_unstable_by(|a, b| a.key().cmp(b.key()));
        objects
    }

    pub fn len(&self) -> usize {
        self.state.read().entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The version that the store has reached: that of the last event, bookmark or list applied,
    /// which need not be the highest. Empty before the first.
    pub fn resource_version(&self) -> ResourceVersion {
        self.state.read().resource_version.clone()
    }

    pub fn has_synced(&self) -> bool {
        self.synced.is_set()
    }

    pub fn synced(&self) -> &Arc<Latch> {
        &self.synced
    }

    /// Makes [`has_synced`](Self::has_synced) true. Call it once the events of the first list are
    /// delivered.
    pub fn set_synced(&self) {
        self.synced.set();
    }

    /// Applies a watch event for a new or changed object: one that the store lacks is new.
    pub fn apply(&self, object: impl Into<Arc<T>>) -> Option<CacheEvent<T>> {
        let object = object.into();
        let mut state = self.state.write();
        state.advance(object.resource_version());
        state.upsert(object)
    }

    /// Applies a watch event for a deleted object with its last state. Returns no event if the
    /// object was unknown.
    pub fn apply_deleted(&self, object: impl Into<Arc<T>>) -> Option<CacheEvent<T>> {
        let object = object.into();
        let mut state = self.state.write();
        state.advance(object.resource_version());
        let removed = state.remove(object.key());
        drop(state);
        removed.map(|_| CacheEvent::Deleted(object))
    }

    /// Applies a bookmark: nothing has changed up to this version.
    pub fn apply_bookmark(&self, resource_version: &ResourceVersion) {
        self.state.write().advance(resource_version);
    }

    /// Applies a watch event for an object that this build cannot decode. Its last decoded state
    /// stays, because removing it would claim that the object is gone. It is removed only if the
    /// object `is_deleted` or is another one of the same name.
    pub fn apply_unread(
        &self,
        unread: &UnreadKey,
        resource_version: &ResourceVersion,
        is_deleted: bool,
    ) -> Option<CacheEvent<T>> {
        let mut state = self.state.write();
        state.advance(resource_version);
        let entry = state.entries.get(&unread.key)?;
        if !is_deleted && unread.may_be(&*entry.object) {
            return None;
        }
        let removed = state.remove(&unread.key);
        drop(state);
        removed.map(CacheEvent::Deleted)
    }

    /// Makes the store equal to a list in one step. Returns first the deletions, by ascending key
    /// and with the last known states, then the additions and updates in the list's order.
    /// Unchanged objects get no event. An object with another UID than before is an update. So is
    /// another state with the same version, because a server that was restored from a backup issues
    /// versions a second time.
    ///
    /// `unread` are the objects on the server that could not be decoded; their last states stay.
    pub fn replace(
        &self,
        objects: Vec<Arc<T>>,
        unread: &[UnreadKey],
        resource_version: &ResourceVersion,
    ) -> Vec<CacheEvent<T>> {
        // Build the sets before locking, to keep the lock short.
        let listed: HashSet<&ObjectKey> = objects.iter().map(|object| object.key()).collect();
        let unread: HashMap<_, _> = unread.iter().map(|unread| (&unread.key, unread)).collect();
        let mut events = Vec::new();
        let mut state = self.state.write();
        let is_deleted = |object: &&Arc<T>| {
            let unread = unread.get(object.key());
            !listed.contains(object.key())
                && !unread.is_some_and(|unread| unread.may_be(&***object))
        };
        let deleted = state.entries.objects().filter(is_deleted);
        let mut deleted: Vec<ObjectKey> = deleted.map(|object| object.key().clone()).collect();
        // The table has no order; sorted deletions are reproducible.
        deleted.sort_unstable();
        for key in &deleted {
            events.extend(state.remove(key).map(CacheEvent::Deleted));
        }
        drop(listed);
        for object in objects {
            events.extend(state.upsert(object));
        }
        state.advance(resource_version);
        events
    }
}

impl<T: Indexed> Default for Store<T> {
    fn default() -> Self {
        Self {
            state: RwLock::new(State {
                entries: Table::default(),
                buckets: HashMap::default(),
                resource_version: ResourceVersion::default(),
            }),
            synced: Arc::default(),
        }
    }
}

impl<T: Indexed> Default for Group<T> {
    fn default() -> Self {
        Self {
            objects: Vec::new(),
            tally: T::Tally::default(),
        }
    }
}

impl UnreadKey {
    /// False only if the UIDs prove that `object` is another one.
    fn may_be<T: Indexed>(&self, object: &T) -> bool {
        self.uid.is_empty() || self.uid == *object.uid()
    }
}

impl<T: Indexed> State<T> {
    /// Records the version that the store has reached. An empty version is ignored.
    fn advance(&mut self, resource_version: &ResourceVersion) {
        if !resource_version.is_empty() {
            self.resource_version = resource_version.clone();
        }
    }

    fn upsert(&mut self, new: Arc<T>) -> Option<CacheEvent<T>> {
        let Some(entry) = self.entries.get_mut(new.key()) else {
            self.insert(Arc::clone(&new));
            return Some(CacheEvent::Added(new));
        };
        // Relists and reconnects repeat objects; equal ones need no event.
        if entry.object == new {
            return None;
        }
        let buckets = new.buckets();
        // The usual change keeps the buckets, so it replaces the pointers in place.
        let old = if buckets == entry.object.buckets() {
            for (bucket, slot) in buckets.iter().zip(entry.slots) {
                if let Some(bucket) = bucket {
                    let group = self.buckets.get_mut(bucket);
                    let group = group.expect("a bucket holds the objects that belong to it");
                    group.objects[slot as usize] = Arc::clone(&new);
                    entry.object.discount(&mut group.tally);
                    new.count(&mut group.tally);
                }
            }
            std::mem::replace(&mut entry.object, Arc::clone(&new))
        } else {
            let old = self.remove(new.key()).expect("it was found above");
            self.insert(Arc::clone(&new));
            old
        };
        Some(CacheEvent::Updated { old, new })
    }

    fn insert(&mut self, object: Arc<T>) {
        let mut slots = [0; BUCKETS_MAX];
        for (bucket, slot) in object.buckets().into_iter().zip(&mut slots) {
            if let Some(bucket) = bucket {
                let group = self.buckets.entry(bucket).or_default();
                let n_objects = u32::try_from(group.objects.len());
                *slot = n_objects.expect("memory ends before 2^32 objects");
                group.objects.push(Arc::clone(&object));
                object.count(&mut group.tally);
            }
        }
        self.entries.insert(Entry { object, slots });
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<Arc<T>> {
        let Entry { object, slots } = self.entries.remove(key)?;
        for (i, bucket) in object.buckets().into_iter().enumerate() {
            let Some(bucket) = bucket else { continue };
            let group = self.buckets.get_mut(&bucket);
            let group = group.expect("a bucket holds the objects that belong to it");
            object.discount(&mut group.tally);
            let objects = &mut group.objects;
            let slot = slots[i];
            objects.swap_remove(slot as usize);
            // `swap_remove` has moved the last object into this slot, so its entry must follow.
            if let Some(moved) = objects.get(slot as usize) {
                let moved = self.entries.get_mut(moved.key());
                moved.expect("buckets hold only objects of the table").slots[i] = slot;
            }
            if objects.is_empty() {
                self.buckets.remove(&bucket);
                if self.buckets.capacity() > SHRINK_FACTOR * self.buckets.len() {
                    self.buckets.shrink_to(2 * self.buckets.len());
                }
            } else if objects.capacity() > SHRINK_FACTOR * objects.len() {
                objects.shrink_to(2 * objects.len());
            }
        }
        Some(object)
    }
}

/// Minimum capacity that the table keeps.
const TABLE_MIN: usize = 1024;

#[derive(Debug)]
struct Table<T> {
    /// INVARIANT: keys are unique; each entry is at the position of its key's hash.
    entries: HashTable<Entry<T>>,
    hasher: RandomState,
}

#[derive(Debug)]
struct Entry<T> {
    object: Arc<T>,
    /// Its index in each of its buckets; 0 if there is no such bucket.
    slots: [u32; BUCKETS_MAX],
}

impl<T: Indexed> Table<T> {
    fn get(&self, key: &ObjectKey) -> Option<&Entry<T>> {
        let hash = self.hasher.hash_one(key);
        self.entries.find(hash, |entry| entry.object.key() == key)
    }

    /// The entry of this key, for changes; the key must stay the same.
    fn get_mut(&mut self, key: &ObjectKey) -> Option<&mut Entry<T>> {
        let hash = self.hasher.hash_one(key);
        self.entries
            .find_mut(hash, |entry| entry.object.key() == key)
    }

    fn insert(&mut self, entry: Entry<T>) {
        let hash = self.hasher.hash_one(entry.object.key());
        let rehash = |entry: &Entry<T>| self.hasher.hash_one(entry.object.key());
        self.entries.insert_unique(hash, entry, rehash);
    }

    /// Removes the entry of this key, and releases memory after a peak.
    fn remove(&mut self, key: &ObjectKey) -> Option<Entry<T>> {
        let hash = self.hasher.hash_one(key);
        let found = self
            .entries
            .find_entry(hash, |entry| entry.object.key() == key);
        let (entry, _) = found.ok()?.remove();
        if self.entries.capacity() > TABLE_MIN.max(SHRINK_FACTOR * self.entries.len()) {
            let rehash = |entry: &Entry<T>| self.hasher.hash_one(entry.object.key());
            self.entries.shrink_to(2 * self.entries.len(), rehash);
        }
        Some(entry)
    }

    fn objects(&self) -> impl Iterator<Item = &Arc<T>> {
        self.entries.iter().map(|entry| &entry.object)
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    /// Number of entries that fit without growing.
    #[cfg(test)]
    fn capacity(&self) -> usize {
        self.entries.capacity()
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            entries: HashTable::new(),
            hasher: RandomState::default(),
        }
    }
}

/// One change of a store. The store already has the new state when the handler runs.
#[derive(Clone, Debug)]
pub enum CacheEvent<T> {
    /// The object is new.
    Added(Arc<T>),
    /// The object has changed; at a resync `old` and `new` are the same. If an object was deleted
    /// and created again while the watch was interrupted, this is an update with another UID.
    Updated {
        old: Arc<T>,
        new: Arc<T>,
    },
    Deleted(Arc<T>),
}

impl<T> CacheEvent<T> {
    /// The object in its last known state.
    pub fn object(&self) -> &Arc<T> {
        match self {
            Self::Added(object) | Self::Deleted(object) | Self::Updated { new: object, .. } => {
                object
            }
        }
    }
}

/// The objects of a list that is being read, in their order of arrival. They become the store's
/// contents in one step, or are dropped.
#[derive(Debug)]
pub(super) struct Collector<T> {
    /// `None` for an object that was deleted during the list.
    objects: Vec<Option<Arc<T>>>,
    /// The index of each object in `objects`.
    indices: HashMap<ObjectKey, usize>,
    /// Objects without a decodable state.
    unread: HashMap<ObjectKey, Uid>,
}

impl<T: Indexed> Collector<T> {
    /// Adds the new state of an object. If the store has an equal object, the collector keeps that
    /// one, so that a relist does not hold every object twice.
    pub(super) fn upsert(&mut self, object: T, store: &Store<T>) {
        let cached = store.get(object.key()).filter(|cached| **cached == object);
        let object = cached.unwrap_or_else(|| Arc::new(object));
        let key = object.key().clone();
        self.unread.remove(&key);
        if let Some(index) = self.indices.get(&key) {
            self.objects[*index] = Some(object);
        } else {
            self.indices.insert(key, self.objects.len());
            self.objects.push(Some(object));
        }
    }

    /// Adds an object that cannot be decoded. A state of the same object collected before stays.
    pub(super) fn upsert_unread(&mut self, unread: UnreadKey) {
        let index = self.indices.get(&unread.key);
        let collected = index.and_then(|index| self.objects[*index].as_ref());
        if !collected.is_some_and(|object| unread.uid.is_empty() || unread.uid == *object.uid()) {
            self.remove(&unread.key);
            self.unread.insert(unread.key, unread.uid);
        }
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        self.unread.remove(key);
        if let Some(index) = self.indices.remove(key) {
            self.objects[index] = None;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.indices.len() + self.unread.len()
    }

    /// Returns the list: its objects, and the undecodable ones.
    pub(super) fn finish(self) -> (Vec<Arc<T>>, Vec<UnreadKey>) {
        drop(self.indices);
        let unread = self.unread.into_iter();
        let unread = unread.map(|(key, uid)| UnreadKey { key, uid }).collect();
        (self.objects.into_iter().flatten().collect(), unread)
    }
}

impl<T> Default for Collector<T> {
    fn default() -> Self {
        Self {
            objects: Vec::new(),
            indices: HashMap::default(),
            unread: HashMap::default(),
        }
    }
}

#[cfg(test)]
mod tests;
