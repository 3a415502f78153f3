//! The queue proper: a crossbeam channel of keys for each priority, and the sets of dirty and
//! processing keys.
//!
//! Watch threads, `delay` and the `sync-*` threads add keys. The `sync-*` threads get keys and mark
//! them done.

use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, never, select_biased};

use super::dedup::{Dedup, InProgress, Priority};
use crate::stdx::clock::Clock;
use crate::stdx::turns::{self, Spot, Waited};
use crate::telemetry::metrics::workqueue::WorkQueueMetrics;

/// One in this many gets starts with a later lane, low and large in turn, so that keys there wait
/// for a bounded number of other keys.
const TURN: u32 = 8;

/// The keys that a worker serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes {
    /// Every key.
    All,
    /// Every key without large work, so that these keys never wait for large work to end.
    Small,
}

/// Hands out keys by priority, high before large before low (except as `TURN` says), and first in,
/// first out within a priority. A key added again before a worker gets it is handed out once. A key
/// added while a worker processes it is handed out again after [`Queue::done`]. No two workers ever
/// process the same key (client-go `util/workqueue/queue.go:Typed`).
///
/// The channels are unbounded, but none ever holds a key twice: each is at most as long as there
/// are objects, and sending never blocks.
pub struct Queue<K: Eq + Hash> {
    high: Receiver<K>,
    large: Receiver<K>,
    low: Receiver<K>,
    /// Replaces the channel that a worker does not serve.
    never: Receiver<K>,
    spot: Spot,
    /// Number of gets for each of [`Lanes`]; wraps.
    n_looks: [AtomicU32; 2],
    state: Mutex<State<K>>,
    clock: Arc<dyn Clock>,
    /// `None` without metrics.
    metrics: Option<WorkQueueMetrics>,
}

struct State<K: Eq + Hash> {
    dedup: Dedup<K>,
    /// Cloned under the lock, used after its release. `None` once the queue shuts down and no key
    /// has to return through `done`.
    ///
    /// INVARIANT: a thread about to send a key holds a clone. So the channel disconnects only after
    /// it holds the last accepted key, and workers see its end only after they got that key.
    senders: Option<Arc<Senders<K>>>,
    shutting_down: bool,
    adds_total: u64,
}

/// The senders of all channels, dropped together.
struct Senders<K> {
    high: Sender<K>,
    large: Sender<K>,
    low: Sender<K>,
}

/// A key that a thread is about to send.
struct Sending<K> {
    key: K,
    priority: Priority,
    senders: Arc<Senders<K>>,
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// Creates an empty queue.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let (high_sender, high) = crossbeam_channel::unbounded();
        let (large_sender, large) = crossbeam_channel::unbounded();
        let (low_sender, low) = crossbeam_channel::unbounded();
        let senders = Senders {
            high: high_sender,
            large: large_sender,
            low: low_sender,
        };
        Self {
            high,
            large,
            low,
            never: never(),
            spot: Spot::default(),
            n_looks: Default::default(),
            state: Mutex::new(State {
                dedup: Dedup::new(),
                senders: Some(Arc::new(senders)),
                shutting_down: false,
                adds_total: 0,
            }),
            clock,
            metrics: None,
        }
    }

    /// Attaches metrics.
    pub fn set_metrics(&mut self, metrics: WorkQueueMetrics) {
        self.metrics = Some(metrics);
    }

    /// Marks `key` dirty with this priority. An add with a higher priority raises a waiting key.
    /// Never blocks. Ignored after shutdown.
    pub fn add(&self, key: K, priority: Priority) {
        if let Some(sending) = self.accept(key, priority) {
            sending.send();
            self.spot.wake();
        }
    }

    /// The part of [`Queue::add`] under the lock. The caller must send what it returns.
    fn accept(&self, key: K, priority: Priority) -> Option<Sending<K>> {
        let now = self.clock.now();
        let mut state = self.lock();
        if state.shutting_down {
            return None;
        }
        let added = state.dedup.add(&key, priority, now);
        state.adds_total += u64::from(added.is_new);
        let senders = state.senders.as_ref().filter(|_| added.sends).cloned();
        // The send may wake a worker, which takes the lock next.
        drop(state);
        senders.map(|senders| Sending {
            key,
            priority,
            senders,
        })
    }

    /// Returns the next key of these lanes. The caller must call [`Queue::done`] afterwards,
    /// whatever the result of the work.
    ///
    /// Blocks until there is a key. After shutdown, returns the accepted keys of these lanes, and
    /// then `None`.
    pub fn get(&self, lanes: Lanes) -> Option<K> {
        let next = || {
            let key = self.try_get(lanes).map(Some);
            key.or_else(|| self.is_drained().then_some(None))
        };
        if let Waited::Ready(key) = turns::wait(&[&self.spot], None, next) {
            return key;
        }
        loop {
            let [first, second, third] = self.channels(lanes);
            let (received, priority) = select_biased! {
                recv(first.0) -> key => (key, first.1),
                recv(second.0) -> key => (key, second.1),
                recv(third.0) -> key => (key, third.1),
            };
            let Ok(key) = received else {
                // Shut down: all accepted keys are in their channels, so no wait is needed.
                return self.try_get(lanes);
            };
            if self.begin(&key, priority) {
                return Some(key);
            }
        }
    }

    /// True if no key will ever come.
    fn is_drained(&self) -> bool {
        self.lock().senders.is_none()
    }

    /// Returns the next key of these lanes if there is one. Never blocks.
    pub fn try_get(&self, lanes: Lanes) -> Option<K> {
        loop {
            let (key, priority) = self.receive(lanes)?;
            if self.begin(&key, priority) {
                return Some(key);
            }
        }
    }

    /// Receives a key of these lanes if a channel holds one. The caller must pass it to
    /// [`Queue::begin`].
    fn receive(&self, lanes: Lanes) -> Option<(K, Priority)> {
        let mut channels = self.channels(lanes).into_iter();
        channels.find_map(|(channel, priority)| {
            let key = channel.try_recv().ok()?;
            Some((key, priority))
        })
    }

    /// Returns the channels of these lanes, in the order in which to try them.
    fn channels(&self, lanes: Lanes) -> [(&Receiver<K>, Priority); 3] {
        let (high, low) = ((&self.high, Priority::High), (&self.low, Priority::Low));
        let large = match lanes {
            Lanes::All => &self.large,
            Lanes::Small => &self.never,
        };
        let large = (large, Priority::Large);
        let n_looks = self.n_looks[lanes as usize].fetch_add(1, Ordering::Relaxed);
        if !(n_looks + 1).is_multiple_of(TURN) {
            [high, large, low]
        } else if n_looks % (2 * TURN) < TURN {
            [low, large, high]
        } else {
            [large, low, high]
        }
    }

    fn begin(&self, key: &K, received: Priority) -> bool {
        let now = self.clock.now();
        let mut state = self.lock();
        let waited = state.dedup.begin(key, received, now);
        drop(state);
        if let (Some(metrics), Some(waited)) = (&self.metrics, waited) {
            metrics.queue_duration.observe(waited.as_secs_f64());
        }
        waited.is_some()
    }

    /// Ends the work on `key`, and queues it again if it was added meanwhile. Never blocks.
    pub fn done(&self, key: &K) {
        let (sending, last) = self.end(key);
        if sending.is_none() && last.is_none() {
            return;
        }
        if let Some(sending) = sending {
            sending.send();
        }
        drop(last);
        self.spot.wake();
    }

    /// The part of [`Queue::done`] under the lock. The caller must send the key that returns, and
    /// then drop the senders.
    fn end(&self, key: &K) -> (Option<Sending<K>>, Option<Arc<Senders<K>>>) {
        let now = self.clock.now();
        let mut state = self.lock();
        let (worked, returns) = state.dedup.done(key, now).unzip();
        let is_last = state.shutting_down && state.dedup.n_returning() == 0;
        let sending = returns.flatten().map(|priority| Sending {
            key: key.clone(),
            priority,
            senders: Arc::clone(
                (state.senders.as_ref()).expect("the senders are kept while a key is to come back"),
            ),
        });
        let last = if is_last { state.senders.take() } else { None };
        drop(state);
        if let (Some(metrics), Some(worked)) = (&self.metrics, worked) {
            metrics.work_duration.observe(worked.as_secs_f64());
        }
        (sending, last)
    }

    /// Number of keys that wait for a worker, without keys in progress.
    pub fn len(&self) -> usize {
        self.lock().dedup.n_waiting()
    }

    /// True if no key waits for a worker.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ignores all further adds and wakes every worker. Workers still get the keys accepted before.
    /// Never blocks.
    pub fn shut_down(&self) {
        let senders = self.close();
        // The drop wakes the workers blocked in `get`, so it happens after the lock's release.
        drop(senders);
        self.spot.wake();
    }

    /// The part of [`Queue::shut_down`] under the lock.
    fn close(&self) -> Option<Arc<Senders<K>>> {
        let mut state = self.lock();
        state.shutting_down = true;
        // The queue accepts no more keys, so only returning keys still need the senders.
        if state.dedup.n_returning() == 0 {
            state.senders.take()
        } else {
            None
        }
    }

    /// True after [`Queue::shut_down`].
    pub fn is_shutting_down(&self) -> bool {
        self.lock().shutting_down
    }

    /// Returns whether `key` waits for a worker, and whether a worker processes it.
    pub fn state_of(&self, key: &K) -> (bool, bool) {
        let state = self.lock();
        (state.dedup.is_dirty(key), state.dedup.is_processing(key))
    }

    /// Returns the number of keys that wait for a worker or will when their current worker is done,
    /// and of the adds so far that did not coalesce with an earlier one.
    pub fn depth_and_adds(&self) -> (usize, u64) {
        let state = self.lock();
        (state.dedup.n_dirty(), state.adds_total)
    }

    /// Returns the wait of the longest-waiting key; zero without one. Keys with large work do not
    /// count: they wait for each other as long as that work takes.
    pub fn longest_wait(&self) -> Duration {
        let now = self.clock.now();
        self.lock().dedup.longest_wait(now)
    }

    /// Records that the work on `key`, which is in progress, goes on.
    pub fn progressed(&self, key: &K) {
        let now = self.clock.now();
        self.lock().dedup.progressed(key, now);
    }

    /// Returns how long the workers have processed their current keys.
    pub fn in_progress(&self) -> InProgress {
        let now = self.clock.now();
        self.lock().dedup.in_progress(now)
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash> fmt::Debug for Queue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("depth_and_adds", &self.depth_and_adds())
            .field("shutting_down", &self.is_shutting_down())
            .finish_non_exhaustive()
    }
}

impl<K> Sending<K> {
    fn send(self) {
        let sender = match self.priority {
            Priority::High => &self.senders.high,
            Priority::Large => &self.senders.large,
            Priority::Low => &self.senders.low,
        };
        sender
            .send(self.key)
            .expect("the queue that is borrowed here holds the receivers");
    }
}

#[cfg(test)]
mod interleavings;
