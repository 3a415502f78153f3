//! All objects of a store by key. The table holds no copies of the keys; each object holds its own.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::{BUCKETS_MAX, Indexed, SHRINK_FACTOR};
use crate::api::ObjectKey;

/// Minimum capacity that the table keeps.
pub(super) const TABLE_MIN: usize = 1024;

/// Objects by key.
#[derive(Debug)]
pub(super) struct Table<T> {
    /// INVARIANT: keys are unique; each entry is at the position of its key's hash.
    entries: HashTable<Entry<T>>,
    hasher: RandomState,
}

/// One object.
#[derive(Debug)]
pub(super) struct Entry<T> {
    /// The object.
    pub(super) object: Arc<T>,
    /// Its index in each of its buckets; 0 if there is no such bucket.
    pub(super) slots: [u32; BUCKETS_MAX],
}

impl<T: Indexed> Table<T> {
    /// The entry of this key.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Entry<T>> {
        let hash = self.hasher.hash_one(key);
        self.entries.find(hash, |entry| entry.object.key() == key)
    }

    /// The entry of this key, for changes; the key must stay the same.
    pub(super) fn get_mut(&mut self, key: &ObjectKey) -> Option<&mut Entry<T>> {
        let hash = self.hasher.hash_one(key);
        self.entries
            .find_mut(hash, |entry| entry.object.key() == key)
    }

    /// Inserts an object whose key is not present.
    pub(super) fn insert(&mut self, entry: Entry<T>) {
        let hash = self.hasher.hash_one(entry.object.key());
        let rehash = |entry: &Entry<T>| self.hasher.hash_one(entry.object.key());
        self.entries.insert_unique(hash, entry, rehash);
    }

    /// Removes the entry of this key, and releases memory after a peak.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Entry<T>> {
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

    /// All objects, in no order.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Arc<T>> {
        self.entries.iter().map(|entry| &entry.object)
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Number of entries that fit without growing.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
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
