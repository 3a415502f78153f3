//! Time as an argument, so that tests turn it by hand.

use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

/// Where code that decides by time gets it from.
pub trait Clock: Debug + Send + Sync {
    /// A point on a clock that only goes forward; what is measured are differences.
    fn now(&self) -> Instant;

    /// The time of day, as the API server's timestamps have it.
    fn wall(&self) -> Timestamp;
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that stands still until it is told to move. Both its times move together.
#[derive(Debug)]
pub struct FakeClock {
    start: (Instant, Timestamp),
    /// How far the clock has moved since `start`.
    elapsed: Mutex<Duration>,
}

impl FakeClock {
    /// A clock that shows `wall`.
    pub fn at(wall: Timestamp) -> Self {
        Self {
            start: (Instant::now(), wall),
            elapsed: Mutex::default(),
        }
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        *self.elapsed.lock().unwrap_or_else(PoisonError::into_inner) += by;
    }

    /// How far it has moved.
    pub(super) fn elapsed(&self) -> Duration {
        *self.elapsed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for FakeClock {
    /// A clock at 2026-01-01T00:00:00Z.
    fn default() -> Self {
        Self::at(Timestamp::constant(1_767_225_600, 0))
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Instant {
        self.start.0 + self.elapsed()
    }

    fn wall(&self) -> Timestamp {
        self.start.1 + self.elapsed()
    }
}
