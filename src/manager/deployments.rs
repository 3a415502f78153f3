//! The Deployment controller with its threads and its two stores. It shares the watch of pods, the
//! election and the stop with the daemon's own controllers, and nothing else.

use std::sync::Arc;

use super::controller_instance::Shared;
use super::engine::{Engine, Names};
use super::health_checks;
use crate::cache::Store;
use crate::deployment::{CONTROLLER, Deployment, DeploymentController, Parts, ReplicaSet, Writer};
use crate::stdx::clock::SystemClock;
use crate::stdx::stop::Latch;

/// Number of workers (kubernetes `pkg/controller/deployment/config/v1alpha1/defaults.go`).
const N_WORKERS: u16 = 5;

const NAMES: Names = Names {
    component: CONTROLLER,
    queue: "deployment",
    prefix: "deploy-",
};

/// The controller with all its threads except the watches.
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
        let mut engine = Engine::start(NAMES, N_WORKERS, shared);
        let (deployments, replica_sets) = (Arc::default(), Arc::default());
        let (client, recorder) = (engine.client.clone(), Arc::clone(&engine.recorder));
        let controller = Arc::new(DeploymentController::new(Parts {
            deployments: Arc::clone(&deployments),
            replica_sets: Arc::clone(&replica_sets),
            pods: Arc::clone(shared.pods),
            queue: Arc::clone(&engine.queue),
            writer: Writer::new(client, recorder, Arc::new(SystemClock)),
            clock: Arc::new(SystemClock),
            counts_terminating: shared.options.controller.gates.terminating_replicas,
        }));
        let listed = [
            ("pods", Arc::clone(shared.pods.synced())),
            ("deployments", Arc::clone(deployments.synced())),
            ("replicasets", Arc::clone(replica_sets.synced())),
        ];
        engine.start_workers(N_WORKERS, &listed, shared, |number| {
            let (controller, stop) = (Arc::clone(&controller), shared.stop.clone());
            move || {
                if number == 0 {
                    controller.enqueue_all();
                }
                while !stop.is_stopped() && controller.process_next_work_item() {}
            }
        });
        let threads = engine.liveness();
        health_checks::add_deployments(CONTROLLER, &engine.queue, threads, shared);
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
