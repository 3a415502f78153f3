//! Clocks as arguments, so that tests control time (`stdx::testing`); back-off that doubles, with
//! jitter and a reset after quiet times.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::turns;

/// The time source of code that decides by time.
pub trait Clock: Debug + Send + Sync {
    /// Monotonic time, for durations.
    fn now(&self) -> Instant;

    /// Time of day, for the API server's timestamps.
    fn wall(&self) -> Timestamp;

    /// Time since boot, including suspend: `CLOCK_BOOTTIME` on Linux, otherwise `CLOCK_MONOTONIC`,
    /// which may exclude suspend. Leader election measures the lease with it: the monotonic clock
    /// stops while the machine is suspended, and the time of day can be set.
    fn boot_time(&self) -> Duration {
        if let Some(clocks) = turns::clocks() {
            return clocks.boot;
        }
        #[cfg(target_os = "linux")]
        let id = nix::time::ClockId::CLOCK_BOOTTIME;
        #[cfg(not(target_os = "linux"))]
        let id = nix::time::ClockId::CLOCK_MONOTONIC;
        nix::time::clock_gettime(id)
            .expect("the system has this clock")
            .into()
    }
}

pub fn now() -> Instant {
    turns::clocks().map_or_else(Instant::now, |clocks| clocks.now)
}

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

#[derive(Clone, Copy, Debug)]
pub struct BackoffParameters {
    /// The first delay, before jitter.
    pub initial: Duration,
    /// Maximum delay, before jitter.
    pub cap: Duration,
    /// A delay `d` becomes a random one from `d` to `d * (1 + jitter)`.
    pub jitter: f64,
    /// The sequence restarts if a step comes this long after its last start.
    pub reset_after: Duration,
}

/// A sequence of delays, each twice the previous one.
#[derive(Debug)]
pub struct Backoff {
    parameters: BackoffParameters,
    next: Duration,
    last_reset: Option<Instant>,
}

impl Backoff {
    pub fn new(parameters: BackoffParameters) -> Self {
        Self {
            parameters,
            next: parameters.initial,
            last_reset: None,
        }
    }

    /// The next delay; `random` is uniform in `0.0..1.0`.
    pub fn step(&mut self, now: Instant, random: f64) -> Duration {
        let BackoffParameters {
            initial,
            cap,
            jitter,
            reset_after,
        } = self.parameters;
        let last_reset = *self.last_reset.get_or_insert(now);
        if now.saturating_duration_since(last_reset) > reset_after {
            self.next = initial;
            self.last_reset = Some(now);
        }
        let delay = self.next;
        self.next = delay.saturating_mul(2).min(cap);
        delay + delay.mul_f64(jitter * random)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Backoff, BackoffParameters, Clock, SystemClock};

    #[test]
    fn boot_time_never_decreases() {
        let first = SystemClock.boot_time();
        assert!(!first.is_zero());
        assert!(SystemClock.boot_time() >= first);
    }

    #[test]
    fn delays_grow_to_the_cap_and_reset_after_quiet_times() {
        let mut backoff = Backoff::new(BackoffParameters {
            initial: Duration::from_millis(800),
            cap: Duration::from_secs(30),
            jitter: 1.0,
            reset_after: Duration::from_mins(2),
        });
        let start = Instant::now();
        let delays: Vec<_> = (0..8)
            .map(|_| backoff.step(start, 0.0).as_millis())
            .collect();
        assert_eq!(
            delays,
            [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]
        );
        let later = start + Duration::from_secs(121);
        assert_eq!(backoff.step(later, 0.5), Duration::from_millis(1200));
    }
}
