//! Time since the machine was started, its sleep included. A lease that others may take over is
//! measured by it: the ordinary monotonic clock stands still while the machine is suspended, and the
//! time of day can be set.

use std::fmt::Debug;
use std::time::Duration;

use super::clock::FakeClock;

/// Where code that must not miss a suspended hour gets the time from.
pub trait BootClock: Debug + Send + Sync {
    /// How long ago a fixed moment in the past was; only differences mean anything.
    fn boot_time(&self) -> Duration;
}

/// The machine's clock: `CLOCK_BOOTTIME` on Linux. Elsewhere `CLOCK_MONOTONIC`, which may not count
/// sleep.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemBootClock;

impl BootClock for SystemBootClock {
    fn boot_time(&self) -> Duration {
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
    fn it_goes_forward() {
        let first = SystemBootClock.boot_time();
        assert!(!first.is_zero());
        assert!(SystemBootClock.boot_time() >= first);
    }
}
