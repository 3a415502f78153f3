//! The fence holds the time until which this process may write. The thread `lease` sets it; every
//! sending thread checks it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::client::Fence;
use crate::stdx::boot_clock::BootClock;
use crate::stdx::turns;

/// Open until a time that each renewal moves forward. Initially closed.
#[derive(Debug)]
pub struct LeaseFence {
    clock: Arc<dyn BootClock>,
    margin: Duration,
    /// Nanoseconds on the boot clock; 0 if closed. A single atomic, so readers never see half a
    /// change.
    open_until: AtomicU64,
}

impl LeaseFence {
    /// A closed fence. `margin` is the time between its closing and the earliest takeover.
    pub fn new(clock: Arc<dyn BootClock>, margin: Duration) -> Self {
        Self {
            clock,
            margin,
            open_until: AtomicU64::new(0),
        }
    }

    /// Opens the fence until `boot_time`.
    pub(super) fn open_until(&self, boot_time: Duration) {
        let nanos = u64::try_from(boot_time.as_nanos()).unwrap_or(u64::MAX);
        self.open_until.store(nanos, Ordering::SeqCst);
    }

    /// Closes the fence.
    pub(super) fn close(&self) {
        self.open_until.store(0, Ordering::SeqCst);
    }
}

impl Fence for LeaseFence {
    fn is_open(&self) -> bool {
        let until = Duration::from_nanos(self.open_until.load(Ordering::SeqCst));
        // ORDER: load the limit before the clock. In the other order, a thread frozen between the
        // two reads would check a stale time and pass an expired fence.
        turns::reached("fence: between the limit and the clock");
        self.clock.boot_time() < until
    }

    fn delivery_limit(&self) -> Duration {
        self.margin
    }
}
