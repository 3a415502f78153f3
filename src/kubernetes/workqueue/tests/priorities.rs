//! Priorities and permits.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use super::{Fixture, MS};
use crate::workqueue::dedup::{Dedup, TURN};
use crate::workqueue::{Priority, WorkQueue};

static NOW: LazyLock<Instant> = LazyLock::new(Instant::now);

#[test]
fn keys_of_high_priority_come_first() {
    let fixture = Fixture::new();
    for key in ["a", "b"] {
        fixture.queue.add_with(key, Priority::Low, Duration::ZERO);
    }
    for key in ["c", "d"] {
        fixture.queue.add(key);
    }
    assert_eq!(fixture.take_all(), ["c", "d", "a", "b"]);
}

#[test]
fn a_key_that_waits_is_raised_and_comes_once() {
    let fixture = Fixture::new();
    for key in ["a", "b", "c"] {
        fixture.queue.add_with(key, Priority::Low, Duration::ZERO);
    }
    fixture.queue.add("c");
    fixture.queue.add_with("c", Priority::Low, Duration::ZERO);
    assert_eq!(fixture.queue.len(), 3);
    assert_eq!(fixture.queue.stats().adds_total, 3);
    assert_eq!(fixture.take_all(), ["c", "a", "b"]);
    fixture.queue.add_with("c", Priority::Low, Duration::ZERO);
    assert_eq!(fixture.take_all(), ["c"]);
}

#[test]
fn a_key_raised_in_progress_returns_raised() {
    let fixture = Fixture::new();
    fixture.queue.add("a");
    assert_eq!(fixture.queue.try_get(), Some("a"));
    fixture.queue.add_with("b", Priority::Low, Duration::ZERO);
    fixture.queue.add_with("a", Priority::Low, Duration::ZERO);
    fixture.queue.add("a");
    fixture.queue.done(&"a");
    assert_eq!(fixture.take_all(), ["a", "b"]);
}

#[test]
fn keys_of_low_priority_do_not_starve() {
    let fixture = Fixture::new();
    let low = ["x", "y", "z"];
    for key in low {
        fixture.queue.add_with(key, Priority::Low, Duration::ZERO);
    }
    let mut n_high = 0;
    let mut taken = Vec::new();
    while taken.len() < low.len() {
        fixture.queue.add("high");
        match fixture.take() {
            Some("high") => n_high += 1,
            key => taken.extend(key),
        }
        assert!(n_high <= 30, "{taken:?} so far");
    }
    assert_eq!(taken, low);
}

/// A queue of five workers: tenant 1 has two of them, tenant 2 one, and a key of low priority of
/// tenant 1 waits. Takes are done at once, and keys of high priority of others keep coming.
#[test]
fn a_missed_turn_of_low_priority_is_not_lost() {
    let mut dedup = Dedup::new(5);
    for (key, tenant) in [(1, 1), (2, 1), (3, 2)] {
        dedup.add(&key, tenant, Priority::High, *NOW);
        dedup.take(*NOW).expect("a worker is free");
    }
    dedup.add(&10, 1, Priority::Low, *NOW);
    for n in 0..40 {
        dedup.add(&(100 + n), 3 + n % 7, Priority::High, *NOW);
        dedup.add(&(200 + n), 3 + n % 7, Priority::High, *NOW);
        if n == 20 {
            dedup.done(&1, *NOW);
            dedup.done(&2, *NOW);
        }
        let (key, _) = dedup.take(*NOW).expect("a key waits");
        dedup.done(&key, *NOW);
        assert!(dedup.is_dirty(&10) == (n < 20), "after take {n}");
    }
}

/// Whatever happened before: from the time when its tenant may have a worker, a key of low priority
/// waits for at most [`TURN`] takes for each key of low priority.
#[test]
fn keys_of_low_priority_do_not_starve_among_tenants() {
    let tenant_of = |key: usize| key as u64 % 4;
    // The first keys of each tenant have low priority.
    let low = 0..8_usize;
    let mut n_low_taken = 0;
    for seed in 0..200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let n_workers = rng.usize(2..7);
        let mut dedup = Dedup::new(n_workers);
        let mut processing: Vec<usize> = Vec::new();
        let mut waits = [0; 8];
        for high in low.end..600 {
            dedup.add(&high, tenant_of(high), Priority::High, *NOW);
            if rng.u8(..4) == 0 {
                let key = rng.usize(low.clone());
                dedup.add(&key, tenant_of(key), Priority::Low, *NOW);
            }
            let n_done = rng.usize(..3).min(processing.len());
            for _ in 0..n_done {
                let key = processing.swap_remove(rng.usize(..processing.len()));
                dedup.done(&key, *NOW);
            }
            let n_free = n_workers - processing.len();
            let may_take = |key: usize| {
                let its = |it: &&usize| tenant_of(**it) == tenant_of(key);
                processing.iter().filter(its).count() < n_free
            };
            for (key, wait) in low.clone().zip(&mut waits) {
                let waits = dedup.is_dirty(&key) && !dedup.is_processing(&key);
                *wait = if waits && may_take(key) { *wait + 1 } else { 0 };
                assert!(*wait <= TURN * 8, "key {key}, seed {seed}");
            }
            let Some((key, _)) = dedup.take(*NOW) else {
                continue;
            };
            processing.push(key);
            if let Some(wait) = waits.get_mut(key) {
                (*wait, n_low_taken) = (0, n_low_taken + 1);
            }
        }
    }
    assert!(n_low_taken > 200, "{n_low_taken}");
}

#[test]
fn a_delayed_key_keeps_its_highest_priority() {
    let fixture = Fixture::new();
    fixture.queue.add_with("a", Priority::Low, 5 * MS);
    fixture.queue.add_after("a", 9 * MS);
    fixture.queue.add_with("b", Priority::Low, 2 * MS);
    fixture.pass(10 * MS);
    assert_eq!(fixture.take_all(), ["a", "b"]);
    assert_eq!(fixture.queue.stats().retries_total, 1);
}

#[test]
fn both_priorities_are_handed_out_after_shutdown() {
    let fixture = Fixture::new();
    fixture.queue.add_with("a", Priority::Low, Duration::ZERO);
    fixture.queue.add("b");
    fixture.queue.add_with("c", Priority::Low, Duration::ZERO);
    fixture.queue.add("c");
    fixture.queue.shut_down();
    let take = || {
        let key = fixture.queue.get()?;
        fixture.queue.done(&key);
        Some(key)
    };
    let taken: Vec<_> = std::iter::from_fn(take).collect();
    assert_eq!(taken, ["b", "c", "a"]);
}

/// A queue with one permit, which the key `held` has.
fn with_held_permit() -> Fixture {
    let Fixture { clock, queue } = Fixture::new();
    let queue = queue.with_tenants(2, |_| 0);
    queue.add("held");
    assert_eq!(queue.try_get(), Some("held"));
    assert!(queue.begin_large(&"held"));
    Fixture { clock, queue }
}

/// Lets a worker take `key`, which is denied a permit.
#[track_caller]
fn ask(queue: &WorkQueue<&'static str>, key: &'static str) {
    queue.add(key);
    assert_eq!(queue.try_get(), Some(key));
    assert!(!queue.begin_large(&key));
    queue.done(&key);
}

#[test]
fn large_work_follows_small_work_and_then_in_turn() {
    let fixture = with_held_permit();
    let queue = &fixture.queue;
    queue.add_with("status", Priority::Low, Duration::ZERO);
    ask(queue, "large");
    queue.add_with("status 2", Priority::Low, Duration::ZERO);
    queue.add("small");
    queue.done(&"held");
    assert_eq!(fixture.take_all(), ["small", "status", "status 2", "large"]);
}

/// Events of a key that waits for a permit would otherwise bring it before small work.
#[test]
fn a_key_that_waits_for_a_permit_stays_behind_small_work() {
    let fixture = with_held_permit();
    let queue = &fixture.queue;
    for key in ["one", "two"] {
        queue.add(key);
        assert_eq!(queue.get(), Some(key));
        queue.add(key);
        assert!(!queue.begin_large(&key));
        queue.done(&key);
    }
    queue.done(&"held");
    queue.add("one");
    queue.add("small");
    assert_eq!(fixture.take_all(), ["small", "one", "two"]);
}

#[test]
fn a_key_that_waits_for_a_permit_gets_no_worker() {
    let fixture = with_held_permit();
    let queue = &fixture.queue;
    for key in ["large", "raised", "other"] {
        ask(queue, key);
    }
    let state = queue.state_of(&"large");
    assert!(state.is_waiting && !state.is_processing);
    queue.add_with("status", Priority::Low, Duration::ZERO);
    queue.add("raised");
    for _ in 0..20 {
        queue.add("small");
        assert!(matches!(
            fixture.take(),
            Some("small" | "raised" | "status")
        ));
    }
    while fixture.take().is_some() {}
    assert_eq!((queue.len(), queue.stats().depth), (0, 2));
    queue.shut_down();
    assert_eq!(queue.get(), None, "it does not wait for others");
    queue.done(&"held");
    for key in ["large", "other"] {
        assert_eq!(queue.get(), Some(key));
        assert!(queue.begin_large(&key));
        queue.done(&key);
    }
    assert_eq!(queue.get(), None);
}

#[test]
fn large_work_does_not_starve() {
    let fixture = with_held_permit();
    ask(&fixture.queue, "large");
    fixture.queue.done(&"held");
    let mut n_others = 0;
    loop {
        fixture.queue.add("small");
        match fixture.take() {
            Some("large") => break,
            _ => n_others += 1,
        }
        assert!(n_others <= 16);
    }
    assert!(n_others > 1);
}

#[test]
fn waits_for_a_permit_are_not_reported() {
    let fixture = with_held_permit();
    ask(&fixture.queue, "large");
    fixture.pass(5 * MS);
    assert_eq!(fixture.queue.longest_wait(), Duration::ZERO);
    fixture
        .queue
        .add_with("status", Priority::Low, Duration::ZERO);
    fixture.pass(2 * MS);
    assert_eq!(fixture.queue.longest_wait(), 2 * MS);
    // It also waits for a small sync, since that add.
    fixture.queue.add("large");
    fixture.pass(3 * MS);
    assert_eq!(fixture.queue.longest_wait(), 5 * MS);
}
