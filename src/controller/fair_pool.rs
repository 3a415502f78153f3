//! The batches of all ReplicaSets on one pool of threads, so that none waits for another one's to end.
//!
//! The worker whose sync asks for a batch does its jobs itself, one after the other, and calls threads
//! of the pool to help. How many may help depends on how many batches there are: all share the pool
//! evenly, and a helper that is one too many goes home after the job in hand. So a ReplicaSet that
//! wants one pod sends its request at once, on its own worker's thread, however many thousands another
//! one creates.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::{Scope, ThreadPool};

use super::slow_start::BatchRunner;

/// The private pool of `batch-*` threads. Its jobs block on HTTP, so it is sized for the concurrency
/// that the API server should see, not for the processor.
#[derive(Debug)]
pub struct FairPool {
    pool: ThreadPool,
    /// Batches of more than one job that are being run.
    n_batches: AtomicUsize,
}

impl FairPool {
    /// Shares `pool` among batches.
    pub fn new(pool: ThreadPool) -> Self {
        Self {
            pool,
            n_batches: AtomicUsize::new(0),
        }
    }

    /// Threads of the pool that may help one batch: as many jobs run at once, the worker's own
    /// included, as the batch's share of the pool has threads.
    fn n_helpers_max(&self) -> usize {
        let n_batches = self.n_batches.load(Ordering::Relaxed).max(1);
        (self.pool.current_num_threads() / n_batches).saturating_sub(1)
    }
}

impl BatchRunner for FairPool {
    /// Blocks until the last job is done, and for a helper that was called and finds nothing left to
    /// do until a thread is free to see that.
    fn run(&self, indices: Range<usize>, job: &(dyn Fn(usize) + Sync)) {
        if indices.len() <= 1 {
            return indices.for_each(job);
        }
        let counted = Counted::new(&self.n_batches);
        let batch = Batch {
            pool: self,
            next: AtomicUsize::new(indices.start),
            end: indices.end,
            n_helpers: AtomicUsize::new(0),
            job,
        };
        self.pool.in_place_scope(|scope| batch.work(scope));
        drop(counted);
    }
}

/// One batch while it runs.
struct Batch<'a> {
    pool: &'a FairPool,
    /// The next index to be taken; at `end` or beyond it none is left.
    next: AtomicUsize,
    end: usize,
    /// Threads of the pool that were called and have not left.
    n_helpers: AtomicUsize,
    job: &'a (dyn Fn(usize) + Sync),
}

impl Batch<'_> {
    /// What the worker does: every job that no helper takes.
    fn work<'scope>(&'scope self, scope: &Scope<'scope>) {
        loop {
            self.call_helpers(scope);
            let Some(index) = self.take() else { return };
            (self.job)(index);
        }
    }

    fn help<'scope>(&'scope self, scope: &Scope<'scope>) {
        while let Some(index) = self.take() {
            (self.job)(index);
            if self.is_one_too_many() {
                return;
            }
            self.call_helpers(scope);
        }
        self.n_helpers.fetch_sub(1, Ordering::Relaxed);
    }

    fn take(&self) -> Option<usize> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        (index < self.end).then_some(index)
    }

    /// Calls as many as may help and have something to do: more when another batch has ended.
    fn call_helpers<'scope>(&'scope self, scope: &Scope<'scope>) {
        loop {
            let n_left = self.end.saturating_sub(self.next.load(Ordering::Relaxed));
            // One job is for the thread that calls.
            let n_useful = n_left.saturating_sub(1).min(self.pool.n_helpers_max());
            let one_more = |n_helpers| (n_helpers < n_useful).then_some(n_helpers + 1);
            if !update(&self.n_helpers, one_more) {
                return;
            }
            scope.spawn(|scope| self.help(scope));
        }
    }

    /// True if the helper that asks has to leave; then it is not counted any more.
    fn is_one_too_many(&self) -> bool {
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

/// Counts one batch for as long as it lives, a panic included.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(number: &'a AtomicUsize) -> Self {
        number.fetch_add(1, Ordering::Relaxed);
        Self(number)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::{BatchRunner, FairPool};

    fn pool(n_threads: usize) -> FairPool {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads);
        FairPool::new(pool.build().expect("a pool"))
    }

    /// Jobs that end one by one, when the test lets them.
    #[derive(Default)]
    struct Gate {
        begun: AtomicUsize,
        ended: AtomicUsize,
        allowed: AtomicUsize,
    }

    impl Gate {
        fn pass(&self) {
            let number = self.begun.fetch_add(1, Ordering::SeqCst);
            yield_until(|| self.allowed.load(Ordering::SeqCst) > number);
            self.ended.fetch_add(1, Ordering::SeqCst);
        }

        fn n_running(&self) -> usize {
            let ended = self.ended.load(Ordering::SeqCst);
            self.begun.load(Ordering::SeqCst) - ended
        }

        fn allow(&self, n_more: usize) {
            self.allowed.fetch_add(n_more, Ordering::SeqCst);
        }
    }

    fn yield_until(reached: impl Fn() -> bool) {
        while !reached() {
            thread::yield_now();
        }
    }

    #[test]
    fn every_job_of_a_batch_runs_once() {
        let counts: Vec<AtomicUsize> = (0..1000).map(|_| AtomicUsize::new(0)).collect();
        pool(4).run(3..1000, &|index| {
            counts[index].fetch_add(1, Ordering::Relaxed);
        });
        let counts: Vec<usize> = counts.into_iter().map(AtomicUsize::into_inner).collect();
        assert_eq!(counts[..3], [0, 0, 0]);
        assert!(counts[3..].iter().all(|count| *count == 1));
    }

    #[test]
    fn a_batch_alone_has_as_many_jobs_at_once_as_the_pool_has_threads() {
        let barrier = Barrier::new(4);
        pool(4).run(0..8, &|_| {
            barrier.wait();
        });
    }

    #[test]
    fn a_single_job_waits_for_no_thread() {
        let (pool, gate) = (pool(1), Gate::default());
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| pool.run(0..10, &|_| gate.pass()));
            }
            yield_until(|| gate.n_running() >= 3);
            let here = thread::current().id();
            pool.run(7..8, &|index| {
                assert_eq!((index, thread::current().id()), (7, here));
            });
            gate.allow(1000);
        });
    }

    #[test]
    fn batches_share_the_threads_evenly_as_they_come_and_go() {
        let (pool, first, second) = (pool(8), Gate::default(), Gate::default());
        thread::scope(|scope| {
            scope.spawn(|| pool.run(0..1000, &|_| first.pass()));
            yield_until(|| first.n_running() == 8);
            scope.spawn(|| pool.run(0..8, &|_| second.pass()));
            yield_until(|| second.n_running() >= 1);
            // Each that ends lets a helper go home, until both have their half.
            first.allow(20);
            yield_until(|| first.n_running() == 4 && second.n_running() == 4);
            second.allow(8);
            yield_until(|| second.ended.load(Ordering::SeqCst) == 8);
            yield_until(|| pool.n_batches.load(Ordering::SeqCst) == 1);
            first.allow(1);
            yield_until(|| first.n_running() == 8);
            first.allow(1000);
        });
    }

    #[test]
    fn a_job_that_panics_ends_its_batch_and_leaves_the_pool_usable() {
        let pool = pool(2);
        let broken = std::panic::AssertUnwindSafe(|| {
            pool.run(0..4, &|index| assert_ne!(index, 2, "broken"));
        });
        std::panic::catch_unwind(broken).expect_err("the panic arrives");
        assert_eq!(pool.n_batches.load(Ordering::Relaxed), 0);
        every_job_of_a_batch_runs_once();
    }
}
