//! Rate limiters: the back-off of keys that failed (client-go
//! `util/workqueue/default_rate_limiters.go`).
//!
//! Every thread that adds rate-limited keys calls them, mostly the `sync-*` threads.

use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::stdx::clock::Clock;

/// First retry of a key (client-go `DefaultTypedControllerRateLimiter`).
const BASE_DELAY: Duration = Duration::from_millis(5);

/// Maximum delay of a retry (client-go `DefaultTypedControllerRateLimiter`).
const MAX_DELAY: Duration = Duration::from_secs(1000);

/// Long-term interval between retries of all keys together: 10 a second (client-go
/// `DefaultTypedControllerRateLimiter`).
const BUCKET_INTERVAL: Duration = Duration::from_millis(100);

/// Retries of all keys together that run without delay after a quiet time (client-go
/// `DefaultTypedControllerRateLimiter`).
const BUCKET_BURST: u32 = 100;

/// Decides how long a key waits before its retry. No call blocks.
pub trait RateLimiter<K>: Debug + Send + Sync {
    /// Counts one failure of `key` and returns its delay.
    fn when(&self, key: &K) -> Duration;

    /// Resets the failures of `key`.
    fn forget(&self, key: &K);

    /// Returns the failures of `key` since its last reset.
    fn num_requeues(&self, key: &K) -> u32;
}

/// The controller's rate limiter: per key 5 ms, doubled with each failure up to 1000 s, and over
/// all keys at most 10 a second after a burst of 100.
pub fn default_controller_rate_limiter<K>(clock: Arc<dyn Clock>) -> Box<dyn RateLimiter<K>>
where
    K: Clone + Debug + Eq + Hash + Send + 'static,
{
    Box::new(MaxOf::new(vec![
        Box::new(ItemExponential::new(BASE_DELAY, MAX_DELAY)),
        Box::new(Bucket::new(clock, BUCKET_INTERVAL, BUCKET_BURST)),
    ]))
}

/// Failures by key. An entry lasts until the key is reset.
struct Failures<K>(Mutex<HashMap<K, u32>>);

impl<K: Clone + Eq + Hash> Failures<K> {
    fn new() -> Self {
        Self(Mutex::new(HashMap::new()))
    }

    /// Counts one failure and returns the number before it.
    fn count(&self, key: &K) -> u32 {
        let mut failures = self.lock();
        let count = failures.entry(key.clone()).or_default();
        let before = *count;
        *count = before.saturating_add(1);
        before
    }

    fn of(&self, key: &K) -> u32 {
        self.lock().get(key).copied().unwrap_or_default()
    }

    fn forget(&self, key: &K) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash> Debug for Failures<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.lock().len())
    }
}

/// Doubles the delay of a key with each failure (`TypedItemExponentialFailureRateLimiter`).
#[derive(Debug)]
pub struct ItemExponential<K: Clone + Eq + Hash> {
    base: Duration,
    cap: Duration,
    failures: Failures<K>,
}

impl<K: Clone + Eq + Hash> ItemExponential<K> {
    /// Starts at `base` and stays at `cap`.
    pub fn new(base: Duration, cap: Duration) -> Self {
        let failures = Failures::new();
        Self {
            base,
            cap,
            failures,
        }
    }
}

impl<K: Clone + Debug + Eq + Hash + Send> RateLimiter<K> for ItemExponential<K> {
    fn when(&self, key: &K) -> Duration {
        // Stops at the first delay that reaches the cap, so it neither overflows nor loops for
        // long.
        let double = |delay: Duration, _| delay.checked_mul(2).filter(|delay| *delay < self.cap);
        (0..self.failures.count(key))
            .try_fold(self.base, double)
            .map_or(self.cap, |delay| delay.min(self.cap))
    }

    fn forget(&self, key: &K) {
        self.failures.forget(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.failures.of(key)
    }
}

/// A token bucket over all keys (`TypedBucketRateLimiter`). A call takes a token whatever the
/// caller does next, and may take it in advance.
#[derive(Debug)]
pub struct Bucket {
    clock: Arc<dyn Clock>,
    interval: Duration,
    burst: Duration,
    /// When the bucket is full again if no call takes a token.
    full_at: Mutex<Instant>,
}

impl Bucket {
    /// Creates a full bucket of `burst` tokens that gains one in each `interval`.
    pub fn new(clock: Arc<dyn Clock>, interval: Duration, burst: u32) -> Self {
        let full_at = Mutex::new(clock.now());
        Self {
            clock,
            interval,
            burst: interval * burst,
            full_at,
        }
    }

    /// Takes a token and returns the delay until it is available.
    pub fn take(&self) -> Duration {
        let now = self.clock.now();
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        *full_at = now.max(*full_at) + self.interval;
        full_at
            .saturating_duration_since(now)
            .saturating_sub(self.burst)
    }
}

impl<K> RateLimiter<K> for Bucket {
    fn when(&self, _: &K) -> Duration {
        self.take()
    }

    fn forget(&self, _: &K) {}

    fn num_requeues(&self, _: &K) -> u32 {
        0
    }
}

/// The longest of several delays; each limiter counts the failure (`TypedMaxOfRateLimiter`).
#[derive(Debug)]
pub struct MaxOf<K>(Vec<Box<dyn RateLimiter<K>>>);

impl<K> MaxOf<K> {
    /// Combines `limiters`.
    pub fn new(limiters: Vec<Box<dyn RateLimiter<K>>>) -> Self {
        Self(limiters)
    }
}

impl<K: Debug> RateLimiter<K> for MaxOf<K> {
    fn when(&self, key: &K) -> Duration {
        let delays = self.0.iter().map(|limiter| limiter.when(key));
        delays.max().unwrap_or_default()
    }

    fn forget(&self, key: &K) {
        for limiter in &self.0 {
            limiter.forget(key);
        }
    }

    fn num_requeues(&self, key: &K) -> u32 {
        let counts = self.0.iter().map(|limiter| limiter.num_requeues(key));
        counts.max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
