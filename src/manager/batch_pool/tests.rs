//! Who does which batch, and threads that come and go.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use super::{
    Arc, BESIDE_OTHERS, BatchPool, Duration, Instant, ManagerOptions, Others, Sizes, Stop, sizes,
};

/// Long enough for whatever has to happen.
const LONG: Duration = Duration::from_secs(10);

fn options(batch_parallelism: u16, kube_api_qps: f32) -> ManagerOptions {
    ManagerOptions {
        kube_api_qps,
        batch_parallelism,
        ..ManagerOptions::default()
    }
}

/// A pool that keeps its additional threads for `stay`.
fn pool(batch_parallelism: u16, stay: Duration) -> BatchPool {
    let sizes = sizes(&options(batch_parallelism, 0.0));
    BatchPool::of_sizes(sizes, stay, Duration::ZERO, &Stop::new()).expect("threads")
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

#[test]
fn more_threads_come_where_they_are_of_use() {
    let check = |parallelism, qps, few, many, more| {
        let expected = Sizes { few, many, more };
        assert_eq!(sizes(&options(parallelism, qps)), expected);
    };
    check(1, 0.0, 0, 1, 0);
    check(16, 0.0, 8, 8, 0);
    check(31, 0.0, 15, 16, 0);
    check(32, 0.0, 16, 0, 16);
    check(64, -1.0, 16, 0, 48);
    check(64, 20.0, 8, 8, 0);
    check(64, 100.0, 16, 0, 48);
}

#[test]
fn few_jobs_have_threads_while_many_hold_theirs() {
    for (parallelism, qps) in [(4, 0.0), (48, 20.0), (48, 0.0)] {
        let sizes = sizes(&options(parallelism, qps));
        let pool = BatchPool::of_sizes(sizes, LONG, Duration::ZERO, &Stop::new()).expect("threads");
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
            let n_at_once = usize::from(sizes.many + sizes.more).max(2);
            yield_until(|| n_begun.load(Ordering::SeqCst) >= n_at_once);
            // Two at once, one of them on a thread of the pool.
            let barrier = Barrier::new(2);
            runner.run(2, &mut of(&[2]), &|_| {
                barrier.wait();
            });
            is_held.store(false, Ordering::SeqCst);
        });
        drop(runner);
        assert_eq!(pool.join_until(Instant::now() + LONG), [""; 0]);
    }
}

#[test]
fn every_job_runs_once_few_and_many() {
    let pool = pool(64, LONG);
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
    assert_eq!(pool.join_until(Instant::now() + LONG), [""; 0]);
}

#[test]
fn only_many_jobs_call_more_threads() {
    let pool = pool(48, LONG);
    let is_there = || pool.surge.is_there();
    let runner = pool.runner();
    runner.run(31, &mut of(&[1, 2, 4, 8, 16]), &|_| {});
    assert!(!is_there(), "they are few");
    runner.run(500, &mut of(&[1]), &|_| assert!(!is_there()));
    assert!(!is_there(), "the first one was refused");
    let (barrier, names) = (Barrier::new(32), Mutex::new(Vec::new()));
    runner.run(33, &mut of(&[1, 32]), &|index| {
        if index > 0 {
            names.lock().expect("a list").push(name());
            barrier.wait();
        }
    });
    assert!(is_there());
    let names = names.into_inner().expect("a list");
    let helpers: Vec<&String> = names.iter().filter(|it| it.starts_with("batch-")).collect();
    assert_eq!(helpers.len(), 31, "{names:?}");
    let is_lasting = |it: &&&String| it["batch-".len()..].parse::<u16>().expect("a number") < 16;
    assert_eq!(helpers.iter().filter(is_lasting).count(), 0, "{names:?}");
    drop(runner);
    assert_eq!(pool.join_until(Instant::now() + LONG), [""; 0]);
}

#[test]
fn many_leave_room_for_others() {
    let mut pool = pool(48, LONG);
    pool.others = Arc::new(Others::new(LONG));
    let runner = pool.runner();
    let (n_running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let job = |_| {
        most.fetch_max(
            n_running.fetch_add(1, Ordering::SeqCst) + 1,
            Ordering::SeqCst,
        );
        thread::yield_now();
        n_running.fetch_sub(1, Ordering::SeqCst);
    };
    runner.run(1, &mut of(&[1]), &|_| {});
    for sizes in [&[500][..], &[1, 2, 4, 8, 16, 32, 64, 128]] {
        runner.run(sizes.iter().sum(), &mut of(sizes), &job);
    }
    assert!(most.into_inner() <= BESIDE_OTHERS);
    drop(runner);
    assert_eq!(pool.join_until(Instant::now() + LONG), [""; 0]);
}

#[test]
fn they_go_when_nobody_calls_and_come_again() {
    let pool = pool(32, Duration::from_millis(5));
    let is_there = || pool.surge.is_there();
    for _ in 0..3 {
        pool.runner().run(100, &mut of(&[100]), &|_| {});
        yield_until(|| !is_there());
    }
    let held = pool.surge.call().expect("they come again");
    // The keeper looks many times meanwhile.
    let until = Instant::now() + Duration::from_millis(50);
    yield_until(|| Instant::now() >= until);
    assert!(is_there(), "they are in use");
    drop(held);
    yield_until(|| !is_there());
    assert_eq!(pool.join_until(Instant::now() + LONG), [""; 0]);
}

#[test]
fn none_come_after_the_end() {
    let pool = pool(32, LONG);
    let (surge, runner) = (Arc::clone(&pool.surge), pool.runner());
    assert!(surge.call().is_some());
    drop(runner);
    assert_eq!(pool.join_until(Instant::now() + LONG), [""; 0]);
    assert!(surge.call().is_none());
}
