//! The recorder's near end: callers put events into a bounded queue and go on.

use std::sync::Arc;

use crossbeam_channel::Sender;

use super::correlator::{Correlator, Occurrence};
use super::options::EventOptions;
use super::sink::EventSink;
use super::stats::{Counters, EventStats};
use super::worker::EventWorker;
use super::{EventRecorder, EventType, ObjectReference};
use crate::stdx::clock::Clock;
use crate::stdx::escape::escaped;
use crate::stdx::stop::Stop;

/// A recorder and the body of its thread. `stop` ends the thread: it should be given after everyone
/// who records has ended.
pub fn event_recorder(
    options: EventOptions,
    sink: Box<dyn EventSink>,
    clock: Arc<dyn Clock>,
    stop: &Stop,
) -> (Arc<QueuedEventRecorder>, EventWorker) {
    let (sender, receiver) = crossbeam_channel::bounded(options.queue_max);
    let counters = Arc::new(Counters::default());
    let recorder = Arc::new(QueuedEventRecorder {
        sender,
        counters: Arc::clone(&counters),
        clock: Arc::clone(&clock),
    });
    let worker = EventWorker {
        receiver,
        counters,
        correlator: Correlator::new(options.component),
        sink,
        clock,
        stop: stop.clone(),
        options,
    };
    (recorder, worker)
}

/// Hands events to the thread `events`.
#[derive(Debug)]
pub struct QueuedEventRecorder {
    /// Bound [`EventOptions::queue_max`]. When it is full, events are dropped and counted.
    sender: Sender<Occurrence>,
    pub(super) counters: Arc<Counters>,
    clock: Arc<dyn Clock>,
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
