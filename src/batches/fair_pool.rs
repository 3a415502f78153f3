//! Runs the batches of all ReplicaSets on one pool of threads, so that no batch waits for the end
//! of another.
//!
//! The worker with the batches runs its jobs itself, one after the other, and calls pool threads as
//! helpers. All workers with batches share the pool evenly, and surplus helpers leave after their
//! current job. So a ReplicaSet that needs one pod sends its request at once, on its own worker's
//! thread, however many thousands another ReplicaSet creates.
//!
//! A helper is called only onto a free thread, whose `Seat` it takes: a batch ends only when each
//! called helper has begun and left, so a helper that waited for a thread would tie the batch to
//! the jobs of others.
//!
//! A helper stays from one batch of a slow start to the next, without a seat. A pool thread without
//! a job searches for other work repeatedly before it sleeps, which costs as much processor time as
//! TLS does.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use rayon::{Scope, ThreadPool};

use super::runner::{BatchRunner, run_single_jobs};

/// The private pool of `batch-*` threads. Its jobs block on HTTP, so its size is the intended
/// concurrency at the API server, not the number of processors.
#[derive(Debug)]
pub struct FairPool {
    pool: ThreadPool,
    /// Number of workers with batches of more than one job.
    n_sharers: AtomicUsize,
    /// Seats that nobody has: the threads of the pool without those of helpers that have a job or
    /// were called and have not begun.
    n_seats: AtomicUsize,
    /// Helpers that occupy a thread without a seat while they wait for their next batch. Those
    /// beyond `n_seats` leave.
    n_waiting: Mutex<usize>,
    /// Signalled when a batch starts, ends or was the last, or when seats were taken.
    turned: Condvar,
}

impl FairPool {
    /// Creates a runner that shares `pool` among batches.
    pub fn new(pool: ThreadPool) -> Self {
        Self {
            n_seats: AtomicUsize::new(pool.current_num_threads()),
            pool,
            n_sharers: AtomicUsize::new(0),
            n_waiting: Mutex::new(0),
            turned: Condvar::new(),
        }
    }

    /// Maximum helpers of one worker: with its own thread, as many of its jobs run at once as its
    /// share of the pool has threads.
    fn n_helpers_max(&self) -> usize {
        let n_sharers = self.n_sharers.load(Ordering::Relaxed).max(1);
        (self.pool.current_num_threads() / n_sharers).saturating_sub(1)
    }

    /// Takes a seat if there is one. Never blocks.
    fn seat(&self) -> Option<Seat<'_>> {
        // Not `then_some`: a seat that is not taken must not be given back.
        update(&self.n_seats, |n_seats| n_seats.checked_sub(1)).then(|| Seat(self))
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.n_waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes every waiting thread to check its condition again.
    fn notify_waiters(&self) {
        // ORDER: a thread between its check and its wait holds the lock, and would miss the signal.
        drop(self.lock());
        self.turned.notify_all();
    }
}

impl BatchRunner for FairPool {
    /// Blocks until the last job has ended.
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
            // Dropped inside the scope: the scope ends only after the helpers have left.
            let _sharer = sharer;
            batches.work(scope, size, sizes);
        });
    }
}

/// The batches of one worker, one after the other.
struct Batches<'a> {
    pool: &'a FairPool,
    /// The next index to take; no job remains at `end`.
    next: AtomicUsize,
    /// The end of the current batch.
    end: AtomicUsize,
    /// Unfinished jobs of the current batch.
    n_unfinished: AtomicUsize,
    /// Helpers that were called and have not left.
    n_helpers: AtomicUsize,
    /// No more batches follow.
    is_over: AtomicBool,
    job: &'a (dyn Fn(usize) + Sync),
}

impl Batches<'_> {
    /// The worker's part: it runs every job that no helper takes, and computes the next batch.
    fn work<'scope>(
        &'scope self,
        scope: &Scope<'scope>,
        first: usize,
        sizes: &mut dyn FnMut() -> usize,
    ) {
        let mut size = first;
        while size > 0 {
            // ORDER: a thread that takes an index has seen the new end, so it counts down from this
            // number.
            self.n_unfinished.store(size, Ordering::Relaxed);
            self.end.fetch_add(size, Ordering::Release);
            self.pool.notify_waiters();
            self.call_helpers(scope, size);
            while let Some(index) = self.take() {
                self.do_job(index);
                self.call_helpers(scope, self.n_remaining());
            }
            self.wait_until_done();
            // A panic in a job ends the run; the scope resumes the panic.
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            size = sizes();
        }
    }

    fn help<'scope>(&'scope self, scope: &Scope<'scope>, mut seat: Seat<'scope>) {
        while let Some((index, kept)) = self.wait_for_job(seat) {
            seat = kept;
            self.do_job(index);
            if self.leave_if_surplus() {
                return;
            }
            self.call_helpers(scope, self.n_remaining());
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
            .try_update(Ordering::Relaxed, Ordering::Relaxed, taken)
            .ok()
    }

    /// Blocks a helper until it has a job and a seat. Returns `None` if the helper has to leave; it
    /// is then no longer counted.
    fn wait_for_job<'s>(&'s self, seat: Seat<'s>) -> Option<(usize, Seat<'s>)> {
        // Most helpers find a job here, without the shared lock.
        if let Some(index) = self.take() {
            return Some((index, seat));
        }
        drop(seat);
        let mut n_waiting = self.pool.lock();
        *n_waiting += 1;
        let job = loop {
            // ORDER: whoever takes a seat from here on finds this helper counted, and wakes it.
            let n_seats = self.pool.n_seats.load(Ordering::Relaxed);
            if self.is_over.load(Ordering::Relaxed) || *n_waiting > n_seats {
                break None;
            }
            if self.n_remaining() > 0
                && let Some(seat) = self.pool.seat()
                && let Some(index) = self.take()
            {
                break Some((index, seat));
            }
            let waited = self.pool.turned.wait(n_waiting);
            n_waiting = waited.unwrap_or_else(PoisonError::into_inner);
        };
        *n_waiting -= 1;
        if job.is_none() {
            self.n_helpers.fetch_sub(1, Ordering::Relaxed);
        }
        job
    }

    /// Blocks the worker until the batch has ended.
    fn wait_until_done(&self) {
        let mut guard = self.pool.lock();
        while self.n_unfinished.load(Ordering::Acquire) > 0 {
            let waited = self.pool.turned.wait(guard);
            guard = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn n_remaining(&self) -> usize {
        let end = self.end.load(Ordering::Relaxed);
        end.saturating_sub(self.next.load(Ordering::Relaxed))
    }

    /// Calls helpers up to the share of this worker, the number of open jobs and the free threads.
    /// The share grows when another worker's batches end.
    fn call_helpers<'scope>(&'scope self, scope: &Scope<'scope>, n_remaining: usize) {
        loop {
            // The calling thread takes one job itself.
            let n_useful = n_remaining.saturating_sub(1).min(self.pool.n_helpers_max());
            let one_more = |n_helpers| (n_helpers < n_useful).then_some(n_helpers + 1);
            if !update(&self.n_helpers, one_more) {
                return;
            }
            let Some(seat) = self.pool.seat() else {
                self.n_helpers.fetch_sub(1, Ordering::Relaxed);
                return;
            };
            // A helper that waits may have to leave the thread.
            self.pool.notify_waiters();
            scope.spawn(|scope| self.help(scope, seat));
        }
    }

    /// Discounts the calling helper if it is surplus. Returns true if it has to leave.
    fn leave_if_surplus(&self) -> bool {
        let n_helpers_max = self.pool.n_helpers_max();
        update(&self.n_helpers, |n_helpers| {
            (n_helpers > n_helpers_max).then(|| n_helpers - 1)
        })
    }
}

/// Returns true if the number changed.
fn update(number: &AtomicUsize, change: impl FnMut(usize) -> Option<usize>) -> bool {
    number
        .try_update(Ordering::Relaxed, Ordering::Relaxed, change)
        .is_ok()
}

/// The right to occupy a thread of the pool until dropped.
struct Seat<'a>(&'a FairPool);

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.n_seats.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts a job as finished when dropped, also after a panic.
struct Finished<'a>(&'a Batches<'a>);

impl Drop for Finished<'_> {
    fn drop(&mut self) {
        let batches = self.0;
        if thread::panicking() {
            batches.is_over.store(true, Ordering::Relaxed);
        }
        if batches.n_unfinished.fetch_sub(1, Ordering::AcqRel) == 1 {
            batches.pool.notify_waiters();
        }
    }
}

/// Counts a worker with batches until dropped, also after a panic.
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
        self.0.pool.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
