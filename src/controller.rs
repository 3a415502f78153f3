//! The ReplicaSet controller: from a cache event to the writes that follow. A second instance
//! controls ReplicationControllers; [`WorkloadKind`] holds the differences.
//!
//! [`handlers`] run on the watch threads: they observe expectations and enqueue keys. Workers take
//! one key at a time from the queue, and [`sync`] decides and writes. Decisions are pure
//! ([`decide`]). Everything else enters as a trait (clock, cache view, live reads, writes, batch
//! runner), so that one test thread with a manual clock drives the code that ships.
//!
//! # Mechanisms beyond upstream's
//!
//! Each prevents a failure that clusters have met. There are fourteen, and a new one must replace
//! one of them. Numbers are issues of kubernetes/kubernetes.
//!
//! | mechanism | failure without it | file |
//! |---|---|---|
//! | expectations by identity | another pod's event ends a wait (#67662) | `memory/own_writes.rs` |
//! | repeatable pod names | a lost response doubles a pod (#129795) | `{own_writes,pod_body}.rs` |
//! | query in doubt | an expired expectation is a guess (#88851) | `act/verify.rs` |
//! | positions | a stale cache chooses the wrong pod (#126138) | `memory/positions.rs` |
//! | counts | each event of a large one costs a walk over its pods | `decide/status.rs` |
//! | priorities and turns | one tenant delays all others (#68179) | `workqueue/dedup.rs` |
//! | two pools | hanging deletes of one delay the status of others | `batches/pool.rs` |
//! | kinds of rejection | a freed quota is noticed after 16 min (#98656) | `memory/rejections.rs` |
//! | pause of a status | one write for each pod that turns Ready | `act/status.rs` |
//! | failed-pod back-off | 1,800 failed pods a minute (#72593) | `decide/optional/failed_pods.rs` |
//! | failed-pod limit | 12,512 evicted pods (#80348) | `act/old_failed_pods.rs` |
//! | protection | a scale-down deletes a busy pod (#45509) | `decide/optional/protection.rs` |
//! | orders | a scale-down leaves zones uneven (#124306) | `decide/optional/order.rs` |
//! | other writers | two controllers undo each other's work unseen | [`other_writers`] |
//!
//! [`dry_run`], [`warnings`] and `memory/history` report, and decide nothing.
//!
//! # Locks
//!
//! - [`memory`] guards the records of all ReplicaSets, which key waits for which version, and what
//!   a new leader still has to prove. Workers, `batch-N`, watch threads, `lease` and `http-N` take
//!   it.
//! - [`other_writers`] guards the last query for a writer and the last report. Workers and `http-N`
//!   take it.
//! - [`dry_run`] guards the last decisions of a dry run. Workers take it, and `main` at the stop.

mod act;
pub mod decide;
pub mod dry_run;
mod enqueue;
pub mod handlers;
pub mod memory;
pub mod other_writers;
mod rejections;
pub mod sync;
mod view;
pub mod warnings;
mod worker;

#[cfg(test)]
mod feature_gates_tests;
#[cfg(test)]
mod inspect_tests;
#[cfg(test)]
mod replication_tests;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod testing;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use self::act::Writer;
use self::decide::plan::BURST_REPLICAS;
use self::dry_run::DryRun;
use self::memory::Memories;
use self::memory::rejections::QuotaWatch;
use self::other_writers::OtherWriters;
use crate::api::{ObjectKey, Policy, RetryBackoff, WorkloadKind};
use crate::batches::BatchRunner;
use crate::cache::Cache;
use crate::live::LiveReader;
use crate::stdx::clock::Clock;
use crate::stdx::turns;
use crate::telemetry::metrics::controller::{ControllerMetrics, WriteOutcome};
use crate::workqueue::WorkQueue;
use crate::writes::{PodControl, ReplicaSetControl, WriteError};

pub use self::act::SyncError;
pub(crate) use self::view::Siblings;

pub struct Parts {
    pub kind: &'static WorkloadKind,
    pub cache: Cache,
    pub live: Arc<dyn LiveReader>,
    pub pod_control: Arc<dyn PodControl>,
    pub replica_set_control: Arc<dyn ReplicaSetControl>,
    pub queue: Arc<WorkQueue<ObjectKey>>,
    pub batches: Arc<dyn BatchRunner>,
    pub clock: Arc<dyn Clock>,
    pub options: Options,
    pub metrics: ControllerMetrics,
    pub quota_watch: Arc<QuotaWatch>,
}

/// The Kubernetes feature gates that change this controller's behaviour and can be switched off.
/// All are enabled by default, as upstream (kubernetes `pkg/features/kube_features.go`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureGates {
    /// `PodDeletionCost`: the deletion order uses the deletion cost of pods.
    pub pod_deletion_cost: bool,
    /// `DeploymentReplicaSetTerminatingReplicas`: the status counts terminating pods. Off, the
    /// field is absent.
    pub terminating_replicas: bool,
    /// `StaleControllerConsistencyReplicaSet`: a sync waits until the cache shows all own writes.
    /// Off, only expectations prevent duplicate actions.
    pub stale_controller_consistency: bool,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self {
            pod_deletion_cost: true,
            terminating_replicas: true,
            stale_controller_consistency: true,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Maximum pods created or deleted per sync.
    pub burst_replicas: usize,
    /// Maximum delay between two status writes if the later one reports mere progress; zero writes
    /// every change at once, as upstream does.
    pub status_update_interval: Duration,
    pub retry_backoff: RetryBackoff,
    pub gates: FeatureGates,
    /// The default of the opt-in annotations.
    pub policy: Policy,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            burst_replicas: BURST_REPLICAS,
            status_update_interval: Duration::from_secs(1),
            retry_backoff: RetryBackoff::default(),
            gates: FeatureGates::default(),
            policy: Policy::default(),
        }
    }
}

enum Mode {
    /// It writes, and detects other writers.
    Writes(Box<Writer>),
    /// It decides and writes nothing: `--dry-run`.
    DryRun(Arc<DryRun>),
}

/// What the parts of one controller share. `explain` and the daemon's pages read it.
pub struct Core {
    pub(crate) kind: &'static WorkloadKind,
    pub(crate) cache: Cache,
    pub(crate) queue: Arc<WorkQueue<ObjectKey>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: Options,
    metrics: ControllerMetrics,
    pub(crate) memories: Memories,
    others: OtherWriters,
}

/// Keeps the number of pods of each ReplicaSet at `spec.replicas`. Shared by all workers and watch
/// threads.
pub struct ReplicaSetController {
    pub(crate) core: Arc<Core>,
    mode: Mode,
}

impl Deref for ReplicaSetController {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl ReplicaSetController {
    pub fn new(parts: Parts) -> Self {
        let waits_for_written = parts.options.gates.stale_controller_consistency;
        let clock = Arc::clone(&parts.clock);
        let core = Arc::new(Core {
            kind: parts.kind,
            cache: parts.cache,
            queue: parts.queue,
            clock: parts.clock,
            options: parts.options,
            metrics: parts.metrics,
            memories: Memories::new(clock, waits_for_written, parts.quota_watch),
            others: OtherWriters::default(),
        });
        let writer = Writer {
            core: Arc::clone(&core),
            live: parts.live,
            pod_control: parts.pod_control,
            replica_set_control: parts.replica_set_control,
            batches: parts.batches,
        };
        Self {
            core,
            mode: Mode::Writes(Box::new(writer)),
        }
    }

    /// Starts reporting foreign writes. Call once the caches have synced. Later calls have no
    /// effect.
    pub fn start_detection(&self) {
        if let Mode::Writes(_) = &self.mode {
            self.others.start(self.cache.pods.resource_version());
        }
    }

    /// Stops enqueueing keys, until [`failover`](Self::failover).
    pub fn stand_by(&self) {
        self.memories.set_standby(true);
    }

    /// Starts leading: the previous leader writes no more. The caller must enqueue every ReplicaSet
    /// afterwards ([`enqueue_all`](Core::enqueue_all)), and must start no worker before. Never
    /// blocks.
    pub fn failover(&self) {
        self.memories.need_proof();
        // ORDER: `enqueue_all` runs after this. A change from before is then in the cache, and a
        // change from after enqueues its key by its own event.
        turns::reached("failover: before the standby ends");
        self.memories.set_standby(false);
    }
}

fn outcome_of(error: &WriteError) -> WriteOutcome {
    match error {
        WriteError::Rejected(_) => WriteOutcome::Rejected,
        WriteError::Unknown { .. } => WriteOutcome::Unknown,
        WriteError::Local(_) | WriteError::Stopped => WriteOutcome::NotSent,
    }
}
