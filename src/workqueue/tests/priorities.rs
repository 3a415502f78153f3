//! Keys that can wait, and those that go before them.

use super::{Fixture, MS};

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
    assert_eq!(fixture.queue.stats().queue.adds_total, 3);
    assert_eq!(fixture.take_all(), ["c", "a", "b"]);
    fixture.queue.add_low("c");
    assert_eq!(fixture.take_all(), ["c"]);
}

#[test]
fn a_key_that_is_raised_while_it_is_worked_on_comes_back_raised() {
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
fn a_key_that_is_due_later_keeps_the_highest_priority_that_was_asked_for() {
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
