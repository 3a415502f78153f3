//! One controller of one kind: its queue, its store, its workers, its event recorder, and their
//! threads. The [`Manager`](super::Manager) passes in what several instances share, starts the
//! watches that feed them, and joins the threads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::leadership::{ElectedInstance, Leadership};
use super::{ManagerOptions, client_options, event_client_options, health_checks, metrics_export};
use crate::api::{ObjectKey, WorkloadKind};
use crate::batches::BatchRunner;
use crate::cache::{Cache, PodStore, ReplicaSetStore};
use crate::client::{Client, ClientConfig};
use crate::controller::dry_run::DryRun;
use crate::controller::refusals::QuotaWatch;
use crate::controller::{Parts, ReplicaSetController};
use crate::live::RealLiveReader;
use crate::stdx::clock::{Clock, SystemClock};
use crate::stdx::stop::{Cause, Latch, Stop, Woken};
use crate::stdx::thread::Thread;
use crate::stdx::{clock, thread};
use crate::telemetry::{Health, metrics};
use crate::workqueue::WorkQueue;
use crate::writes::event_recorder::{ClientEventSink, EventOptions, EventRecorder, event_recorder};
use crate::writes::{RealPodControl, RealReplicaSetControl};

/// The first warning about an incomplete first list comes after this time, as in upstream's
/// reflector for streamed lists (client-go
/// `tools/cache/reflector.go:newInitialEventsEndBookmarkTicker`); later warnings come once a
/// minute.
const LIST_WARNING_AFTER: Duration = Duration::from_secs(10);
const LIST_WARNING_PERIOD: Duration = Duration::from_mins(1);

/// The parts that all instances and watches share.
#[derive(Debug)]
pub(super) struct Shared<'a> {
    pub(super) config: &'a ClientConfig,
    pub(super) options: &'a ManagerOptions,
    pub(super) health: &'a Health,
    pub(super) pods: &'a Arc<PodStore>,
    pub(super) batches: &'a Arc<dyn BatchRunner>,
    pub(super) stop: &'a Stop,
    pub(super) events_stop: &'a Stop,
    pub(super) leadership: &'a Leadership,
    pub(super) quota_watch: &'a Arc<QuotaWatch>,
}

/// The controller of one kind, with all its threads except the watches.
#[derive(Debug)]
pub struct ControllerInstance {
    kind: &'static WorkloadKind,
    cache: Cache,
    controller: Arc<ReplicaSetController>,
    queue: Arc<WorkQueue<ObjectKey>>,
    client: Client,
    event_client: Client,
    event_client_stop: Stop,
    recorder: Arc<EventRecorder>,
    workers: Vec<Thread>,
    events: Thread,
    delay: Thread,
    /// The decisions of a dry run; `None` if this controller writes.
    dry_run: Option<Arc<DryRun>>,
}

impl ControllerInstance {
    /// Starts the threads. The workers wait until the pods and the objects of `kind` are listed.
    pub(super) fn start(kind: &'static WorkloadKind, shared: &Shared<'_>) -> Self {
        let (config, options, stop) = (shared.config, shared.options, shared.stop);
        let n_workers = options.concurrent_syncs(kind);
        // Both clients that write pass the fence: without the lease they send nothing.
        let fenced = |options| shared.leadership.fenced(options);
        let client = Client::new(config, &fenced(client_options(options, n_workers)), stop);
        // Events follow the last writes, and are sent for a while after the events' stop, so their
        // client has a stop signal of its own.
        let event_options = fenced(event_client_options(options));
        let event_client_stop = Stop::new();
        let event_client = Client::new(config, &event_options, &event_client_stop);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);

        let event_options = EventOptions::new(kind.component);
        let sink = Box::new(ClientEventSink::new(event_client.clone()));
        let (recorder, event_worker) =
            event_recorder(event_options, sink, Arc::clone(&clock), shared.events_stop);
        let events = kind.thread_name("events");
        let events = Thread::spawn(&events, stop, move || event_worker.run());

        let cache = Cache {
            pods: Arc::clone(shared.pods),
            replica_sets: Arc::new(ReplicaSetStore::default()),
        };
        let queue = WorkQueue::new(Arc::clone(&clock))
            .with_tenants(n_workers.into(), ObjectKey::namespace_hash);
        let queue = Arc::new(queue.with_metrics(metrics::global().workqueue.of(kind.queue)));
        metrics_export::export_events(kind.queue, &recorder);
        let controller_metrics = metrics_export::controller_metrics(kind);
        let dry_run = options.dry_run.then(Arc::<DryRun>::default);
        let controller = ReplicaSetController::new(Parts {
            kind,
            cache: cache.clone(),
            live: Arc::new(RealLiveReader::new(client.clone(), kind)),
            pod_control: Arc::new(RealPodControl::new(
                client.clone(),
                Arc::clone(&recorder),
                kind,
            )),
            replica_set_control: Arc::new(RealReplicaSetControl::new(client.clone(), kind)),
            queue: Arc::clone(&queue),
            batches: Arc::clone(shared.batches),
            clock,
            options: options.controller,
            metrics: controller_metrics,
            quota_watch: Arc::clone(shared.quota_watch),
        });
        let controller = Arc::new(match &dry_run {
            Some(dry_run) => controller.only_deciding(Arc::clone(dry_run)),
            None => controller,
        });
        metrics_export::export_queue(kind.queue, &queue);
        metrics_export::export_expectations(kind.queue, &controller);
        metrics_export::export_steps(kind.queue, &controller);
        metrics_export::export_refusals(kind.queue, &controller);
        metrics_export::export_blocked_pods(kind.queue, &controller);

        let leads = shared.leadership.leads();
        // A standby queues no keys: after the takeover, the first worker enqueues every object.
        if shared.leadership.is_contested() {
            controller.stand_by();
        }
        let delaying = Arc::clone(&queue);
        let delay = kind.thread_name("delay");
        let delay = Thread::spawn(&delay, stop, move || delaying.run_delay());
        let start = |n| start_worker(kind, n, &cache, &controller, leads, stop);
        let workers: Vec<Thread> = (0..n_workers).map(start).collect();
        let threads = workers.iter().chain([&events, &delay]);
        let threads = threads.map(Thread::liveness).collect();
        health_checks::add_controller(kind, &queue, threads, options, shared.health, stop);
        // Wakes the workers that wait for a key.
        let shutting_down = Arc::clone(&queue);
        stop.on_stop(move || shutting_down.shut_down());
        Self {
            kind,
            cache,
            controller,
            queue,
            client,
            event_client,
            event_client_stop,
            recorder,
            workers,
            events,
            delay,
            dry_run,
        }
    }

    pub fn kind(&self) -> &'static WorkloadKind {
        self.kind
    }

    /// The cache that the watches fill: all pods, and the objects of this kind.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The controller. Holding this `Arc` after the stop keeps the threads `batch-*` alive.
    pub fn controller(&self) -> &Arc<ReplicaSetController> {
        &self.controller
    }

    pub fn queue(&self) -> &Arc<WorkQueue<ObjectKey>> {
        &self.queue
    }

    /// Shuts down the queue; the workers get no more keys.
    pub(super) fn shut_down(&self) {
        self.queue.shut_down();
    }

    /// Blocks until the workers have ended, at most until `deadline`. Returns whether they have.
    pub(super) fn workers_have_ended_by(&self, deadline: Instant) -> bool {
        self.workers.iter().all(|it| it.has_ended_by(deadline))
    }

    /// Blocks until all events are sent or dropped, at most until `deadline`. Returns whether they
    /// are.
    pub(super) fn events_have_ended_by(&self, deadline: Instant) -> bool {
        self.events.has_ended_by(deadline)
    }

    /// The parts of this instance that follow the leader election.
    pub(super) fn elected(&self) -> ElectedInstance {
        ElectedInstance {
            controller: Arc::clone(&self.controller),
            clients: [self.client.clone(), self.event_client.clone()],
            recorder: Arc::clone(&self.recorder),
        }
    }

    /// Aborts the writes in flight.
    pub(super) fn abort_requests(&self) {
        self.client.abort();
    }

    /// Aborts the event in flight, and sends no more.
    pub(super) fn abort_events(&self, cause: &Cause) {
        self.event_client_stop.stop(cause.clone());
        self.event_client.abort();
    }

    /// Takes the threads `sync-*`; the manager joins them first.
    pub(super) fn take_workers(&mut self) -> Vec<Thread> {
        std::mem::take(&mut self.workers)
    }

    /// The comparison that a dry run keeps; `None` if this controller writes.
    pub fn dry_run(&self) -> Option<&Arc<DryRun>> {
        self.dry_run.as_ref()
    }

    /// Returns the threads `events` and `delay`, to be joined in this order, and drops everything
    /// else.
    pub(super) fn into_threads(self) -> (Thread, Thread) {
        (self.events, self.delay)
    }
}

fn start_worker(
    kind: &WorkloadKind,
    number: u16,
    cache: &Cache,
    controller: &Arc<ReplicaSetController>,
    leads: &Arc<Latch>,
    stop: &Stop,
) -> Thread {
    let (cache, controller) = (cache.clone(), Arc::clone(controller));
    let (leads, stopping) = (Arc::clone(leads), stop.clone());
    let name = kind.thread_name(&format!("sync-{number}"));
    let resource = kind.resource;
    Thread::spawn(&name, stop, move || {
        let wait = thread::enter("waits for the first lists and the lease", "");
        // Until both lists are complete, the cache lacks pods, and a sync would create them again.
        for (listed, resource) in [
            (cache.pods.synced(), "pods"),
            (cache.replica_sets.synced(), resource),
        ] {
            let warn_about = (number == 0).then_some(resource);
            if wait_for_list(listed, warn_about, &stopping).is_none() {
                return;
            }
        }
        // A standby must not write. It keeps its caches warm and waits here for the lease.
        if leads.wait(&stopping, Duration::MAX) != Woken::Set {
            return;
        }
        drop(wait);
        // One pass over the caches suffices for all workers.
        if number == 0 {
            controller.enqueue_all();
        }
        controller.start_detection();
        while !stopping.is_stopped() && controller.process_next_work_item() {}
    })
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
