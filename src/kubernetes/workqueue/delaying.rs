//! Delayed keys, shared by the threads that add keys and the thread `delay`, which waits in
//! [`Delayed::wait`].

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use parking_lot::Mutex;

use super::dedup::{Priority, Tenant};
use crate::stdx::clock::Clock;
use crate::stdx::turns::{Spot, Waited};
use crate::stdx::{thread, turns};

/// The thread `delay` checks its heap at least this often, which bounds the cost of a lost wake-up
/// or a clock jump (client-go `util/workqueue/delaying_queue.go:maxWait`).
const HEARTBEAT: Duration = Duration::from_secs(10);

type Slot = (Instant, u64);

/// Keys by due time, one entry per key; the earliest time wins (client-go
/// `util/workqueue/delaying_queue.go:waitForPriorityQueue`).
///
/// DIFFERS: upstream passes keys through a channel of 1000, and an add blocks while it is full.
/// Here keys go straight into the heap, which never holds a key twice. So no thread blocks in an
/// add, above all no watch thread, and no key is lost if the thread `delay` is gone.
pub struct Delayed<K> {
    heap: Mutex<Heap<K>>,
    /// Capacity 1. If it is full, the thread wakes anyway, so another signal may be dropped.
    ring: Sender<()>,
    bell: Receiver<()>,
    spot: Spot,
}

struct Heap<K> {
    /// Ordered by time, and among equal times by order of addition.
    by_time: BTreeMap<Slot, K>,
    /// INVARIANT: contains each key of `by_time` once, with its slot there. The priority is the
    /// highest of all adds.
    slots: HashMap<K, (Slot, Priority)>,
    added_total: u64,
}

impl<K: Clone + Eq + Hash> Delayed<K> {
    /// Makes `key` due at `at` or at its earlier time, with at least this priority. Never blocks.
    pub fn add(&self, key: K, at: Instant, priority: Priority) {
        if self.insert(key, at, priority) {
            self.wake();
        }
    }

    /// As [`add`](Self::add), without waking the thread. Returns true if `key` is next.
    pub(super) fn insert(&self, key: K, at: Instant, mut priority: Priority) -> bool {
        let mut heap = self.heap.lock();
        let heap = &mut *heap;
        if let Some((slot, known)) = heap.slots.get_mut(&key) {
            *known = priority.max(*known);
            if slot.0 <= at {
                return false;
            }
            priority = *known;
            heap.by_time.remove(slot);
        }
        heap.added_total += 1;
        let slot = (at, heap.added_total);
        heap.slots.insert(key.clone(), (slot, priority));
        heap.by_time.insert(slot, key);
        heap.by_time.first_key_value().map(|(first, _)| *first) == Some(slot)
    }

    pub fn due(&self, now: Instant) -> Vec<(K, Priority)> {
        let mut heap = self.heap.lock();
        let heap = &mut *heap;
        let mut due = Vec::new();
        while let Some(entry) = heap.by_time.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let key = entry.remove();
            let slot = heap.slots.remove(&key);
            let (_, priority) = slot.expect("every key has its slot");
            due.push((key, priority));
        }
        due
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        let heap = self.heap.lock();
        heap.by_time.first_key_value().map(|((at, _), _)| *at)
    }

    /// When `key` is due.
    pub fn deadline_of(&self, key: &K) -> Option<Instant> {
        self.heap.lock().slots.get(key).map(|((at, _), _)| *at)
    }

    pub fn clear(&self) {
        let mut heap = self.heap.lock();
        heap.by_time.clear();
        heap.slots.clear();
        drop(heap);
        self.wake();
    }

    /// Blocks until the next key is due, measured from `now`; until an add of an earlier key; until
    /// [`Delayed::clear`]; or for the heartbeat of 10 s.
    pub fn wait(&self, now: Instant) {
        let until_due = self
            .next_deadline()
            .map_or(HEARTBEAT, |at| at.saturating_duration_since(now));
        let _wait = thread::enter("waits until a key is due", "");
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
}

impl<K> Default for Delayed<K> {
    fn default() -> Self {
        let (ring, bell) = crossbeam_channel::bounded(1);
        let heap = Heap {
            by_time: BTreeMap::new(),
            slots: HashMap::new(),
            added_total: 0,
        };
        Self {
            heap: Mutex::new(heap),
            ring,
            bell,
            spot: Spot::default(),
        }
    }
}

// The back-off of keys that failed (client-go `util/workqueue/default_rate_limiters.go`).
//
// Every thread that adds rate-limited keys calls it, mostly the `sync-*` threads.

/// First retry of a key (client-go `DefaultTypedControllerRateLimiter`).
const BASE_DELAY: Duration = Duration::from_millis(5);

/// Maximum delay of a retry (client-go `DefaultTypedControllerRateLimiter`).
const MAX_DELAY: Duration = Duration::from_secs(1000);

/// Long-term interval between retries of all keys of a tenant together: 10 a second (client-go
/// `DefaultTypedControllerRateLimiter`).
const INTERVAL: Duration = Duration::from_millis(100);

/// Retries of all keys of a tenant together that run without delay after a quiet time: 100
/// (client-go `DefaultTypedControllerRateLimiter`).
const BURST: Duration = INTERVAL.saturating_mul(100);

/// Decides how long a key waits before its retry: 5 ms, doubled with each failure of the
/// key up to 1000 s, and long enough that a tenant's keys together are retried at most 10 times a
/// second after a burst of 100. No call blocks.
///
/// DIFFERS: upstream limits the retries of all keys together, so that thousands of keys that fail
/// in one namespace delay a retry in another.
pub struct RateLimiter<K> {
    clock: Arc<dyn Clock>,
    tenant_of: fn(&K) -> Tenant,
    state: Mutex<State<K>>,
}

struct State<K> {
    /// Failures by key. An entry lasts until the key is reset.
    failures: HashMap<K, u32>,
    /// When each tenant's burst is whole again if none of its keys fails. It is whole without an
    /// entry.
    whole_at: HashMap<Tenant, Instant>,
}

impl<K: Clone + Eq + Hash> RateLimiter<K> {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let state = State {
            failures: HashMap::new(),
            whole_at: HashMap::new(),
        };
        Self {
            clock,
            tenant_of: |_| 0,
            state: Mutex::new(state),
        }
    }

    /// Limits the retries of each tenant.
    pub fn set_tenants(&mut self, tenant_of: fn(&K) -> Tenant) {
        self.tenant_of = tenant_of;
    }

    /// Counts one failure of `key` and returns its delay. It takes its turn among all keys whatever
    /// the caller does next.
    pub fn when(&self, key: &K) -> Duration {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let n_failures = state.failures.entry(key.clone()).or_default();
        let doubled = 2_u32.saturating_pow(*n_failures);
        *n_failures = n_failures.saturating_add(1);
        state.whole_at.retain(|_, whole_at| *whole_at > now);
        let whole_at = state.whole_at.entry((self.tenant_of)(key)).or_insert(now);
        *whole_at += INTERVAL;
        let turn = whole_at.saturating_duration_since(now);
        let delay = BASE_DELAY.saturating_mul(doubled).min(MAX_DELAY);
        delay.max(turn.saturating_sub(BURST))
    }

    pub fn forget(&self, key: &K) {
        self.state.lock().failures.remove(key);
    }

    /// Resets the failures of all keys. Returns these keys.
    pub fn forget_all(&self) -> Vec<K> {
        let mut state = self.state.lock();
        state.whole_at.clear();
        std::mem::take(&mut state.failures).into_keys().collect()
    }

    /// The keys that have failed since they were forgotten.
    pub fn failed(&self) -> Vec<K> {
        self.state.lock().failures.keys().cloned().collect()
    }

    pub fn num_requeues(&self, key: &K) -> u32 {
        self.state
            .lock()
            .failures
            .get(key)
            .copied()
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
