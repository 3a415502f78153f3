//! What a watch thread tells metrics and health checks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Counters of one watch thread since its start, and its current outage. Each counter is exact;
/// together they need not be consistent.
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
    /// Milliseconds from `created` to the last object or message that was read.
    last_heard_ms: AtomicU64,
    /// Start of the current outage and the reason of its last failure.
    outage: Mutex<Option<(Instant, String)>>,
}

impl CacheStats {
    /// Returns for how long nothing of a list or watch could be read; since `created` if nothing
    /// ever was. A response's head does not count, nor does the page of a proxy.
    pub fn silence(&self, now: Instant) -> Duration {
        let last_heard = Duration::from_millis(self.last_heard_ms.load(Ordering::Relaxed));
        now.saturating_duration_since(self.created + last_heard)
    }

    /// Duration of the current outage and the reason of its last failure; `None` if the last list
    /// or watch could be read.
    pub fn outage(&self, now: Instant) -> Option<(Duration, String)> {
        let outage = self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, why) = outage.as_ref()?;
        Some((now.saturating_duration_since(*since), why.clone()))
    }

    /// Records an object of a list, a complete list or a message of a watch.
    pub(super) fn heard(&self, now: Instant) {
        let ms = now.saturating_duration_since(self.created).as_millis();
        let ms = u64::try_from(ms).unwrap_or(u64::MAX);
        self.last_heard_ms.store(ms, Ordering::Relaxed);
    }

    /// Records the outage, or its end.
    pub fn set_outage(&self, outage: Option<(Instant, String)>) {
        *self.outage.lock().unwrap_or_else(PoisonError::into_inner) = outage;
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
            last_heard_ms: AtomicU64::default(),
            outage: Mutex::default(),
        }
    }
}

/// Increments a counter.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
