//! One kind's objects as the watch has delivered them, with the indexes that the controller asks.
//!
//! Written by one watch thread, read by every syncing thread. All state stands behind one
//! `RwLock`, held only to copy pointers or to move them in and out; what a change drops is freed
//! after the lock is let go, and what it means is returned as [`CacheEvent`]s for the writer to
//! deliver.
//!
//! An object costs one pointer and two slot numbers in the table, and one pointer in each
//! bucket that it stands in. Because the table knows the slots, taking one of 10,000 pods out of
//! its owner's bucket touches two entries.

mod table;

use std::cmp::Ordering;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crossbeam_channel::Receiver;

use self::table::{Entry, Table};
use super::event::CacheEvent;
use super::latch::Latch;
use crate::api::{ObjectKey, ResourceVersion, Uid};
use crate::stdx::hash::{HashMap, HashSet};

/// In how many buckets an object can stand at once.
const BUCKETS_MAX: usize = 2;

/// A vector or table that is this much larger than its content is shrunk, so that memory comes back
/// after a peak.
const SHRINK_FACTOR: usize = 4;

/// What a [`Store`] asks of the objects that it keeps.
pub trait Indexed: Debug + PartialEq + Send + Sync + 'static {
    /// Names one group of objects that is looked up together.
    type Bucket: Clone + Debug + Eq + Hash + Send + Sync;

    /// What is counted of the objects in one bucket. Cloning copies a pointer at most.
    type Tally: Clone + Debug + Default + Send + Sync;

    /// Namespace and name.
    fn key(&self) -> &ObjectKey;

    /// `metadata.uid`.
    fn uid(&self) -> &Uid;

    /// `metadata.resourceVersion`.
    fn resource_version(&self) -> &ResourceVersion;

    /// The groups that the object belongs to. Those at one place of the array are of one kind, so
    /// that no object stands in the same bucket twice.
    fn buckets(&self) -> [Option<Self::Bucket>; BUCKETS_MAX];

    /// Counts this object in.
    fn count(&self, tally: &mut Self::Tally);

    /// Counts this object out, which was counted in.
    fn discount(&self, tally: &mut Self::Tally);
}

/// An object on the wire that this build cannot read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadKey {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its UID; empty if that could not be read either.
    pub uid: Uid,
}

/// The objects of one kind.
#[derive(Debug)]
pub struct Store<T: Indexed> {
    state: RwLock<State<T>>,
    synced: Latch,
}

#[derive(Debug)]
struct State<T: Indexed> {
    entries: Table<T>,
    /// INVARIANT: holds every object of `entries` once in each of its buckets, at the slot that the
    /// entry names, and nothing else; no bucket is empty.
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
    /// An empty store that has not synced.
    pub fn new() -> Self {
        Self::default()
    }

    /// The object of this name.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<T>> {
        let state = self.read();
        let entry = state.entries.get(key)?;
        Some(Arc::clone(&entry.object))
    }

    /// The objects of one bucket, in an order that depends on nothing but the store's history.
    pub fn bucket(&self, bucket: &T::Bucket) -> Vec<Arc<T>> {
        let state = self.read();
        let group = state.buckets.get(bucket);
        group.map_or_else(Vec::new, |group| group.objects.clone())
    }

    /// Shows the objects of one bucket one after the other. Writers wait meanwhile, so `visit` has to be
    /// quick and must not ask this store.
    pub fn visit(&self, bucket: &T::Bucket, visit: &mut dyn FnMut(&T)) {
        let state = self.read();
        let objects = state.buckets.get(bucket).map(|group| &group.objects);
        for object in objects.into_iter().flatten() {
            visit(object);
        }
    }

    /// What is counted of the objects of one bucket, at the price of copying a pointer.
    pub fn tally(&self, bucket: &T::Bucket) -> T::Tally {
        let state = self.read();
        let group = state.buckets.get(bucket);
        group.map_or_else(T::Tally::default, |group| group.tally.clone())
    }

    /// All objects by ascending key.
    pub fn list(&self) -> Vec<Arc<T>> {
        let state = self.read();
        let mut objects: Vec<_> = state.entries.objects().map(Arc::clone).collect();
        drop(state);
        objects.sort_unstable_by(|a, b| a.key().cmp(b.key()));
        objects
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.read().entries.len()
    }

    /// True if there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How far the store has come: the version of the last event, bookmark or list that was
    /// applied, which need not be the highest. Empty before the first.
    pub fn resource_version(&self) -> ResourceVersion {
        self.read().resource_version.clone()
    }

    /// True if what the server has at `version` is older than what the store shows: the server was
    /// restored from a backup.
    pub fn is_ahead_of(&self, version: &ResourceVersion) -> bool {
        version.compare(&self.read().resource_version) == Some(Ordering::Less)
    }

    /// True once the first list is in the store and has been delivered.
    pub fn has_synced(&self) -> bool {
        self.synced.is_set()
    }

    /// A channel that carries nothing and is disconnected once the store has synced.
    pub fn synced(&self) -> &Receiver<()> {
        self.synced.receiver()
    }

    /// Makes [`has_synced`](Self::has_synced) true. For the one who delivers the events.
    pub fn set_synced(&self) {
        self.synced.set();
    }

    /// A watch said that an object is new.
    pub fn apply_added(&self, object: impl Into<Arc<T>>) -> Option<CacheEvent<T>> {
        self.upsert(object.into())
    }

    /// A watch said that an object has changed. One that was not known is new.
    pub fn apply_modified(&self, object: impl Into<Arc<T>>) -> Option<CacheEvent<T>> {
        self.upsert(object.into())
    }

    /// A watch said that an object is gone, and this was its last state. Nothing is to be told if
    /// it was not known.
    pub fn apply_deleted(&self, object: impl Into<Arc<T>>) -> Option<CacheEvent<T>> {
        let object = object.into();
        let mut state = self.write();
        state.advance(object.resource_version());
        let known = state.remove(object.key());
        drop(state);
        known.map(|_| CacheEvent::Deleted(object))
    }

    /// A watch said that nothing has changed up to this version.
    pub fn apply_bookmark(&self, resource_version: &ResourceVersion) {
        self.write().advance(resource_version);
    }

    /// A watch told of an object that this build cannot read. The last state that could be read is
    /// kept, since to drop it would be to claim that the object is gone; it goes only if the object
    /// `is_deleted` or is another one of the same name.
    pub fn apply_unread(
        &self,
        unread: &UnreadKey,
        resource_version: &ResourceVersion,
        is_deleted: bool,
    ) -> Option<CacheEvent<T>> {
        let mut state = self.write();
        state.advance(resource_version);
        let entry = state.entries.get(&unread.key)?;
        if !is_deleted && unread.may_be(&*entry.object) {
            return None;
        }
        let known = state.remove(&unread.key);
        drop(state);
        known.map(CacheEvent::Deleted)
    }

    /// Makes the store equal to a list in one step. Told are first the deletions, by ascending key
    /// and with the last known states, then the additions and updates in the list's order; what
    /// is the very same as before is not told. An object of another UID than before is an update,
    /// and so is another state under the version of before: a server that was restored from a
    /// backup hands out versions a second time.
    ///
    /// Objects that are on the server but could not be read are `unread`; their last states stay.
    pub fn replace(
        &self,
        objects: Vec<Arc<T>>,
        unread: &[UnreadKey],
        resource_version: &ResourceVersion,
    ) -> Vec<CacheEvent<T>> {
        let listed: HashSet<&ObjectKey> = objects.iter().map(|object| object.key()).collect();
        let unread: HashMap<_, _> = unread.iter().map(|unread| (&unread.key, unread)).collect();
        let mut events = Vec::new();
        let mut state = self.write();
        let is_gone = |object: &&Arc<T>| {
            let unread = unread.get(object.key());
            !listed.contains(object.key())
                && !unread.is_some_and(|unread| unread.may_be(&***object))
        };
        let gone = state.entries.objects().filter(is_gone);
        let mut gone: Vec<ObjectKey> = gone.map(|object| object.key().clone()).collect();
        gone.sort_unstable();
        for key in &gone {
            events.extend(state.remove(key).map(CacheEvent::Deleted));
        }
        drop(listed);
        for object in objects {
            events.extend(state.upsert(object));
        }
        state.advance(resource_version);
        events
    }

    fn upsert(&self, object: Arc<T>) -> Option<CacheEvent<T>> {
        let mut state = self.write();
        state.advance(object.resource_version());
        state.upsert(object)
    }

    fn read(&self) -> RwLockReadGuard<'_, State<T>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State<T>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
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
            synced: Latch::default(),
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
    /// False only if the UIDs say that `object` is another one.
    fn may_be<T: Indexed>(&self, object: &T) -> bool {
        self.uid.is_empty() || self.uid == *object.uid()
    }
}

impl<T: Indexed> State<T> {
    /// The store has come this far. An empty version says nothing.
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
        if entry.object == new {
            return None;
        }
        let buckets = new.buckets();
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

    /// Puts in an object whose key is not there.
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
        for (place, bucket) in object.buckets().into_iter().enumerate() {
            let Some(bucket) = bucket else { continue };
            let group = self.buckets.get_mut(&bucket);
            let group = group.expect("a bucket holds the objects that belong to it");
            object.discount(&mut group.tally);
            let objects = &mut group.objects;
            let slot = slots[place];
            objects.swap_remove(slot as usize);
            if let Some(moved) = objects.get(slot as usize) {
                let moved = self.entries.get_mut(moved.key());
                moved.expect("buckets hold known objects only").slots[place] = slot;
            }
            if objects.is_empty() {
                self.buckets.remove(&bucket);
            } else if objects.capacity() > SHRINK_FACTOR * objects.len() {
                objects.shrink_to(2 * objects.len());
            }
        }
        Some(object)
    }
}

#[cfg(test)]
mod tests;
