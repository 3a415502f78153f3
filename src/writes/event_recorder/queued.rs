//! The recorder that callers use: puts events into a bounded queue and returns. Also holds its
//! options and the counters of both ends of the queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::Sender;

use super::correlator::Occurrence;
use super::{EventType, ObjectReference};
use crate::stdx::clock::Clock;
use crate::stdx::escape::{escaped, shortened};
use crate::stdx::turns::Spot;

/// Queue size; the recorder drops and counts events beyond it (apimachinery `pkg/watch/mux.go`,
/// client-go `tools/record/event.go:maxQueuedEvents`).
pub(super) const QUEUE_MAX: usize = 1000;

/// The options of a recorder.
#[derive(Clone, Copy, Debug)]
pub struct EventOptions {
    /// The reporting component, such as `replicaset-controller`.
    pub component: &'static str,
    /// Pause between two attempts to send an event without a response.
    pub retry_delay: Duration,
}

impl EventOptions {
    /// Upstream's value: 10 s between attempts (client-go
    /// `tools/record/event.go:defaultSleepDuration`).
    pub fn new(component: &'static str) -> Self {
        Self {
            component,
            retry_delay: Duration::from_secs(10),
        }
    }
}

/// Accepts events without blocking the caller, and passes them to the thread `events`.
#[derive(Debug)]
pub struct EventRecorder {
    /// Bounded by `QUEUE_MAX`. When it is full, the recorder drops and counts
    /// events.
    pub(super) sender: Sender<Occurrence>,
    pub(super) counters: Arc<Counters>,
    pub(super) clock: Arc<dyn Clock>,
}

impl EventRecorder {
    /// The outcomes so far.
    pub fn stats(&self) -> EventStats {
        self.counters.stats()
    }

    /// Records one event about `object`. If the queue is full, drops and counts it.
    pub fn event(
        &self,
        object: &ObjectReference,
        type_: EventType,
        reason: &'static str,
        message: &str,
    ) {
        // The message may quote a webhook's rejection, and `kubectl describe` prints it unescaped.
        let message: Arc<str> = shortened(escaped(message)).into();
        log::debug!(
            "event {} {reason} {}={}: {message}",
            type_.as_str(),
            object.kind.to_ascii_lowercase(),
            object.key
        );
        let occurrence = Occurrence {
            object: object.clone(),
            type_,
            reason,
            message,
            at: self.clock.wall(),
        };
        match self.sender.try_send(occurrence) {
            Ok(()) => self.counters.arrived.wake(),
            Err(error) => self.counters.dropped(error.is_full()),
        }
    }
}

/// Number of events by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventStats {
    /// Stored by the API server.
    pub written_total: u64,
    /// Filtered because there were too many about one object.
    pub filtered_total: u64,
    /// Rejected, or without a response after all attempts.
    pub failed_total: u64,
    /// Dropped because the queue was full or the thread had ended.
    pub dropped_total: u64,
}

/// The counters that recorder and worker share.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) written: AtomicU64,
    pub(super) filtered: AtomicU64,
    pub(super) failed: AtomicU64,
    dropped: AtomicU64,
    /// Where the thread `events` of a simulation waits.
    pub(super) arrived: Spot,
    /// Set from the first dropped event until the thread has emptied the queue, to log a flood only
    /// once.
    is_dropping: AtomicBool,
}

impl Counters {
    /// Counts a dropped event; `is_full` distinguishes a full queue from an ended thread.
    pub(super) fn dropped(&self, is_full: bool) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        if is_full && !self.is_dropping.swap(true, Ordering::Relaxed) {
            log::warn!("the event queue is full; events may be dropped until it is empty");
        }
    }

    /// Ends the dropping state once the queue is empty.
    pub(super) fn end_of_burst(&self, is_empty: bool) {
        if is_empty && self.is_dropping.swap(false, Ordering::Relaxed) {
            let n_dropped = self.dropped.load(Ordering::Relaxed);
            log::warn!("the event queue is empty again; {n_dropped} events dropped so far");
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
