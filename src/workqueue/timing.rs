//! Start times of waiting and of processing keys. Pure: [`super::queue::Queue`] holds them under
//! its lock.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// The times that client-go `util/workqueue/metrics.go:defaultQueueMetrics` keeps.
#[derive(Debug)]
pub struct Timing<K: Eq + Hash> {
    added: HashMap<K, Instant>,
    started: HashMap<K, Instant>,
}

/// How long the workers have processed their current keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InProgress {
    /// Sum over all keys in progress.
    pub total: Duration,
    /// The longest time of one key.
    pub longest: Duration,
}

impl<K: Clone + Eq + Hash> Timing<K> {
    /// Records that `key` waits. The first of several adds counts.
    pub fn added(&mut self, key: &K, now: Instant) {
        if !self.added.contains_key(key) {
            self.added.insert(key.clone(), now);
        }
    }

    /// Records that a worker starts on `key`. Returns the wait of the key.
    pub fn begun(&mut self, key: &K, now: Instant) -> Option<Duration> {
        self.started.insert(key.clone(), now);
        let added = self.added.remove(key)?;
        Some(now.saturating_duration_since(added))
    }

    /// Records that the worker is done with `key`. Returns the duration of the work.
    pub fn done(&mut self, key: &K, now: Instant) -> Option<Duration> {
        let started = self.started.remove(key)?;
        Some(now.saturating_duration_since(started))
    }

    /// Returns the wait of the longest-waiting key of `keys`; zero without one. Visits each of
    /// them.
    pub fn longest_wait<'a>(&self, keys: impl Iterator<Item = &'a K>, now: Instant) -> Duration
    where
        K: 'a,
    {
        let oldest = keys.filter_map(|key| self.added.get(key)).min();
        oldest.map_or(Duration::ZERO, |added| {
            now.saturating_duration_since(*added)
        })
    }

    /// Returns the duration of the work in progress.
    pub fn in_progress(&self, now: Instant) -> InProgress {
        let ages = self.started.values();
        let ages = ages.map(|started| now.saturating_duration_since(*started));
        ages.fold(InProgress::default(), |sum, age| InProgress {
            total: sum.total + age,
            longest: sum.longest.max(age),
        })
    }
}

impl<K: Eq + Hash> Default for Timing<K> {
    fn default() -> Self {
        Self {
            added: HashMap::new(),
            started: HashMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{InProgress, Timing};

    #[test]
    fn the_longest_wait_and_the_longest_work() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut timing = Timing::default();
        let waits = |timing: &Timing<&str>, seconds| {
            let keys = ["a", "b"];
            timing.longest_wait(keys.iter(), at(seconds)).as_secs()
        };
        assert_eq!(waits(&timing, 5), 0);
        timing.added(&"a", at(10));
        timing.added(&"b", at(20));
        timing.added(&"a", at(30));
        assert_eq!(waits(&timing, 40), 30);
        assert_eq!(timing.in_progress(at(40)), InProgress::default());
        timing.begun(&"a", at(40));
        assert_eq!(waits(&timing, 40), 20);
        timing.begun(&"b", at(50));
        assert_eq!(waits(&timing, 60), 0);
        let expected = InProgress {
            total: Duration::from_secs(30),
            longest: Duration::from_secs(20),
        };
        assert_eq!(timing.in_progress(at(60)), expected);
        timing.done(&"a", at(60));
        // Added again while a worker processes it.
        timing.added(&"b", at(70));
        assert_eq!(waits(&timing, 75), 5);
        assert_eq!(timing.in_progress(at(75)).longest.as_secs(), 25);
    }
}
