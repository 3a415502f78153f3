//! The back-off of keys that failed (client-go `util/workqueue/default_rate_limiters.go`).
//!
//! Every thread that adds rate-limited keys calls it, mostly the `sync-*` threads.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::lane::Tenant;
use crate::stdx::clock::Clock;

/// First retry of a key (client-go `DefaultTypedControllerRateLimiter`).
const BASE_DELAY: Duration = Duration::from_millis(5);

/// Maximum delay of a retry (client-go `DefaultTypedControllerRateLimiter`).
const MAX_DELAY: Duration = Duration::from_secs(1000);

/// Long-term interval between retries of all keys of a tenant together: 10 a second (client-go
/// `DefaultTypedControllerRateLimiter`).
const INTERVAL: Duration = Duration::from_millis(100);

/// Retries of all keys of a tenant together that run without delay after a quiet time: 100
/// (client-go `DefaultTypedControllerRateLimiter`).
const BURST: Duration = INTERVAL.saturating_mul(100);

/// Decides how long a key waits before its retry: 5 ms, doubled with each failure of the key up to
/// 1000 s, and long enough that a tenant's keys together are retried at most 10 times a second
/// after a burst of 100. No call blocks.
///
/// DIFFERS: upstream limits the retries of all keys together, so that thousands of keys that fail
/// in one namespace delay a retry in another.
pub struct RateLimiter<K> {
    clock: Arc<dyn Clock>,
    tenant_of: fn(&K) -> Tenant,
    state: Mutex<State<K>>,
}

struct State<K> {
    /// Failures by key. An entry lasts until the key is reset.
    failures: HashMap<K, u32>,
    /// When each tenant's burst is whole again if none of its keys fails. It is whole without an
    /// entry.
    whole_at: HashMap<Tenant, Instant>,
}

impl<K: Clone + Eq + Hash> RateLimiter<K> {
    /// Creates a limiter with one tenant, without failures.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let state = State {
            failures: HashMap::new(),
            whole_at: HashMap::new(),
        };
        Self {
            clock,
            tenant_of: |_| 0,
            state: Mutex::new(state),
        }
    }

    /// Limits the retries of each tenant.
    pub fn set_tenants(&mut self, tenant_of: fn(&K) -> Tenant) {
        self.tenant_of = tenant_of;
    }

    /// Counts one failure of `key` and returns its delay. It takes its turn among all keys whatever
    /// the caller does next.
    pub fn when(&self, key: &K) -> Duration {
        let now = self.clock.now();
        let mut state = self.lock();
        let n_failures = state.failures.entry(key.clone()).or_default();
        let doubled = 2_u32.saturating_pow(*n_failures);
        *n_failures = n_failures.saturating_add(1);
        state.whole_at.retain(|_, whole_at| *whole_at > now);
        let whole_at = state.whole_at.entry((self.tenant_of)(key)).or_insert(now);
        *whole_at += INTERVAL;
        let turn = whole_at.saturating_duration_since(now);
        let delay = BASE_DELAY.saturating_mul(doubled).min(MAX_DELAY);
        delay.max(turn.saturating_sub(BURST))
    }

    /// Resets the failures of `key`.
    pub fn forget(&self, key: &K) {
        self.lock().failures.remove(key);
    }

    /// Resets the failures of all keys. Returns these keys.
    pub fn forget_all(&self) -> Vec<K> {
        let mut state = self.lock();
        state.whole_at.clear();
        std::mem::take(&mut state.failures).into_keys().collect()
    }

    /// Returns the failures of `key` since its last reset.
    pub fn num_requeues(&self, key: &K) -> u32 {
        self.lock().failures.get(key).copied().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash> fmt::Debug for RateLimiter<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys that failed", self.lock().failures.len())
    }
}

#[cfg(test)]
mod tests;
