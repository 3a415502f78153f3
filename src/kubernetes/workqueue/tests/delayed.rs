//! Delayed keys, with a manual clock.

use std::time::{Duration, Instant};

use super::super::Priority;
use super::super::delaying::Delayed;
use super::{Fixture, MS};
use crate::stdx::clock::Clock;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn i_12_a_delayed_key_comes_when_it_is_due_and_once() {
    let fixture = Fixture::new();
    fixture.queue.add_after("foo", 50 * MS);
    assert_eq!(fixture.queue.len(), 0);
    fixture.pass(49 * MS);
    assert_eq!(fixture.queue.len(), 0);
    fixture.pass(11 * MS);
    assert_eq!(fixture.queue.len(), 1);
    assert_eq!(fixture.take_all(), ["foo"]);
    fixture.pass(10 * SECOND);
    assert!(fixture.queue.is_empty());
}

#[test]
fn i_13_the_earliest_time_wins_and_the_key_comes_once() {
    for (second_delay, too_early) in [(70 * MS, 49 * MS), (30 * MS, 29 * MS)] {
        let fixture = Fixture::new();
        fixture.queue.add_after("foo", 50 * MS);
        fixture.queue.add_after("foo", second_delay);
        assert!(fixture.queue.next_deadline().is_some());
        fixture.pass(too_early);
        assert_eq!(fixture.take(), None);
        fixture.pass(MS);
        assert_eq!(fixture.take_all(), ["foo"]);
        for delay in [30 * MS, 40 * MS, SECOND] {
            fixture.pass(delay);
            assert_eq!(fixture.take(), None, "never again");
        }
    }
}

#[test]
fn i_14_keys_come_at_their_own_times() {
    let fixture = Fixture::new();
    let Fixture { clock, queue } = &fixture;
    let start = clock.now();
    queue.add_after("first", SECOND);
    queue.add_after("second", 50 * MS);
    assert_eq!(queue.next_deadline(), Some(start + 50 * MS));
    fixture.pass(60 * MS);
    assert_eq!(fixture.take_all(), ["second"]);
    queue.add_after("third", 2 * SECOND);
    fixture.pass(940 * MS);
    assert_eq!(fixture.take_all(), ["first"]);
    fixture.pass(SECOND);
    assert_eq!(fixture.take_all(), [""; 0]);
    fixture.pass(60 * MS);
    assert_eq!(fixture.take_all(), ["third"]);
    assert_eq!(queue.next_deadline(), None);
}

#[test]
fn i_15_a_jump_brings_keys_in_the_order_of_their_times() {
    let fixture = Fixture::new();
    for (key, delay) in [
        ("first", 1000),
        ("second", 500),
        ("third", 250),
        ("last", 1000),
    ] {
        fixture.queue.add_after(key, delay * MS);
    }
    fixture.pass(2 * SECOND);
    assert_eq!(fixture.take_all(), ["third", "second", "first", "last"]);
}

#[test]
fn i_16_rate_limited_adds_wait_longer_until_reset() {
    let fixture = Fixture::new();
    let Fixture { clock, queue } = &fixture;
    let expect_after = |key, delay| {
        queue.add_rate_limited(key);
        assert_eq!(queue.next_deadline(), Some(clock.now() + delay), "{key}");
        fixture.pass(delay);
        assert_eq!(fixture.take_all(), [key]);
    };
    expect_after("one", 5 * MS);
    expect_after("one", 10 * MS);
    assert_eq!(queue.num_requeues(&"one"), 2);
    expect_after("two", 5 * MS);
    queue.forget(&"one");
    assert_eq!(queue.num_requeues(&"one"), 0);
    expect_after("one", 5 * MS);
    assert_eq!(queue.stats().retries_total, 4);
}

#[test]
fn i_23_no_delay_means_at_once_and_shutdown_means_never() {
    let fixture = Fixture::new();
    let queue = &fixture.queue;
    queue.add_after("now", Duration::ZERO);
    assert_eq!(fixture.take_all(), ["now"]);
    queue.add_after("never", Duration::MAX);
    queue.add_after("later", MS);
    queue.shut_down();
    assert_eq!(queue.next_deadline(), None, "what was not due is forgotten");
    queue.add_after("now", Duration::ZERO);
    queue.add_after("later", MS);
    queue.add_rate_limited("later");
    fixture.pass(SECOND);
    assert_eq!(queue.get(), None);
    assert_eq!(queue.next_deadline(), None);
}

#[test]
fn an_add_returns_whether_its_key_is_next() {
    let delayed = Delayed::default();
    let now = Instant::now();
    let add = |key, after, priority| delayed.insert(key, now + after, priority);
    assert!(add("a", 4 * MS, Priority::High));
    assert!(!add("b", 6 * MS, Priority::High), "a is due before it");
    assert!(add("b", 2 * MS, Priority::Low));
    assert!(!add("b", 3 * MS, Priority::Low), "it is due earlier");
    assert!(!add("c", 2 * MS, Priority::High), "b was added before it");
}
