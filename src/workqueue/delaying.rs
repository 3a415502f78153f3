//! Delayed keys.
//!
//! [`DelayHeap`] is pure. [`Delayed`] shares it between the threads that add keys and the thread
//! `delay`, which waits in [`Delayed::wait`].

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};

use super::dedup::Priority;
use crate::stdx::activity;
use crate::stdx::turns::{self, Spot, Waited};

/// The thread `delay` checks its heap at least this often, which bounds the cost of a lost wake-up
/// or a clock jump (client-go `util/workqueue/delaying_queue.go:maxWait`).
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Keys by due time, one entry per key; the earliest time wins (client-go
/// `util/workqueue/delaying_queue.go:waitForPriorityQueue`).
#[derive(Clone, Debug)]
pub struct DelayHeap<K> {
    /// Ordered by time, and among equal times by order of addition.
    by_time: BTreeMap<Slot, K>,
    /// INVARIANT: contains each key of `by_time` once, with its slot there. The priority is the
    /// highest of all adds.
    slots: HashMap<K, (Slot, Priority)>,
    added_total: u64,
}

type Slot = (Instant, u64);

impl<K: Clone + Eq + Hash> DelayHeap<K> {
    /// Creates an empty heap.
    pub fn new() -> Self {
        Self {
            by_time: BTreeMap::new(),
            slots: HashMap::new(),
            added_total: 0,
        }
    }

    /// Makes `key` due at `at` or at its earlier time, with at least this priority. Returns true if
    /// `key` is next.
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

    /// Takes out the keys that are due at `now`, in order of time.
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

    /// Drops all keys.
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

/// A [`DelayHeap`] under a lock, with a wake-up channel for the thread that waits for it.
///
/// DIFFERS: upstream passes keys through a channel of 1000, and an add blocks while it is full.
/// Here keys go straight into the heap, which never holds a key twice. So no thread blocks in an
/// add, above all no watch thread, and no key is lost if the thread `delay` is gone.
pub struct Delayed<K> {
    heap: Mutex<DelayHeap<K>>,
    /// Capacity 1. If it is full, the thread wakes anyway, so another signal may be dropped.
    ring: Sender<()>,
    bell: Receiver<()>,
    spot: Spot,
}

impl<K: Clone + Eq + Hash> Delayed<K> {
    /// Creates an empty set of delayed keys.
    pub fn new() -> Self {
        let (ring, bell) = crossbeam_channel::bounded(1);
        Self {
            heap: Mutex::default(),
            ring,
            bell,
            spot: Spot::default(),
        }
    }

    /// Makes `key` due at `at` or at its earlier time, with at least this priority. Never blocks.
    pub fn add(&self, key: K, at: Instant, priority: Priority) {
        let is_first = self.lock().add(key, at, priority);
        if is_first {
            self.wake();
        }
    }

    /// Takes out the keys that are due at `now`, in order of time.
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

    /// Drops all keys and ends a [`Delayed::wait`].
    pub fn clear(&self) {
        self.lock().clear();
        self.wake();
    }

    /// Blocks until the next key is due, measured from `now`; until an add of an earlier key; until
    /// [`Delayed::clear`]; or for the heartbeat of 10 s.
    pub fn wait(&self, now: Instant) {
        let until_due = self
            .next_deadline()
            .map_or(HEARTBEAT, |at| at.saturating_duration_since(now));
        let _wait = activity::enter("waits until a key is due", "");
        let until_due = until_due.min(HEARTBEAT);
        // Signal or timeout: the caller checks the heap in either case.
        let rung = || self.bell.try_recv().ok();
        if let Waited::Unsimulated = turns::wait(&[&self.spot], Some(now + until_due), rung) {
            self.bell.recv_timeout(until_due).unwrap_or_default();
        }
    }

    fn wake(&self) {
        // A full channel has the same effect as another signal.
        self.ring.try_send(()).unwrap_or_default();
        self.spot.wake();
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
