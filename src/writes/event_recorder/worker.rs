//! The body of the thread `events`: takes what was recorded, correlates it, and sends it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crossbeam_channel::{Receiver, select_biased};

use super::correlator::{Correlated, Correlator, Occurrence};
use super::event::Event;
use super::queued::{Counters, EventOptions, QueuedEventRecorder};
use super::sink::{EventSink, Recorded, SinkError};
use crate::stdx::activity;
use crate::stdx::clock::Clock;
use crate::stdx::report::report;
use crate::stdx::stop::Stop;

/// Tries before an event is given up (client-go `tools/record/event.go:maxTriesPerEvent`).
const TRIES_MAX: u32 = 12;

/// After a burst nothing is taken for so long: what comes meanwhile is found all at once, and those who
/// record it need not wake this thread each time, which costs them more than the recording.
const PAUSE: Duration = Duration::from_millis(50);

/// Sends what an [`EventRecorder`](super::EventRecorder) was told. Nobody ever waits for it.
#[derive(Debug)]
pub struct EventWorker {
    pub(super) receiver: Receiver<Occurrence>,
    pub(super) counters: Arc<Counters>,
    pub(super) correlator: Correlator,
    pub(super) sink: Box<dyn EventSink>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) stop: Stop,
    pub(super) options: EventOptions,
}

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

/// What one attempt at an event came to.
enum Attempt {
    Stored(Recorded),
    GivenUp,
    TryAgain(SinkError),
}

impl EventWorker {
    /// The thread's body. Waits for events, and between two tries of one that got no answer.
    ///
    /// Ends when the stop signal was given and what was queued by then was tried once, or the time
    /// for that is over; or when the recorder is gone.
    pub fn run(mut self) {
        let stopped = self.stop.receiver().clone();
        let _wait = activity::enter("waits for events", "");
        loop {
            select_biased! {
                recv(stopped) -> _ => break,
                recv(self.receiver) -> received => match received {
                    Ok(occurrence) => self.record(occurrence),
                    Err(_) => return,
                },
            }
            let is_over = self.receiver.is_empty();
            self.counters.end_of_burst(is_over);
            if is_over && self.stop.wait_timeout(PAUSE) {
                break;
            }
        }
        self.drain();
    }

    /// Tries what is queued once each, for a bounded time.
    ///
    /// DIFFERS: upstream drops what is queued at shutdown.
    fn drain(&mut self) {
        let deadline = self.clock.now() + self.options.drain_max;
        while let Ok(occurrence) = self.receiver.try_recv() {
            if self.clock.now() >= deadline {
                let n_lost = self.receiver.len() + 1;
                log::warn!("{n_lost} events were not written before the daemon stopped");
                return;
            }
            self.record(occurrence);
        }
    }

    fn record(&mut self, occurrence: Occurrence) {
        let _event = activity::enter("event about", &occurrence.object.key);
        if let Some(correlated) = self.correlator.correlate(occurrence, &*self.clock) {
            self.write(correlated);
        } else {
            self.counters.filtered.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends one event, again and again if there is no answer (client-go `event.go:recordToSink`).
    fn write(&mut self, correlated: Correlated) {
        let Correlated { event, key } = correlated;
        for tries in 1..=TRIES_MAX {
            match self.attempt(&event) {
                Attempt::Stored(recorded) => {
                    self.counters.written.fetch_add(1, Ordering::Relaxed);
                    self.correlator.update_state(key, recorded);
                    return;
                }
                Attempt::GivenUp => break,
                Attempt::TryAgain(error) => {
                    let why = report(&error);
                    if tries == TRIES_MAX {
                        log::warn!(
                            error:% = why;
                            "event {} is given up after {tries} tries",
                            event.name
                        );
                        break;
                    }
                    log::debug!(error:% = why; "event {} was not written, try {tries}", event.name);
                    let delay = retry_delay(tries, self.options.retry_delay, fastrand::f64());
                    let _wait = activity::enter("waits to send again", &event.name);
                    if self.stop.wait_timeout(delay) {
                        log::debug!("event {} is given up: the daemon stops", event.name);
                        break;
                    }
                }
            }
        }
        self.counters.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// One attempt (client-go `event.go:recordEvent`).
    fn attempt(&self, event: &Event) -> Attempt {
        let answer = if event.count > 1 {
            match self.sink.patch(event) {
                // The stored one has expired, so its repeat becomes a new one.
                Err(SinkError::Refused(status)) if status.is_not_found() => self.sink.create(event),
                answer => answer,
            }
        } else {
            self.sink.create(event)
        };
        match answer {
            Ok(recorded) => Attempt::Stored(recorded),
            Err(SinkError::Refused(status))
                if status.is_already_exists() || status.is_namespace_terminating() =>
            {
                log::debug!(error:% = status; "event {} was refused", event.name);
                Attempt::GivenUp
            }
            Err(error @ (SinkError::Refused(_) | SinkError::Local(_))) => {
                log::warn!(error:% = report(&error); "event {} was refused", event.name);
                Attempt::GivenUp
            }
            Err(SinkError::Stopped) => Attempt::GivenUp,
            Err(error @ SinkError::NoAnswer(_)) => Attempt::TryAgain(error),
        }
    }
}

/// How long to wait after so many tries; `random` is uniform in `0.0..1.0`. The first wait is cut at
/// random, so that not all clients come back at once after a server's restart.
fn retry_delay(tries: u32, delay: Duration, random: f64) -> Duration {
    if tries == 1 {
        delay.mul_f64(random)
    } else {
        delay
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::retry_delay;

    #[test]
    fn k_09_the_first_wait_is_random() {
        let seconds = |tries, random| retry_delay(tries, Duration::from_secs(10), random);
        assert_eq!(seconds(1, 0.0), Duration::ZERO);
        assert_eq!(seconds(1, 0.25), Duration::from_millis(2500));
        assert_eq!(seconds(2, 0.25), Duration::from_secs(10));
    }
}
