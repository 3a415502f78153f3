//! Keys that are to be queued later.
//!
//! [`DelayHeap`] is pure. [`Delayed`] shares it between those who add and the thread `delay`, which
//! waits in [`Delayed::wait`].

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};

use super::dedup::Priority;
use crate::stdx::activity;

/// The thread `delay` looks at its heap at least this often, so that a lost wake-up or a clock that
/// jumped costs no more than this (client-go `util/workqueue/delaying_queue.go:maxWait`).
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Keys by the time at which they are due: one entry per key, the earliest wins
/// (client-go `util/workqueue/delaying_queue.go:waitForPriorityQueue`).
#[derive(Clone, Debug)]
pub struct DelayHeap<K> {
    /// Ordered by time, and among equal times by when they were added.
    by_time: BTreeMap<Slot, K>,
    /// INVARIANT: each key of `by_time` once, with its slot there. The priority is the highest that
    /// was asked for.
    slots: HashMap<K, (Slot, Priority)>,
    added_total: u64,
}

type Slot = (Instant, u64);

impl<K: Clone + Eq + Hash> DelayHeap<K> {
    /// No key.
    pub fn new() -> Self {
        Self {
            by_time: BTreeMap::new(),
            slots: HashMap::new(),
            added_total: 0,
        }
    }

    /// Makes `key` due at `at`, unless it is due earlier anyway, with this priority at least. True if
    /// no key is due earlier now.
    pub fn add(&mut self, key: K, at: Instant, priority: Priority) -> bool {
        let mut highest = priority;
        if let Some((slot, known)) = self.slots.get_mut(&key) {
            *known = priority.max(*known);
            if slot.0 <= at {
                return false;
            }
            highest = *known;
            self.by_time.remove(slot);
        }
        self.added_total += 1;
        let slot = (at, self.added_total);
        self.slots.insert(key.clone(), (slot, highest));
        self.by_time.insert(slot, key);
        self.by_time.first_key_value().map(|(first, _)| *first) == Some(slot)
    }

    /// Takes out the keys that are due at `now`, in the order of their times.
    pub fn due(&mut self, now: Instant) -> Vec<(K, Priority)> {
        let mut due = Vec::new();
        while let Some(entry) = self.by_time.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let key = entry.remove();
            let slot = self.slots.remove(&key);
            let (_, priority) = slot.expect("every key has its slot");
            due.push((key, priority));
        }
        due
    }

    /// When the next key is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.by_time.first_key_value().map(|((at, _), _)| *at)
    }

    /// When `key` is due.
    pub fn deadline_of(&self, key: &K) -> Option<Instant> {
        self.slots.get(key).map(|((at, _), _)| *at)
    }

    /// Keys that are not due yet.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// True if no key waits for its time.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Forgets all keys.
    pub fn clear(&mut self) {
        self.by_time.clear();
        self.slots.clear();
    }
}

impl<K: Clone + Eq + Hash> Default for DelayHeap<K> {
    fn default() -> Self {
        Self::new()
    }
}

/// A [`DelayHeap`] under a lock, and the bell of the thread that waits for it.
///
/// DIFFERS: upstream hands keys over in a channel of 1000 and blocks whoever finds it full. Here they
/// go straight into the heap, which never holds a key twice: nobody ever waits to add one, least of
/// all a watch thread, and none is lost if the thread `delay` should be gone.
pub struct Delayed<K> {
    heap: Mutex<DelayHeap<K>>,
    /// Bound 1. Full means that the thread is going to wake anyway, so another ring may be dropped.
    ring: Sender<()>,
    bell: Receiver<()>,
}

impl<K: Clone + Eq + Hash> Delayed<K> {
    /// No key.
    pub fn new() -> Self {
        let (ring, bell) = crossbeam_channel::bounded(1);
        Self {
            heap: Mutex::default(),
            ring,
            bell,
        }
    }

    /// Makes `key` due at `at`, unless it is due earlier anyway, with this priority at least. Never
    /// blocks.
    pub fn add(&self, key: K, at: Instant, priority: Priority) {
        let is_first = self.lock().add(key, at, priority);
        if is_first {
            self.wake();
        }
    }

    /// Takes out the keys that are due at `now`, in the order of their times.
    pub fn due(&self, now: Instant) -> Vec<(K, Priority)> {
        self.lock().due(now)
    }

    /// When the next key is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.lock().next_deadline()
    }

    /// When `key` is due.
    pub fn deadline_of(&self, key: &K) -> Option<Instant> {
        self.lock().deadline_of(key)
    }

    /// Keys that are not due yet.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// True if no key waits for its time.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all keys and ends a [`Delayed::wait`].
    pub fn clear(&self) {
        self.lock().clear();
        self.wake();
    }

    /// Blocks until the next key is due by `now`'s clock, until one that is due earlier is added,
    /// until [`Delayed::clear`], or for the heartbeat of 10 s.
    pub fn wait(&self, now: Instant) {
        let until_due = self
            .next_deadline()
            .map_or(HEARTBEAT, |at| at.saturating_duration_since(now));
        let _wait = activity::enter("waits until a key is due", "");
        // Rung, timed out: either way the caller looks again.
        self.bell
            .recv_timeout(until_due.min(HEARTBEAT))
            .unwrap_or_default();
    }

    fn wake(&self) {
        // A full channel is as good as one more ring.
        self.ring.try_send(()).unwrap_or_default();
    }

    fn lock(&self) -> MutexGuard<'_, DelayHeap<K>> {
        self.heap.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash> Default for Delayed<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Clone + Eq + Hash> fmt::Debug for Delayed<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delayed")
            .field("len", &self.len())
            .field("next_deadline", &self.next_deadline())
            .finish_non_exhaustive()
    }
}
