//! Behaviour that only shows with threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;

use super::MS;
use crate::stdx::clock::SystemClock;
use crate::workqueue::{KeyState, Priority, WorkQueue};

const N_WORKERS: usize = 10;

fn new_queue() -> WorkQueue<u32> {
    WorkQueue::new(Arc::new(SystemClock))
}

/// Waits until another thread has reached this state.
fn yield_until(reached: impl Fn() -> bool) {
    while !reached() {
        thread::yield_now();
    }
}

/// True if none of the first `n_keys` keys waits or is in progress.
fn is_idle(queue: &WorkQueue<u32>, n_keys: u32) -> bool {
    let is_idle = |key| queue.state_of(&key) == KeyState::default();
    (0..n_keys).all(is_idle)
}

#[test]
fn i_01_many_producers_and_workers_drain_the_queue() {
    let queue = new_queue();
    let n_taken = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..N_WORKERS {
            scope.spawn(|| {
                while let Some(key) = queue.get() {
                    assert!(key < 50, "{key} was added after shutdown");
                    n_taken.fetch_add(1, Ordering::Relaxed);
                    queue.done(&key);
                }
            });
        }
        let add = |key| {
            let queue = &queue;
            move || (0..50).for_each(|_| queue.add(key))
        };
        let producers: Vec<_> = (0..50).map(|key| scope.spawn(add(key))).collect();
        for producer in producers {
            producer.join().expect("a producer ends");
        }
        queue.shut_down();
        queue.add(100);
    });
    assert!(queue.is_empty());
    let n_taken = n_taken.into_inner();
    assert!((50..=2500).contains(&n_taken), "{n_taken}");
}

#[test]
fn i_02_keys_added_while_processing_are_all_done_in_the_end() {
    let queue = new_queue();
    let n_taken = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..N_WORKERS {
            scope.spawn(|| {
                let mut again: Vec<_> = (0..50).collect();
                while let Some(key) = queue.get() {
                    n_taken.fetch_add(1, Ordering::Relaxed);
                    if again.contains(&key) {
                        again.retain(|other| *other != key);
                        queue.add(key);
                    }
                    queue.done(&key);
                }
            });
        }
        (0..50).for_each(|key| queue.add(key));
        yield_until(|| is_idle(&queue, 50));
        queue.shut_down();
    });
    assert!(n_taken.into_inner() >= 100, "each key came at least twice");
}

#[test]
fn i_06_a_second_worker_waits_until_the_first_is_done() {
    let queue = new_queue();
    let is_done = AtomicBool::new(false);
    queue.add(1);
    assert_eq!(queue.get(), Some(1));
    queue.add(1);
    queue.add(1);
    thread::scope(|scope| {
        let second = scope.spawn(|| {
            let key = queue.get();
            (key, is_done.load(Ordering::SeqCst))
        });
        is_done.store(true, Ordering::SeqCst);
        queue.done(&1);
        let taken = second.join().expect("the second worker gets it");
        assert_eq!(taken, (Some(1), true));
    });
    queue.done(&1);
    assert_eq!(queue.try_get(), None);
}

#[test]
fn the_delay_thread_queues_keys_and_ends_at_shutdown() {
    let queue = new_queue();
    thread::scope(|scope| {
        let delay = scope.spawn(|| queue.run_delay());
        queue.add_after(3, Duration::from_hours(1));
        // Each is due earlier than the thread's current wait, so it must wake the thread.
        for key in [1, 2] {
            queue.add_after(key, MS);
            assert_eq!(queue.get(), Some(key));
        }
        queue.shut_down();
        delay
            .join()
            .expect("the thread ends though a key is not due");
    });
}

/// A delivery that starts afterwards must follow every add, and no key may have two workers.
#[test]
fn no_add_is_lost_and_no_key_has_two_workers() {
    const N_KEYS: usize = 7;
    const N_PRODUCERS: u64 = 4;
    for seed in 0..8 {
        let queue = new_queue();
        let added: [AtomicU32; N_KEYS] = Default::default();
        let seen: [AtomicU32; N_KEYS] = Default::default();
        let held: [AtomicBool; N_KEYS] = Default::default();
        let producing = AtomicBool::new(true);
        let work = &|mut random: Rng| {
            while let Some(key) = queue.get() {
                let i = key as usize;
                assert!(!held[i].swap(true, Ordering::SeqCst), "two have {key}");
                seen[i].store(added[i].load(Ordering::SeqCst), Ordering::SeqCst);
                (0..random.u8(..4)).for_each(|_| thread::yield_now());
                if producing.load(Ordering::SeqCst) && random.u8(..4) == 0 {
                    added[i].fetch_add(1, Ordering::SeqCst);
                    queue.add(key);
                }
                assert!(held[i].swap(false, Ordering::SeqCst));
                queue.done(&key);
            }
        };
        let produce = &|mut random: Rng| {
            for _ in 0..2000 {
                let i = random.usize(..N_KEYS);
                added[i].fetch_add(1, Ordering::SeqCst);
                let key = u32::try_from(i).expect("there are few keys");
                match random.u8(..8) {
                    0 => queue.add_after(key, MS),
                    1 => thread::yield_now(),
                    2 => queue.add_with(key, Priority::Low, Duration::ZERO),
                    _ => {}
                }
                if random.bool() {
                    queue.add(key);
                } else {
                    queue.add_with(key, Priority::Low, Duration::ZERO);
                }
            }
        };
        thread::scope(|scope| {
            let delay = scope.spawn(|| queue.run_delay());
            for worker in 0..3 {
                scope.spawn(move || work(Rng::with_seed(100 * seed + worker)));
            }
            let producers: Vec<_> = (0..N_PRODUCERS)
                .map(|i| scope.spawn(move || produce(Rng::with_seed(1000 * seed + i))))
                .collect();
            for producer in producers {
                producer.join().expect("a producer ends");
            }
            producing.store(false, Ordering::SeqCst);
            yield_until(|| is_idle(&queue, 7));
            queue.shut_down();
            delay.join().expect("the delay thread ends");
        });
        for i in 0..N_KEYS {
            let (added, seen) = (
                added[i].load(Ordering::SeqCst),
                seen[i].load(Ordering::SeqCst),
            );
            assert_eq!(added, seen, "key {i}, seed {seed}");
        }
    }
}
