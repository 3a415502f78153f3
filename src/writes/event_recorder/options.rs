//! How a recorder behaves: chosen by the manager, obeyed by both ends.

use std::time::Duration;

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
