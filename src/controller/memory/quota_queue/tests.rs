//! The times at which the head of a queue may try.

use std::time::{Duration, Instant};

use super::{PAUSE_MAX, PAUSE_MIN, QuotaQueue};
use crate::api::ObjectKey;

const SECOND: Duration = Duration::from_secs(1);

/// A queue whose budget is whole and whose pauses are long.
fn quiet(now: Instant) -> QuotaQueue {
    let mut queue = QuotaQueue::new(now);
    queue.pause = PAUSE_MAX;
    queue.due = now + PAUSE_MAX;
    queue
}

/// Refused tries until `end`: one whenever it is due, with an event in every `period`.
fn refused_until(
    queue: &mut QuotaQueue,
    (mut now, end): (Instant, Instant),
    period: Option<Duration>,
    interval: Duration,
) -> usize {
    let (mut n_refused, mut next_event) = (0, now);
    while now < end {
        if period.is_some() && now >= next_event {
            queue.wake(interval, now);
            next_event += period.unwrap_or_default();
        }
        if queue.due <= now {
            queue.refused(interval, now);
            n_refused += 1;
        }
        now += Duration::from_millis(10);
    }
    n_refused
}

#[test]
fn pauses_double_up_to_30_s_and_start_over_with_an_event() {
    let mut now = Instant::now();
    let mut queue = QuotaQueue::new(now);
    for pauses in [[50, 100, 200, 400, 800, 1600], [50, 50, 100, 200, 400, 800]] {
        for pause in pauses {
            assert_eq!(queue.due - now, Duration::from_millis(pause));
            now = queue.due;
            queue.refused(SECOND, now);
        }
        for _ in 0..10 {
            now = queue.due;
            queue.refused(SECOND, now);
        }
        assert_eq!(queue.due, now + PAUSE_MAX);
        now += PAUSE_MAX.saturating_sub(PAUSE_MIN);
        queue.wake(SECOND, now);
        assert_eq!(queue.due, now, "at once");
        now -= PAUSE_MIN;
    }
}

#[test]
fn a_storm_of_events_costs_one_refused_try_a_second() {
    for (interval, most) in [(SECOND, 10 + 60), (10 * SECOND, 10 + 6)] {
        let now = Instant::now();
        let mut queue = quiet(now);
        let storm = (now, now + 60 * SECOND);
        let period = Duration::from_millis(60);
        let n_refused = refused_until(&mut queue, storm, Some(period), interval);
        assert!((most - 3..=most).contains(&n_refused), "{n_refused}");
        let quiet = (now + 60 * SECOND, now + 660 * SECOND);
        let n_refused = refused_until(&mut queue, quiet, None, interval);
        assert!((19..=31).contains(&n_refused), "{n_refused}: one in 30 s");
    }
}

/// Several ReplicaSets may have their turn at once, after an accepted create.
#[test]
fn many_refusals_at_once_stop_the_queue_for_30_s_at_most() {
    let now = Instant::now();
    let mut queue = quiet(now);
    for _ in 0..1000 {
        queue.refused(SECOND, now);
    }
    queue.wake(SECOND, now);
    assert!(queue.due <= now + PAUSE_MAX);
}

#[test]
fn the_head_is_armed_once_for_each_time() {
    let now = Instant::now();
    let mut queue = QuotaQueue::new(now);
    assert_eq!(queue.arm(), None);
    let key = ObjectKey::new("default", "a");
    queue.join(1, key.clone());
    assert_eq!(queue.arm(), Some(key.clone()));
    assert_eq!(queue.arm(), None);
    queue.wake(SECOND, now);
    assert_eq!(queue.arm(), Some(key));
    queue.join(2, ObjectKey::new("default", "b"));
    assert_eq!((queue.arm(), queue.len(), queue.n_before(2)), (None, 2, 1));
}
