//! Since when keys wait and since when they are worked on. Pure: [`super::queue::Queue`] holds it under
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

/// How long the workers have been at what they are doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InProgress {
    /// All keys that are being worked on together.
    pub total: Duration,
    /// The one that takes longest.
    pub longest: Duration,
}

impl<K: Clone + Eq + Hash> Timing<K> {
    /// Notes that `key` waits from now on. The first of several adds counts.
    pub fn added(&mut self, key: &K, now: Instant) {
        if !self.added.contains_key(key) {
            self.added.insert(key.clone(), now);
        }
    }

    /// Notes that a worker begins with `key`; how long the key has waited.
    pub fn begun(&mut self, key: &K, now: Instant) -> Option<Duration> {
        self.started.insert(key.clone(), now);
        let added = self.added.remove(key)?;
        Some(now.saturating_duration_since(added))
    }

    /// Notes that the worker is done with `key`; how long it took.
    pub fn done(&mut self, key: &K, now: Instant) -> Option<Duration> {
        let started = self.started.remove(key)?;
        Some(now.saturating_duration_since(started))
    }

    /// How long the work in progress takes already.
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
