//! What only tests and simulations use: a clock that they move, the CPU time of a thread, and an
//! explorer of small models.

pub mod explore;

use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;

use super::clock::Clock;

/// CPU time of this thread.
pub fn thread_time() -> Duration {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.expect("the system has this clock").into()
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
    pub fn starting(start: Instant) -> Self {
        let mut clock = Self::default();
        clock.start.0 = start;
        clock
    }

    pub fn advance(&self, by: Duration) {
        *self.elapsed.lock() += by;
    }

    /// Time that the clock has advanced.
    fn elapsed(&self) -> Duration {
        *self.elapsed.lock()
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

    fn boot_time(&self) -> Duration {
        self.elapsed()
    }
}
