//! How the daemon runs: filled from the flags by [`run`](mod@crate::run), read when the threads start.

use std::time::Duration;

use crate::api::WorkloadKind;
use crate::api::workload_kind::REPLICA_SET;
use crate::cache::encoding::ContentType;
use crate::controller::decide::plan::BURST_REPLICAS;
use crate::controller::feature_gates::FeatureGates;
use crate::leader_election::LeaderElectionOptions;
use crate::rights::self_check::SelfCheckOptions;

/// How the daemon runs.
#[derive(Clone, Debug)]
pub struct ManagerOptions {
    /// The one namespace to control; `None` for all.
    pub namespace: Option<String>,
    /// The kinds to control, each by a controller of its own.
    pub controllers: Vec<&'static WorkloadKind>,
    /// Requests per second of each controller, events counted apart; no limit if not above zero.
    pub kube_api_qps: f32,
    /// Requests that may go at once after a quiet time.
    pub kube_api_burst: u32,
    /// Workers for ReplicaSets.
    pub concurrent_replicaset_syncs: u16,
    /// Workers for ReplicationControllers.
    pub concurrent_rc_syncs: u16,
    /// Pods created or deleted at the same time: a quarter of them by large syncs, the rest by small
    /// ones ([`LARGE`](crate::batches::LARGE)). Each sync has one at least, on the thread of its worker.
    pub batch_parallelism: u16,
    /// Pods that one sync creates or deletes at most.
    pub burst_replicas: usize,
    /// The longest that a status waits after the last one if all it says is that counts get better;
    /// zero for upstream's rhythm.
    pub status_update_interval: Duration,
    /// What of the controllers' work can be switched off.
    pub gates: FeatureGates,
    /// How pods are asked for.
    pub content_type: ContentType,
    /// Least time between two looks at an object that did not change.
    pub min_resync_period: Duration,
    /// Read and decide, write nothing.
    pub dry_run: bool,
    /// The rights to ask for at start; `None` asks for none.
    pub self_check: Option<SelfCheckOptions>,
    /// Time from the stop signal until the last thread must have ended.
    pub stop_within: Duration,
    /// How the one that writes is found among several daemons; `None` if this one always writes.
    pub leader_election: Option<LeaderElectionOptions>,
}

impl Default for ManagerOptions {
    /// kube-controller-manager's numbers
    /// (kubernetes `pkg/controller/apis/config/v1alpha1/defaults.go`), 30 s to stop, and ReplicaSets
    /// only.
    fn default() -> Self {
        Self {
            namespace: None,
            controllers: vec![&REPLICA_SET],
            kube_api_qps: 20.0,
            kube_api_burst: 30,
            concurrent_replicaset_syncs: 5,
            concurrent_rc_syncs: 5,
            batch_parallelism: 32,
            burst_replicas: BURST_REPLICAS,
            status_update_interval: Duration::from_secs(1),
            gates: FeatureGates::default(),
            content_type: ContentType::default(),
            min_resync_period: Duration::from_hours(12),
            dry_run: false,
            self_check: None,
            stop_within: Duration::from_secs(30),
            leader_election: None,
        }
    }
}

impl ManagerOptions {
    /// Workers for this kind.
    pub(super) fn concurrent_syncs(&self, kind: &WorkloadKind) -> u16 {
        if *kind == REPLICA_SET {
            self.concurrent_replicaset_syncs
        } else {
            self.concurrent_rc_syncs
        }
    }
}
