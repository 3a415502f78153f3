//! One controller for one kind: its queue, its store, its workers, its recorder of events, and the
//! threads of all that. What several engines share comes from the [`Manager`](super::Manager), which
//! also starts the watches that feed them and joins what is started here.

use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::select;

use super::ManagerOptions;
use super::batch_pool::BatchPool;
use super::clients::{client_options, event_client_options};
use crate::api::{ObjectKey, WorkloadKind};
use crate::cache::{Cache, PodStore, ReplicaSetStore};
use crate::client::{Client, ClientConfig, ClientError};
use crate::controller::{Parts, ReplicaSetController};
use crate::stdx::clock::{Clock, SystemClock};
use crate::stdx::stop::Stop;
use crate::stdx::thread::Thread;
use crate::workqueue::WorkQueue;
use crate::writes::event_recorder::{ClientEventSink, EventOptions, event_recorder};
use crate::writes::{RealPodControl, RealReplicaSetControl};

/// What all engines are built from.
#[derive(Debug)]
pub(super) struct Shared<'a> {
    pub(super) config: &'a ClientConfig,
    pub(super) options: &'a ManagerOptions,
    pub(super) pods: &'a Arc<PodStore>,
    pub(super) batches: &'a BatchPool,
    pub(super) stop: &'a Stop,
    pub(super) events_stop: &'a Stop,
}

/// The controller of one kind, and its threads but for the watches.
#[derive(Debug)]
pub struct Engine {
    kind: &'static WorkloadKind,
    cache: Cache,
    controller: Arc<ReplicaSetController>,
    queue: Arc<WorkQueue<ObjectKey>>,
    client: Client,
    event_client: Client,
    workers: Vec<Thread>,
    events: Thread,
    delay: Thread,
}

impl Engine {
    /// Starts the threads; the workers wait until the pods and the objects of `kind` are known.
    ///
    /// # Errors
    /// If the configuration does not make a client.
    pub(super) fn start(
        kind: &'static WorkloadKind,
        shared: &Shared<'_>,
    ) -> Result<Self, ClientError> {
        let (config, options, stop) = (shared.config, shared.options, shared.stop);
        let n_workers = options.concurrent_syncs(kind);
        let client = Client::new(config, &client_options(options, n_workers), stop)?;
        let event_options = event_client_options(options);
        let event_client = Client::new(config, &event_options, shared.events_stop)?;
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
        let queue = Arc::new(WorkQueue::new(Arc::clone(&clock)));
        let controller = Arc::new(ReplicaSetController::new(Parts {
            kind,
            cache: Arc::new(cache.clone()),
            pod_control: Arc::new(RealPodControl::new(client.clone(), recorder, kind, stop)),
            replica_set_control: Arc::new(RealReplicaSetControl::new(client.clone(), kind, stop)),
            queue: Arc::clone(&queue),
            batches: shared.batches.runner(),
            clock,
            burst_replicas: options.burst_replicas,
            status_update_interval: options.status_update_interval,
        }));

        let delaying = Arc::clone(&queue);
        let delay = kind.thread_name("delay");
        let delay = Thread::spawn(&delay, stop, move || delaying.run_delay());
        let workers = (0..n_workers).map(|n| start_worker(kind, n, &cache, &controller, stop));
        let workers = workers.collect();
        let shutting_down = Arc::clone(&queue);
        stop.on_stop(move || shutting_down.shut_down());
        Ok(Self {
            kind,
            cache,
            controller,
            queue,
            client,
            event_client,
            workers,
            events,
            delay,
        })
    }

    /// What it controls.
    pub fn kind(&self) -> &'static WorkloadKind {
        self.kind
    }

    /// What the watches have delivered: all pods, and the objects of this kind.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// What decides. Whoever keeps it beyond the stop keeps the threads `batch-*` from ending.
    pub fn controller(&self) -> &Arc<ReplicaSetController> {
        &self.controller
    }

    /// The keys to be looked at.
    pub fn queue(&self) -> &Arc<WorkQueue<ObjectKey>> {
        &self.queue
    }

    /// Hands out no more keys.
    pub(super) fn shut_down(&self) {
        self.queue.shut_down();
    }

    /// Waits until no sync runs any more, at most until `deadline`; true if none does.
    pub(super) fn workers_have_ended_by(&self, deadline: Instant) -> bool {
        self.workers.iter().all(|it| it.has_ended_by(deadline))
    }

    /// Waits until all events are sent or given up, at most until `deadline`; true if they are.
    pub(super) fn events_have_ended_by(&self, deadline: Instant) -> bool {
        self.events.has_ended_by(deadline)
    }

    /// Cuts the writes that are under way.
    pub(super) fn abort_requests(&self) {
        self.client.abort();
    }

    /// Cuts the event that is under way.
    pub(super) fn abort_events(&self) {
        self.event_client.abort();
    }

    /// The threads `sync-*`, to be joined first.
    pub(super) fn take_workers(&mut self) -> Vec<Thread> {
        std::mem::take(&mut self.workers)
    }

    /// The threads `events` and `delay`, to be joined in this order; everything else is let go.
    pub(super) fn into_threads(self) -> (Thread, Thread) {
        (self.events, self.delay)
    }
}

fn start_worker(
    kind: &WorkloadKind,
    number: u16,
    cache: &Cache,
    controller: &Arc<ReplicaSetController>,
    stop: &Stop,
) -> Thread {
    let (cache, controller) = (cache.clone(), Arc::clone(controller));
    let stopping = stop.clone();
    let name = kind.thread_name(&format!("sync-{number}"));
    Thread::spawn(&name, stop, move || {
        // Before both lists are complete, everything would look as if pods were missing.
        for synced in [cache.pods.synced(), cache.replica_sets.synced()] {
            select! {
                recv(synced) -> _ => {}
                recv(stopping.receiver()) -> _ => return,
            }
        }
        if number == 0 {
            controller.enqueue_those_with_work();
        }
        controller.run_worker(&stopping);
    })
}
