//! A clock at whose readings something else happens, so that a test can interrupt a sync.

use std::fmt;
use std::time::Instant;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::stdx::clock::Clock;
use crate::stdx::testing::FakeClock;

type Hook = Box<dyn FnOnce() + Send>;

/// A clock that runs a hook at one of its readings, of either time.
#[derive(Default)]
pub(in crate::controller) struct HookedClock {
    clock: FakeClock,
    /// How many readings come before it, and the hook.
    hook: Mutex<Option<(usize, Hook)>>,
}

impl HookedClock {
    /// Runs `hook` at the reading after the next `n_before`.
    pub(in crate::controller) fn set(&self, n_before: usize, hook: impl FnOnce() + Send + 'static) {
        let mut pending = self.hook.lock();
        *pending = Some((n_before, Box::new(hook)));
    }

    /// Drops the hook. True if it has not run.
    pub(in crate::controller) fn unset(&self) -> bool {
        let mut pending = self.hook.lock();
        pending.take().is_some()
    }

    fn read(&self) {
        let mut pending = self.hook.lock();
        let due = match &mut *pending {
            Some((0, _)) => pending.take(),
            Some((n_before, _)) => {
                *n_before -= 1;
                None
            }
            None => None,
        };
        drop(pending);
        if let Some((_, hook)) = due {
            hook();
        }
    }
}

impl fmt::Debug for HookedClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookedClock").finish_non_exhaustive()
    }
}

impl Clock for HookedClock {
    fn now(&self) -> Instant {
        self.read();
        self.clock.now()
    }

    fn wall(&self) -> Timestamp {
        self.read();
        self.clock.wall()
    }
}
