//! Owns every thread of the daemon: the start order, the stop order and the stop deadline.
//!
//! Start: the batch pool, then one [`ControllerInstance`] per kind (events, delay, workers), then
//! the watches. The workers wait until the stores they read have synced. Stop: the stop signal
//! shuts down the queues and wakes the watches. The manager then joins the workers, drains the
//! events, releases the lease and joins the other threads, all within
//! [`ManagerOptions::stop_within`]. [`Manager::wait`] returns the names of the threads that miss
//! this deadline.
//!
//! # How many threads, and why
//!
//! With the defaults, 48 threads run as long as the daemon: 5 `sync`, 32 `batch`, 3 watches,
//! `main`, `ctrl-c`, `signal`, `delay`, `events`, `lease`, `http` and `self-check`. Under systemd,
//! `systemd` is one more. Each connection to the daemon's pages has a thread, 100 at most for each
//! port. ReplicationControllers add 8: 5 `rc-sync`, `watch-rc`, `rc-delay`, `rc-events`;
//! Deployments add 9: the same with `deploy-`, `watch-deploy` and `watch-deploy-rs`. A thread
//! costs some 20 KiB, most of it the allocator's. Half of the `batch` threads serves large
//! syncs ([`LARGE`](crate::batches::LARGE)), the rest small ones.
//!
//! # Sockets to the API server
//!
//! HTTP/1.1, one request at a time. A client opens a connection when it first needs one, and does
//! not reuse a connection that was idle for 15 s. No connection is opened for a single request, and
//! host names are resolved for new connections only.
//!
//! | for | at most | reason |
//! |---|---|---|
//! | each watch | 1 | a watch keeps it busy; cutting it harms no other request |
//! | the watch of quotas | 1 | only once a quota has rejected a pod |
//! | requests of a controller | 5 + 32 | one for each of its `sync` and `batch` threads |
//! | events of a controller | 1 | one thread sends them, and they must not delay pods |
//! | the Lease | 1 | nothing may delay a renewal |
//! | self-check, API server's version | 1 | closed between two reads of the version |
//! | token reviews, access reviews | 1 for each review under way | 4 of each kind are kept |
//!
//! An idle connection keeps some 50 KiB of buffers. With fewer connections than sending threads,
//! some requests would wait for a TLS handshake. The limits are set in `clients`, those of the last
//! two rows in `rights` and `serving`.
//!
//! # Locks
//!
//! `cache::stats` guards since when no list or watch can be read, and why. Watch threads write it;
//! `http-N` and `systemd` read it. `leadership` guards the reference to the Lease while this
//! process leads. `lease` and `main` take it.

mod controller_instance;
mod debug;
mod engine;
mod health_checks;
mod leadership;
mod metrics_export;
#[cfg(test)]
mod simulation;
mod watches;

use std::sync::Arc;
use std::time::Duration;

use rayon::ThreadPoolBuildError;

use self::controller_instance::{DeploymentInstance, Shared};
use self::engine::Engine;
use self::leadership::{Elected, Leadership};
use self::watches::{start_quota_watch, start_watches};
use crate::api::WorkloadKind;
use crate::api::workload_kind::REPLICA_SET;
use crate::batches::pool::start as start_batch_threads;
use crate::cache::PodStore;
use crate::cache::decode::ContentType;
use crate::client::{Client, ClientConfig, ClientOptions};
use crate::controller;
use crate::leader_election::{LeaderElectionHealth, LeaderElectionOptions};
use crate::rights::RightsOptions;
use crate::rights::self_check::SelfCheck;
use crate::stdx::stop::{Cause, Stop};
use crate::stdx::thread::{Thread, join_all};
use crate::stdx::{clock, thread, turns};
use crate::telemetry::Health;

pub use self::controller_instance::ControllerInstance;

/// Fraction of the stop time (one half) after which the manager aborts requests in flight.
const ABORT_SHARE: u32 = 2;

/// Time for the threads `events` and `rc-events` to drain after the workers have ended.
const EVENTS_WITHIN: Duration = Duration::from_secs(5);

/// Why the daemon cannot start: the kernel does not start one of the batch threads.
#[derive(Debug, thiserror::Error)]
// The error is its own source, so its text would appear twice.
#[error("cannot start the threads batch-*: {0}")]
pub struct StartError(ThreadPoolBuildError);

pub struct Manager {
    instances: Vec<ControllerInstance>,
    deployments: Option<DeploymentInstance>,
    stop: Stop,
    events_stop: Stop,
    watches: Vec<Thread>,
    self_check: Option<Thread>,
    batches: Vec<Thread>,
    leadership: Leadership,
    stop_within: Duration,
    namespace: Option<String>,
}

impl Manager {
    /// Starts all threads and adds their health checks to `health`. Does not block on requests: the
    /// threads retry an unreachable API server with back-off. If the system rejects to start a
    /// later thread, `stop` receives a failure.
    pub fn start(
        config: &ClientConfig,
        options: &ManagerOptions,
        health: &Health,
        stop: &Stop,
    ) -> Result<Self, StartError> {
        let events_stop = Stop::new();
        let pods = Arc::new(PodStore::default());
        let watch_client = Client::new(config, &watch_client_options(options), stop);
        let mut leadership = Leadership::new(options.leader_election.as_ref());
        let batches = start_batch_threads(options.batch_parallelism, stop);
        let (runner, batches) = batches.map_err(StartError)?;
        let (quota_watch, workloads) = (Arc::default(), Arc::default());
        let shared = Shared {
            config,
            options,
            health,
            pods: &pods,
            batches: &runner,
            stop,
            events_stop: &events_stop,
            leadership: &leadership,
            quota_watch: &quota_watch,
            workloads: &workloads,
        };
        let instances = options.controllers.iter();
        let instances: Vec<ControllerInstance> = instances
            .map(|kind| ControllerInstance::start(kind, &shared))
            .collect();
        let deployments = options
            .deployments
            .then(|| DeploymentInstance::start(&shared));
        let deployments_ref = deployments.as_ref();
        let mut watches = start_watches(&watch_client, &pods, &instances, deployments_ref, &shared);
        let controllers = instances.iter().map(|it| Arc::clone(&it.controller));
        watches.extend(start_quota_watch(
            &watch_client,
            controllers.collect(),
            &shared,
        ));
        let listed = instances.iter().map(|instance| {
            let cache = &instance.cache;
            vec![
                Arc::clone(cache.pods.synced()),
                Arc::clone(cache.replica_sets.synced()),
            ]
        });
        let listed = listed.chain(deployments_ref.map(DeploymentInstance::listed));
        let listed: Vec<_> = listed.collect();
        let threads = watches.iter().map(Thread::liveness);
        let threads = threads
            .chain(batches.iter().map(Thread::liveness))
            .collect();
        health_checks::add_shared(health, listed.clone(), threads, stop);
        let are_listed = move || health_checks::are_synced(&listed).is_ok();
        let self_check = options.self_check.as_ref();
        let self_check = self_check.map(|rights| {
            SelfCheck::start(config, rights, Arc::clone(&workloads), are_listed, stop)
        });
        let engines = instances.iter().map(|it| &it.engine);
        let engines: Vec<&Engine> = engines
            .chain(deployments_ref.map(|it| &it.engine))
            .collect();
        if let (Some(election), Some(first)) = (&options.leader_election, engines.first()) {
            let controllers = instances.iter().map(|it| Arc::clone(&it.controller));
            let elected = Elected {
                controllers: controllers.collect(),
                clients: engines.iter().flat_map(|it| it.clients()).collect(),
                recorder: Arc::clone(&first.recorder),
            };
            leadership.start(config, election, elected, stop);
        }
        if let Some(election) = leadership.health() {
            health_checks::add_leader_election(health, election);
        }
        Ok(Self {
            instances,
            deployments,
            stop: stop.clone(),
            events_stop,
            watches,
            self_check,
            batches,
            leadership,
            stop_within: options.stop_within,
            namespace: options.namespace.clone(),
        })
    }

    /// The health check of the leader election; `None` without leader election.
    pub fn leader_election_health(&self) -> Option<&LeaderElectionHealth> {
        self.leadership.health()
    }

    pub fn instances(&self) -> &[ControllerInstance] {
        &self.instances
    }

    pub fn instance(&self, kind: &WorkloadKind) -> Option<&ControllerInstance> {
        self.instances.iter().find(|instance| instance.kind == kind)
    }

    fn engines(&self) -> impl Iterator<Item = &Engine> {
        let engines = self.instances.iter().map(|it| &it.engine);
        engines.chain(self.deployments.iter().map(|it| &it.engine))
    }

    /// Blocks until the stop signal, then until every thread has ended, for at most
    /// [`ManagerOptions::stop_within`]. Returns why the daemon stopped.
    ///
    /// # Errors
    /// The names of the threads that still run at the deadline.
    pub fn wait(mut self) -> Result<Cause, String> {
        let cause = {
            let _wait = thread::enter("waits for the stop signal", "");
            self.stop.wait()
        };
        let began = clock::now();
        let deadline = began + self.stop_within;
        let abort = began + self.stop_within / ABORT_SHARE;
        // Workers finish their current sync. Requests get half of the stop time, so that an API
        // server that does not respond leaves time for the events and the lease.
        self.engines().for_each(|it| it.queue.shut_down());
        match &cause {
            Cause::Requested(why) => log::info!("{why}, shutting down"),
            Cause::Failed(why) => log::error!(error:% = why; "shutting down"),
        }
        let has_ended = |it: &Thread| it.has_ended_by(abort);
        if !self.engines().all(|it| it.workers.iter().all(has_ended)) {
            log::warn!("aborting requests in flight; their outcome is unknown");
            self.engines().for_each(|it| it.client.abort());
        }
        let mut stuck = Vec::new();
        // The events have their time after the last worker, whether it ends or not.
        let workers_end = deadline.checked_sub(EVENTS_WITHIN).unwrap_or(abort);
        let engines = self.instances.iter_mut().map(|it| &mut it.engine);
        for engine in engines.chain(self.deployments.iter_mut().map(|it| &mut it.engine)) {
            let workers = std::mem::take(&mut engine.workers);
            stuck.extend(join_all(workers, workers_end.max(abort)));
        }
        let dry_runs = self.instances.iter();
        let dry_runs =
            dry_runs.map(|it| (it.kind.resource, it.dry_run.as_ref().map(|it| it.n_open())));
        let of_deployments = self.deployments.iter();
        let of_deployments = of_deployments.map(|it| ("deployments", it.controller.n_open()));
        for (resource, n) in dry_runs.chain(of_deployments) {
            if let Some(n) = n {
                let decisions = if n == 1 { "decision" } else { "decisions" };
                log::info!("dry run of {resource}: no controller has carried out {n} {decisions}");
            }
        }
        // A stuck worker may still write, so in that case the lease must expire by itself.
        let writes_ended = stuck.is_empty();
        self.leadership.record_stopped_leading();
        // The event threads stop after the workers, so that the last syncs can still record events.
        self.events_stop.stop(cause.clone());
        let abort = deadline.min(clock::now() + EVENTS_WITHIN);
        if !self.engines().all(|it| it.events.has_ended_by(abort)) {
            log::warn!("dropping the remaining events");
            self.engines().for_each(|it| it.abort_events(&cause));
        }
        let engines = self.instances.into_iter().map(|it| it.engine);
        let engines = engines.chain(self.deployments.map(|it| it.engine));
        let delays = engines.map(|engine| {
            stuck.extend(join_all(vec![engine.events], deadline));
            engine.delay
        });
        let delays: Vec<Thread> = delays.collect();
        // ORDER: release the lease after the last write has ended. Keep it if a write may still be
        // in flight: another daemon must wait until the lease expires.
        turns::reached("manager: before the lease is released");
        stuck.extend(self.leadership.end(writes_ended, deadline));
        stuck.extend(join_all(self.watches, deadline));
        stuck.extend(join_all(delays, deadline));
        stuck.extend(join_all(self.self_check.into_iter().collect(), deadline));
        // ORDER: the pool ends when its last runner is dropped. The watch threads dropped the last
        // one.
        stuck.extend(join_all(self.batches, deadline));
        if stuck.is_empty() {
            log::info!(
                "stopped after {:.1} s",
                (clock::now() - began).as_secs_f64()
            );
            Ok(cause)
        } else {
            Err(stuck.join(", "))
        }
    }
}

#[derive(Clone, Debug)]
pub struct ManagerOptions {
    /// The only namespace to control; `None` for all.
    pub namespace: Option<String>,
    pub controllers: Vec<&'static WorkloadKind>,
    /// Whether to run the Deployment controller too.
    pub deployments: bool,
    /// Requests per second of each controller, with a separate bucket for events; no limit if not
    /// above zero.
    pub kube_api_qps: f32,
    pub kube_api_burst: u32,
    pub concurrent_replicaset_syncs: u16,
    pub concurrent_rc_syncs: u16,
    /// Concurrent pod creates and deletes: half of them for large syncs, the rest for small ones
    /// ([`LARGE`](crate::batches::LARGE)). Each sync has at least one sender, its worker's thread.
    pub batch_parallelism: u16,
    pub controller: controller::Options,
    /// The content type for pods.
    pub content_type: ContentType,
    /// Minimum time between two syncs of an unchanged object.
    pub min_resync_period: Duration,
    /// Requests a list as the beginning of a watch, and in pages if that fails. False: in pages
    /// only.
    pub streams_lists: bool,
    /// Reads and decides, but writes nothing.
    pub dry_run: bool,
    /// Whose permissions to check at startup; `None` skips the check.
    pub self_check: Option<RightsOptions>,
    /// Time from the stop signal until the last thread must have ended.
    pub stop_within: Duration,
    /// Leader election among several daemons; `None` if this daemon always writes.
    pub leader_election: Option<LeaderElectionOptions>,
}

impl Default for ManagerOptions {
    /// The defaults of kube-controller-manager (kubernetes
    /// `pkg/controller/apis/config/v1alpha1/defaults.go`), 30 s to stop, and ReplicaSets only.
    fn default() -> Self {
        Self {
            namespace: None,
            controllers: vec![&REPLICA_SET],
            deployments: false,
            kube_api_qps: 20.0,
            kube_api_burst: 30,
            concurrent_replicaset_syncs: 5,
            concurrent_rc_syncs: 5,
            batch_parallelism: 32,
            controller: controller::Options::default(),
            content_type: ContentType::default(),
            min_resync_period: Duration::from_hours(12),
            streams_lists: true,
            dry_run: false,
            self_check: None,
            stop_within: Duration::from_secs(30),
            leader_election: None,
        }
    }
}

impl ManagerOptions {
    fn concurrent_syncs(&self, kind: &WorkloadKind) -> u16 {
        if *kind == REPLICA_SET {
            self.concurrent_replicaset_syncs
        } else {
            self.concurrent_rc_syncs
        }
    }
}

// The options of each client. Like upstream, each client has its own token bucket: one client
// for all lists and watches (upstream's `shared-informers`), and per controller one for writes
// and one for events. So a busy controller never delays another one.

/// Each watch opens its own connection ([`stream_client`](crate::client::Client::stream_client)),
/// so this client keeps no idle connections.
fn watch_client_options(options: &ManagerOptions) -> ClientOptions {
    ClientOptions {
        connections: 0,
        ..throttled(options)
    }
}

/// One connection per thread that sends requests, so that no request pays for a new handshake.
fn client_options(options: &ManagerOptions, n_workers: u16) -> ClientOptions {
    let senders = n_workers + options.batch_parallelism;
    ClientOptions {
        connections: senders.into(),
        ..throttled(options)
    }
}

/// Events have their own bucket and connection, so that they never delay pod writes. The request
/// timeout is short because a single thread sends all events.
fn event_client_options(options: &ManagerOptions) -> ClientOptions {
    ClientOptions {
        connections: 1,
        request_timeout: Duration::from_secs(10),
        ..throttled(options)
    }
}

/// The Lease client: one connection, no throttle (the elector paces itself) and no fence.
fn lease_client_options(options: &LeaderElectionOptions) -> ClientOptions {
    ClientOptions {
        qps: 0.0,
        connections: 1,
        request_timeout: options.request_timeout(),
        ..ClientOptions::default()
    }
}

fn throttled(options: &ManagerOptions) -> ClientOptions {
    ClientOptions {
        qps: options.kube_api_qps,
        burst: options.kube_api_burst,
        read_only: options.dry_run,
        ..ClientOptions::default()
    }
}
