//! The ReplicaSet controller itself: from a cache event to the writes that follow from it. It controls
//! ReplicationControllers too, in an instance of its own; [`WorkloadKind`] says what is different then.
//!
//! [`handlers`] turn cache events into keys and strike out expectations, on the watch threads. Workers
//! take the keys from the queue one by one; [`sync`] decides and writes. What is decided is pure
//! ([`plan`], [`deletion_order`], [`status::calculate_status`]); everything else comes in as a trait
//! (clock, cache view, writes, batch runner), so that one thread with a clock turned by hand can drive
//! exactly the code that ships.

mod age_ratio;
pub mod availability;
pub mod claim;
pub mod counts;
pub mod deletion_order;
pub mod dry_run;
pub mod error;
pub mod expectations;
pub mod expiry;
mod failing_pods;
pub mod fair_pool;
pub mod feature_gates;
pub mod handlers;
pub mod inspect;
mod large;
pub mod last_syncs;
pub mod manage;
pub mod other_writers;
pub mod pace;
pub mod plan;
pub mod pod_names;
pub mod priority;
mod progress;
mod scale_down;
pub mod shadow;
pub mod slow_start;
pub mod status;
pub mod sync;
pub mod take_over;
pub mod unresolved;
pub mod written_versions;

#[cfg(test)]
mod replication_tests;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod testing;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use self::deletion_order::DeletionOrder;
use self::expectations::Expectations;
use self::failing_pods::FailingPods;
use self::feature_gates::FeatureGates;
use self::last_syncs::LastSyncs;
use self::other_writers::OtherWriters;
use self::pace::StatusPace;
use self::pod_names::PodNames;
use self::progress::Progress;
use self::scale_down::ScaleDowns;
use self::shadow::Shadow;
use self::slow_start::BatchRunner;
use self::take_over::TakeOver;
use self::unresolved::Unresolved;
use self::written_versions::{Versions, WrittenVersions};
use crate::api::{ObjectKey, ReplicaSetStatus, Uid, WorkloadKind};
use crate::cache::CacheView;
use crate::stdx::clock::Clock;
use crate::telemetry::metrics::controller::{ControllerMetrics, Outcome as WriteOutcome};
use crate::workqueue::WorkQueue;
use crate::writes::{PodControl, ReplicaSetControl, WriteError};

pub use self::error::SyncError;

/// Everything that the controller works with.
#[derive(Debug)]
pub struct Parts {
    /// The kind of workload that is controlled.
    pub kind: &'static WorkloadKind,
    /// What the watches have delivered.
    pub cache: Arc<dyn CacheView>,
    /// Writes pods.
    pub pod_control: Arc<dyn PodControl>,
    /// Writes status.
    pub replica_set_control: Arc<dyn ReplicaSetControl>,
    /// The keys to be looked at.
    pub queue: Arc<WorkQueue<ObjectKey>>,
    /// Runs the creates and deletes of one batch.
    pub batches: Arc<dyn BatchRunner>,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// The most pods that one sync creates or deletes: [`plan::BURST_REPLICAS`] but for tests.
    pub burst_replicas: usize,
    /// The longest that a status waits after the last one if all it says is that counts get better;
    /// zero for upstream's rhythm.
    pub status_update_interval: Duration,
    /// What can be switched off.
    pub gates: FeatureGates,
    /// Where it counts what it does.
    pub metrics: ControllerMetrics,
}

/// Makes ReplicaSets own as many pods as they want. Shared by all workers and watch threads.
#[derive(Debug)]
pub struct ReplicaSetController {
    kind: &'static WorkloadKind,
    cache: Arc<dyn CacheView>,
    pod_control: Arc<dyn PodControl>,
    replica_set_control: Arc<dyn ReplicaSetControl>,
    queue: Arc<WorkQueue<ObjectKey>>,
    batches: Arc<dyn BatchRunner>,
    clock: Arc<dyn Clock>,
    burst_replicas: usize,
    gates: FeatureGates,
    expectations: Expectations,
    written: WrittenVersions,
    unresolved: Unresolved,
    names: PodNames,
    pace: StatusPace,
    last_syncs: LastSyncs,
    others: OtherWriters,
    /// Set if nothing is to be written.
    shadow: Option<Arc<Shadow>>,
    progress: Progress,
    scale_downs: ScaleDowns,
    failing_pods: FailingPods,
    metrics: ControllerMetrics,
    /// Generation for which an unusable selector was logged, by ReplicaSet; behind its own lock.
    unusable_selectors: Mutex<HashMap<ObjectKey, (Uid, i64)>>,
    /// True if the API server dropped `terminatingReplicas` from the last status that carried it. While a
    /// cluster is upgraded some of its API servers may, and others not.
    terminating_is_dropped: AtomicBool,
    take_over: TakeOver,
}

impl ReplicaSetController {
    /// A controller that has seen nothing yet.
    pub fn new(parts: Parts) -> Self {
        Self {
            kind: parts.kind,
            cache: parts.cache,
            pod_control: parts.pod_control,
            replica_set_control: parts.replica_set_control,
            queue: parts.queue,
            batches: parts.batches,
            expectations: Expectations::new(Arc::clone(&parts.clock)),
            written: if parts.gates.stale_controller_consistency {
                WrittenVersions::new(Arc::clone(&parts.clock))
            } else {
                WrittenVersions::holding_up_nobody(Arc::clone(&parts.clock))
            },
            pace: StatusPace::new(Arc::clone(&parts.clock), parts.status_update_interval),
            progress: Progress::new(Arc::clone(&parts.clock)),
            scale_downs: ScaleDowns::new(Arc::clone(&parts.clock)),
            failing_pods: FailingPods::new(Arc::clone(&parts.clock)),
            unresolved: Unresolved::new(Arc::clone(&parts.clock)),
            clock: parts.clock,
            metrics: parts.metrics,
            burst_replicas: parts.burst_replicas,
            gates: parts.gates,
            names: PodNames::default(),
            last_syncs: LastSyncs::default(),
            others: OtherWriters::default(),
            shadow: None,
            unusable_selectors: Mutex::default(),
            terminating_is_dropped: AtomicBool::new(false),
            take_over: TakeOver::default(),
        }
    }

    /// What is still expected, for tests and for telemetry.
    pub fn expectations(&self) -> &Expectations {
        &self.expectations
    }

    /// What was written and not seen yet, for tests and for telemetry.
    pub fn written_versions(&self) -> &WrittenVersions {
        &self.written
    }

    fn cached_versions(&self) -> Versions {
        Versions {
            pods: self.cache.pods_resource_version(),
            replica_sets: self.cache.replica_sets_resource_version(),
        }
    }

    /// Drops all that is remembered of a ReplicaSet that is gone: of `owner` only, or (with `None`) of
    /// whoever has the key.
    fn forget_replica_set(&self, key: &ObjectKey, owner: Option<&Uid>) {
        self.written.clear(key, owner);
        self.expectations.delete_expectations(key, owner);
        self.unresolved.clear(key, owner);
        self.names.clear(key, owner);
        self.pace.clear(key);
        self.last_syncs.clear(key);
        self.others.clear(key);
        self.progress.clear(key, owner);
        self.scale_downs.clear(key);
        self.take_over.clear(key, owner);
        let mut logged = self
            .unusable_selectors
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if logged
            .get(key)
            .is_some_and(|(uid, _)| owner.is_none_or(|owner| owner == uid))
        {
            logged.remove(key);
        }
    }

    /// Whether its statuses have a number of terminating pods.
    fn counts_terminating(&self) -> bool {
        self.kind.has_terminating_replicas && self.gates.terminating_replicas
    }

    /// What the choice of pods to delete rests on at this moment.
    fn deletion_order(&self) -> DeletionOrder {
        DeletionOrder {
            now: self.clock.wall(),
            uses_deletion_cost: self.gates.pod_deletion_cost,
        }
    }

    /// The number of terminating pods as `stored` can be compared with it: where the field is dropped, that
    /// it is absent says nothing, and asking for it again and again would be a write for nothing in every
    /// sync.
    fn comparable_terminating(
        &self,
        stored: &ReplicaSetStatus,
        terminating: Option<i32>,
    ) -> Option<i32> {
        let is_dropped = stored.terminating_replicas.is_none()
            && self.terminating_is_dropped.load(Ordering::Relaxed);
        terminating.filter(|_| !is_dropped)
    }

    /// Every status that is written tells anew.
    fn note_terminating_support(&self, sent: &ReplicaSetStatus, stored: &ReplicaSetStatus) {
        if sent.terminating_replicas.is_some() {
            let is_dropped = stored.terminating_replicas.is_none();
            self.terminating_is_dropped
                .store(is_dropped, Ordering::Relaxed);
        }
    }
}

/// How the metrics call what came of a write.
fn outcome_of(error: &WriteError) -> WriteOutcome {
    match error {
        WriteError::Refused(_) => WriteOutcome::Refused,
        WriteError::Unknown(_) => WriteOutcome::Unknown,
        WriteError::Local(_) | WriteError::Stopped => WriteOutcome::NotSent,
    }
}
