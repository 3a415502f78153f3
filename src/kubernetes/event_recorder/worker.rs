//! The body of the thread `events`: takes recorded events, correlates them, and sends the results.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, TryRecvError, select_biased};

use super::correlator::{Correlated, Correlator, Occurrence};
use super::{Counters, Event, EventOptions, EventRecorder, EventSink, QUEUE_MAX, Recorded};
use crate::client::ClientError;
use crate::stdx::clock::Clock;
use crate::stdx::escape::report;
use crate::stdx::stop::Stop;
use crate::stdx::turns::Waited;
use crate::stdx::{thread, turns};

/// Maximum attempts per event (client-go `tools/record/event.go:maxTriesPerEvent`).
const TRIES_MAX: u32 = 12;

/// Maximum time for sending queued events after the stop signal: a small part of a supervisor's
/// usual stop timeout.
const DRAIN_MAX: Duration = Duration::from_secs(3);

/// Delay after the queue was emptied, so that the events that arrive meanwhile wake this thread
/// once: a wake-up costs the recording thread more than the recording itself.
const PAUSE: Duration = Duration::from_millis(50);

/// The longest that the API server may postpone an event, in retry delays.
const POSTPONED_MAX: u32 = 6;

/// An event that the API server asks to send later. Those of other objects need not wait for it.
pub(super) struct Postponed {
    correlated: Correlated,
    n_attempts: u32,
    due: Instant,
}

pub struct EventWorker {
    pub(super) receiver: Receiver<Occurrence>,
    pub(super) counters: Arc<Counters>,
    pub(super) correlator: Correlator,
    /// [`QUEUE_MAX`] at most.
    pub(super) postponed: Vec<Postponed>,
    pub(super) sink: Box<dyn EventSink>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) stop: Stop,
    pub(super) options: EventOptions,
}

/// Creates a recorder and the body of its thread. `stop` ends the thread; signal it after all
/// recording threads have ended.
pub fn event_recorder(
    options: EventOptions,
    sink: Box<dyn EventSink>,
    clock: Arc<dyn Clock>,
    stop: &Stop,
) -> (Arc<EventRecorder>, EventWorker) {
    let (sender, receiver) = crossbeam_channel::bounded(QUEUE_MAX);
    let counters = Arc::new(Counters::default());
    let recorder = Arc::new(EventRecorder {
        sender,
        counters: Arc::clone(&counters),
        clock: Arc::clone(&clock),
    });
    let worker = EventWorker {
        receiver,
        counters,
        correlator: Correlator::new(options.component),
        postponed: Vec::new(),
        sink,
        clock,
        stop: stop.clone(),
        options,
    };
    (recorder, worker)
}

enum Attempt {
    Stored(Recorded),
    Failed,
    Retry(ClientError),
}

enum Next {
    Event(Occurrence),
    /// A postponed event is due.
    Due,
    Stopped,
    /// The recorder was dropped, and no event is postponed.
    Dropped,
}

impl EventWorker {
    /// The thread's body. Blocks until an event arrives, and between two attempts.
    ///
    /// Ends when the recorder is dropped, or after the stop signal, when `drain` has
    /// sent the queued events.
    pub fn run(mut self) {
        let stopped = self.stop.receiver().clone();
        let _wait = thread::enter("waits for events", "");
        loop {
            match self.next(&stopped) {
                Next::Event(occurrence) => self.record(occurrence),
                Next::Due => {}
                Next::Stopped => break,
                Next::Dropped => return,
            }
            self.send_postponed();
            let is_empty = self.receiver.is_empty();
            self.counters.end_of_burst(is_empty);
            if is_empty && self.stop.wait_timeout(PAUSE) {
                break;
            }
        }
        self.drain();
    }

    /// Blocks until an event arrives or is due, or no more follow.
    fn next(&self, stopped: &Receiver<()>) -> Next {
        let due = self.postponed.iter().map(|it| it.due).min();
        let ready = || {
            if self.stop.is_stopped() {
                return Some(Next::Stopped);
            }
            match self.receiver.try_recv() {
                Ok(occurrence) => Some(Next::Event(occurrence)),
                Err(TryRecvError::Disconnected) if due.is_none() => Some(Next::Dropped),
                Err(_) => None,
            }
        };
        let spots = [&self.counters.arrived, self.stop.spot()];
        match turns::wait(&spots, due, ready) {
            Waited::Ready(next) => return next,
            Waited::TimedOut => return Next::Due,
            Waited::Unsimulated => {}
        }
        let until_due = due.map_or(Duration::MAX, |due| {
            due.saturating_duration_since(self.clock.now())
        });
        // The stop signal has priority: afterwards only the bounded drain sends events.
        select_biased! {
            recv(stopped) -> _ => Next::Stopped,
            recv(self.receiver) -> received => match received {
                Ok(occurrence) => Next::Event(occurrence),
                Err(_) if due.is_none() => Next::Dropped,
                Err(_) if self.stop.wait_timeout(until_due) => Next::Stopped,
                Err(_) => Next::Due,
            },
            default(until_due) => Next::Due,
        }
    }

    /// Sends one event that is due. The next one waits for the next new event, so that many of one
    /// namespace do not hold up those of others.
    fn send_postponed(&mut self) {
        let now = self.clock.now();
        if let Some(at) = self.postponed.iter().position(|it| it.due <= now) {
            let it = self.postponed.remove(at);
            self.write(it.correlated, it.n_attempts);
        }
    }

    /// Sends each queued event with a single attempt, for [`DRAIN_MAX`] at most. Drops those that
    /// the API server has postponed.
    ///
    /// DIFFERS: upstream drops queued events at shutdown.
    fn drain(&mut self) {
        let deadline = self.clock.now() + DRAIN_MAX;
        let n_postponed = u64::try_from(self.postponed.len()).unwrap_or(u64::MAX);
        self.counters
            .failed
            .fetch_add(n_postponed, Ordering::Relaxed);
        while let Ok(occurrence) = self.receiver.try_recv() {
            if self.clock.now() >= deadline {
                let n_lost = self.receiver.len() + 1;
                log::warn!("shutting down: dropping {n_lost} unsent events");
                return;
            }
            self.record(occurrence);
        }
    }

    fn record(&mut self, occurrence: Occurrence) {
        let _event = thread::enter("event about", &occurrence.object.key);
        if let Some(correlated) = self.correlator.correlate(occurrence, &*self.clock) {
            self.write(correlated, 0);
        } else {
            self.counters.filtered.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends one event after `n_attempts`; retries while there is no response (client-go
    /// `event.go:recordToSink`).
    fn write(&mut self, correlated: Correlated, n_attempts: u32) {
        for attempt in n_attempts + 1..=TRIES_MAX {
            let event = &correlated.event;
            match self.attempt(event) {
                Attempt::Stored(recorded) => {
                    self.counters.written.fetch_add(1, Ordering::Relaxed);
                    self.correlator.update_state(correlated.key, recorded);
                    return;
                }
                Attempt::Failed => break,
                Attempt::Retry(error) => {
                    let why = report(&error);
                    if attempt == TRIES_MAX {
                        log::warn!(
                            error:% = why;
                            "giving up on event {} after {attempt} attempts",
                            event.name
                        );
                        break;
                    }
                    log::debug!(
                        error:% = why;
                        "attempt {attempt} to write event {} failed",
                        event.name
                    );
                    let delay = self.options.retry_delay;
                    if let Some(requested) = requested_delay(&error) {
                        if self.postponed.len() == QUEUE_MAX || self.stop.is_stopped() {
                            break;
                        }
                        self.postponed.push(Postponed {
                            correlated,
                            n_attempts: attempt,
                            due: self.clock.now() + requested.min(delay * POSTPONED_MAX),
                        });
                        return;
                    }
                    let delay = retry_delay(attempt, delay, fastrand::f64());
                    let _wait = thread::enter("waits to send again", &event.name);
                    if self.stop.wait_timeout(delay) {
                        log::debug!("giving up on event {}: the daemon stops", event.name);
                        break;
                    }
                }
            }
        }
        self.counters.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes one attempt (client-go `event.go:recordEvent`).
    fn attempt(&self, event: &Event) -> Attempt {
        let result = if event.count > 1 {
            match self.sink.patch(event) {
                // The stored event has expired, so the repeat becomes a new event.
                Err(ClientError::Status(status)) if status.is_not_found() => {
                    self.sink.create(event)
                }
                result => result,
            }
        } else {
            self.sink.create(event)
        };
        match result {
            Ok(recorded) => Attempt::Stored(recorded),
            Err(ClientError::Status(status))
                if status.is_already_exists()
                    || status.is_namespace_terminating()
                    || status.code() == 401 =>
            {
                // As upstream, the first two are routine. The client logs that its credentials are
                // rejected.
                log::debug!(error:% = status; "event {} was rejected", event.name);
                Attempt::Failed
            }
            // As client-go, below its recorder.
            Err(error) if requested_delay(&error).is_some() => Attempt::Retry(error),
            Err(error @ (ClientError::Status(_) | ClientError::Invalid(_))) => {
                log::warn!(error:% = report(&error); "event {} was rejected", event.name);
                Attempt::Failed
            }
            Err(ClientError::Stopped | ClientError::Fenced) => Attempt::Failed,
            // No response, or an unreadable one.
            Err(error) => Attempt::Retry(error),
        }
    }
}

/// How long a temporary rejection asks to wait.
fn requested_delay(error: &ClientError) -> Option<Duration> {
    error.status()?.requested_wait()
}

/// Pause after this many attempts; `random` is uniform in `0.0..1.0`. The first pause is random, so
/// that the clients do not all retry at once after a restart of the API server.
fn retry_delay(n_attempts: u32, delay: Duration, random: f64) -> Duration {
    if n_attempts == 1 {
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
    fn k_09_the_first_pause_is_random() {
        let seconds = |n_attempts, random| retry_delay(n_attempts, Duration::from_secs(10), random);
        assert_eq!(seconds(1, 0.0), Duration::ZERO);
        assert_eq!(seconds(1, 0.25), Duration::from_millis(2500));
        assert_eq!(seconds(2, 0.25), Duration::from_secs(10));
    }
}
