//! Clocks as arguments, so that tests control time.

use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::turns;

/// The time source of code that decides by time.
pub trait Clock: Debug + Send + Sync {
    /// Monotonic time, for durations.
    fn now(&self) -> Instant;

    /// Time of day, for the API server's timestamps.
    fn wall(&self) -> Timestamp;
}

/// The monotonic clock.
pub fn now() -> Instant {
    turns::clocks().map_or_else(Instant::now, |clocks| clocks.now)
}

/// CPU time of this thread.
#[cfg(any(test, feature = "simulation"))]
pub fn thread_time() -> Duration {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.expect("the system has this clock").into()
}

/// The system clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        now()
    }

    fn wall(&self) -> Timestamp {
        turns::clocks().map_or_else(Timestamp::now, |clocks| clocks.wall)
    }
}

/// A clock that only [`advance`](Self::advance) moves. Both of its times move together.
#[derive(Debug)]
pub struct FakeClock {
    start: (Instant, Timestamp),
    /// Time that the clock has advanced since `start`.
    elapsed: Mutex<Duration>,
}

impl FakeClock {
    /// A clock at 2026-01-01T00:00:00Z whose [`Clock::now`] begins at `start`.
    #[cfg(any(test, feature = "simulation"))]
    pub fn starting(start: Instant) -> Self {
        let mut clock = Self::default();
        clock.start.0 = start;
        clock
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        *self.elapsed.lock().unwrap_or_else(PoisonError::into_inner) += by;
    }

    /// Time that the clock has advanced.
    pub(super) fn elapsed(&self) -> Duration {
        *self.elapsed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for FakeClock {
    /// A clock at 2026-01-01T00:00:00Z.
    fn default() -> Self {
        Self {
            start: (Instant::now(), Timestamp::constant(1_767_225_600, 0)),
            elapsed: Mutex::default(),
        }
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
