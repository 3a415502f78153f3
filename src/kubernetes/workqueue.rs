//! A deduplicating queue of keys: no two workers process the same key at once, and repeated adds
//! coalesce. It has priorities, permits for large work, turns and a share of the workers for each
//! tenant, delayed keys, and back-off for keys that failed.
//!
//! Generic over the key, without any knowledge of Kubernetes. Watch threads and the `sync-*`
//! threads add keys, the `sync-*` threads get them, and the thread `delay` runs
//! [`WorkQueue::run_delay`]. Without threads, [`WorkQueue::try_get`] and [`WorkQueue::advance`]
//! have the same effect.
//!
//! # Locks
//!
//! Three, never held together: [`WorkQueue`] guards the waiting and processed keys, [`delaying`]
//! the delayed ones, and apart from them the failures. Every thread that adds or gets a key takes
//! them, and so do `http-N` and `systemd` for the figures.

pub mod dedup;
pub mod delaying;
#[cfg(test)]
mod interleaving_tests;

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use delaying::{Delayed, RateLimiter};
use parking_lot::Mutex;

use self::dedup::{Dedup, Tenant};
use crate::stdx::clock::Clock;
use crate::stdx::turns;
use crate::stdx::turns::{Spot, Waited};
use crate::telemetry::metrics::rest_client::WorkQueueMetrics;

pub use dedup::{InProgress, Priority};

/// A practically endless delay. Longer delays are cut to it, so that the clock does not overflow.
const FOREVER: Duration = Duration::from_hours(24 * 365);

/// A rate-limiting, delaying, deduplicating queue
/// (client-go `util/workqueue:TypedRateLimitingInterface`). Shared by `Arc`.
///
/// Hands out keys by priority, high before low (except as `dedup::TURN` says), the tenants in turn
/// within a priority, and first in, first out within a tenant. A key added again before a worker
/// gets it is handed out once. A key added while a worker processes it is handed out again after
/// [`WorkQueue::done`]. No two workers ever process the same key (client-go
/// `util/workqueue/queue.go:Typed`). No call but [`WorkQueue::get`] and [`WorkQueue::run_delay`]
/// blocks, and all adds are ignored after the shutdown.
///
/// INVARIANT: while a free worker may take a key, the channel holds a call, or a thread is about to
/// send one or to look for a key. A worker looks before it waits for
/// a call, and passes the call on if it leaves a key that another may take. So one call suffices
/// for any number of keys.
pub struct WorkQueue<K: Clone + Eq + Hash + Send> {
    /// Calls a worker. Of capacity 1: another call has no further effect while it is full.
    bell: (Sender<()>, Receiver<()>),
    spot: Spot,
    state: Mutex<State<K>>,
    delayed: Delayed<K>,
    rate_limiter: RateLimiter<K>,
    clock: Arc<dyn Clock>,
    tenant_of: fn(&K) -> Tenant,
    /// `None` without metrics.
    metrics: Option<WorkQueueMetrics>,
    retries_total: AtomicU64,
}

struct State<K: Eq + Hash> {
    dedup: Dedup<K>,
    shutting_down: bool,
    adds_total: u64,
}

/// What a worker finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Found<K> {
    Key(K),
    /// No key that it may take now.
    Nothing,
    /// No key will ever come.
    End,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkQueueStats {
    /// Keys that wait for a worker or a permit, or will when their current worker is done; without
    /// keys that are not due yet.
    pub depth: usize,
    /// Adds so far that did not coalesce with an earlier one.
    pub adds_total: u64,
    /// Delayed and rate-limited adds so far, whatever their delay.
    pub retries_total: u64,
}

/// The state of one key, for `explain`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyState {
    /// The key waits for a worker or a permit, or will when its current worker is done.
    pub is_waiting: bool,
    pub is_processing: bool,
    pub due_in: Option<Duration>,
    /// Its failures since its last success.
    pub n_failures: u32,
}

impl<K: Clone + Eq + Hash + Send> WorkQueue<K> {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            bell: crossbeam_channel::bounded(1),
            spot: Spot::default(),
            state: Mutex::new(State {
                dedup: Dedup::new(usize::MAX),
                shutting_down: false,
                adds_total: 0,
            }),
            delayed: Delayed::default(),
            rate_limiter: RateLimiter::new(Arc::clone(&clock)),
            clock,
            tenant_of: |_| 0,
            metrics: None,
            retries_total: AtomicU64::new(0),
        }
    }

    #[must_use]
    pub fn with_metrics(mut self, metrics: WorkQueueMetrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Returns this queue, which must be empty, with its keys in turns by tenant, and with
    /// `n_workers` shared among the tenants: see [`dedup::Dedup`].
    #[must_use]
    pub fn with_tenants(mut self, n_workers: usize, tenant_of: fn(&K) -> Tenant) -> Self {
        self.tenant_of = tenant_of;
        self.state.get_mut().dedup = Dedup::new(n_workers);
        self.rate_limiter.set_tenants(tenant_of);
        self
    }

    /// Queues `key` now with high priority, unless it waits so already.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the queue keeps the key, as with a delay"
    )]
    pub fn add(&self, key: K) {
        self.add_now(&key, Priority::High);
    }

    /// Queues `key` with high priority after `delay`, or at an earlier time requested by another
    /// add.
    pub fn add_after(&self, key: K, delay: Duration) {
        if !self.is_shutting_down() {
            self.retries_total.fetch_add(1, Ordering::Relaxed);
        }
        self.add_at(key, Priority::High, delay);
    }

    /// Queues `key` with this priority after `delay`. The earliest time and the highest priority of
    /// all adds count. With low priority, or without a delay, it does not count as a retry.
    pub fn add_with(&self, key: K, priority: Priority, delay: Duration) {
        if priority == Priority::High && !delay.is_zero() {
            self.add_after(key, delay);
        } else {
            self.add_at(key, priority, delay);
        }
    }

    fn add_at(&self, key: K, priority: Priority, delay: Duration) {
        if self.is_shutting_down() {
            return;
        }
        if delay.is_zero() {
            return self.add_now(&key, priority);
        }
        let due = self.clock.now() + delay.min(FOREVER);
        self.delayed.add(key, due, priority);
    }

    fn add_now(&self, key: &K, priority: Priority) {
        if self.accept(key, priority) {
            self.call();
        }
    }

    /// Marks `key` dirty. An add with a higher priority raises a waiting key. As the other parts
    /// under the lock, it returns whether to call a worker after the release of the lock.
    fn accept(&self, key: &K, priority: Priority) -> bool {
        let (now, tenant) = (self.clock.now(), (self.tenant_of)(key));
        let mut state = self.state.lock();
        if state.shutting_down {
            return false;
        }
        let is_new = state.dedup.add(key, tenant, priority, now);
        state.adds_total += u64::from(is_new);
        state.must_call()
    }

    /// Calls a worker. The caller must not hold the lock, which the called worker takes next.
    fn call(&self) {
        self.bell.0.try_send(()).unwrap_or_default();
        self.spot.wake();
    }

    /// Queues `key` when the rate limiter permits, and counts a failure of `key`. Returns the
    /// delay.
    pub fn add_rate_limited(&self, key: K) -> Duration {
        let delay = self.rate_limiter.when(&key);
        self.add_after(key, delay);
        delay
    }

    /// Resets the failure count of `key` after a success. Does not replace [`WorkQueue::done`],
    /// which the worker must call too.
    pub fn forget(&self, key: &K) {
        self.rate_limiter.forget(key);
    }

    /// Resets the failure counts of all keys. Returns the keys that had one.
    pub fn forget_all(&self) -> Vec<K> {
        self.rate_limiter.forget_all()
    }

    /// Returns the keys that have failed since [`WorkQueue::forget`].
    pub fn failed(&self) -> Vec<K> {
        self.rate_limiter.failed()
    }

    /// Returns the failures of `key` since [`WorkQueue::forget`].
    pub fn num_requeues(&self, key: &K) -> u32 {
        self.rate_limiter.num_requeues(key)
    }

    /// Returns the next key. The caller must call [`WorkQueue::done`] afterwards, whatever the
    /// result of the work.
    ///
    /// Blocks until there is a key. After shutdown, returns the keys accepted before, and then
    /// `None`.
    pub fn get(&self) -> Option<K> {
        let look = || match self.look() {
            Found::Key(key) => Some(Some(key)),
            Found::Nothing => None,
            Found::End => Some(None),
        };
        if let Waited::Ready(key) = turns::wait(&[&self.spot], None, look) {
            return key;
        }
        loop {
            if let Some(key) = look() {
                return key;
            }
            let call = self.bell.1.recv();
            call.expect("the queue that is borrowed here holds the sender");
        }
    }

    /// Returns the next key if there is one.
    pub fn try_get(&self) -> Option<K> {
        match self.look() {
            Found::Key(key) => Some(key),
            Found::Nothing | Found::End => None,
        }
    }

    fn look(&self) -> Found<K> {
        let (found, calls) = self.find();
        if calls {
            self.call();
        }
        found
    }

    fn find(&self) -> (Found<K>, bool) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let taken = state.dedup.take(now);
        let calls = state.must_call();
        let is_end = state.shutting_down && state.dedup.is_drained();
        drop(state);
        match taken {
            Some((key, waited)) => {
                if let Some(metrics) = &self.metrics {
                    metrics.queue_duration.observe(waited.as_secs_f64());
                }
                (Found::Key(key), calls)
            }
            None if is_end => (Found::End, true),
            None => (Found::Nothing, false),
        }
    }

    /// Asks for a permit for large work on `key`, which is in progress. Returns false if none is
    /// free: half of the workers are left for small work. The key is then queued again once it can
    /// have a permit. [`WorkQueue::done`] returns it.
    pub fn begin_large(&self, key: &K) -> bool {
        let (may, calls) = self.ask(key);
        if calls {
            self.call();
        }
        may
    }

    fn ask(&self, key: &K) -> (bool, bool) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let may = state.dedup.begin_large(key, now);
        (may, state.must_call())
    }

    /// Ends the work on `key`, and queues it again if it was added meanwhile. A worker must look
    /// for its next key afterwards.
    pub fn done(&self, key: &K) {
        if self.end(key) {
            self.call();
        }
    }

    fn end(&self, key: &K) -> bool {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let worked = state.dedup.done(key, now);
        let calls = state.must_call() && (state.shutting_down || state.dedup.is_dirty(key));
        drop(state);
        if let (Some(metrics), Some(worked)) = (&self.metrics, worked) {
            metrics.work_duration.observe(worked.as_secs_f64());
        }
        calls
    }

    /// Number of keys that wait for a worker, without keys in progress and delayed keys.
    pub fn len(&self) -> usize {
        self.state.lock().dedup.n_waiting()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ignores all further adds, drops the delayed keys, ends [`WorkQueue::run_delay`] and wakes
    /// every worker. Workers still get the keys queued before.
    pub fn shut_down(&self) {
        self.state.lock().shutting_down = true;
        self.call();
        self.delayed.clear();
    }

    pub fn is_shutting_down(&self) -> bool {
        self.state.lock().shutting_down
    }

    pub fn advance(&self, now: Instant) -> usize {
        let due = self.delayed.due(now);
        let n_due = due.len();
        for (key, priority) in due {
            self.add_now(&key, priority);
        }
        n_due
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.delayed.next_deadline()
    }

    /// The body of the thread `delay`: queues delayed keys when they are due. Waits at most 10 s at
    /// a time, and returns after shutdown.
    pub fn run_delay(&self) {
        while !self.is_shutting_down() {
            let now = self.clock.now();
            if self.advance(now) == 0 {
                self.delayed.wait(now);
            }
        }
    }

    pub fn state_of(&self, key: &K) -> KeyState {
        let due_in = |at: Instant| at.saturating_duration_since(self.clock.now());
        let due_in = self.delayed.deadline_of(key).map(due_in);
        let n_failures = self.num_requeues(key);
        let dedup = &self.state.lock().dedup;
        KeyState {
            is_waiting: dedup.is_dirty(key) || dedup.waits_for_permit(key),
            is_processing: dedup.is_processing(key),
            due_in,
            n_failures,
        }
    }

    /// Returns the wait of the longest-waiting key, without waits for a delay or a permit; zero
    /// without one.
    pub fn longest_wait(&self) -> Duration {
        let now = self.clock.now();
        self.state.lock().dedup.longest_wait(now)
    }

    /// Records that the work on `key`, which is in progress, continues: call it after each of many
    /// requests, so that work is not taken for stuck because it is much.
    pub fn progressed(&self, key: &K) {
        let now = self.clock.now();
        self.state.lock().dedup.progressed(key, now);
    }

    /// Returns how long the workers have processed their current keys.
    pub fn in_progress(&self) -> InProgress {
        let now = self.clock.now();
        self.state.lock().dedup.in_progress(now)
    }

    pub fn stats(&self) -> WorkQueueStats {
        let state = self.state.lock();
        WorkQueueStats {
            depth: state.dedup.n_dirty(),
            adds_total: state.adds_total,
            retries_total: self.retries_total.load(Ordering::Relaxed),
        }
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    /// True if a free worker may have to be called after a change: to take a key, or to end, once
    /// the queue shuts down.
    fn must_call(&self) -> bool {
        self.shutting_down || self.dedup.is_ready()
    }
}

#[cfg(test)]
mod tests;
