//! The objects of one kind as the watch has delivered them, with the controller's indexes.
//!
//! One watch thread writes the store, and every syncing thread reads it. One `RwLock` guards all
//! state. A thread holds it only to copy pointers or to move them in and out. The store frees
//! dropped objects after it has released the lock, and returns the changes as [`CacheEvent`]s for
//! the writer to deliver.
//!
//! All objects are in one array. The table of the keys and the buckets hold their indices, of four
//! bytes each. An object that leaves a bucket, or is removed, takes a search among the indices of
//! its bucket: some microseconds among 10,000.

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

    /// The counts of the objects in one bucket. Cloning copies a few pointers at most.
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
    /// In no order.
    objects: Vec<Arc<T>>,
    /// INVARIANT: the index of each object, at the position of its key's hash. Keys are unique.
    indices: HashTable<u32>,
    hasher: RandomState,
    /// INVARIANT: every object is once in each of its buckets. Nothing else is in a bucket, and no
    /// bucket is empty.
    buckets: HashMap<T::Bucket, Group<T::Tally>>,
    resource_version: ResourceVersion,
}

/// The objects of one bucket.
#[derive(Debug, Default)]
struct Group<C> {
    indices: Vec<u32>,
    /// INVARIANT: counts all objects of the bucket and nothing else.
    tally: C,
}

impl<T: Indexed> Store<T> {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn get(&self, key: &ObjectKey) -> Option<Arc<T>> {
        self.state.read().get(key).map(Arc::clone)
    }

    pub fn bucket(&self, bucket: &T::Bucket) -> Vec<Arc<T>> {
        let [objects] = self.buckets([bucket]);
        objects
    }

    /// The objects of several buckets at one moment: none is in two of them on its way from one to
    /// another.
    pub fn buckets<const N: usize>(&self, buckets: [&T::Bucket; N]) -> [Vec<Arc<T>>; N] {
        let state = self.state.read();
        buckets.map(|bucket| state.bucket(bucket).map(Arc::clone).collect())
    }

    /// Calls `visit` with each object of one bucket. Writers wait meanwhile, so `visit` must be
    /// quick and must not call this store.
    pub fn visit(&self, bucket: &T::Bucket, visit: &mut dyn FnMut(&T)) {
        let state = self.state.read();
        state.bucket(bucket).for_each(|object| visit(object));
    }

    /// As [`visit`](Self::visit), but with all objects, in no order: some 10 ms for 50,000.
    pub fn visit_all(&self, visit: &mut dyn FnMut(&T)) {
        let state = self.state.read();
        state.objects.iter().for_each(|object| visit(object));
    }

    /// The counts of the objects of one bucket, for the cost of a few pointers.
    pub fn tally(&self, bucket: &T::Bucket) -> T::Tally {
        let state = self.state.read();
        let group = state.buckets.get(bucket);
        group.map_or_else(T::Tally::default, |group| group.tally.clone())
    }

    /// All objects, by ascending key.
    pub fn list(&self) -> Vec<Arc<T>> {
        let state = self.state.read();
        let mut objects = state.objects.clone();
        drop(state);
        objects.sort_unstable_by(|a, b| a.key().cmp(b.key()));
        objects
    }

    pub fn len(&self) -> usize {
        self.state.read().objects.len()
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
        let object = state.get(&unread.key)?;
        if !is_deleted && unread.may_be(&**object) {
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
        let deleted = state.objects.iter().filter(is_deleted);
        let deleted: Vec<ObjectKey> = deleted.map(|object| object.key().clone()).collect();
        // From the end, where a removal finds its index first in its bucket and moves no object.
        let mut deleted: Vec<Arc<T>> = deleted
            .iter()
            .rev()
            .filter_map(|it| state.remove(it))
            .collect();
        // The array has no order; sorted deletions are reproducible.
        deleted.sort_unstable_by(|a, b| a.key().cmp(b.key()));
        events.extend(deleted.into_iter().map(CacheEvent::Deleted));
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
                objects: Vec::new(),
                indices: HashTable::new(),
                hasher: RandomState::default(),
                buckets: HashMap::default(),
                resource_version: ResourceVersion::default(),
            }),
            synced: Arc::default(),
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

    fn get(&self, key: &ObjectKey) -> Option<&Arc<T>> {
        Some(&self.objects[self.index_of(key)? as usize])
    }

    fn index_of(&self, key: &ObjectKey) -> Option<u32> {
        let is_its = |index: &u32| self.objects[*index as usize].key() == key;
        let index = self.indices.find(self.hasher.hash_one(key), is_its)?;
        Some(*index)
    }

    /// The objects of a bucket.
    fn bucket(&self, bucket: &T::Bucket) -> impl ExactSizeIterator<Item = &Arc<T>> {
        let group = self.buckets.get(bucket);
        let indices = group.map_or(&[][..], |group| &group.indices);
        indices.iter().map(|index| &self.objects[*index as usize])
    }

    fn upsert(&mut self, new: Arc<T>) -> Option<CacheEvent<T>> {
        let Some(index) = self.index_of(new.key()) else {
            self.insert(Arc::clone(&new));
            return Some(CacheEvent::Added(new));
        };
        let old = &mut self.objects[index as usize];
        // Relists and reconnects repeat objects; equal ones need no event.
        if *old == new {
            return None;
        }
        let old = std::mem::replace(old, Arc::clone(&new));
        let buckets = new.buckets();
        // The usual change keeps the buckets, which have the index already.
        if buckets == old.buckets() {
            for bucket in buckets.iter().flatten() {
                let group = self.buckets.get_mut(bucket).expect(IN_ITS_BUCKETS);
                old.discount(&mut group.tally);
                new.count(&mut group.tally);
            }
        } else {
            self.leave_buckets(&old, index);
            self.enter_buckets(&new, index);
        }
        Some(CacheEvent::Updated { old, new })
    }

    fn insert(&mut self, object: Arc<T>) {
        let index = u32::try_from(self.objects.len()).expect("memory ends before 2^32 objects");
        self.enter_buckets(&object, index);
        self.objects.push(object);
        let hash = |index: &u32| self.hasher.hash_one(self.objects[*index as usize].key());
        self.indices.insert_unique(hash(&index), index, hash);
    }

    /// Removes the object of this key, and releases memory after a peak.
    fn remove(&mut self, key: &ObjectKey) -> Option<Arc<T>> {
        let is_its = |index: &u32| self.objects[*index as usize].key() == key;
        let found = self.indices.find_entry(self.hasher.hash_one(key), is_its);
        let (index, _) = found.ok()?.remove();
        let object = self.objects.swap_remove(index as usize);
        self.leave_buckets(&object, index);
        // The last object has been moved to this index.
        if let Some(moved) = self.objects.get(index as usize) {
            let last = u32::try_from(self.objects.len()).expect("it was an index");
            let its = self.hasher.hash_one(moved.key());
            let its = self.indices.find_mut(its, |it| *it == last);
            *its.expect("every object is in the table") = index;
            for bucket in moved.buckets().iter().flatten() {
                let group = self.buckets.get_mut(bucket).expect(IN_ITS_BUCKETS);
                let position = group.position_of(last);
                group.indices[position] = index;
            }
        }
        let n_kept = 2 * self.objects.len();
        if self.indices.capacity() > TABLE_MIN.max(SHRINK_FACTOR * self.objects.len()) {
            self.objects.shrink_to(n_kept);
            let hash = |index: &u32| self.hasher.hash_one(self.objects[*index as usize].key());
            self.indices.shrink_to(n_kept, hash);
        }
        Some(object)
    }

    fn enter_buckets(&mut self, object: &T, index: u32) {
        for bucket in object.buckets().into_iter().flatten() {
            let group = self.buckets.entry(bucket).or_default();
            group.indices.push(index);
            object.count(&mut group.tally);
        }
    }

    fn leave_buckets(&mut self, object: &T, index: u32) {
        for bucket in object.buckets().into_iter().flatten() {
            let group = self.buckets.get_mut(&bucket).expect(IN_ITS_BUCKETS);
            object.discount(&mut group.tally);
            group.indices.swap_remove(group.position_of(index));
            let indices = &mut group.indices;
            if indices.is_empty() {
                self.buckets.remove(&bucket);
                if self.buckets.capacity() > SHRINK_FACTOR * self.buckets.len() {
                    self.buckets.shrink_to(2 * self.buckets.len());
                }
            } else if indices.capacity() > SHRINK_FACTOR * indices.len() {
                indices.shrink_to(2 * indices.len());
            }
        }
    }
}

const IN_ITS_BUCKETS: &str = "a bucket holds the objects that belong to it";

impl<C> Group<C> {
    fn position_of(&self, index: u32) -> usize {
        let position = self.indices.iter().rposition(|it| *it == index);
        position.expect(IN_ITS_BUCKETS)
    }
}

/// Minimum capacity that the store keeps.
const TABLE_MIN: usize = 1024;

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
