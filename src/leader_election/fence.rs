//! Until when we may write: set by the thread `lease`, asked by every thread that sends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::client::Fence;
use crate::stdx::boot_clock::BootClock;

/// Open until a point in time that each renewal moves forward. Closed at first.
#[derive(Debug)]
pub struct LeaseFence {
    clock: Arc<dyn BootClock>,
    margin: Duration,
    /// Nanoseconds on the boot clock; 0 for closed. One value, so that nobody ever sees half a change.
    open_until: AtomicU64,
}

impl LeaseFence {
    /// A closed fence, with `margin` from its closing until another may write.
    pub fn new(clock: Arc<dyn BootClock>, margin: Duration) -> Self {
        Self {
            clock,
            margin,
            open_until: AtomicU64::new(0),
        }
    }

    /// Opens it until `boot_time`.
    pub(super) fn open_until(&self, boot_time: Duration) {
        let nanos = u64::try_from(boot_time.as_nanos()).unwrap_or(u64::MAX);
        self.open_until.store(nanos, Ordering::SeqCst);
    }

    /// Closes it.
    pub(super) fn close(&self) {
        self.open_until.store(0, Ordering::SeqCst);
    }
}

impl Fence for LeaseFence {
    fn is_open(&self) -> bool {
        let until = Duration::from_nanos(self.open_until.load(Ordering::SeqCst));
        // ORDER: the limit is read before the clock. The other way round a thread frozen in between
        // would compare an old time with a new limit, which is right, or, after a loss, with none.
        self.clock.boot_time() < until
    }

    fn delivery_limit(&self) -> Duration {
        self.margin
    }
}
