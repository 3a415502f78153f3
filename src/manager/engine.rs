//! What every controller has, whatever it controls: a queue, two clients, an event recorder and the
//! threads that serve them. The [`Manager`](super::Manager) stops all of them in the same order.

use std::sync::Arc;
use std::time::Duration;

use super::controller_instance::Shared;
use super::{client_options, event_client_options, metrics_export};
use crate::api::{ObjectKey, WorkloadKind};
use crate::client::Client;
use crate::event_recorder::{ClientEventSink, EventOptions, EventRecorder, event_recorder};
use crate::stdx::clock::{Clock, SystemClock};
use crate::stdx::stop::{Cause, Latch, Stop, Woken};
use crate::stdx::thread::{Liveness, Thread};
use crate::stdx::{clock, thread};
use crate::telemetry::metrics;
use crate::workqueue::WorkQueue;

/// The first warning about an incomplete first list comes after this time, as in upstream's
/// reflector for streamed lists (client-go
/// `tools/cache/reflector.go:newInitialEventsEndBookmarkTicker`); later warnings come once a
/// minute.
const LIST_WARNING_AFTER: Duration = Duration::from_secs(10);
const LIST_WARNING_PERIOD: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    /// The name of its health check, and what those of the others begin with.
    pub(super) controller: &'static str,
    /// `source.component` of its events.
    pub(super) component: &'static str,
    /// Its queue, and its metrics.
    pub(super) queue: &'static str,
    /// Before the names of its threads.
    pub(super) prefix: &'static str,
}

impl Names {
    pub(super) fn of(kind: &WorkloadKind) -> Self {
        Self {
            controller: kind.controller,
            component: kind.component,
            queue: kind.queue,
            prefix: kind.thread_prefix(),
        }
    }

    fn thread(self, what: &str) -> String {
        format!("{}{what}", self.prefix)
    }
}

/// A queue, its clients and its threads.
pub(super) struct Engine {
    pub(super) queue: Arc<WorkQueue<ObjectKey>>,
    pub(super) client: Client,
    pub(super) recorder: Arc<EventRecorder>,
    pub(super) names: Names,
    event_client: Client,
    event_client_stop: Stop,
    /// The threads `sync-*`.
    pub(super) workers: Vec<Thread>,
    pub(super) events: Thread,
    pub(super) delay: Thread,
}

impl Engine {
    /// Starts the threads `events` and `delay`.
    pub(super) fn start(names: Names, n_workers: u16, shared: &Shared<'_>) -> Self {
        let (config, options, stop) = (shared.config, shared.options, shared.stop);
        // Both clients that write pass the fence: without the lease they send nothing.
        let fenced = |options| shared.leadership.fenced(options);
        let client = Client::new(config, &fenced(client_options(options, n_workers)), stop);
        // Events follow the last writes, and are sent for a while after the events' stop, so their
        // client has a stop signal of its own.
        let event_options = fenced(event_client_options(options));
        let event_client_stop = Stop::new();
        let event_client = Client::new(config, &event_options, &event_client_stop);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);

        let event_options = EventOptions::new(names.component);
        let sink = Box::new(ClientEventSink::new(event_client.clone()));
        let (recorder, event_worker) =
            event_recorder(event_options, sink, Arc::clone(&clock), shared.events_stop);
        let events = Thread::spawn(&names.thread("events"), stop, move || event_worker.run());
        metrics_export::export_events(names.queue, &recorder);

        let queue = WorkQueue::new(clock).with_tenants(n_workers.into(), ObjectKey::namespace_hash);
        let queue = Arc::new(queue.with_metrics(metrics::global().workqueue.of(names.queue)));
        metrics_export::export_queue(names.queue, &queue);
        let delaying = Arc::clone(&queue);
        let delay = Thread::spawn(&names.thread("delay"), stop, move || delaying.run_delay());
        // Wakes the workers that wait for a key.
        let shutting_down = Arc::clone(&queue);
        stop.on_stop(move || shutting_down.shut_down());
        Self {
            queue,
            client,
            recorder,
            names,
            event_client,
            event_client_stop,
            workers: Vec::new(),
            events,
            delay,
        }
    }

    /// Starts the workers. They wait until the stores of `listed`, each with the name of its
    /// resource, have synced and this daemon leads, and then run what `work` returns for each.
    pub(super) fn start_workers<W: FnOnce() + Send + 'static>(
        &mut self,
        n_workers: u16,
        listed: &[(&'static str, Arc<Latch>)],
        shared: &Shared<'_>,
        work: impl Fn(u16) -> W,
    ) {
        for number in 0..n_workers {
            let (leads, stop) = (Arc::clone(shared.leadership.leads()), shared.stop.clone());
            let (listed, work) = (listed.to_vec(), work(number));
            let name = self.names.thread(&format!("sync-{number}"));
            self.workers
                .push(Thread::spawn(&name, shared.stop, move || {
                    let wait = thread::enter("waits for the first lists and the lease", "");
                    // Until the lists are complete, a cache lacks objects, and a sync would
                    // create them again.
                    for (resource, listed) in &listed {
                        let warn_about = (number == 0).then_some(*resource);
                        if wait_for_list(listed, warn_about, &stop).is_none() {
                            return;
                        }
                    }
                    // A standby must not write. It keeps its caches warm and waits here for the
                    // lease.
                    if leads.wait(&stop, Duration::MAX) != Woken::Set {
                        return;
                    }
                    drop(wait);
                    work();
                }));
        }
    }

    pub(super) fn liveness(&self) -> Vec<Liveness> {
        let threads = self.workers.iter().chain([&self.events, &self.delay]);
        threads.map(Thread::liveness).collect()
    }

    /// The clients that write.
    pub(super) fn clients(&self) -> [Client; 2] {
        [self.client.clone(), self.event_client.clone()]
    }

    /// Aborts the event in flight, and sends no more.
    pub(super) fn abort_events(&self, cause: &Cause) {
        self.event_client_stop.stop(cause.clone());
        self.event_client.abort();
    }
}

/// Blocks until the first list is complete; returns `None` if the daemon stops first. If
/// `warn_about` names the resource, logs a warning while the list is incomplete.
fn wait_for_list(listed: &Latch, warn_about: Option<&str>, stop: &Stop) -> Option<()> {
    let began = clock::now();
    let mut warn_in = LIST_WARNING_AFTER;
    loop {
        match listed.wait(stop, warn_in) {
            Woken::Set => return Some(()),
            Woken::Stopped => return None,
            Woken::TimedOut => warn_in = LIST_WARNING_PERIOD,
        }
        if let Some(resource) = warn_about {
            let seconds = clock::now().saturating_duration_since(began).as_secs();
            log::warn!("the first list of {resource} is incomplete after {seconds} s; syncs wait");
        }
    }
}
