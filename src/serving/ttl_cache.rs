//! A bounded cache of review results whose entries expire.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum entries. One daemon has few monitors and users; more entries mean a client that tries
/// credentials.
const ENTRIES_MAX: usize = 512;

/// A bounded map whose entries expire. The lock is held for map operations only.
pub(super) struct TtlCache<K, V>(Mutex<BTreeMap<K, (Instant, V)>>);

impl<K: Ord, V: Clone> TtlCache<K, V> {
    pub(super) fn new() -> Self {
        Self(Mutex::default())
    }

    /// The value, unless it has expired at `now`.
    pub(super) fn get(&self, key: &K, now: Instant) -> Option<V> {
        let entries = self.lock();
        let (expires, value) = entries.get(key)?;
        (now < *expires).then(|| value.clone())
    }

    /// Keeps a value for `ttl`. A full cache drops the entry that expires first.
    pub(super) fn put(&self, key: K, value: V, now: Instant, ttl: Duration) {
        let mut entries = self.lock();
        if entries.len() >= ENTRIES_MAX {
            entries.retain(|_, (expires, _)| now < *expires);
        }
        if entries.len() >= ENTRIES_MAX {
            let first_expiry = entries.values().map(|(expires, _)| *expires).min();
            entries.retain(|_, (expires, _)| Some(*expires) != first_expiry);
        }
        entries.insert(key, (now + ttl, value));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, (Instant, V)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{ENTRIES_MAX, TtlCache};

    #[test]
    fn entries_expire_and_their_number_is_bounded() {
        let cache = TtlCache::new();
        let start = Instant::now();
        let second = Duration::from_secs(1);
        cache.put(0, 'a', start, second);
        assert_eq!(cache.get(&0, start), Some('a'));
        assert_eq!(cache.get(&0, start + second), None);
        for key in 0..=ENTRIES_MAX {
            let offset = Duration::from_millis(key as u64);
            cache.put(key, 'b', start + offset, 10 * second);
        }
        assert_eq!(cache.get(&0, start), None);
        assert_eq!(cache.get(&ENTRIES_MAX, start), Some('b'));
    }
}
