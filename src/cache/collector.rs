//! A list while it is being read.
//!
//! Used by the [`reflector`](super::reflector) on its watch thread. What has been collected becomes
//! the store's content in one step or is thrown away.

use std::collections::HashMap;
use std::sync::Arc;

use super::store::{Indexed, Store, UnreadKey};
use crate::api::{ObjectKey, Uid};

/// The objects of a list, in the order in which they came.
#[derive(Debug)]
pub(super) struct Collector<T> {
    /// `None` where an object came and went.
    objects: Vec<Option<Arc<T>>>,
    /// Where in `objects` each object is.
    places: HashMap<ObjectKey, usize>,
    /// Objects of which no state could be read.
    unread: HashMap<ObjectKey, Uid>,
}

impl<T: Indexed> Collector<T> {
    /// Takes a new state of an object. If `store` has the very same, that copy is kept, so that a
    /// relist does not hold everything twice.
    pub(super) fn upsert(&mut self, object: T, store: &Store<T>) {
        let known = store.get(object.key()).filter(|known| **known == object);
        let object = known.unwrap_or_else(|| Arc::new(object));
        let key = object.key().clone();
        self.unread.remove(&key);
        if let Some(place) = self.places.get(&key) {
            self.objects[*place] = Some(object);
        } else {
            self.places.insert(key, self.objects.len());
            self.objects.push(Some(object));
        }
    }

    /// Takes notice of an object that cannot be read. If an earlier state of it came, that stays.
    pub(super) fn upsert_unread(&mut self, unread: UnreadKey) {
        let place = self.places.get(&unread.key);
        let collected = place.and_then(|place| self.objects[*place].as_ref());
        if !collected.is_some_and(|object| unread.uid.is_empty() || unread.uid == *object.uid()) {
            self.remove(&unread.key);
            self.unread.insert(unread.key, unread.uid);
        }
    }

    /// The object is gone.
    pub(super) fn remove(&mut self, key: &ObjectKey) {
        self.unread.remove(key);
        if let Some(place) = self.places.remove(key) {
            self.objects[place] = None;
        }
    }

    /// The list: its objects, and those that could not be read.
    pub(super) fn finish(self) -> (Vec<Arc<T>>, Vec<UnreadKey>) {
        drop(self.places);
        let unread = self.unread.into_iter();
        let unread = unread.map(|(key, uid)| UnreadKey { key, uid }).collect();
        (self.objects.into_iter().flatten().collect(), unread)
    }
}

impl<T> Default for Collector<T> {
    fn default() -> Self {
        Self {
            objects: Vec::new(),
            places: HashMap::new(),
            unread: HashMap::new(),
        }
    }
}
