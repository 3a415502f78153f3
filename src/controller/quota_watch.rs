//! Whether the changes of quotas are watched. A value shared by all controllers and the thread
//! `watch-quotas`.
//!
//! A cluster whose quotas refuse nothing costs no request and no connection: the watch begins with
//! the first refusal. It lasts as long as the daemon.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::stdx::latch::Latch;

/// The request for a watch of the quotas, and whether it is open.
#[derive(Debug, Default)]
pub struct QuotaWatch {
    requested: Latch,
    is_open: AtomicBool,
}

impl QuotaWatch {
    /// Notes that a quota refuses pods.
    pub(super) fn request(&self) {
        self.requested.set();
    }

    /// Set from the first refusal on.
    pub fn requested(&self) -> &Latch {
        &self.requested
    }

    /// Notes whether the API server tells of changes.
    pub fn set_open(&self, is_open: bool) {
        self.is_open.store(is_open, Ordering::Relaxed);
    }

    /// True if a quota whose status shows more room wakes its queue, and nothing else does.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }
}
