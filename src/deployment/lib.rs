//! Kubernetes' Deployment controller: it owns the ReplicaSets of a Deployment, one for each
//! revision of the pod template, and moves pods from the old ones to the new one.
//!
//! ```text
//! sync                            events → keys; claim, decide, write
//! act                             requests
//! explain                         what a rollout waits for (pure)
//! decide                          Deployment + ReplicaSets → writes, status, next time (pure)
//! status                          counts, conditions, progress
//! revisions                       names, numbers, annotations
//! fenceposts                      surge, unavailable pods, shares
//! objects                         Deployments and ReplicaSets, as JSON has them
//! ```
//!
//! It is a second controller on the package `kubernetes`, beside the daemon's own: list and watch,
//! cache, queue, client and events are the same. It writes ReplicaSets and the status of
//! Deployments; a ReplicaSet controller makes their pods. It behaves as upstream's does (kubernetes
//! `pkg/controller/deployment`); `DIFFERS` marks the exceptions.

mod act;
pub mod decide;
mod explain;
pub mod fenceposts;
pub mod objects;
mod revisions;
#[cfg(test)]
mod simulation;
mod status;
mod sync;

use kubernetes::{api, cache, client, event_recorder, stdx, workqueue};

pub use act::Writer;
pub use explain::{Rollout, blocked_by, explain};
pub use objects::{Deployment, DeploymentStore, ReplicaSet, ReplicaSetStore};
pub use sync::{DeploymentController, Parts, with_pods};

/// Name in `--controllers`, and reporter of events (kubernetes
/// `cmd/kube-controller-manager/names/controller_names.go`).
pub const CONTROLLER: &str = "deployment-controller";
