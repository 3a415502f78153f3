//! A map that forgets what was not touched for longest, so that what the correlator remembers stays
//! bounded. Pure.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Up to a given number of entries; one more pushes out the least recently used.
#[derive(Clone, Debug)]
pub(super) struct Lru<K, V> {
    n_max: usize,
    entries: HashMap<K, (u64, V)>,
    /// INVARIANT: each key of `entries` once, by its last use.
    by_use: BTreeMap<u64, K>,
    n_uses: u64,
}

impl<K: Clone + Eq + Hash, V> Lru<K, V> {
    /// An empty map that will hold up to `n_max` entries.
    pub(super) fn new(n_max: usize) -> Self {
        Self {
            n_max,
            entries: HashMap::new(),
            by_use: BTreeMap::new(),
            n_uses: 0,
        }
    }

    /// The value of `key`, which this makes the most recently used.
    pub(super) fn get(&mut self, key: &K) -> Option<&mut V> {
        let (last_use, value) = self.entries.get_mut(key)?;
        self.by_use.remove(last_use);
        self.n_uses += 1;
        *last_use = self.n_uses;
        self.by_use.insert(self.n_uses, key.clone());
        Some(value)
    }

    /// Sets the value of `key`, which this makes the most recently used.
    pub(super) fn insert(&mut self, key: K, value: V) {
        self.n_uses += 1;
        self.by_use.insert(self.n_uses, key.clone());
        if let Some((last_use, _)) = self.entries.insert(key, (self.n_uses, value)) {
            self.by_use.remove(&last_use);
        }
        if self.entries.len() > self.n_max
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.entries.remove(&oldest);
        }
    }

    /// Sets the value of `key` unless it has one, and gives it out.
    pub(super) fn get_or_insert_with(&mut self, key: &K, new: impl FnOnce() -> V) -> &mut V {
        if !self.entries.contains_key(key) {
            self.insert(key.clone(), new());
        }
        self.get(key).expect("it was there or was just inserted")
    }
}

#[cfg(test)]
mod tests {
    use super::Lru;

    #[test]
    fn the_least_recently_used_entry_goes_first() {
        let mut lru = Lru::new(2);
        lru.insert("a", 1);
        lru.insert("b", 2);
        assert_eq!(lru.get(&"a"), Some(&mut 1));
        lru.insert("c", 3);
        assert_eq!(lru.get(&"b"), None);
        lru.insert("a", 4);
        *lru.get_or_insert_with(&"c", || 0) += 2;
        assert_eq!(*lru.get_or_insert_with(&"d", || 6), 6);
        assert_eq!(lru.get(&"a"), None);
        assert_eq!(lru.get(&"c"), Some(&mut 5));
        assert_eq!((lru.entries.len(), lru.by_use.len()), (2, 2));
    }
}
