//! Conformance group I, and that no key is lost or duplicated among threads.

mod delayed;
mod priorities;
mod threads;

use std::sync::Arc;
use std::time::Duration;

use super::{InProgress, WorkQueue, WorkQueueStats};
use crate::stdx::clock::Clock;
use crate::stdx::testing::FakeClock;
use crate::telemetry::metrics::Metrics;

const MS: Duration = Duration::from_millis(1);

/// A queue with a manual clock.
struct Fixture {
    clock: Arc<FakeClock>,
    queue: WorkQueue<&'static str>,
}

impl Fixture {
    fn new() -> Self {
        let clock = Arc::new(FakeClock::default());
        let queue = WorkQueue::new(Arc::clone(&clock) as _);
        Self { clock, queue }
    }

    /// Advances the clock and queues the due keys.
    fn pass(&self, time: Duration) {
        self.clock.advance(time);
        self.queue.advance(self.clock.now());
    }

    /// Takes the next key and marks it done at once.
    fn take(&self) -> Option<&'static str> {
        let key = self.queue.try_get()?;
        self.queue.done(&key);
        Some(key)
    }

    fn take_all(&self) -> Vec<&'static str> {
        std::iter::from_fn(|| self.take()).collect()
    }
}

#[test]
fn i_01_keys_are_fifo_and_none_follow_shutdown() {
    let Fixture { queue, .. } = Fixture::new();
    for key in ["c", "a", "b", "a"] {
        queue.add(key);
    }
    queue.shut_down();
    queue.add("late");
    assert!(queue.is_shutting_down());
    for key in ["c", "a", "b"] {
        assert_eq!(queue.get(), Some(key));
        queue.done(&key);
    }
    assert_eq!(queue.get(), None);
    assert_eq!(queue.get(), None, "and so for every worker");
}

#[test]
fn i_03_length_counts_distinct_waiting_keys() {
    let Fixture { queue, .. } = Fixture::new();
    assert!(queue.is_empty());
    for (key, expected) in [("foo", 1), ("bar", 2), ("foo", 2)] {
        queue.add(key);
        assert_eq!(queue.len(), expected, "after {key}");
    }
}

#[test]
fn i_04_a_key_added_while_processing_comes_again_after_done() {
    let fixture = Fixture::new();
    let queue = &fixture.queue;
    queue.add("foo");
    assert_eq!(queue.try_get(), Some("foo"));
    queue.add("foo");
    assert_eq!((queue.len(), queue.try_get()), (0, None), "a worker has it");
    queue.done(&"foo");
    assert_eq!(fixture.take_all(), ["foo"]);
    assert!(queue.is_empty());
}

#[test]
fn i_05_added_twice_is_delivered_once() {
    let fixture = Fixture::new();
    fixture.queue.add("foo");
    fixture.queue.add("foo");
    assert_eq!(fixture.take_all(), ["foo"]);
}

#[test]
fn i_08_plain_shutdown_returns_with_keys_in_flight() {
    let Fixture { queue, .. } = Fixture::new();
    queue.add("foo");
    queue.add("bar");
    let taken = [queue.get(), queue.get()];
    queue.shut_down();
    for key in ["foo", "bar"] {
        assert!(queue.state_of(&key).is_processing, "{key}");
    }
    assert_eq!(queue.get(), None, "a third worker is sent home");
    for key in taken.into_iter().flatten() {
        queue.done(&key);
    }
    assert_eq!(queue.get(), None);
}

#[test]
fn a_returning_key_is_handed_out_after_shutdown() {
    let Fixture { queue, .. } = Fixture::new();
    queue.add("foo");
    queue.add("bar");
    assert_eq!([queue.get(), queue.get()], [Some("foo"), Some("bar")]);
    queue.add("foo");
    queue.shut_down();
    queue.add("bar");
    queue.done(&"bar");
    assert_eq!(queue.try_get(), None, "bar came too late, foo is not done");
    queue.done(&"foo");
    assert_eq!(queue.get(), Some("foo"));
    queue.done(&"foo");
    assert_eq!(queue.get(), None);
}

#[test]
fn i_11_done_keys_are_not_retained() {
    let clock = Arc::new(FakeClock::default());
    let queue = WorkQueue::new(clock);
    let key = Arc::new("foo");
    queue.add(Arc::clone(&key));
    queue.add_after(Arc::clone(&key), MS);
    queue.add_rate_limited(Arc::clone(&key));
    queue.forget(&key);
    let taken = queue.get().expect("it was added");
    queue.shut_down();
    queue.done(&taken);
    drop(taken);
    assert_eq!(Arc::strong_count(&key), 1);
}

#[test]
fn i_24_numbers_for_metrics() {
    let Fixture { queue, .. } = Fixture::new();
    let expect = |depth, adds_total, retries_total| WorkQueueStats {
        depth,
        adds_total,
        retries_total,
    };
    queue.add("foo");
    assert_eq!(queue.stats(), expect(1, 1, 0));
    let key = queue.get().expect("it was added");
    for _ in 0..5 {
        queue.add("foo");
    }
    assert_eq!(queue.stats(), expect(1, 2, 0), "it comes again");
    assert_eq!(queue.len(), 0);
    queue.done(&key);
    assert_eq!(queue.stats(), expect(1, 2, 0));
    queue.add_after("foo", Duration::ZERO);
    assert_eq!(queue.stats(), expect(1, 2, 1));
    queue.shut_down();
    queue.add("bar");
    queue.add_after("bar", MS);
    queue.add_rate_limited("bar");
    assert_eq!(
        queue.stats(),
        expect(1, 2, 1),
        "after shutdown nothing counts"
    );
}

#[test]
fn i_24_wait_and_work_durations() {
    let metrics = Metrics::new().workqueue.of("test");
    let Fixture { clock, queue } = Fixture::new();
    let queue = queue.with_metrics(metrics.clone());
    let waited = |count, seconds| {
        assert_eq!(metrics.queue_duration.get_sample_count(), count);
        assert_close(metrics.queue_duration.get_sample_sum(), seconds);
    };
    let micros = Duration::from_micros;
    queue.add("foo");
    clock.advance(micros(50));
    let key = queue.get().expect("it was added");
    waited(1, 50e-6);
    clock.advance(micros(10));
    queue.add("foo");
    clock.advance(micros(15));
    queue.add("foo");
    queue.done(&key);
    assert_eq!(metrics.work_duration.get_sample_count(), 1);
    assert_close(metrics.work_duration.get_sample_sum(), 25e-6);

    clock.advance(micros(5));
    queue.get().expect("it was added again");
    waited(2, 50e-6 + 20e-6);
    clock.advance(MS);
    let in_progress = |total, longest| {
        let expected = InProgress {
            total,
            longest,
            longest_standstill: longest,
        };
        assert_eq!(queue.in_progress(), expected);
    };
    in_progress(MS, MS);
    queue.add("bar");
    queue.get().expect("it was added");
    clock.advance(MS);
    in_progress(3 * MS, 2 * MS);
    queue.done(&"foo");
    queue.done(&"bar");
    in_progress(Duration::ZERO, Duration::ZERO);
}

#[track_caller]
fn assert_close(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-9, "{value} is not {expected}");
}
