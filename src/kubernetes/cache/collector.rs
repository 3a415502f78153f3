//! Collects a list while it is read.
//!
//! The [`reflector`](super::reflector) uses it on its watch thread. The collected objects become
//! the store's contents in one step, or are dropped.

use std::collections::HashMap;
use std::sync::Arc;

use super::store::{Indexed, Store, UnreadKey};
use crate::api::{ObjectKey, Uid};

/// The objects of a list, in their order of arrival.
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

    /// Removes a deleted object.
    pub(super) fn remove(&mut self, key: &ObjectKey) {
        self.unread.remove(key);
        if let Some(index) = self.indices.remove(key) {
            self.objects[index] = None;
        }
    }

    /// The number of objects so far.
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
            indices: HashMap::new(),
            unread: HashMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, Collector, Store, UnreadKey};
    use crate::api::{ObjectKey, Pod, Uid};

    /// Otherwise the store would keep the state from before the list.
    #[test]
    fn an_object_that_becomes_readable_during_its_list_is_read() {
        let (mut collector, store) = (Collector::default(), Store::new());
        let key = ObjectKey::new("default", "a");
        collector.upsert_unread(UnreadKey {
            key: key.clone(),
            uid: Uid::new("uid-a"),
        });
        let pod = Pod {
            key,
            uid: Uid::new("uid-a"),
            ..Pod::default()
        };
        collector.upsert(pod.clone(), &store);
        assert_eq!(collector.finish(), (vec![Arc::new(pod)], Vec::new()));
    }
}
