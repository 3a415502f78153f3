//! Conformance cases I-17 to I-22.

use std::sync::Arc;
use std::time::Duration;

use super::{BURST, INTERVAL, RateLimiter};
use crate::stdx::testing::FakeClock;

const HOUR: Duration = Duration::from_hours(1);
const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn limiter<K: Clone + Eq + std::hash::Hash>() -> (Arc<FakeClock>, RateLimiter<K>) {
    let clock = Arc::new(FakeClock::default());
    let limiter = RateLimiter::new(Arc::clone(&clock) as _);
    (clock, limiter)
}

/// Checks the delays of successive calls, in milliseconds.
#[track_caller]
fn check(limiter: &RateLimiter<&'static str>, key: &'static str, expected: &[u64]) {
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
fn i_17_exponential_delays_double_per_key_until_reset() {
    let (_, limiter) = limiter();
    check(&limiter, "one", &[5, 10, 20, 40, 80]);
    assert_eq!(limiter.num_requeues(&"one"), 5);
    check(&limiter, "two", &[5, 10]);
    assert_eq!(limiter.num_requeues(&"two"), 2);
    limiter.forget(&"one");
    assert_eq!(limiter.num_requeues(&"one"), 0);
    check(&limiter, "one", &[5]);
}

#[test]
fn all_keys_start_over_at_once() {
    let (_, limiter) = limiter();
    for _ in 0..1000 {
        limiter.when(&"one");
    }
    limiter.when(&"two");
    let mut forgotten = limiter.forget_all();
    forgotten.sort_unstable();
    assert_eq!(forgotten, ["one", "two"]);
    check(&limiter, "one", &[5, 10]);
    assert_eq!(limiter.num_requeues(&"two"), 0);
}

#[test]
fn i_18_exponential_delays_do_not_overflow() {
    let (clock, limiter) = limiter();
    for _ in 0..17 {
        limiter.when(&"one");
    }
    check(&limiter, "one", &[5 << 17, 1_000_000]);
    for _ in 0..1000 {
        clock.advance(SECOND);
        check(&limiter, "one", &[1_000_000]);
    }
}

#[test]
fn i_20_the_longest_delay_wins() {
    let (_, limiter) = limiter();
    for _ in 0..100 {
        limiter.when(&"all");
    }
    check(&limiter, "one", &[100, 200, 300]);
    check(&limiter, "two", &[400]);
    for _ in 0..7 {
        limiter.when(&"one");
    }
    check(&limiter, "one", &[5 << 10, 5 << 11]);
    assert_eq!(limiter.num_requeues(&"one"), 12);
}

#[test]
fn i_22_a_single_failing_key_waits_longer_each_time() {
    let (_, limiter) = limiter();
    check(&limiter, "one", &[5, 10, 20, 40, 80]);
    let last = (0..18).map(|_| limiter.when(&"one")).last();
    assert_eq!(last, Some(1000 * SECOND));
}

#[test]
fn i_22_over_all_keys_a_burst_is_followed_by_ten_a_second() {
    let (clock, limiter) = limiter();
    // A quiet time adds nothing to the burst.
    clock.advance(HOUR);
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
fn the_failures_of_one_tenant_delay_no_other() {
    let (clock, mut limiter) = limiter::<(u64, u32)>();
    limiter.set_tenants(|key| key.0);
    let last = (0..1000).map(|n| limiter.when(&(1, n))).last();
    assert_eq!(last, (INTERVAL * 1000).checked_sub(BURST));
    assert_eq!(limiter.when(&(2, 0)), 5 * MS);
    // What is whole again leaves nothing behind.
    clock.advance(HOUR);
    assert_eq!(limiter.when(&(2, 1)), 5 * MS);
    assert_eq!(limiter.state.lock().whole_at.len(), 1);
}
