//! Which threads run which batch, and what no batch waits for.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rayon::ThreadPoolBuilder;

use super::{Arc, BatchRunner, FairPool, Jobs, LARGE, Mutex, Range, Stop, Thread, start};
use crate::batches::slow_start_batch;
use crate::stdx::thread::join_all;

/// Timeout of the test's waits.
const LONG: Duration = Duration::from_mins(2);

fn threads(n_threads: u16) -> (Arc<dyn BatchRunner>, Vec<Thread>) {
    start(n_threads, &Stop::new()).expect("threads")
}

#[track_caller]
fn check_ends(runner: Arc<dyn BatchRunner>, threads: Vec<Thread>) {
    drop(runner);
    assert_eq!(join_all(threads, Instant::now() + LONG), [""; 0]);
}

fn pool(n_threads: usize) -> FairPool {
    let pool = ThreadPoolBuilder::new().num_threads(n_threads);
    FairPool::new(pool.build().expect("a pool"))
}

/// Runs one batch.
fn run(runner: &dyn BatchRunner, tenant: u64, count: usize, job: impl Fn(usize) + Sync) {
    runner.run(Jobs { count, tenant }, 0..count, &job);
}

/// Runs batches of these sizes, one after the other.
fn run_batches(runner: &dyn BatchRunner, sizes: &[usize], job: impl Fn(usize) + Sync) {
    let count = sizes.iter().sum();
    let mut done = 0;
    for size in sizes {
        runner.run(Jobs { count, tenant: 0 }, done..done + size, &job);
        done += size;
    }
}

fn name() -> String {
    thread::current().name().unwrap_or_default().to_owned()
}

fn yield_until(reached: impl Fn() -> bool) {
    while !reached() {
        thread::yield_now();
    }
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

#[test]
fn every_job_of_every_batch_runs_once() {
    check_every_job(&pool(4), &[1, 2, 4, 8, 485, 1, 499]);
}

#[track_caller]
fn check_every_job(runner: &dyn BatchRunner, sizes: &[usize]) {
    let count = sizes.iter().sum();
    let counts: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
    run_batches(runner, sizes, |index| {
        counts[index].fetch_add(1, Ordering::Relaxed);
    });
    assert!(counts.into_iter().all(|count| count.into_inner() == 1));
}

#[test]
fn one_tenant_uses_half_of_the_threads() {
    for (n_threads, n_at_once) in [(1, 2), (4, 3), (8, 5)] {
        let (pool, gate) = (pool(n_threads), Gate::default());
        thread::scope(|scope| {
            scope.spawn(|| run(&pool, 0, 100, |_| gate.pass()));
            yield_until(|| gate.n_running() == n_at_once);
            scope.spawn(|| run(&pool, 0, 100, |_| gate.pass()));
            yield_until(|| gate.n_running() == n_at_once + 1);
            assert!(pool.helper(0).is_none());
            assert_eq!(pool.helper(1).is_some(), n_threads > 1);
            gate.allow(1000);
        });
    }
}

#[test]
fn a_single_job_waits_for_no_thread() {
    let (pool, gate) = (pool(1), Gate::default());
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| run(&pool, 0, 10, |_| gate.pass()));
        }
        yield_until(|| gate.n_running() >= 3);
        let here = thread::current().id();
        run(&pool, 0, 1, |index| {
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
        // Three workers and all threads of the pool.
        for (tenant, n_running) in [(0, 4), (1, 7), (2, 9)] {
            let (pool, gate) = (&pool, &gate);
            scope.spawn(move || run(pool, tenant, 31, |_| gate.pass()));
            yield_until(|| gate.n_running() == n_running);
        }
        for tenant in 0..4 {
            run(&pool, tenant, 3, |_| thread::yield_now());
        }
        gate.allow(1000);
    });
}

#[test]
fn a_batch_gets_the_threads_that_others_have_left() {
    let (pool, first, second) = (pool(8), Gate::default(), Gate::default());
    thread::scope(|scope| {
        scope.spawn(|| run(&pool, 0, 8, |_| first.pass()));
        yield_until(|| first.n_running() == 5);
        scope.spawn(|| run(&pool, 1, 1000, |_| second.pass()));
        yield_until(|| second.n_running() == 3);
        first.allow(8);
        yield_until(|| pool.helpers.lock().len() == 1);
        // Its worker calls helpers after each of its own jobs.
        second.allow(3);
        yield_until(|| second.n_running() == 5);
        second.allow(1000);
    });
}

#[test]
fn a_batch_begins_when_the_one_before_it_is_done() {
    let (pool, done) = (pool(4), AtomicUsize::new(0));
    let job = |index: usize| {
        // The first index of its batch: 0, 1, 3, 7, …
        let first = (1 << (index + 1).ilog2()) - 1;
        let n_done = done.load(Ordering::SeqCst);
        thread::yield_now();
        done.fetch_add(1, Ordering::SeqCst);
        if n_done >= first {
            Ok(true)
        } else {
            Err(index)
        }
    };
    let jobs = Jobs {
        count: 100,
        tenant: 0,
    };
    assert_eq!(slow_start_batch(jobs, 1, &pool, &job), (100, Ok(())));
}

#[test]
fn an_idle_helper_moves_to_another_batch() {
    let (pool, first, second) = (pool(8), Gate::default(), Gate::default());
    thread::scope(|scope| {
        scope.spawn(|| run_batches(&pool, &[5, 5], |_| first.pass()));
        yield_until(|| first.n_running() == 5);
        // The batch waits for its last job.
        first.allow(4);
        yield_until(|| first.n_running() == 1);
        scope.spawn(|| run(&pool, 0, 4, |_| second.pass()));
        yield_until(|| second.n_running() == 4);
        first.allow(100);
        second.allow(100);
    });
}

#[test]
fn a_panic_ends_the_run_and_leaves_the_pool_usable() {
    let (pool, n_done) = (pool(4), AtomicUsize::new(0));
    let broken = std::panic::AssertUnwindSafe(|| {
        run_batches(&pool, &[1, 3, 9], |index| {
            assert_ne!(index, 2, "broken");
            n_done.fetch_add(1, Ordering::SeqCst);
        });
    });
    std::panic::catch_unwind(broken).expect_err("the panic arrives");
    assert!(n_done.into_inner() <= 3, "the next batch began");
    assert_eq!(pool.helpers.lock().len(), 0);
    check_every_job(&pool, &[1, 40, 3]);
}

/// Runs a batch of `count` jobs, with as many at once as there are threads for it. Returns the
/// names of the pool threads that helped.
fn helpers(runner: &dyn BatchRunner, count: usize, at_once: usize) -> Vec<String> {
    let (barrier, names) = (Barrier::new(at_once), Mutex::new(Vec::new()));
    run(runner, 0, count, |index| {
        if index < at_once {
            names.lock().push(name());
            barrier.wait();
        }
    });
    let mut names = names.into_inner();
    names.retain(|name| name.starts_with("batch-"));
    names.sort();
    names.dedup();
    names
}

#[test]
fn large_syncs_have_a_part_of_the_threads() {
    for (n_threads, n_large) in [(0, 0), (1, 1), (2, 1), (5, 3), (32, 16)] {
        let (runner, threads) = threads(n_threads);
        let names: Vec<String> = threads.iter().map(|it| it.name().to_owned()).collect();
        let expected: Vec<String> = (0..n_threads).map(|n| format!("batch-{n}")).collect();
        assert_eq!(names, expected);
        let shown = format!("{runner:?}");
        assert_eq!(n_large == 0, !shown.contains("Some"), "{shown}");
        check_ends(runner, threads);
        assert_eq!(super::n_large(n_threads), n_large);
    }
}

#[test]
fn small_and_large_batches_run_on_threads_of_their_own() {
    let (runner, threads) = threads(16);
    let is_small = |name: &String| name["batch-".len()..].parse::<u16>().expect("a number") < 8;
    let of_small = helpers(&*runner, LARGE - 1, 5);
    assert!(of_small.iter().all(is_small), "{of_small:?}");
    assert_eq!(of_small.len(), 4, "and the worker's own: {of_small:?}");
    let of_large = helpers(&*runner, LARGE, 5);
    assert!(!of_large.iter().any(is_small), "{of_large:?}");
    assert_eq!(of_large.len(), 4, "and the worker's own: {of_large:?}");
    check_ends(runner, threads);
}

#[test]
fn few_jobs_have_threads_while_many_hold_theirs() {
    for n_threads in [4, 16, 48] {
        let (runner, threads) = threads(n_threads);
        let (is_held, n_begun) = (AtomicBool::new(true), AtomicUsize::new(0));
        thread::scope(|scope| {
            for tenant in 0..2 {
                let (runner, is_held, n_begun) = (&*runner, &is_held, &n_begun);
                scope.spawn(move || {
                    run(runner, tenant, 500, |_| {
                        n_begun.fetch_add(1, Ordering::SeqCst);
                        yield_until(|| !is_held.load(Ordering::SeqCst));
                    });
                });
            }
            let n_at_once = usize::from(n_threads / 4);
            yield_until(|| n_begun.load(Ordering::SeqCst) > n_at_once);
            // Two jobs at once, one of them on a pool thread.
            let barrier = Barrier::new(2);
            run(&*runner, 0, 2, |_| {
                barrier.wait();
            });
            is_held.store(false, Ordering::SeqCst);
        });
        check_ends(runner, threads);
    }
}

#[test]
fn every_job_runs_once_few_and_many() {
    for n_threads in [1, 2, 64] {
        let (runner, threads) = threads(n_threads);
        for batches in [
            &[1, 2, 4, 8, 16, 32, 64, 3][..],
            &[500],
            &[33, 1, 2],
            &[1, 1, 40],
            &[1, 30],
            &[5],
        ] {
            check_every_job(&*runner, batches);
        }
        check_ends(runner, threads);
    }
}

#[test]
fn large_syncs_together_use_at_most_their_part() {
    let (runner, threads) = threads(16);
    let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let job = |_| {
        if name().starts_with("batch-") {
            let n_running = running.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(n_running, Ordering::SeqCst);
            thread::yield_now();
            running.fetch_sub(1, Ordering::SeqCst);
        }
    };
    thread::scope(|scope| {
        for tenant in 0..3 {
            let (runner, job) = (&*runner, &job);
            scope.spawn(move || run(runner, tenant, 500, job));
        }
    });
    assert!(most.into_inner() <= 8);
    check_ends(runner, threads);
}

#[test]
fn the_threads_last_until_they_are_joined() {
    let (runner, threads) = threads(4);
    let liveness: Vec<_> = threads.iter().map(Thread::liveness).collect();
    let n_running = || liveness.iter().filter(|thread| !thread.has_ended()).count();
    for _ in 0..3 {
        run(&*runner, 0, 100, |_| {});
        assert_eq!(n_running(), 4);
    }
    check_ends(runner, threads);
    assert_eq!(n_running(), 0);
}

/// A batch that is only a part of a large sync runs on the threads of large syncs.
#[test]
fn the_size_of_the_sync_chooses_the_threads() {
    let (runner, threads) = threads(8);
    let (barrier, names) = (Barrier::new(2), Mutex::new(Vec::new()));
    let jobs = Jobs {
        count: LARGE,
        tenant: 0,
    };
    let batch: Range<usize> = 0..2;
    runner.run(jobs, batch, &|_| {
        names.lock().push(name());
        barrier.wait();
    });
    let mut names = names.into_inner();
    names.retain(|name| name.starts_with("batch-"));
    assert!(names[0].as_str() >= "batch-4", "{names:?}");
    check_ends(runner, threads);
}
