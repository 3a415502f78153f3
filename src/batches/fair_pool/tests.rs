//! Helpers: arrival, sharing and departure.

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
    pool(4).run(1000, &mut of(&[1, 2, 4, 8, 485, 1, 499]), &|index| {
        counts[index].fetch_add(1, Ordering::Relaxed);
    });
    assert!(counts.into_iter().all(|count| count.into_inner() == 1));
}

#[test]
fn a_single_batch_uses_every_thread_of_the_pool() {
    let barrier = Barrier::new(4);
    pool(4).run(8, &mut of(&[8]), &|_| {
        barrier.wait();
    });
}

#[test]
fn a_single_job_waits_for_no_thread() {
    let (pool, gate) = (pool(1), Gate::default());
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| pool.run(10, &mut of(&[10]), &|_| gate.pass()));
        }
        yield_until(|| gate.n_running() >= 3);
        let here = thread::current().id();
        pool.run(1, &mut of(&[1]), &|index| {
            assert_eq!((index, thread::current().id()), (0, here));
        });
        gate.allow(1000);
    });
}

/// A batch ends with its last job, whatever the threads of the pool wait for.
#[test]
fn a_batch_waits_for_no_thread() {
    let (pool, gate) = (pool(6), Gate::default());
    thread::scope(|scope| {
        // Two workers and all threads of the pool.
        for n_running in [6, 8] {
            scope.spawn(|| pool.run(20, &mut of(&[20]), &|_| gate.pass()));
            yield_until(|| gate.n_running() == n_running);
        }
        pool.run(10, &mut of(&[2, 8]), &|_| thread::yield_now());
        gate.allow(1000);
    });
}

#[test]
fn batches_share_the_threads_evenly_as_they_come_and_go() {
    let (pool, first, second) = (pool(8), Gate::default(), Gate::default());
    thread::scope(|scope| {
        scope.spawn(|| pool.run(1000, &mut of(&[1000]), &|_| first.pass()));
        yield_until(|| first.n_running() == 8);
        scope.spawn(|| pool.run(8, &mut of(&[8]), &|_| second.pass()));
        yield_until(|| second.n_running() >= 1);
        // Each finished job releases a helper, until both workers have their half.
        first.allow(20);
        yield_until(|| first.n_running() == 4);
        second.allow(1);
        yield_until(|| second.n_running() == 4);
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
    pool(4).run(30, &mut check, &|_| {
        thread::yield_now();
        done.fetch_add(1, Ordering::SeqCst);
    });
    assert_eq!(begun.next(), None);
}

#[test]
fn an_idle_helper_moves_to_another_batch() {
    let (pool, first, second) = (pool(8), Gate::default(), Gate::default());
    thread::scope(|scope| {
        scope.spawn(|| pool.run(16, &mut of(&[8, 8]), &|_| first.pass()));
        yield_until(|| first.n_running() == 8);
        // Seven helpers wait for the last job of their batch.
        first.allow(7);
        yield_until(|| first.n_running() == 1);
        scope.spawn(|| pool.run(4, &mut of(&[4]), &|_| second.pass()));
        yield_until(|| second.n_running() == 4);
        first.allow(100);
        second.allow(100);
    });
}

#[test]
fn a_job_that_panics_ends_its_batch_and_leaves_the_pool_usable() {
    let (pool, n_done) = (pool(2), AtomicUsize::new(0));
    let broken = std::panic::AssertUnwindSafe(|| {
        pool.run(13, &mut of(&[1, 3, 9]), &|index| {
            assert_ne!(index, 2, "broken");
            n_done.fetch_add(1, Ordering::SeqCst);
        });
    });
    std::panic::catch_unwind(broken).expect_err("the panic arrives");
    assert!(n_done.into_inner() <= 3, "the next batch began");
    assert_eq!(pool.n_sharers.load(Ordering::Relaxed), 0);
    yield_until(|| pool.n_seats.load(Ordering::SeqCst) == 2);
    every_job_of_every_batch_runs_once();
}
