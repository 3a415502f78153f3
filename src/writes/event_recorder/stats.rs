//! What became of events: counted by both ends of the queue.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What became of events so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventStats {
    /// Stored by the server.
    pub written_total: u64,
    /// Not sent because there were too many about their object.
    pub filtered_total: u64,
    /// Sent in vain: refused, or without answer after all tries.
    pub failed_total: u64,
    /// Dropped because the queue was full or the thread had ended.
    pub dropped_total: u64,
}

/// Counts what becomes of events; shared by recorder and worker.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) written: AtomicU64,
    pub(super) filtered: AtomicU64,
    pub(super) failed: AtomicU64,
    dropped: AtomicU64,
    /// True from the first event dropped until the thread has emptied the queue, so that a flood is
    /// logged once.
    is_dropping: AtomicBool,
}

impl Counters {
    /// Notes that an event was dropped, because the queue was full or because nobody takes any more.
    pub(super) fn dropped(&self, is_full: bool) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        if is_full && !self.is_dropping.swap(true, Ordering::Relaxed) {
            log::warn!("the queue of events is full; until it is empty, events may be dropped");
        }
    }

    /// Notes whether the queue is empty again.
    pub(super) fn end_of_burst(&self, is_empty: bool) {
        if is_empty && self.is_dropping.swap(false, Ordering::Relaxed) {
            let n_dropped = self.dropped.load(Ordering::Relaxed);
            log::warn!("the queue of events is empty again, {n_dropped} events dropped so far");
        }
    }

    pub(super) fn stats(&self) -> EventStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EventStats {
            written_total: of(&self.written),
            filtered_total: of(&self.filtered),
            failed_total: of(&self.failed),
            dropped_total: of(&self.dropped),
        }
    }
}
