//! The recorder's near end: callers put events into a bounded queue and go on. How it behaves, and what
//! both ends of the queue count.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::Sender;

use super::correlator::Occurrence;
use super::{EventRecorder, EventType, ObjectReference};
use crate::stdx::clock::Clock;
use crate::stdx::escape::escaped;

/// How a recorder behaves.
#[derive(Clone, Copy, Debug)]
pub struct EventOptions {
    /// Who says so, such as `replicaset-controller`.
    pub component: &'static str,
    /// Events that wait for the thread `events`; one more is dropped and counted.
    pub queue_max: usize,
    /// Between two tries of an event that got no answer.
    pub retry_delay: Duration,
    /// After the stop signal, no event is tried that has waited for longer than this.
    pub drain_max: Duration,
}

impl EventOptions {
    /// Upstream's numbers: a queue of 1000 (apimachinery `pkg/watch/mux.go`, client-go
    /// `tools/record/event.go:maxQueuedEvents`), 10 s between tries
    /// (client-go `tools/record/event.go:defaultSleepDuration`); and 3 s at the end, a small part of
    /// what a supervisor leaves a daemon to stop.
    pub fn new(component: &'static str) -> Self {
        Self {
            component,
            queue_max: 1000,
            retry_delay: Duration::from_secs(10),
            drain_max: Duration::from_secs(3),
        }
    }
}

/// Hands events to the thread `events`.
#[derive(Debug)]
pub struct QueuedEventRecorder {
    /// Bound [`EventOptions::queue_max`]. When it is full, events are dropped and counted.
    pub(super) sender: Sender<Occurrence>,
    pub(super) counters: Arc<Counters>,
    pub(super) clock: Arc<dyn Clock>,
}

impl QueuedEventRecorder {
    /// What became of events so far.
    pub fn stats(&self) -> EventStats {
        self.counters.stats()
    }
}

impl EventRecorder for QueuedEventRecorder {
    fn event(
        &self,
        object: &ObjectReference,
        type_: EventType,
        reason: &'static str,
        message: String,
    ) {
        // `kubectl describe` shows it as it is stored, and a webhook's refusal may be a part of it.
        let message: Arc<str> = escaped(&message).into();
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
        if let Err(error) = self.sender.try_send(occurrence) {
            self.counters.dropped(error.is_full());
        }
    }
}

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
