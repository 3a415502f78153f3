//! The ReplicaSet controller itself: from a cache event to the writes that follow from it. It controls
//! ReplicationControllers too, in an instance of its own; [`WorkloadKind`] says what is different then.
//!
//! [`handlers`] turn cache events into keys and strike out expectations, on the watch threads. Workers
//! take the keys from the queue one by one; [`sync`] decides and writes. What is decided is pure
//! ([`decide`]); everything else comes in as a trait
//! (clock, cache view, live reads, writes, batch runner), so that one thread with a clock turned by hand
//! can drive exactly the code that ships.
//!
//! # Locks
//!
//! - [`memory`] guards the records of all ReplicaSets, which key waits for which version, and what
//!   a new leader still has to prove. Workers, watch threads and `lease` take it.
//! - [`observe::other_writers`] guards when the API server was last asked for a writer. Workers
//!   take it.
//! - [`observe::shadow`] guards the decisions of a dry run and their comparison. Workers take it.

mod act;
pub mod decide;
mod enqueue;
pub mod error;
pub mod feature_gates;
mod freshness;
pub mod handlers;
pub mod memory;
pub mod observe;
pub mod sync;
pub mod take_over;
mod worker;

#[cfg(test)]
mod replication_tests;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod testing;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use self::feature_gates::FeatureGates;
use self::memory::positions::Versions;
use self::memory::{Memories, Memory};
use self::observe::other_writers::OtherWriters;
use self::observe::shadow::Shadow;
use crate::api::{ObjectKey, ReplicaSetStatus, Uid, WorkloadKind};
use crate::batches::BatchRunner;
use crate::cache::CacheView;
use crate::live::LiveReader;
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
    /// Asks the API server past the cache.
    pub live: Arc<dyn LiveReader>,
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
    /// What can be chosen.
    pub options: Options,
    /// Where it counts what it does.
    pub metrics: ControllerMetrics,
}

/// What can be chosen of a controller.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The most pods that one sync creates or deletes: [`decide::plan::BURST_REPLICAS`] but for tests.
    pub burst_replicas: usize,
    /// The longest that a status waits after the last one if all it says is that counts get better;
    /// zero for upstream's rhythm.
    pub status_update_interval: Duration,
    /// What can be switched off.
    pub gates: FeatureGates,
}

/// Whether a controller writes.
#[derive(Debug)]
enum Mode {
    /// It does, and looks whether others write too.
    Writes(OtherWriters),
    /// It only decides: `--dry-run`.
    DryRun(Arc<Shadow>),
}

/// Makes ReplicaSets own as many pods as they want. Shared by all workers and watch threads.
#[derive(Debug)]
pub struct ReplicaSetController {
    kind: &'static WorkloadKind,
    cache: Arc<dyn CacheView>,
    live: Arc<dyn LiveReader>,
    pod_control: Arc<dyn PodControl>,
    replica_set_control: Arc<dyn ReplicaSetControl>,
    queue: Arc<WorkQueue<ObjectKey>>,
    batches: Arc<dyn BatchRunner>,
    clock: Arc<dyn Clock>,
    options: Options,
    metrics: ControllerMetrics,
    memories: Memories,
    mode: Mode,
}

impl ReplicaSetController {
    /// A controller that has seen nothing yet.
    pub fn new(parts: Parts) -> Self {
        Self {
            kind: parts.kind,
            cache: parts.cache,
            live: parts.live,
            pod_control: parts.pod_control,
            replica_set_control: parts.replica_set_control,
            queue: parts.queue,
            batches: parts.batches,
            memories: Memories::new(
                Arc::clone(&parts.clock),
                parts.options.gates.stale_controller_consistency,
            ),
            clock: parts.clock,
            metrics: parts.metrics,
            options: parts.options,
            mode: Mode::Writes(OtherWriters::default()),
        }
    }

    /// How many own creations and deletions of all ReplicaSets are still to be seen, for telemetry.
    pub fn n_expected(&self) -> (usize, usize) {
        self.memories.n_expected()
    }

    /// How many own creations and deletions of the ReplicaSet `key` with UID `owner` are still to be
    /// seen; `None` if nothing is remembered of it.
    pub fn n_expected_of(&self, key: &ObjectKey, owner: &Uid) -> Option<(usize, usize)> {
        let n_expected = |memory: &mut Memory| memory.own_writes.n_expected();
        self.memories.get(key, owner, n_expected)
    }

    fn cached_versions(&self) -> Versions {
        Versions {
            pods: self.cache.pods_resource_version(),
            replica_sets: self.cache.replica_sets_resource_version(),
        }
    }

    /// Whether its statuses have a number of terminating pods.
    fn counts_terminating(&self) -> bool {
        self.kind.has_terminating_replicas && self.options.gates.terminating_replicas
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
            && self.memories.terminating_is_dropped.load(Ordering::Relaxed);
        terminating.filter(|_| !is_dropped)
    }

    /// Every status that is written tells anew.
    fn note_terminating_support(&self, sent: &ReplicaSetStatus, stored: &ReplicaSetStatus) {
        if sent.terminating_replicas.is_some() {
            let is_dropped = stored.terminating_replicas.is_none();
            let known = &self.memories.terminating_is_dropped;
            known.store(is_dropped, Ordering::Relaxed);
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
