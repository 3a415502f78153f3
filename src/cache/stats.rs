//! What a watch thread counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one watch thread, all since its start. Read by whoever reports metrics; each counter
/// is exact, together they need not be of one moment.
#[derive(Debug, Default)]
pub struct CacheStats {
    /// Objects on the wire that could not be read; one that comes again counts again.
    pub unread_objects: AtomicU64,
    /// Lists that were read to their end after the first one, streamed or paged.
    pub relists: AtomicU64,
    /// Watches that the server has opened, streamed lists among them.
    pub watches: AtomicU64,
    /// Changes that were told to the handlers, resyncs among them.
    pub events: AtomicU64,
}

/// Adds one.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
