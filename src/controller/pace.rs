//! How often a status may be written while pods come, turn Ready or finish going away.
//!
//! The first status is written at once, and so is one that says anything but that counts have come
//! nearer to what is wanted ([`Counts::can_wait`](super::counts::Counts::can_wait)): a loss, a
//! count that has reached what is wanted, a condition, a generation. In between, one status must do
//! for many pods.
//!
//! DIFFERS: upstream writes a status in every sync in which a number has changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::api::ObjectKey;
use crate::stdx::clock::Clock;

/// The pause that a status earns for each of its pods. So whoever has few pods never notices, and the
/// writes grow with the time that pods take, not with their number.
const PAUSE_PER_POD: Duration = Duration::from_millis(1);

/// ReplicaSets that are remembered before those whose time is over are forgotten.
const SWEEP_AT_LEAST: usize = 64;

/// When whose status may be written next. Shared by workers and watch threads; one lock, held for the
/// length of a map operation.
#[derive(Debug)]
pub struct StatusPace {
    clock: Arc<dyn Clock>,
    /// Zero: nobody waits.
    longest: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: HashMap<ObjectKey, Instant>,
    sweep_at: usize,
}

impl StatusPace {
    /// Nobody waits longer than `longest`.
    pub fn new(clock: Arc<dyn Clock>, longest: Duration) -> Self {
        Self {
            clock,
            longest,
            state: Mutex::default(),
        }
    }

    /// The status of this ReplicaSet, which has so many pods, was written.
    pub fn wrote(&self, key: &ObjectKey, n_pods: i32) {
        let pause = PAUSE_PER_POD.saturating_mul(n_pods.max(0).unsigned_abs());
        let pause = pause.min(self.longest);
        if pause.is_zero() {
            return;
        }
        let now = self.clock.now();
        let mut state = self.lock();
        if state.next.len() >= state.sweep_at.max(SWEEP_AT_LEAST) {
            state.next.retain(|_, next| *next > now);
            state.sweep_at = 2 * state.next.len();
        }
        state.next.insert(key.clone(), now + pause);
    }

    /// How long until counts that only get better may be written; `None` if they may be now.
    pub fn left(&self, key: &ObjectKey) -> Option<Duration> {
        let next = self.lock().next.get(key).copied()?;
        let left = next.saturating_duration_since(self.clock.now());
        (!left.is_zero()).then_some(left)
    }

    /// Forgets this ReplicaSet.
    pub fn clear(&self, key: &ObjectKey) {
        self.lock().next.remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::StatusPace;
    use crate::controller::testing::key;
    use crate::stdx::clock::FakeClock;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn who_has_more_pods_waits_longer_up_to_a_limit() {
        let clock = Arc::new(FakeClock::default());
        let pace = StatusPace::new(Arc::clone(&clock) as _, 250 * MS);
        for (name, n_pods, left) in [("few", 5, 5), ("many", 100, 100), ("most", 9000, 250)] {
            assert_eq!(pace.left(&key(name)), None, "{name} has written nothing");
            pace.wrote(&key(name), n_pods);
            assert_eq!(pace.left(&key(name)), Some(left * MS), "{name}");
        }
        clock.advance(100 * MS);
        assert_eq!(pace.left(&key("many")), None);
        assert_eq!(pace.left(&key("most")), Some(150 * MS));
        pace.clear(&key("most"));
        assert_eq!(pace.left(&key("most")), None);
    }

    #[test]
    fn without_a_limit_nobody_waits() {
        let pace = StatusPace::new(Arc::new(FakeClock::default()), Duration::ZERO);
        pace.wrote(&key("web"), 9000);
        assert_eq!(pace.left(&key("web")), None);
    }

    #[test]
    fn those_whose_time_is_over_are_forgotten() {
        let clock = Arc::new(FakeClock::default());
        let pace = StatusPace::new(Arc::clone(&clock) as _, MS);
        for n in 0..1000 {
            pace.wrote(&key(&n.to_string()), 1);
            clock.advance(MS);
        }
        assert!(pace.lock().next.len() <= 65);
    }
}
