//! Time since boot, including suspend. Leader election measures the lease with it: the monotonic
//! clock stops while the machine is suspended, and the time of day can be set.

use std::fmt::Debug;
use std::time::Duration;

use super::clock::FakeClock;
use super::turns;

/// A clock that includes suspend.
pub trait BootClock: Debug + Send + Sync {
    /// Time since a fixed point in the past; only differences are meaningful.
    fn boot_time(&self) -> Duration;
}

/// The system clock: `CLOCK_BOOTTIME` on Linux, otherwise `CLOCK_MONOTONIC`, which may exclude
/// suspend.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemBootClock;

impl BootClock for SystemBootClock {
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

impl BootClock for FakeClock {
    fn boot_time(&self) -> Duration {
        self.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::{BootClock, SystemBootClock};

    #[test]
    fn boot_time_never_decreases() {
        let first = SystemBootClock.boot_time();
        assert!(!first.is_zero());
        assert!(SystemBootClock.boot_time() >= first);
    }
}
