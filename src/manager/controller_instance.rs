//! One controller of one kind, or the Deployment controller: its queue, its store, its workers, its
//! event recorder, and their threads. The [`Manager`](super::Manager) passes in what several
//! instances share, starts the watches that feed them, and joins the threads.

use std::sync::Arc;
use std::time::Duration;

use super::engine::{Engine, Names};
use super::leadership::Leadership;
use super::{ManagerOptions, health_checks, metrics_export};
use crate::api::{ObjectKey, WorkloadKind};
use crate::batches::BatchRunner;
use crate::cache::{Cache, PodStore, ReplicaSetStore, Store};
use crate::client::ClientConfig;
use crate::controller::dry_run::DryRun;
use crate::controller::memory::rejections::QuotaWatch;
use crate::controller::{Parts, ReplicaSetController};
use crate::deployment::{self, CONTROLLER, Deployment, DeploymentController, ReplicaSet, Writer};
use crate::live::{RealLiveReader, Workloads};
use crate::stdx::clock::SystemClock;
use crate::stdx::stop::{Latch, Stop};
use crate::telemetry::Health;
use crate::telemetry::metrics::global;
use crate::workqueue::WorkQueue;
use crate::writes::{RealPodControl, RealReplicaSetControl};

/// The parts that all instances and watches share.
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
    pub(super) workloads: &'a Arc<Workloads>,
}

/// The controller of one kind, with all its threads except the watches.
pub struct ControllerInstance {
    pub kind: &'static WorkloadKind,
    pub cache: Cache,
    /// Holding this `Arc` after the stop keeps the threads `batch-*` alive.
    pub controller: Arc<ReplicaSetController>,
    pub(super) engine: Engine,
    /// The decisions of a dry run; `None` if this controller writes.
    pub dry_run: Option<Arc<DryRun>>,
}

impl ControllerInstance {
    pub(super) fn start(kind: &'static WorkloadKind, shared: &Shared<'_>) -> Self {
        let (options, stop) = (shared.options, shared.stop);
        let n_workers = options.concurrent_syncs(kind);
        let mut engine = Engine::start(Names::of(kind), n_workers, shared);
        let (client, recorder) = (&engine.client, &engine.recorder);
        let cache = Cache {
            pods: Arc::clone(shared.pods),
            replica_sets: Arc::new(ReplicaSetStore::default()),
        };
        let dry_run = options.dry_run.then(Arc::<DryRun>::default);
        let controller = ReplicaSetController::new(Parts {
            kind,
            cache: cache.clone(),
            live: Arc::new(RealLiveReader::new(
                client.clone(),
                kind,
                Arc::clone(shared.workloads),
            )),
            pod_control: Arc::new(RealPodControl::new(
                client.clone(),
                Arc::clone(recorder),
                kind,
            )),
            replica_set_control: Arc::new(RealReplicaSetControl::new(client.clone(), kind)),
            queue: Arc::clone(&engine.queue),
            batches: Arc::clone(shared.batches),
            clock: Arc::new(SystemClock),
            options: options.controller,
            metrics: global()
                .controller
                .of(kind.queue, kind.group(), kind.resource),
            quota_watch: Arc::clone(shared.quota_watch),
        });
        let controller = Arc::new(match &dry_run {
            Some(dry_run) => controller.only_deciding(Arc::clone(dry_run)),
            None => controller,
        });
        metrics_export::export_controller(kind.queue, &controller);

        // A standby queues no keys: after the failover, the first worker enqueues every object.
        if shared.leadership.is_contested() {
            controller.stand_by();
        }
        let listed = [
            ("pods", Arc::clone(cache.pods.synced())),
            (kind.resource, Arc::clone(cache.replica_sets.synced())),
        ];
        engine.start_workers(n_workers, &listed, shared, |number| {
            let (controller, stopping) = (Arc::clone(&controller), stop.clone());
            move || {
                // One pass over the caches suffices for all workers.
                if number == 0 {
                    controller.enqueue_all();
                }
                controller.start_detection();
                while !stopping.is_stopped() && controller.process_next_work_item() {}
            }
        });
        health_checks::add_engine(
            &engine,
            health_checks::throttled_time(kind, options),
            shared,
        );
        Self {
            kind,
            cache,
            controller,
            engine,
            dry_run,
        }
    }

    pub fn queue(&self) -> &Arc<WorkQueue<ObjectKey>> {
        &self.engine.queue
    }
}

/// Number of workers (kubernetes `pkg/controller/deployment/config/v1alpha1/defaults.go`).
const N_DEPLOYMENT_WORKERS: u16 = 5;

const DEPLOYMENT_NAMES: Names = Names {
    controller: CONTROLLER,
    component: CONTROLLER,
    queue: "deployment",
    prefix: "deploy-",
};

/// The Deployment controller with all its threads except the watches. It shares the watch of pods,
/// the election and the stop with the other controllers, and nothing else.
pub(super) struct DeploymentInstance {
    pub(super) controller: Arc<DeploymentController>,
    pub(super) deployments: Arc<Store<Deployment>>,
    /// Apart from the daemon's own store, which keeps no templates of settled ReplicaSets.
    pub(super) replica_sets: Arc<Store<ReplicaSet>>,
    pub(super) engine: Engine,
}

impl DeploymentInstance {
    /// Starts the threads. The workers wait until all three kinds are listed.
    pub(super) fn start(shared: &Shared<'_>) -> Self {
        let mut engine = Engine::start(DEPLOYMENT_NAMES, N_DEPLOYMENT_WORKERS, shared);
        let (deployments, replica_sets) = (Arc::default(), Arc::default());
        let (client, recorder) = (engine.client.clone(), Arc::clone(&engine.recorder));
        let controller = Arc::new(DeploymentController::new(deployment::Parts {
            deployments: Arc::clone(&deployments),
            replica_sets: Arc::clone(&replica_sets),
            pods: Arc::clone(shared.pods),
            queue: Arc::clone(&engine.queue),
            writer: Writer::new(client, recorder, Arc::new(SystemClock)),
            clock: Arc::new(SystemClock),
            counts_terminating: shared.options.controller.gates.terminating_replicas,
            dry_run: shared.options.dry_run,
        }));
        let listed = [
            ("pods", Arc::clone(shared.pods.synced())),
            ("deployments", Arc::clone(deployments.synced())),
            ("replicasets", Arc::clone(replica_sets.synced())),
        ];
        engine.start_workers(N_DEPLOYMENT_WORKERS, &listed, shared, |number| {
            let (controller, stop) = (Arc::clone(&controller), shared.stop.clone());
            move || {
                if number == 0 {
                    controller.enqueue_all();
                }
                while !stop.is_stopped() && controller.process_next_work_item() {}
            }
        });
        // Its syncs are a few requests each.
        health_checks::add_engine(&engine, Duration::ZERO, shared);
        Self {
            controller,
            deployments,
            replica_sets,
            engine,
        }
    }

    /// Set once the first lists are complete.
    pub(super) fn listed(&self) -> Vec<Arc<Latch>> {
        [self.deployments.synced(), self.replica_sets.synced()]
            .map(Arc::clone)
            .into()
    }
}
