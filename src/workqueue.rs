//! A queue of keys in which no key is worked on twice at once and repeats fall together, with
//! priorities, a lane for large work that some workers do not take from, keys that are due later,
//! and keys that have to wait because they failed.
//!
//! Generic over the key, and nothing of Kubernetes in it. Watch threads and the `sync-*` threads add,
//! the `sync-*` threads get, and the thread `delay` runs [`WorkQueue::run_delay`]. Without any thread,
//! [`WorkQueue::try_get`] and [`WorkQueue::advance`] do the same.
//!
//! # Locks
//!
//! [`queue`] guards the dirty and processing sets, [`delaying`] the due times, and each rate
//! limiter its failures. Every thread that adds or gets a key takes them, never two at once.

pub mod dedup;
pub mod delaying;
pub mod queue;
pub mod rate_limiter;
pub mod timing;

#[cfg(test)]
mod tests;

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::stdx::clock::Clock;
use crate::telemetry::metrics::workqueue::WorkQueueMetrics;

pub use dedup::Priority;
use delaying::Delayed;
use queue::Queue;
pub use queue::{Lanes, QueueStats};
pub use rate_limiter::{RateLimiter, default_controller_rate_limiter};
pub use timing::InProgress;

/// A delay that never ends in practice: what does not fit the clock is cut to it.
const FOREVER: Duration = Duration::from_hours(24 * 365);

/// A rate-limiting, delaying, deduplicating queue
/// (client-go `util/workqueue:TypedRateLimitingInterface`). Shared by `Arc`.
pub struct WorkQueue<K: Clone + Eq + Hash + Send> {
    queue: Queue<K>,
    delayed: Delayed<K>,
    rate_limiter: Box<dyn RateLimiter<K>>,
    clock: Arc<dyn Clock>,
    retries_total: AtomicU64,
}

/// How full a [`WorkQueue`] is and what it has seen: what its metrics are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkQueueStats {
    /// The queue proper.
    pub queue: QueueStats,
    /// Keys that are not due yet.
    pub n_delayed: usize,
    /// Delayed and rate-limited adds so far, whatever their delay.
    pub retries_total: u64,
}

/// Where one key stands, for whoever asks why it is not worked on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyState {
    /// Waits for a worker, or will as soon as the one that has it is done.
    pub is_waiting: bool,
    /// A worker has it.
    pub is_processing: bool,
    /// How long until it is queued by the passing of time; `None` if it is not.
    pub due_in: Option<Duration>,
    /// Its failures since its last success.
    pub n_failures: u32,
}

impl<K: Clone + fmt::Debug + Eq + Hash + Send + 'static> WorkQueue<K> {
    /// An empty queue with the rate limits of [`default_controller_rate_limiter`].
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let rate_limiter = default_controller_rate_limiter(Arc::clone(&clock));
        Self::with_rate_limiter(clock, rate_limiter)
    }
}

impl<K: Clone + Eq + Hash + Send> WorkQueue<K> {
    /// An empty queue with rate limits of its own.
    pub fn with_rate_limiter(clock: Arc<dyn Clock>, rate_limiter: Box<dyn RateLimiter<K>>) -> Self {
        Self {
            queue: Queue::new(Arc::clone(&clock)),
            delayed: Delayed::new(),
            rate_limiter,
            clock,
            retries_total: AtomicU64::new(0),
        }
    }

    /// The same queue that observes into `metrics`.
    #[must_use]
    pub fn with_metrics(mut self, metrics: WorkQueueMetrics) -> Self {
        self.queue.set_metrics(metrics);
        self
    }

    /// Queues `key` now with high priority, unless it waits so already. Never blocks. Ignored once the
    /// queue shuts down.
    pub fn add(&self, key: K) {
        self.queue.add(key, Priority::High);
    }

    /// Queues `key` now among those whose work is large, unless it waits so already or with high
    /// priority. Never blocks. Ignored once the queue shuts down.
    pub fn add_large(&self, key: K) {
        self.queue.add(key, Priority::Large);
    }

    /// Queues `key` now with low priority, unless it waits already. Never blocks. Ignored once the
    /// queue shuts down.
    pub fn add_low(&self, key: K) {
        self.queue.add(key, Priority::Low);
    }

    /// Queues `key` with low priority when `delay` has passed, or earlier if it was or will be asked
    /// for earlier. Never blocks. Ignored once the queue shuts down. Not counted as a retry: whoever
    /// asks is only in no hurry.
    pub fn add_low_after(&self, key: K, delay: Duration) {
        self.add_with_priority_after(key, delay, Priority::Low);
    }

    /// Queues `key` with high priority when `delay` has passed, or earlier if it was or will be asked
    /// for earlier. Never blocks. Ignored once the queue shuts down.
    pub fn add_after(&self, key: K, delay: Duration) {
        if self.queue.is_shutting_down() {
            return;
        }
        self.retries_total.fetch_add(1, Ordering::Relaxed);
        self.add_with_priority_after(key, delay, Priority::High);
    }

    fn add_with_priority_after(&self, key: K, delay: Duration, priority: Priority) {
        if self.queue.is_shutting_down() {
            return;
        }
        if delay.is_zero() {
            self.queue.add(key, priority);
        } else {
            let due = self.clock.now() + delay.min(FOREVER);
            self.delayed.add(key, due, priority);
        }
    }

    /// Queues `key` when the rate limiter lets it, which counts this as a failure of `key`. Never
    /// blocks. The key is dropped once the queue shuts down.
    pub fn add_rate_limited(&self, key: K) {
        let delay = self.rate_limiter.when(&key);
        self.add_after(key, delay);
    }

    /// Forgets the failures of `key`, as after a success. It has nothing to do with
    /// [`WorkQueue::done`], which must be said too.
    pub fn forget(&self, key: &K) {
        self.rate_limiter.forget(key);
    }

    /// The failures of `key` since it was last forgotten.
    pub fn num_requeues(&self, key: &K) -> u32 {
        self.rate_limiter.num_requeues(key)
    }

    /// The next key; the caller must say [`WorkQueue::done`] when it is done with it, whatever came of
    /// it.
    ///
    /// Blocks until there is one, or until the queue was shut down and all keys accepted before are
    /// handed out; then the answer is `None`.
    pub fn get(&self) -> Option<K> {
        self.get_from(Lanes::All)
    }

    /// As [`WorkQueue::get`] for a worker that takes only keys of these lanes.
    pub fn get_from(&self, lanes: Lanes) -> Option<K> {
        self.queue.get(lanes)
    }

    /// The next key if there is one now. Never blocks.
    pub fn try_get(&self) -> Option<K> {
        self.try_get_from(Lanes::All)
    }

    /// The next key of these lanes if there is one now. Never blocks.
    pub fn try_get_from(&self, lanes: Lanes) -> Option<K> {
        self.queue.try_get(lanes)
    }

    /// Ends the work on `key`. If it was added meanwhile it is queued again. Never blocks.
    pub fn done(&self, key: &K) {
        self.queue.done(key);
    }

    /// Keys that wait for a worker, without those being worked on and those not due yet.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// True if no key waits for a worker.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Ignores all further adds, forgets the keys that are not due, ends [`WorkQueue::run_delay`] and
    /// wakes every worker. Keys queued before are still handed out. Never blocks.
    pub fn shut_down(&self) {
        self.queue.shut_down();
        self.delayed.clear();
    }

    /// True once the queue was told to shut down.
    pub fn is_shutting_down(&self) -> bool {
        self.queue.is_shutting_down()
    }

    /// Queues the keys that are due at `now`; how many they are. Never blocks.
    pub fn advance(&self, now: Instant) -> usize {
        let due = self.delayed.due(now);
        let n_due = due.len();
        for (key, priority) in due {
            self.queue.add(key, priority);
        }
        n_due
    }

    /// When the next delayed key is due: how far a clock that is turned by hand may jump.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.delayed.next_deadline()
    }

    /// The body of the thread `delay`: queues keys when they are due.
    ///
    /// Waits for the next such time, for 10 s at most; ends when the queue shuts down.
    pub fn run_delay(&self) {
        while !self.is_shutting_down() {
            let now = self.clock.now();
            if self.advance(now) == 0 {
                self.delayed.wait(now);
            }
        }
    }

    /// Where `key` stands. Never blocks.
    pub fn state_of(&self, key: &K) -> KeyState {
        let (is_waiting, is_processing) = self.queue.state_of(key);
        let due_in = |at: Instant| at.saturating_duration_since(self.clock.now());
        KeyState {
            is_waiting,
            is_processing,
            due_in: self.delayed.deadline_of(key).map(due_in),
            n_failures: self.num_requeues(key),
        }
    }

    /// How long the key has waited that waits longest, the delayed ones and those whose work is
    /// large not counted; zero if none does.
    pub fn longest_wait(&self) -> Duration {
        self.queue.longest_wait()
    }

    /// How long the workers have been at what they are doing.
    pub fn in_progress(&self) -> InProgress {
        self.queue.in_progress()
    }

    /// How full the queue is and what it has seen.
    pub fn stats(&self) -> WorkQueueStats {
        WorkQueueStats {
            queue: self.queue.stats(),
            n_delayed: self.delayed.len(),
            retries_total: self.retries_total.load(Ordering::Relaxed),
        }
    }
}

impl<K: Clone + Eq + Hash + Send> fmt::Debug for WorkQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue")
            .field("stats", &self.stats())
            .field("shutting_down", &self.is_shutting_down())
            .field("rate_limiter", &self.rate_limiter)
            .finish_non_exhaustive()
    }
}
