//! Priorities and lanes.

use std::time::Duration;

use super::{Fixture, MS};
use crate::workqueue::Lanes;

#[test]
fn keys_of_high_priority_go_first() {
    let fixture = Fixture::new();
    for key in ["a", "b"] {
        fixture.queue.add_low(key);
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
        fixture.queue.add_low(key);
    }
    fixture.queue.add("c");
    fixture.queue.add_low("c");
    assert_eq!(fixture.queue.len(), 3);
    assert_eq!(fixture.queue.stats().adds_total, 3);
    assert_eq!(fixture.take_all(), ["c", "a", "b"]);
    fixture.queue.add_low("c");
    assert_eq!(fixture.take_all(), ["c"]);
}

#[test]
fn a_key_raised_in_progress_returns_raised() {
    let fixture = Fixture::new();
    fixture.queue.add("a");
    assert_eq!(fixture.queue.try_get(), Some("a"));
    fixture.queue.add_low("b");
    fixture.queue.add_low("a");
    fixture.queue.add("a");
    fixture.queue.done(&"a");
    assert_eq!(fixture.take_all(), ["a", "b"]);
}

#[test]
fn keys_of_low_priority_do_not_starve() {
    let fixture = Fixture::new();
    let low = ["x", "y", "z"];
    for key in low {
        fixture.queue.add_low(key);
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

#[test]
fn a_delayed_key_keeps_its_highest_priority() {
    let fixture = Fixture::new();
    fixture.queue.add_low_after("a", 5 * MS);
    fixture.queue.add_after("a", 9 * MS);
    fixture.queue.add_low_after("b", 2 * MS);
    fixture.pass(10 * MS);
    assert_eq!(fixture.take_all(), ["a", "b"]);
    assert_eq!(fixture.queue.stats().retries_total, 1);
}

#[test]
fn both_priorities_are_handed_out_after_shutdown() {
    let fixture = Fixture::new();
    fixture.queue.add_low("a");
    fixture.queue.add("b");
    fixture.queue.add_low("c");
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

#[test]
fn large_work_goes_after_high_and_before_low_priority() {
    let fixture = Fixture::new();
    fixture.queue.add_low("status");
    fixture.queue.add_large("giant");
    fixture.queue.add("small");
    assert_eq!(fixture.take_all(), ["small", "giant", "status"]);
}

#[test]
fn a_worker_for_small_work_gets_no_large_work() {
    let Fixture { queue, .. } = Fixture::new();
    let take = || {
        let key = queue.try_get_from(Lanes::Small)?;
        queue.done(&key);
        Some(key)
    };
    for key in ["giant", "raised", "other"] {
        queue.add_large(key);
    }
    queue.add_low("status");
    queue.add("raised");
    // An add with low priority does not make it large again.
    queue.add_large("raised");
    queue.add_low("giant");
    for _ in 0..20 {
        queue.add("small");
        assert!(matches!(take(), Some("small" | "raised" | "status")));
    }
    while take().is_some() {}
    assert_eq!(queue.len(), 2);
    queue.shut_down();
    assert_eq!(
        queue.get_from(Lanes::Small),
        None,
        "it does not wait for others"
    );
    assert_eq!(queue.get(), Some("giant"));
    assert_eq!(queue.get(), Some("other"));
}

#[test]
fn a_small_key_that_turns_out_to_be_large_is_handed_over() {
    let fixture = Fixture::new();
    fixture.queue.add("a");
    assert_eq!(fixture.queue.try_get_from(Lanes::Small), Some("a"));
    fixture.queue.add_large("a");
    fixture.queue.done(&"a");
    assert_eq!(fixture.queue.try_get_from(Lanes::Small), None);
    assert_eq!(fixture.take_all(), ["a"]);
}

#[test]
fn large_work_does_not_starve() {
    let fixture = Fixture::new();
    fixture.queue.add_large("giant");
    let mut n_others = 0;
    loop {
        fixture.queue.add("small");
        fixture.queue.add_low("status");
        match fixture.take() {
            Some("giant") => break,
            _ => n_others += 1,
        }
        assert!(n_others <= 16);
    }
    assert!(n_others > 1);
}

#[test]
fn only_waits_of_small_work_are_reported() {
    let fixture = Fixture::new();
    fixture.queue.add_large("giant");
    fixture.pass(5 * MS);
    assert_eq!(fixture.queue.longest_wait(), Duration::ZERO);
    fixture.queue.add_low("status");
    fixture.pass(2 * MS);
    assert_eq!(fixture.queue.longest_wait(), 2 * MS);
    // It also waits for a small sync, since its first add.
    fixture.queue.add("giant");
    assert_eq!(fixture.queue.longest_wait(), 7 * MS);
}
