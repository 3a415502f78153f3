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
//! Three, never held together: [`queue`] guards the waiting and processed keys, [`delaying`] the
//! delayed ones, and apart from them the failures. Every thread that adds or gets a key takes them,
//! and so do `http-N` and `systemd` for the figures.

pub mod dedup;
pub mod delaying;
pub mod queue;

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use delaying::{Delayed, RateLimiter};
use queue::Queue;

use self::dedup::{Lane, Tenant};
use crate::stdx::HashMap;
use crate::stdx::clock::Clock;
use crate::telemetry::metrics::rest_client::WorkQueueMetrics;

pub use dedup::{InProgress, Priority};

/// A practically endless delay. Longer delays are cut to it, so that the clock does not overflow.
const FOREVER: Duration = Duration::from_hours(24 * 365);

/// A rate-limiting, delaying, deduplicating queue
/// (client-go `util/workqueue:TypedRateLimitingInterface`). Shared by `Arc`.
pub struct WorkQueue<K: Clone + Eq + Hash + Send> {
    queue: Queue<K>,
    delayed: Delayed<K>,
    rate_limiter: RateLimiter<K>,
    clock: Arc<dyn Clock>,
    retries_total: AtomicU64,
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
            queue: Queue::new(Arc::clone(&clock)),
            delayed: Delayed::default(),
            rate_limiter: RateLimiter::new(Arc::clone(&clock)),
            clock,
            retries_total: AtomicU64::new(0),
        }
    }

    #[must_use]
    pub fn with_metrics(mut self, metrics: WorkQueueMetrics) -> Self {
        self.queue.set_metrics(metrics);
        self
    }

    /// Returns this queue, which must be empty, with its keys in turns by tenant, and with
    /// `n_workers` shared among the tenants: see [`dedup::Dedup`].
    #[must_use]
    pub fn with_tenants(mut self, n_workers: usize, tenant_of: fn(&K) -> Tenant) -> Self {
        self.queue.set_tenants(n_workers, tenant_of);
        self.rate_limiter.set_tenants(tenant_of);
        self
    }

    /// Queues `key` now with high priority, unless it waits so already. Never blocks. Ignored after
    /// shutdown.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the queue keeps the key, as with a delay"
    )]
    pub fn add(&self, key: K) {
        self.queue.add(&key, Priority::High);
    }

    /// Queues `key` with high priority after `delay`, or at an earlier time requested by another
    /// add. Never blocks. Ignored after shutdown.
    pub fn add_after(&self, key: K, delay: Duration) {
        if !self.queue.is_shutting_down() {
            self.retries_total.fetch_add(1, Ordering::Relaxed);
        }
        self.add_at(key, Priority::High, delay);
    }

    /// Queues `key` with this priority after `delay`. The earliest time and the highest priority of
    /// all adds count. Never blocks. Ignored after shutdown. With low priority, or without a delay,
    /// it does not count as a retry.
    pub fn add_with(&self, key: K, priority: Priority, delay: Duration) {
        if priority == Priority::High && !delay.is_zero() {
            self.add_after(key, delay);
        } else {
            self.add_at(key, priority, delay);
        }
    }

    fn add_at(&self, key: K, priority: Priority, delay: Duration) {
        if self.queue.is_shutting_down() {
            return;
        }
        if delay.is_zero() {
            return self.queue.add(&key, priority);
        }
        let due = self.clock.now() + delay.min(FOREVER);
        self.delayed.add(key, due, priority);
    }

    /// Queues `key` when the rate limiter permits, and counts a failure of `key`. Never blocks.
    /// Ignored after shutdown. Returns the delay.
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
        self.queue.get()
    }

    /// Returns the next key if there is one. Never blocks.
    pub fn try_get(&self) -> Option<K> {
        self.queue.try_get()
    }

    /// Asks for a permit for large work on `key`, which is in progress. Returns false if none is
    /// free: half of the workers are left for small work. The key is then queued again once it can
    /// have a permit. [`WorkQueue::done`] returns it.
    pub fn begin_large(&self, key: &K) -> bool {
        self.queue.begin_large(key)
    }

    /// Ends the work on `key`, and queues it again if it was added meanwhile. Never blocks. A
    /// worker must look for its next key afterwards.
    pub fn done(&self, key: &K) {
        self.queue.done(key);
    }

    /// Number of keys that wait for a worker, without keys in progress and delayed keys.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Ignores all further adds, drops the delayed keys, ends [`WorkQueue::run_delay`] and wakes
    /// every worker. Workers still get the keys queued before. Never blocks.
    pub fn shut_down(&self) {
        self.queue.shut_down();
        self.delayed.clear();
    }

    pub fn is_shutting_down(&self) -> bool {
        self.queue.is_shutting_down()
    }

    pub fn advance(&self, now: Instant) -> usize {
        let due = self.delayed.due(now);
        let n_due = due.len();
        for (key, priority) in due {
            self.queue.add(&key, priority);
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
        let (is_waiting, is_processing) = self.queue.state_of(key);
        let due_in = |at: Instant| at.saturating_duration_since(self.clock.now());
        KeyState {
            is_waiting,
            is_processing,
            due_in: self.delayed.deadline_of(key).map(due_in),
            n_failures: self.num_requeues(key),
        }
    }

    /// Returns the wait of the longest-waiting key, without waits for a delay or a permit; zero
    /// without one.
    pub fn longest_wait(&self) -> Duration {
        self.queue.longest_wait()
    }

    /// Records that the work on `key`, which is in progress, continues: call it after each of many
    /// requests, so that work is not taken for stuck because it is much.
    pub fn progressed(&self, key: &K) {
        self.queue.progressed(key);
    }

    /// Returns how long the workers have processed their current keys.
    pub fn in_progress(&self) -> InProgress {
        self.queue.in_progress()
    }

    pub fn stats(&self) -> WorkQueueStats {
        let (depth, adds_total) = self.queue.depth_and_adds();
        WorkQueueStats {
            depth,
            adds_total,
            retries_total: self.retries_total.load(Ordering::Relaxed),
        }
    }
}

/// A permit for each two workers. One tenant gets one permit less, if there are two, so that
/// its small work finds a worker within its share.
///
/// A key that asks in vain waits here until the queue hands it out again: its place survives other
/// work on the key in the meantime. Tenants take turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permits<K: Eq + Hash> {
    total: usize,
    holders: HashMap<K, Tenant>,
    waiting: Lane<K>,
    /// The keys of `waiting`.
    asked: HashMap<K, Asked>,
    last_number: u64,
}

/// A key that asked in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    tenant: Tenant,
    /// Its number in the lane.
    number: u64,
    /// The worker that asked still processes the key.
    is_processing: bool,
}

impl<K: Clone + Eq + Hash> Permits<K> {
    /// Creates the permits of this number of workers.
    pub fn new(n_workers: usize) -> Self {
        Self {
            total: n_workers.div_ceil(2),
            holders: HashMap::default(),
            waiting: Lane::default(),
            asked: HashMap::default(),
            last_number: 0,
        }
    }

    /// Gives `key` a permit until [`end`](Self::end). If none is free, or if the key has not waited
    /// yet and `others_wait`, it waits.
    pub fn take(&mut self, key: &K, tenant: Tenant, others_wait: bool) -> bool {
        self.last_number += 1;
        if !self.is_free(tenant) || others_wait && !self.is_asked_for(key) {
            let number = self.last_number;
            let asked = self.asked.entry(key.clone()).or_insert_with(|| {
                self.waiting.push(tenant, number, key.clone());
                Asked {
                    tenant,
                    number,
                    is_processing: true,
                }
            });
            asked.is_processing = true;
            return false;
        }
        if let Some(asked) = self.asked.remove(key) {
            self.waiting.remove(tenant, asked.number);
        }
        self.waiting.end_turn(tenant, self.last_number);
        self.holders.insert(key.clone(), tenant);
        true
    }

    /// Ends the work on `key`. It keeps waiting for the permit only if it asked for one in this
    /// work.
    pub fn end(&mut self, key: &K) {
        self.holders.remove(key);
        match self.asked.get_mut(key) {
            Some(asked) if asked.is_processing => asked.is_processing = false,
            Some(_) => {
                if let Some(asked) = self.asked.remove(key) {
                    self.waiting.remove(asked.tenant, asked.number);
                }
            }
            None => {}
        }
    }

    pub fn next(&self, may_take: impl Fn(Tenant, &K) -> bool) -> Option<(Tenant, &K)> {
        let next = |tenant, key: &K| self.is_free(tenant) && may_take(tenant, key);
        let (tenant, _, key) = self.waiting.first(next)?;
        Some((tenant, key))
    }

    /// True if `tenant` may have another permit.
    fn is_free(&self, tenant: Tenant) -> bool {
        let n_most = self.total.saturating_sub(1).max(1);
        self.holders.len() < self.total && self.n_held_by(tenant) < n_most
    }

    /// Number of permits that `tenant` has.
    pub fn n_held_by(&self, tenant: Tenant) -> usize {
        self.holders.values().filter(|it| **it == tenant).count()
    }

    pub fn has(&self, key: &K) -> bool {
        self.holders.contains_key(key)
    }

    /// True if `key` waits for a permit.
    pub fn is_asked_for(&self, key: &K) -> bool {
        self.asked.contains_key(key)
    }

    /// The keys that wait for a permit, in any order.
    pub fn waiting(&self) -> impl Iterator<Item = &K> {
        self.asked.keys()
    }
}

#[cfg(test)]
impl<K: Clone + Ord + Hash> Permits<K> {
    /// The whole state without numbers, for models that compare it.
    fn identity(&self) -> impl Eq + Hash + use<K> {
        let mut holders: Vec<_> = self.holders.keys().cloned().collect();
        holders.sort_unstable();
        let asked = self.asked.iter();
        let mut asked: Vec<_> = asked
            .map(|(key, it)| (key.clone(), it.is_processing))
            .collect();
        asked.sort_unstable();
        (holders, asked, self.waiting.identity())
    }
}

#[cfg(test)]
mod tests;
