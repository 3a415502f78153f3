//! The queue proper: a crossbeam channel of keys for each priority, and beside them which keys are
//! dirty or being processed.
//!
//! Watch threads, `delay` and the `sync-*` threads add; the `sync-*` threads get and are done.

use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, never, select_biased};

use super::dedup::{Added, Dedup, Priority};
use super::timing::{InProgress, Timing};
use crate::stdx::clock::Clock;
use crate::telemetry::metrics::workqueue::WorkQueueMetrics;

/// One get in so many tries a later lane first, low and large in turn, so that they wait for a
/// bounded number of the others each.
const TURN: u32 = 8;

/// Which keys a worker takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes {
    /// Every key.
    All,
    /// Every key but those whose work is large, so that the others never wait until such work ends.
    Small,
}

/// Hands out keys of high priority before those whose work is large, and those before the ones of
/// low priority (but see `TURN`), and those of one priority first come first served. A key that is
/// added again before a worker has taken it is handed out once; one that is added while a worker
/// has it is handed out again after [`Queue::done`]. No two workers ever have the same key
/// (client-go `util/workqueue/queue.go:Typed`).
///
/// The channels need no bound of their own: none ever holds a key twice, so it is never longer than
/// there are objects, and sending to it never blocks.
pub struct Queue<K: Eq + Hash> {
    high: Receiver<K>,
    large: Receiver<K>,
    low: Receiver<K>,
    /// In the place of a channel that a worker does not take from.
    never: Receiver<K>,
    /// Looks at each of [`Lanes`] so far; wraps.
    n_looks: [AtomicU32; 2],
    state: Mutex<State<K>>,
    clock: Arc<dyn Clock>,
    /// `None`: nobody looks.
    metrics: Option<WorkQueueMetrics>,
}

struct State<K: Eq + Hash> {
    dedup: Dedup<K>,
    timing: Timing<K>,
    /// Cloned under the lock, used after it. `None` once the queue shuts down and no key is to come
    /// back through `done`.
    ///
    /// INVARIANT: whoever is about to send a key holds a clone, so the channel is not disconnected
    /// before the last accepted key is in it, and workers see its end only after they took that key.
    senders: Option<Arc<Senders<K>>>,
    shutting_down: bool,
    adds_total: u64,
}

/// The entrances of all channels. They go at the same time.
struct Senders<K> {
    high: Sender<K>,
    large: Sender<K>,
    low: Sender<K>,
}

/// How full a [`Queue`] is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Keys that wait for a worker.
    pub depth: usize,
    /// Keys that are being worked on.
    pub n_processing: usize,
    /// Keys that are being worked on and were added again.
    pub n_returning: usize,
    /// Adds so far that did not fall together with an earlier one.
    pub adds_total: u64,
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// An empty queue.
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
            n_looks: Default::default(),
            state: Mutex::new(State {
                dedup: Dedup::new(),
                senders: Some(Arc::new(senders)),
                timing: Timing::default(),
                shutting_down: false,
                adds_total: 0,
            }),
            clock,
            metrics: None,
        }
    }

    /// From now on, observes into `metrics`.
    pub fn set_metrics(&mut self, metrics: WorkQueueMetrics) {
        self.metrics = Some(metrics);
    }

    /// Marks `key` as in need of work this soon. One that waits with a lower priority is raised by
    /// an add with a higher one. Never blocks. Ignored once the queue shuts down.
    pub fn add(&self, key: K, priority: Priority) {
        let now = self.clock.now();
        let mut state = self.lock();
        if state.shutting_down {
            return;
        }
        let added = state.dedup.add(&key, priority);
        if matches!(added, Added::Send | Added::Waits | Added::Returns) {
            state.adds_total += 1;
            state.timing.added(&key, now);
        }
        let senders = match added {
            Added::Send | Added::Raised => state.senders.clone(),
            Added::Waits | Added::RaisedThere | Added::Returns | Added::Coalesced => None,
        };
        drop(state);
        if let Some(senders) = senders {
            senders.send(key, priority);
        }
    }

    /// The next key of these lanes; the caller must say [`Queue::done`] when it is done with it,
    /// whatever came of it.
    ///
    /// Blocks until there is one, or until the queue was shut down and all accepted keys of these
    /// lanes are handed out; then the answer is `None`.
    pub fn get(&self, lanes: Lanes) -> Option<K> {
        loop {
            let [first, second, third] = self.look(lanes);
            let (received, priority) = select_biased! {
                recv(first.0) -> key => (key, first.1),
                recv(second.0) -> key => (key, second.1),
                recv(third.0) -> key => (key, third.1),
            };
            let Ok(key) = received else {
                // Shut down: nothing is sent any more, and what is left can be had at once.
                return self.try_get(lanes);
            };
            if self.begin(&key, priority) {
                return Some(key);
            }
        }
    }

    /// The next key of these lanes if there is one now. Never blocks.
    pub fn try_get(&self, lanes: Lanes) -> Option<K> {
        loop {
            let mut channels = self.look(lanes).into_iter();
            let (key, priority) = channels.find_map(|(channel, priority)| {
                channel.try_recv().ok().map(|key| (key, priority))
            })?;
            if self.begin(&key, priority) {
                return Some(key);
            }
        }
    }

    /// The channels of these lanes, in the order in which they are to be tried now.
    fn look(&self, lanes: Lanes) -> [(&Receiver<K>, Priority); 3] {
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
        if !state.dedup.begin(key, received) {
            return false;
        }
        let waited = state.timing.begun(key, now);
        drop(state);
        if let (Some(metrics), Some(waited)) = (&self.metrics, waited) {
            metrics.queue_duration.observe(waited.as_secs_f64());
        }
        true
    }

    /// Ends the work on `key`. If it was added meanwhile it is queued again. Never blocks.
    pub fn done(&self, key: &K) {
        let now = self.clock.now();
        let mut state = self.lock();
        let returns = state.dedup.done(key);
        let worked = state.timing.done(key, now);
        let is_last = state.shutting_down && state.dedup.n_returning() == 0;
        let senders = if is_last {
            state.senders.take()
        } else if returns.is_some() {
            state.senders.clone()
        } else {
            None
        };
        drop(state);
        if let (Some(metrics), Some(worked)) = (&self.metrics, worked) {
            metrics.work_duration.observe(worked.as_secs_f64());
        }
        if let Some(priority) = returns {
            let senders = senders.expect("the senders are kept while a key is to come back");
            senders.send(key.clone(), priority);
        }
    }

    /// Keys that wait for a worker, without those being worked on.
    pub fn len(&self) -> usize {
        self.lock().dedup.n_waiting()
    }

    /// True if no key waits for a worker.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ignores all further adds and wakes every worker. Keys accepted before are still handed out.
    /// Never blocks.
    pub fn shut_down(&self) {
        let mut state = self.lock();
        state.shutting_down = true;
        // Nothing is accepted any more, so only keys that are to come back still need the senders.
        let senders = if state.dedup.n_returning() == 0 {
            state.senders.take()
        } else {
            None
        };
        drop(state);
        // This wakes the workers that wait in `get`, hence not under the lock.
        drop(senders);
    }

    /// True once the queue was told to shut down.
    pub fn is_shutting_down(&self) -> bool {
        self.lock().shutting_down
    }

    /// Whether `key` waits for a worker, and whether a worker has it.
    pub fn state_of(&self, key: &K) -> (bool, bool) {
        let state = self.lock();
        (state.dedup.is_dirty(key), state.dedup.is_processing(key))
    }

    /// How full the queue is.
    pub fn stats(&self) -> QueueStats {
        let state = self.lock();
        QueueStats {
            depth: state.dedup.n_waiting(),
            n_processing: state.dedup.n_processing(),
            n_returning: state.dedup.n_returning(),
            adds_total: state.adds_total,
        }
    }

    /// How long the key has waited that waits longest; zero if none does. Those do not count whose
    /// work is large: they wait for each other for as long as that takes.
    pub fn longest_wait(&self) -> Duration {
        let now = self.clock.now();
        let state = self.lock();
        let waiting = state.dedup.waiting_with_small_work();
        state.timing.longest_wait(waiting, now)
    }

    /// How long the workers have been at what they are doing.
    pub fn in_progress(&self) -> InProgress {
        let now = self.clock.now();
        self.lock().timing.in_progress(now)
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash> fmt::Debug for Queue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("stats", &self.stats())
            .field("shutting_down", &self.is_shutting_down())
            .finish_non_exhaustive()
    }
}

impl<K> Senders<K> {
    fn send(&self, key: K, priority: Priority) {
        let sender = match priority {
            Priority::High => &self.high,
            Priority::Large => &self.large,
            Priority::Low => &self.low,
        };
        sender
            .send(key)
            .expect("the queue that is borrowed here holds the receivers");
    }
}
