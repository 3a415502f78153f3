//! Counters of a watch thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Counters of one watch thread since its start, for the metrics. Each counter is exact; together
/// they need not be consistent.
#[derive(Debug)]
pub struct CacheStats {
    /// Objects on the wire that could not be decoded. An object that arrives again counts again.
    pub unread_objects: AtomicU64,
    /// Completed lists after the first one, streamed or paged.
    pub relists: AtomicU64,
    /// Watches that the server has opened, including streamed lists.
    pub watches: AtomicU64,
    /// Events delivered to the handlers, including resyncs.
    pub events: AtomicU64,
    created: Instant,
    /// Milliseconds from `created` to the last byte received.
    last_byte_ms: AtomicU64,
}

impl CacheStats {
    /// Returns how long the API server has sent no byte of a list or watch; since `created` if it
    /// never has.
    pub fn silence(&self) -> Duration {
        let last_byte = Duration::from_millis(self.last_byte_ms.load(Ordering::Relaxed));
        self.created.elapsed().saturating_sub(last_byte)
    }

    /// Records that bytes have arrived.
    pub(super) fn bytes_received(&self) {
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

/// Increments a counter.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
