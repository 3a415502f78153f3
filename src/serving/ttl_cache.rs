//! Answers that are kept for a while, and not too many of them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most answers that are kept. People and monitors of one daemon are few; what is above that is
/// somebody trying things out.
const ENTRIES_MAX: usize = 512;

/// A bounded map whose entries end by themselves. The lock is held for map operations only.
pub(super) struct TtlCache<K, V>(Mutex<BTreeMap<K, (Instant, V)>>);

impl<K: Ord, V: Clone> TtlCache<K, V> {
    pub(super) fn new() -> Self {
        Self(Mutex::default())
    }

    /// The answer, if there is one that has not ended at `now`.
    pub(super) fn get(&self, key: &K, now: Instant) -> Option<V> {
        let entries = self.lock();
        let (ends, value) = entries.get(key)?;
        (now < *ends).then(|| value.clone())
    }

    /// Keeps an answer for `ttl`. If there is no room, the one that ends first goes.
    pub(super) fn put(&self, key: K, value: V, now: Instant, ttl: Duration) {
        if ttl.is_zero() {
            return;
        }
        let mut entries = self.lock();
        if entries.len() >= ENTRIES_MAX {
            entries.retain(|_, (ends, _)| now < *ends);
        }
        if entries.len() >= ENTRIES_MAX {
            let first_to_end = entries.values().map(|(ends, _)| *ends).min();
            entries.retain(|_, (ends, _)| Some(*ends) != first_to_end);
        }
        entries.insert(key, (now + ttl, value));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, (Instant, V)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Only how many: keys may be tokens.
impl<K: Ord, V: Clone> fmt::Debug for TtlCache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TtlCache({} entries)", self.lock().len())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{ENTRIES_MAX, TtlCache};

    #[test]
    fn an_answer_ends_and_their_number_is_bounded() {
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
        assert!(format!("{cache:?}").contains(&ENTRIES_MAX.to_string()));
    }
}
