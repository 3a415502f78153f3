//! Owns every thread of the daemon: who starts when, who stops when, and by when.
//!
//! Start: events, delay, watches, workers; the workers wait until both stores have synced. Stop: the
//! stop signal shuts the queue and wakes the watches; then workers are joined, events drained, and
//! the rest joined, all within [`ManagerOptions::stop_within`]. What does not end by then is named.

mod batch_pool;
mod watches;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::select;

use self::batch_pool::BatchPool;
use self::watches::start_watches;
use crate::api::ObjectKey;
use crate::api::workload_kind::REPLICA_SET;
use crate::cache::Cache;
use crate::client::{Client, ClientConfig, ClientError, ClientOptions};
use crate::controller::plan::BURST_REPLICAS;
use crate::controller::{Parts, ReplicaSetController};
use crate::stdx::activity;
use crate::stdx::clock::{Clock, SystemClock};
use crate::stdx::stop::{Cause, Stop};
use crate::stdx::thread::Thread;
use crate::workqueue::WorkQueue;
use crate::writes::event_recorder::{ClientEventSink, EventOptions, event_recorder};
use crate::writes::{RealPodControl, RealReplicaSetControl};

/// Part of the stop time after which requests that are still under way are cut.
const ABORT_SHARE: u32 = 2;

/// What the thread `events` is left at least, once the workers have ended.
const EVENTS_WITHIN: Duration = Duration::from_secs(5);

/// How the daemon runs.
#[derive(Clone, Debug)]
pub struct ManagerOptions {
    /// The one namespace to control; `None` for all.
    pub namespace: Option<String>,
    /// Requests per second, events counted apart; no limit if not above zero.
    pub kube_api_qps: f32,
    /// Requests that may go at once after a quiet time.
    pub kube_api_burst: u32,
    /// Workers.
    pub concurrent_replicaset_syncs: u16,
    /// Pods created or deleted at the same time.
    pub batch_parallelism: u16,
    /// Least time between two looks at an object that did not change.
    pub min_resync_period: Duration,
    /// Time from the stop signal until the last thread must have ended.
    pub stop_within: Duration,
}

impl Default for ManagerOptions {
    /// kube-controller-manager's numbers
    /// (kubernetes `pkg/controller/apis/config/v1alpha1/defaults.go`), and 30 s to stop.
    fn default() -> Self {
        Self {
            namespace: None,
            kube_api_qps: 20.0,
            kube_api_burst: 30,
            concurrent_replicaset_syncs: 5,
            batch_parallelism: 16,
            min_resync_period: Duration::from_hours(12),
            stop_within: Duration::from_secs(30),
        }
    }
}

/// The running daemon.
#[derive(Debug)]
pub struct Manager {
    cache: Cache,
    queue: Arc<WorkQueue<ObjectKey>>,
    client: Client,
    event_client: Client,
    stop: Stop,
    /// Given when nobody records events any more.
    events_stop: Stop,
    /// Joined in this order.
    workers: Vec<Thread>,
    events: Thread,
    watches: Vec<Thread>,
    delay: Thread,
    batches: BatchPool,
    stop_within: Duration,
}

impl Manager {
    /// Starts all threads. Blocks for no request: an API server that cannot be reached yet is tried
    /// again until it can.
    ///
    /// # Errors
    /// If the configuration does not make a client.
    pub fn start(
        config: &ClientConfig,
        options: &ManagerOptions,
        stop: &Stop,
    ) -> Result<Self, ClientError> {
        let events_stop = Stop::new();
        let client = Client::new(config, &client_options(options), stop)?;
        let event_client = Client::new(config, &event_client_options(options), &events_stop)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);

        let event_options = EventOptions::new(REPLICA_SET.component);
        let sink = Box::new(ClientEventSink::new(event_client.clone()));
        let (recorder, event_worker) =
            event_recorder(event_options, sink, Arc::clone(&clock), &events_stop);
        let events = Thread::spawn("events", stop, move || event_worker.run());

        let cache = Cache::default();
        let queue = Arc::new(WorkQueue::new(Arc::clone(&clock)));
        let batches = BatchPool::start(options.batch_parallelism, stop);
        let controller = Arc::new(ReplicaSetController::new(Parts {
            kind: &REPLICA_SET,
            cache: Arc::new(cache.clone()),
            pod_control: Arc::new(RealPodControl::new(
                client.clone(),
                recorder,
                &REPLICA_SET,
                stop,
            )),
            replica_set_control: Arc::new(RealReplicaSetControl::new(
                client.clone(),
                &REPLICA_SET,
                stop,
            )),
            queue: Arc::clone(&queue),
            batches: batches.runner(),
            clock,
            burst_replicas: BURST_REPLICAS,
        }));

        let delaying = Arc::clone(&queue);
        let delay = Thread::spawn("delay", stop, move || delaying.run_delay());
        let watches = start_watches(&client, &cache, &controller, options, stop);
        let workers = (0..options.concurrent_replicaset_syncs)
            .map(|n| start_worker(n, &cache, &controller, stop))
            .collect();
        let shutting_down = Arc::clone(&queue);
        stop.on_stop(move || shutting_down.shut_down());
        Ok(Self {
            cache,
            queue,
            client,
            event_client,
            stop: stop.clone(),
            events_stop,
            workers,
            events,
            watches,
            delay,
            batches,
            stop_within: options.stop_within,
        })
    }

    /// What the watches have delivered.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Waits for the stop signal, then until every thread has ended, at most
    /// [`ManagerOptions::stop_within`]. Answers why the daemon stopped.
    ///
    /// # Errors
    /// The names of the threads that were still running then.
    pub fn wait(self) -> Result<Cause, String> {
        let cause = {
            let _wait = activity::enter("waits for the stop signal", "");
            self.stop.wait()
        };
        match &cause {
            Cause::Requested(why) => log::info!("stopping: {why}"),
            Cause::Failed(why) => log::error!("stopping: {why}"),
        }
        let deadline = Instant::now() + self.stop_within;
        let abort = Instant::now() + self.stop_within / ABORT_SHARE;
        self.queue.shut_down();

        if !self.workers.iter().all(|worker| worker.has_ended_by(abort)) {
            log::warn!("requests under way are cut, their outcome is not known");
            self.client.abort();
        }
        let mut stuck = join_all(self.workers, deadline);
        self.events_stop.stop(cause.clone());
        if !self
            .events
            .has_ended_by(abort.max(Instant::now() + EVENTS_WITHIN))
        {
            log::warn!("the last events are given up");
            self.event_client.abort();
        }
        stuck.extend(join_all(vec![self.events], deadline));
        stuck.extend(join_all(self.watches, deadline));
        stuck.extend(join_all(vec![self.delay], deadline));
        // ORDER: the pool ends when nobody holds it any more, and the watches were the last who did.
        stuck.extend(self.batches.join_until(deadline));
        if stuck.is_empty() {
            Ok(cause)
        } else {
            Err(stuck.join(", "))
        }
    }
}

/// The names of the threads that have not ended by `deadline`.
fn join_all(threads: Vec<Thread>, deadline: Instant) -> Vec<String> {
    threads
        .into_iter()
        .filter_map(|thread| thread.join_until(deadline).err())
        .collect()
}

fn start_worker(
    number: u16,
    cache: &Cache,
    controller: &Arc<ReplicaSetController>,
    stop: &Stop,
) -> Thread {
    let (cache, controller) = (cache.clone(), Arc::clone(controller));
    let stopping = stop.clone();
    Thread::spawn(&format!("sync-{number}"), stop, move || {
        let wait = activity::enter("waits for the first lists", "");
        // Before both lists are complete, everything would look as if pods were missing.
        for synced in [cache.pods.synced(), cache.replica_sets.synced()] {
            select! {
                recv(synced) -> _ => {}
                recv(stopping.receiver()) -> _ => return,
            }
        }
        drop(wait);
        controller.run_worker(&stopping);
    })
}

/// As many connections as threads send requests at once, so that none pays for a new handshake.
fn client_options(options: &ManagerOptions) -> ClientOptions {
    let senders = options.concurrent_replicaset_syncs + options.batch_parallelism;
    ClientOptions {
        qps: options.kube_api_qps,
        burst: options.kube_api_burst,
        connections: senders.into(),
        ..ClientOptions::default()
    }
}

/// Events have a bucket and a connection of their own, so that they never hold back pods; and a short
/// patience, because the one thread that sends them must not wait long for any.
fn event_client_options(options: &ManagerOptions) -> ClientOptions {
    ClientOptions {
        qps: options.kube_api_qps,
        burst: options.kube_api_burst,
        connections: 1,
        request_timeout: Duration::from_secs(10),
        ..ClientOptions::default()
    }
}
