//! The queue proper: the keys and their order under a lock, and a crossbeam channel that calls
//! workers.
//!
//! Watch threads, `delay` and the `sync-*` threads add keys. The `sync-*` threads get keys and mark
//! them done.

#[cfg(test)]
mod interleaving_tests;

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use parking_lot::Mutex;

use super::dedup::{Dedup, InProgress, Priority, Tenant};
use crate::stdx::clock::Clock;
use crate::stdx::turns;
use crate::stdx::turns::{Spot, Waited};
use crate::telemetry::metrics::rest_client::WorkQueueMetrics;

/// Hands out keys by priority, high before low (except as `dedup::TURN` says), the tenants in turn
/// within a priority, and first in, first out within a tenant. A key added again before a worker
/// gets it is handed out once. A key added while a worker processes it is handed out again after
/// [`Queue::done`]. No two workers ever process the same key (client-go
/// `util/workqueue/queue.go:Typed`).
///
/// INVARIANT: while a free worker may take a key, the channel holds a call, or a thread is about to
/// send one or to look for a key. A worker looks before it waits for
/// a call, and passes the call on if it leaves a key that another may take. So one call suffices
/// for any number of keys.
pub struct Queue<K: Eq + Hash> {
    /// Calls a worker. Of capacity 1: another call has no further effect while it is full.
    bell: (Sender<()>, Receiver<()>),
    spot: Spot,
    state: Mutex<State<K>>,
    clock: Arc<dyn Clock>,
    tenant_of: fn(&K) -> Tenant,
    /// `None` without metrics.
    metrics: Option<WorkQueueMetrics>,
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

impl<K: Clone + Eq + Hash> Queue<K> {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            bell: crossbeam_channel::bounded(1),
            spot: Spot::default(),
            state: Mutex::new(State {
                dedup: Dedup::new(usize::MAX),
                shutting_down: false,
                adds_total: 0,
            }),
            clock,
            tenant_of: |_| 0,
            metrics: None,
        }
    }

    pub fn set_metrics(&mut self, metrics: WorkQueueMetrics) {
        self.metrics = Some(metrics);
    }

    /// Shares this number of workers among tenants. The queue must be empty.
    pub fn set_tenants(&mut self, n_workers: usize, tenant_of: fn(&K) -> Tenant) {
        self.tenant_of = tenant_of;
        self.state.lock().dedup = Dedup::new(n_workers);
    }

    /// Marks `key` dirty with this priority. An add with a higher priority raises a waiting key.
    /// Never blocks. Ignored after shutdown.
    pub fn add(&self, key: &K, priority: Priority) {
        if self.accept(key, priority) {
            self.call();
        }
    }

    /// The part of [`Queue::add`] under the lock. As the other parts, it returns whether to call a
    /// worker after the release of the lock.
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

    /// Returns the next key. The caller must call [`Queue::done`] afterwards, whatever the result
    /// of the work.
    ///
    /// Blocks until there is a key. After shutdown, returns the accepted keys, and then `None`.
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

    /// Ends the work on `key`, and queues it again if it was added meanwhile. Never blocks. Workers
    /// look for their next key afterwards.
    pub fn done(&self, key: &K) {
        if self.end(key) {
            self.call();
        }
    }

    /// The part of [`Queue::done`] under the lock.
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

    /// Number of keys that wait for a worker, without keys in progress.
    pub fn len(&self) -> usize {
        self.state.lock().dedup.n_waiting()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ignores all further adds and wakes every worker. Workers still get the keys accepted before.
    /// Never blocks.
    pub fn shut_down(&self) {
        self.state.lock().shutting_down = true;
        self.call();
    }

    pub fn is_shutting_down(&self) -> bool {
        self.state.lock().shutting_down
    }

    /// Returns whether `key` waits for a worker or a permit, and whether a worker processes it.
    pub fn state_of(&self, key: &K) -> (bool, bool) {
        let dedup = &self.state.lock().dedup;
        let waits = dedup.is_dirty(key) || dedup.waits_for_permit(key);
        (waits, dedup.is_processing(key))
    }

    /// Returns the number of keys that wait or will when their current worker is done,
    /// and of the adds so far that did not coalesce with an earlier one.
    pub fn depth_and_adds(&self) -> (usize, u64) {
        let state = self.state.lock();
        (state.dedup.n_dirty(), state.adds_total)
    }

    /// Returns the wait of the longest-waiting key; zero without one. Waits for a permit do not
    /// count.
    pub fn longest_wait(&self) -> Duration {
        let now = self.clock.now();
        self.state.lock().dedup.longest_wait(now)
    }

    /// Returns true if the work on `key`, which is in progress, may be large. Otherwise the key is
    /// added again once it may. Never blocks.
    pub fn begin_large(&self, key: &K) -> bool {
        let (may, calls) = self.ask(key);
        if calls {
            self.call();
        }
        may
    }

    /// The part of [`Queue::begin_large`] under the lock.
    fn ask(&self, key: &K) -> (bool, bool) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let may = state.dedup.begin_large(key, now);
        (may, state.must_call())
    }

    /// Records that the work on `key`, which is in progress, continues.
    pub fn progressed(&self, key: &K) {
        let now = self.clock.now();
        self.state.lock().dedup.progressed(key, now);
    }

    /// Returns how long the workers have processed their current keys.
    pub fn in_progress(&self) -> InProgress {
        let now = self.clock.now();
        self.state.lock().dedup.in_progress(now)
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    /// True if a free worker may have to be called after a change: to take a key, or to end, once
    /// the queue shuts down.
    fn must_call(&self) -> bool {
        self.shutting_down || self.dedup.is_ready()
    }
}
