//! Conformance cases I-17 to I-22.

use std::sync::Arc;
use std::time::Duration;

use super::{Bucket, ItemExponential, MaxOf, RateLimiter, default_controller_rate_limiter};
use crate::stdx::clock::FakeClock;

const HOUR: Duration = Duration::from_hours(1);
const MINUTE: Duration = Duration::from_mins(1);
const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Checks the delays of successive calls, in milliseconds.
#[track_caller]
fn check(limiter: &dyn RateLimiter<&'static str>, key: &'static str, expected: &[u64]) {
    for (i, &expected_ms) in expected.iter().enumerate() {
        let delay = limiter.when(&key);
        assert_eq!(
            delay,
            Duration::from_millis(expected_ms),
            "call {i} for {key}"
        );
    }
}

#[test]
fn i_17_exponential_delays_double_per_key_until_forgotten() {
    let limiter = ItemExponential::new(MS, SECOND);
    check(&limiter, "one", &[1, 2, 4, 8, 16]);
    assert_eq!(limiter.num_requeues(&"one"), 5);
    check(&limiter, "two", &[1, 2]);
    assert_eq!(limiter.num_requeues(&"two"), 2);
    limiter.forget(&"one");
    assert_eq!(limiter.num_requeues(&"one"), 0);
    check(&limiter, "one", &[1]);
}

#[test]
fn i_18_exponential_delays_do_not_overflow() {
    let limiter = ItemExponential::new(MS, 1000 * SECOND);
    check(&limiter, "one", &[1, 2, 4, 8, 16, 32]);
    let last = (0..1000).map(|_| limiter.when(&"one")).last();
    assert_eq!(last, Some(1000 * SECOND));

    let limiter = ItemExponential::new(MINUTE, 1000 * HOUR);
    check(&limiter, "two", &[60_000, 120_000, 240_000]);
    let last = (0..1000).map(|_| limiter.when(&"two")).last();
    assert_eq!(last, Some(1000 * HOUR));

    let limiter = ItemExponential::new(HOUR, SECOND);
    check(&limiter, "base above the cap", &[1000, 1000]);
}

#[test]
fn i_20_the_longest_delay_wins() {
    let limiter = MaxOf::new(vec![
        Box::new(ItemExponential::new(5 * MS, 20 * MS)),
        Box::new(ItemExponential::new(MS, SECOND)),
    ]);
    check(&limiter, "one", &[5, 10, 20, 20, 20, 32, 64]);
    assert_eq!(limiter.num_requeues(&"one"), 7);
    check(&limiter, "two", &[5, 10]);
    assert_eq!(limiter.num_requeues(&"two"), 2);
    limiter.forget(&"one");
    assert_eq!(limiter.num_requeues(&"one"), 0);
    check(&limiter, "one", &[5]);
}

#[test]
fn i_22_a_single_failing_key_waits_longer_each_time() {
    let clock = Arc::new(FakeClock::default());
    let limiter = default_controller_rate_limiter(clock);
    check(&*limiter, "one", &[5, 10, 20, 40, 80]);
    let last = (0..18).map(|_| limiter.when(&"one")).last();
    assert_eq!(last, Some(1000 * SECOND));
}

#[test]
fn i_22_over_all_keys_a_burst_is_followed_by_ten_a_second() {
    let clock = Arc::new(FakeClock::default());
    let limiter = default_controller_rate_limiter(Arc::clone(&clock) as _);
    for key in 0..100 {
        assert_eq!(limiter.when(&key), 5 * MS);
    }
    assert_eq!(limiter.when(&100), 100 * MS);
    assert_eq!(limiter.when(&101), 200 * MS);
    // Past reservations count, whatever the caller did.
    clock.advance(SECOND);
    for key in 102..110 {
        assert_eq!(limiter.when(&key), 5 * MS);
    }
    assert_eq!(limiter.when(&110), 100 * MS);
    limiter.forget(&110);
    assert_eq!(
        limiter.when(&110),
        200 * MS,
        "forgetting gives no token back"
    );
}

#[test]
fn a_bucket_never_holds_more_than_its_burst() {
    let clock = Arc::new(FakeClock::default());
    let bucket = Bucket::new(Arc::clone(&clock) as _, 100 * MS, 2);
    clock.advance(HOUR);
    let delays: Vec<_> = (0..4).map(|_| bucket.take().as_millis()).collect();
    assert_eq!(delays, [0, 0, 100, 200]);
}
