//! The daemon's configuration. [`run`](mod@crate::run) fills it from the flags; the manager reads
//! it when it starts the threads.

use std::time::Duration;

use crate::api::WorkloadKind;
use crate::api::workload_kind::REPLICA_SET;
use crate::cache::encoding::ContentType;
use crate::controller;
use crate::leader_election::LeaderElectionOptions;
use crate::rights::RightsOptions;

/// The daemon's configuration.
#[derive(Clone, Debug)]
pub struct ManagerOptions {
    /// The only namespace to control; `None` for all.
    pub namespace: Option<String>,
    /// The kinds to control, one controller per kind.
    pub controllers: Vec<&'static WorkloadKind>,
    /// Requests per second of each controller, with a separate bucket for events; no limit if not
    /// above zero.
    pub kube_api_qps: f32,
    /// Burst size of the token bucket.
    pub kube_api_burst: u32,
    /// Workers for ReplicaSets.
    pub concurrent_replicaset_syncs: u16,
    /// Workers for ReplicationControllers.
    pub concurrent_rc_syncs: u16,
    /// Concurrent pod creates and deletes: half of them for large syncs, the rest for small ones
    /// ([`LARGE`](crate::batches::LARGE)). Each sync has at least one sender, its worker's thread.
    pub batch_parallelism: u16,
    /// The options of each controller.
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
    /// Number of workers for this kind.
    pub(super) fn concurrent_syncs(&self, kind: &WorkloadKind) -> u16 {
        if *kind == REPLICA_SET {
            self.concurrent_replicaset_syncs
        } else {
            self.concurrent_rc_syncs
        }
    }
}
