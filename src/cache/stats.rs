//! What a watch thread counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Counters of one watch thread, all since its start. Read by whoever reports metrics; each counter
/// is exact, together they need not be of one moment.
#[derive(Debug)]
pub struct CacheStats {
    /// Objects on the wire that could not be read; one that comes again counts again.
    pub unread_objects: AtomicU64,
    /// Lists that were read to their end after the first one, streamed or paged.
    pub relists: AtomicU64,
    /// Watches that the server has opened, streamed lists among them.
    pub watches: AtomicU64,
    /// Changes that were told to the handlers, resyncs among them.
    pub events: AtomicU64,
    created: Instant,
    /// Milliseconds from `created` to the last byte that came.
    last_byte_ms: AtomicU64,
}

impl CacheStats {
    /// How long the API server has sent no byte of a list or watch; since the start if it never has.
    pub fn silence(&self) -> Duration {
        let heard = Duration::from_millis(self.last_byte_ms.load(Ordering::Relaxed));
        self.created.elapsed().saturating_sub(heard)
    }

    /// Notes that bytes have come.
    pub(super) fn heard(&self) {
        let ms = u64::try_from(self.created.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_byte_ms.store(ms, Ordering::Relaxed);
    }
}

impl Default for CacheStats {
    fn default() -> Self {
        Self {
            unread_objects: AtomicU64::default(),
            relists: AtomicU64::default(),
            watches: AtomicU64::default(),
            events: AtomicU64::default(),
            created: Instant::now(),
            last_byte_ms: AtomicU64::default(),
        }
    }
}

/// Adds one.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
