//! The batches of all ReplicaSets on one pool of threads, so that none waits for another one's to end.
//!
//! The worker whose sync asks for batches does their jobs itself, one after the other, and calls threads
//! of the pool to help. How many may help depends on how many workers have batches: all share the pool
//! evenly, and a helper that is one too many goes home after the job in hand. So a ReplicaSet that
//! wants one pod sends its request at once, on its own worker's thread, however many thousands another
//! one creates.
//!
//! A helper stays from one batch of a slow start to the next. A thread that goes home looks for other
//! work first, again and again before it sleeps, which took as much of the processor as TLS does.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use rayon::{Scope, ThreadPool};

use super::slow_start::BatchRunner;

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
    fn run(&self, sizes: &mut dyn FnMut() -> usize, job: &(dyn Fn(usize) + Sync)) {
        // A single job is for the worker alone.
        let mut size = sizes();
        let mut done = 0;
        while size == 1 {
            job(done);
            done += 1;
            size = sizes();
        }
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
        let shared = Shared::new(&batches);
        self.pool.in_place_scope(|scope| {
            // Dropped in here, since the scope ends when the helpers have gone home.
            let _shared = shared;
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
            if self.is_one_too_many() {
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
            if self.is_one_too_many() {
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
struct Shared<'a>(&'a Batches<'a>);

impl<'a> Shared<'a> {
    fn new(batches: &'a Batches<'a>) -> Self {
        batches.pool.n_sharers.fetch_add(1, Ordering::Relaxed);
        Self(batches)
    }
}

impl Drop for Shared<'_> {
    fn drop(&mut self) {
        self.0.pool.n_sharers.fetch_sub(1, Ordering::Relaxed);
        self.0.is_over.store(true, Ordering::Relaxed);
        self.0.pool.tell();
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

    /// The sizes of some batches.
    fn of(sizes: &[usize]) -> impl FnMut() -> usize + '_ {
        let mut sizes = sizes.iter().copied();
        move || sizes.next().unwrap_or(0)
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
    fn every_job_of_every_batch_runs_once() {
        let counts: Vec<AtomicUsize> = (0..1000).map(|_| AtomicUsize::new(0)).collect();
        pool(4).run(&mut of(&[1, 2, 4, 8, 485, 1, 499]), &|index| {
            counts[index].fetch_add(1, Ordering::Relaxed);
        });
        assert!(counts.into_iter().all(|count| count.into_inner() == 1));
    }

    #[test]
    fn a_batch_alone_has_as_many_jobs_at_once_as_the_pool_has_threads() {
        let barrier = Barrier::new(4);
        pool(4).run(&mut of(&[8]), &|_| {
            barrier.wait();
        });
    }

    #[test]
    fn a_single_job_waits_for_no_thread() {
        let (pool, gate) = (pool(1), Gate::default());
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| pool.run(&mut of(&[10]), &|_| gate.pass()));
            }
            yield_until(|| gate.n_running() >= 3);
            let here = thread::current().id();
            pool.run(&mut of(&[1]), &|index| {
                assert_eq!((index, thread::current().id()), (0, here));
            });
            gate.allow(1000);
        });
    }

    #[test]
    fn batches_share_the_threads_evenly_as_they_come_and_go() {
        let (pool, first, second) = (pool(8), Gate::default(), Gate::default());
        thread::scope(|scope| {
            scope.spawn(|| pool.run(&mut of(&[1000]), &|_| first.pass()));
            yield_until(|| first.n_running() == 8);
            scope.spawn(|| pool.run(&mut of(&[8]), &|_| second.pass()));
            yield_until(|| second.n_running() >= 1);
            // Each that ends lets a helper go home, until both have their half.
            first.allow(20);
            yield_until(|| first.n_running() == 4 && second.n_running() == 4);
            second.allow(8);
            yield_until(|| second.ended.load(Ordering::SeqCst) == 8);
            yield_until(|| pool.n_sharers.load(Ordering::SeqCst) == 1);
            first.allow(1);
            yield_until(|| first.n_running() == 8);
            first.allow(1000);
        });
    }

    #[test]
    fn a_batch_begins_when_the_one_before_it_is_done() {
        let done = AtomicUsize::new(0);
        let mut begun = [0, 2, 7, 27, 30].into_iter();
        let mut sizes = of(&[2, 5, 20, 3]);
        let mut check = || {
            assert_eq!(Some(done.load(Ordering::SeqCst)), begun.next());
            sizes()
        };
        pool(4).run(&mut check, &|_| {
            thread::yield_now();
            done.fetch_add(1, Ordering::SeqCst);
        });
        assert_eq!(begun.next(), None);
    }

    #[test]
    fn who_waits_for_the_next_batch_goes_where_threads_are_wanted() {
        let (pool, first, second) = (pool(8), Gate::default(), Gate::default());
        thread::scope(|scope| {
            scope.spawn(|| pool.run(&mut of(&[8, 8]), &|_| first.pass()));
            yield_until(|| first.n_running() == 8);
            // Seven helpers wait for the last job of their batch.
            first.allow(7);
            yield_until(|| first.n_running() == 1);
            scope.spawn(|| pool.run(&mut of(&[4]), &|_| second.pass()));
            yield_until(|| second.n_running() == 4);
            first.allow(100);
            second.allow(100);
        });
    }

    #[test]
    fn a_job_that_panics_ends_its_batch_and_leaves_the_pool_usable() {
        let (pool, n_done) = (pool(2), AtomicUsize::new(0));
        let broken = std::panic::AssertUnwindSafe(|| {
            pool.run(&mut of(&[1, 3, 9]), &|index| {
                assert_ne!(index, 2, "broken");
                n_done.fetch_add(1, Ordering::SeqCst);
            });
        });
        std::panic::catch_unwind(broken).expect_err("the panic arrives");
        assert!(n_done.into_inner() <= 3, "the next batch began");
        assert_eq!(pool.n_sharers.load(Ordering::Relaxed), 0);
        every_job_of_every_batch_runs_once();
    }
}
