//! The batches of all ReplicaSets on one pool of threads, so that none waits for another one's to end.
//!
//! The worker whose sync asks for batches does their jobs itself, one after the other, and calls threads
//! of the pool to help. How many may help depends on how many workers have batches: all share the pool
//! evenly, and a helper that is one too many goes home after the job in hand. So a ReplicaSet that
//! wants one pod sends its request at once, on its own worker's thread, however many thousands another
//! one creates.
//!
//! A helper stays from one batch of a slow start to the next. A thread that goes home looks for other
//! work first, again and again before it sleeps, which takes as much of the processor as TLS does.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use rayon::{Scope, ThreadPool};

use super::runner::{BatchRunner, run_single_jobs};

/// The private pool of `batch-*` threads. Its jobs block on HTTP, so it is sized for the concurrency
/// that the API server should see, not for the processor.
#[derive(Debug)]
pub struct FairPool {
    pool: ThreadPool,
    /// Workers that have batches with more than one job.
    n_sharers: AtomicUsize,
    turn: Mutex<()>,
    /// A batch begins, is done or was the last one, or more threads are wanted elsewhere.
    turned: Condvar,
}

impl FairPool {
    /// Shares `pool` among batches.
    pub fn new(pool: ThreadPool) -> Self {
        Self {
            pool,
            n_sharers: AtomicUsize::new(0),
            turn: Mutex::new(()),
            turned: Condvar::new(),
        }
    }

    /// Threads of the pool that may help one worker: as many of its jobs run at once, its own
    /// included, as its share of the pool has threads.
    fn n_helpers_max(&self) -> usize {
        let n_sharers = self.n_sharers.load(Ordering::Relaxed).max(1);
        (self.pool.current_num_threads() / n_sharers).saturating_sub(1)
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has everyone who waits look again.
    fn tell(&self) {
        // ORDER: who has looked and does not wait yet holds the lock, and would miss it.
        drop(self.lock());
        self.turned.notify_all();
    }
}

impl BatchRunner for FairPool {
    /// Blocks until the last job is done, and for a helper that was called and finds nothing left to
    /// do until a thread is free to see that.
    fn run(&self, _count: usize, sizes: &mut dyn FnMut() -> usize, job: &(dyn Fn(usize) + Sync)) {
        let (done, size) = run_single_jobs(sizes, job);
        if size == 0 {
            return;
        }
        let batches = Batches {
            pool: self,
            next: AtomicUsize::new(done),
            end: AtomicUsize::new(done),
            n_unfinished: AtomicUsize::new(0),
            n_helpers: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            job,
        };
        let sharer = Sharer::new(&batches);
        self.pool.in_place_scope(|scope| {
            // Dropped in here, since the scope ends when the helpers have gone home.
            let _sharer = sharer;
            batches.work(scope, size, sizes);
        });
    }
}

/// The batches of one worker, one after the other.
struct Batches<'a> {
    pool: &'a FairPool,
    /// The next index to be taken; at `end` none is left.
    next: AtomicUsize,
    /// Where the batch that runs ends.
    end: AtomicUsize,
    /// Jobs of the batch that runs which are not done.
    n_unfinished: AtomicUsize,
    /// Threads of the pool that were called and have not left.
    n_helpers: AtomicUsize,
    /// No more batches follow.
    is_over: AtomicBool,
    job: &'a (dyn Fn(usize) + Sync),
}

impl Batches<'_> {
    /// What the worker does: every job that no helper takes, and between two batches what there is to
    /// decide.
    fn work<'scope>(
        &'scope self,
        scope: &Scope<'scope>,
        first: usize,
        sizes: &mut dyn FnMut() -> usize,
    ) {
        let mut size = first;
        while size > 0 {
            // ORDER: whoever takes an index has seen the new end, and so counts down from this number.
            self.n_unfinished.store(size, Ordering::Relaxed);
            self.end.fetch_add(size, Ordering::Release);
            self.pool.tell();
            self.call_helpers(scope, size);
            while let Some(index) = self.take() {
                self.do_job(index);
                self.call_helpers(scope, self.n_left());
            }
            self.wait_until_done();
            // A job that panicked ends it all; the scope has the panic.
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            size = sizes();
        }
    }

    fn help<'scope>(&'scope self, scope: &Scope<'scope>) {
        while let Some(index) = self.wait_for_job() {
            self.do_job(index);
            if self.left_as_one_too_many() {
                return;
            }
            self.call_helpers(scope, self.n_left());
        }
    }

    fn do_job(&self, index: usize) {
        let finished = Finished(self);
        (self.job)(index);
        drop(finished);
    }

    fn take(&self) -> Option<usize> {
        let end = self.end.load(Ordering::Acquire);
        let taken = |next| (next < end).then_some(next + 1);
        self.next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken)
            .ok()
    }

    /// Blocks a helper until there is a job for it; `None` if it has to leave, and then it is not
    /// counted any more.
    fn wait_for_job(&self) -> Option<usize> {
        // Most find one, and so without the lock that all share.
        if let Some(index) = self.take() {
            return Some(index);
        }
        let mut turn = self.pool.lock();
        loop {
            if let Some(index) = self.take() {
                return Some(index);
            }
            if self.is_over.load(Ordering::Relaxed) {
                self.n_helpers.fetch_sub(1, Ordering::Relaxed);
                return None;
            }
            if self.left_as_one_too_many() {
                return None;
            }
            let waited = self.pool.turned.wait(turn);
            turn = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Blocks the worker until the batch is done.
    fn wait_until_done(&self) {
        let mut turn = self.pool.lock();
        while self.n_unfinished.load(Ordering::Acquire) > 0 {
            let waited = self.pool.turned.wait(turn);
            turn = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn n_left(&self) -> usize {
        let end = self.end.load(Ordering::Relaxed);
        end.saturating_sub(self.next.load(Ordering::Relaxed))
    }

    /// Calls as many as may help and have something to do: more when another worker's batches are over.
    fn call_helpers<'scope>(&'scope self, scope: &Scope<'scope>, n_left: usize) {
        loop {
            // One job is for the thread that calls.
            let n_useful = n_left.saturating_sub(1).min(self.pool.n_helpers_max());
            let one_more = |n_helpers| (n_helpers < n_useful).then_some(n_helpers + 1);
            if !update(&self.n_helpers, one_more) {
                return;
            }
            scope.spawn(|scope| self.help(scope));
        }
    }

    /// Takes the helper that asks out of the count if there is one too many; then it has to go.
    fn left_as_one_too_many(&self) -> bool {
        let n_helpers_max = self.pool.n_helpers_max();
        update(&self.n_helpers, |n_helpers| {
            (n_helpers > n_helpers_max).then(|| n_helpers - 1)
        })
    }
}

/// Whether the number was changed.
fn update(number: &AtomicUsize, change: impl FnMut(usize) -> Option<usize>) -> bool {
    number
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, change)
        .is_ok()
}

/// Counts a job as finished when it is dropped, a panic included.
struct Finished<'a>(&'a Batches<'a>);

impl Drop for Finished<'_> {
    fn drop(&mut self) {
        let batches = self.0;
        if thread::panicking() {
            batches.is_over.store(true, Ordering::Relaxed);
        }
        if batches.n_unfinished.fetch_sub(1, Ordering::AcqRel) == 1 {
            batches.pool.tell();
        }
    }
}

/// Counts a worker with batches for as long as it has them, a panic included.
struct Sharer<'a>(&'a Batches<'a>);

impl<'a> Sharer<'a> {
    fn new(batches: &'a Batches<'a>) -> Self {
        batches.pool.n_sharers.fetch_add(1, Ordering::Relaxed);
        Self(batches)
    }
}

impl Drop for Sharer<'_> {
    fn drop(&mut self) {
        self.0.pool.n_sharers.fetch_sub(1, Ordering::Relaxed);
        self.0.is_over.store(true, Ordering::Relaxed);
        self.0.pool.tell();
    }
}

#[cfg(test)]
mod tests;
