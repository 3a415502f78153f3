//! Which threads run which batch.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::{BatchPool, BatchRunner, Instant, LARGE, Mutex, Stop};

/// Timeout of the test's waits.
const LONG: Duration = Duration::from_mins(2);

fn pool(n_threads: u16) -> BatchPool {
    BatchPool::start(n_threads, &Stop::new()).expect("threads")
}

/// The sizes of some batches.
fn of(sizes: &[usize]) -> impl FnMut() -> usize + '_ {
    let mut sizes = sizes.iter().copied();
    move || sizes.next().unwrap_or(0)
}

fn name() -> String {
    thread::current().name().unwrap_or_default().to_owned()
}

fn yield_until(reached: impl Fn() -> bool) {
    while !reached() {
        thread::yield_now();
    }
}

#[track_caller]
fn check_ends(pool: BatchPool) {
    assert_eq!(pool.join_until(Instant::now() + LONG), [""; 0]);
}

/// Runs a batch of `count` jobs, with as many at once as there are threads for it. Returns the
/// names of the pool threads that helped.
fn helpers(runner: &dyn BatchRunner, count: usize, at_once: usize) -> Vec<String> {
    let (barrier, names) = (Barrier::new(at_once), Mutex::new(Vec::new()));
    runner.run(count, &mut of(&[count]), &|index| {
        if index < at_once {
            names.lock().expect("a list").push(name());
            barrier.wait();
        }
    });
    let mut names = names.into_inner().expect("a list");
    names.retain(|name| name.starts_with("batch-"));
    names.sort();
    names.dedup();
    names
}

#[test]
fn large_syncs_have_a_quarter_of_the_threads() {
    let threads_of = |pool: &BatchPool| {
        let parts = [&pool.small, &pool.large];
        parts.map(|part| part.threads.iter().map(|it| it.name().to_owned()).collect())
    };
    let check = |n_threads, expected: [&[&str]; 2]| {
        let pool = pool(n_threads);
        let found: [Vec<String>; 2] = threads_of(&pool);
        assert_eq!(found, expected);
        check_ends(pool);
    };
    check(1, [&[], &["batch-0"]]);
    check(2, [&["batch-0"], &["batch-1"]]);
    check(
        5,
        [&["batch-0", "batch-1", "batch-2"], &["batch-3", "batch-4"]],
    );
}

#[test]
fn small_and_large_batches_run_on_threads_of_their_own() {
    let pool = pool(16);
    let runner = pool.runner();
    let is_small = |name: &String| name["batch-".len()..].parse::<u16>().expect("a number") < 12;
    let of_small = helpers(&*runner, LARGE - 1, 12);
    assert!(of_small.iter().all(is_small), "{of_small:?}");
    assert_eq!(of_small.len(), 11, "and the worker's own: {of_small:?}");
    let of_large = helpers(&*runner, LARGE, 4);
    assert!(!of_large.iter().any(is_small), "{of_large:?}");
    assert_eq!(of_large.len(), 3, "and the worker's own: {of_large:?}");
    drop(runner);
    check_ends(pool);
}

#[test]
fn few_jobs_have_threads_while_many_hold_theirs() {
    for n_threads in [4, 16, 48] {
        let pool = pool(n_threads);
        let (runner, is_held) = (pool.runner(), AtomicBool::new(true));
        let n_begun = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    runner.run(500, &mut of(&[500]), &|_| {
                        n_begun.fetch_add(1, Ordering::SeqCst);
                        yield_until(|| !is_held.load(Ordering::SeqCst));
                    });
                });
            }
            let n_at_once = usize::from(n_threads / 4);
            yield_until(|| n_begun.load(Ordering::SeqCst) >= n_at_once);
            // Two jobs at once, one of them on a pool thread.
            let barrier = Barrier::new(2);
            runner.run(2, &mut of(&[2]), &|_| {
                barrier.wait();
            });
            is_held.store(false, Ordering::SeqCst);
        });
        drop(runner);
        check_ends(pool);
    }
}

#[test]
fn every_job_runs_once_few_and_many() {
    for n_threads in [1, 2, 64] {
        let pool = pool(n_threads);
        for batches in [
            &[1, 2, 4, 8, 16, 32, 64, 3][..],
            &[500],
            &[33, 1, 2],
            &[1, 1, 40],
            &[1, 30],
            &[5],
        ] {
            let count = batches.iter().sum();
            let counts: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            pool.runner().run(count, &mut of(batches), &|index| {
                counts[index].fetch_add(1, Ordering::Relaxed);
            });
            assert!(counts.into_iter().all(|count| count.into_inner() == 1));
        }
        check_ends(pool);
    }
}

#[test]
fn large_syncs_together_use_at_most_their_part() {
    let pool = pool(16);
    let runner = pool.runner();
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
        for sizes in [&[500][..], &[1, 2, 4, 8, 16, 32, 64, 128], &[100, 100]] {
            let (runner, job) = (&runner, &job);
            scope.spawn(move || runner.run(sizes.iter().sum(), &mut of(sizes), job));
        }
    });
    assert!(most.into_inner() <= 4);
    drop(runner);
    check_ends(pool);
}

#[test]
fn the_threads_last_until_they_are_joined() {
    let pool = pool(4);
    let threads: Vec<_> = pool.liveness().collect();
    let n_running = || threads.iter().filter(|thread| !thread.has_ended()).count();
    for _ in 0..3 {
        pool.runner().run(100, &mut of(&[100]), &|_| {});
        assert_eq!(n_running(), 4);
    }
    check_ends(pool);
    assert_eq!(n_running(), 0);
}
