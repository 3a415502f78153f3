//! What a controller says of its work: upstream's two families
//! (kubernetes `pkg/controller/replicaset/metrics/metrics.go`) and ours.
//!
//! Ours carry the label `name` with the value that `workqueue_*` has (`replicaset` or
//! `replicationmanager`), so that they can be joined; upstream's have no such label, and count for all
//! controllers of the process, as do ours about other writers.

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec};

use super::computed::Computed;
use super::registry::Registry;

/// `ExponentialBuckets(0.25, 2, 6)`; a ratio.
const AGE_RATIOS: [f64; 6] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0];

/// In seconds: from a request on an idle machine to the time after which somebody is called.
const WAITS: [f64; 15] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0,
];

/// What came of one request for one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Success,
    /// What was asked for was so already: the pod to be deleted is gone or another one, the pod to be
    /// created has a name that is taken.
    Moot,
    /// The API server said no.
    Refused,
    /// There was no answer that tells.
    Unknown,
    /// The request was not sent.
    NotSent,
}

impl Outcome {
    const ALL: [Self; 5] = [
        Self::Success,
        Self::Moot,
        Self::Refused,
        Self::Unknown,
        Self::NotSent,
    ];

    fn label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Moot => "moot",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
            Self::NotSent => "not_sent",
        }
    }
}

/// How a sync ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncEnd {
    /// It came to its end.
    Synced,
    /// The cache did not show yet what was written last.
    TooEarly,
    /// Something failed, and the key is repeated.
    Failed,
    /// It panicked, and the key is repeated.
    Panicked,
}

impl SyncEnd {
    const ALL: [Self; 4] = [Self::Synced, Self::TooEarly, Self::Failed, Self::Panicked];

    fn label(self) -> &'static str {
        match self {
            Self::Synced => "synced",
            Self::TooEarly => "too_early",
            Self::Failed => "failed",
            Self::Panicked => "panicked",
        }
    }
}

/// Families of all controllers.
#[derive(Debug)]
pub struct ControllerFamilies {
    /// Pods that are awaited (`type="creation"`) or whose going is (`type="deletion"`).
    pub open_expectations: Computed,
    sorting_deletion_age_ratio: Histogram,
    stale_sync_skips: IntCounterVec,
    pods_created: IntCounterVec,
    pods_deleted: IntCounterVec,
    pods_adopted: IntCounterVec,
    pods_released: IntCounterVec,
    pods_failed: IntCounterVec,
    syncs: IntCounterVec,
    first_request: HistogramVec,
    converge: HistogramVec,
    other_writers: OtherWriterMetrics,
}

impl ControllerFamilies {
    pub(super) fn new(registry: &Registry) -> Self {
        let by_outcome = |name, help| registry.counters(name, help, &["name", "outcome"]);
        Self {
            open_expectations: registry.computed_gauges(
                "replicaset_controller_open_expectations",
                "Pods whose creation or deletion was asked for and was not seen in the cache yet.",
                &["name", "type"],
            ),
            sorting_deletion_age_ratio: registry.histogram(
                "replicaset_controller_sorting_deletion_age_ratio",
                "[ALPHA] The ratio of chosen deleted pod's ages to the current youngest pod's age (at \
                 the time). Should be <2. The intent of this metric is to measure the rough efficacy \
                 of the LogarithmicScaleDown feature gate's effect on the sorting (and deletion) of \
                 pods when a replicaset scales down. This only considers Ready pods when calculating \
                 and reporting.",
                &AGE_RATIOS,
            ),
            stale_sync_skips: registry.counters(
                "replicaset_controller_stale_sync_skips_total",
                "[ALPHA] Total number of ReplicaSet syncs skipped due to a stale watch cache.",
                &["group", "resource"],
            ),
            pods_created: by_outcome(
                "replicaset_controller_pods_created_total",
                "Requests to create a pod, by what came of them.",
            ),
            pods_deleted: by_outcome(
                "replicaset_controller_pods_deleted_total",
                "Requests to delete a pod, by what came of them.",
            ),
            pods_adopted: by_outcome(
                "replicaset_controller_pods_adopted_total",
                "Requests to make an orphaned pod one's own, by what came of them.",
            ),
            pods_released: by_outcome(
                "replicaset_controller_pods_released_total",
                "Requests to let go of a pod that the selector does not match any more, by what came \
                 of them.",
            ),
            pods_failed: registry.counters(
                "replicaset_controller_pods_failed_total",
                "Owned pods that were seen to fail; each is replaced at once.",
                &["name"],
            ),
            syncs: by_outcome(
                "replicaset_controller_syncs_total",
                "Looks at one ReplicaSet, by how they ended.",
            ),
            first_request: registry.histograms(
                "replicaset_controller_first_request_seconds",
                "Seconds from the moment at which a change of a spec was seen to the first request to \
                 create or delete a pod that followed.",
                &["name"],
                &WAITS,
            ),
            converge: registry.histograms(
                "replicaset_controller_converge_seconds",
                "Seconds from the moment at which a change of a spec was seen to the first sync that \
                 found as many pods as wanted and nothing awaited.",
                &["name"],
                &WAITS,
            ),
            other_writers: OtherWriterMetrics::new(registry),
        }
    }

    /// What the controller `name` of `group` and `resource` observes into.
    pub fn of(&self, name: &str, group: &str, resource: &str) -> ControllerMetrics {
        let by_outcome = |family: &IntCounterVec| {
            let counter = |outcome: Outcome| family.with_label_values(&[name, outcome.label()]);
            ByOutcome(Outcome::ALL.map(counter))
        };
        let by_end = |end: SyncEnd| self.syncs.with_label_values(&[name, end.label()]);
        ControllerMetrics {
            sorting_deletion_age_ratio: self.sorting_deletion_age_ratio.clone(),
            stale_pods_skips: self.stale_sync_skips.with_label_values(&["", "pods"]),
            stale_owners_skips: self.stale_sync_skips.with_label_values(&[group, resource]),
            pods_created: by_outcome(&self.pods_created),
            pods_deleted: by_outcome(&self.pods_deleted),
            pods_adopted: by_outcome(&self.pods_adopted),
            pods_released: by_outcome(&self.pods_released),
            pods_failed: self.pods_failed.with_label_values(&[name]),
            syncs: SyncEnd::ALL.map(by_end),
            first_request: self.first_request.with_label_values(&[name]),
            converge: self.converge.with_label_values(&[name]),
            other_writers: self.other_writers.clone(),
        }
    }
}

/// What one controller observes while it works.
#[derive(Clone, Debug)]
pub struct ControllerMetrics {
    /// Ages of deleted ready pods as multiples of the youngest ready pod's.
    pub sorting_deletion_age_ratio: Histogram,
    /// Syncs that ended because the pods in the cache were too old.
    pub stale_pods_skips: IntCounter,
    /// Syncs that ended because the ReplicaSets in the cache were.
    pub stale_owners_skips: IntCounter,
    /// Creates.
    pub pods_created: ByOutcome,
    /// Deletes.
    pub pods_deleted: ByOutcome,
    /// Adoptions.
    pub pods_adopted: ByOutcome,
    /// Releases.
    pub pods_released: ByOutcome,
    /// Owned pods that were seen to fail.
    pub pods_failed: IntCounter,
    /// Seconds from a change to the first request.
    pub first_request: Histogram,
    /// Seconds from a change until everything is as wanted.
    pub converge: Histogram,
    /// What is seen of other writers.
    pub other_writers: OtherWriterMetrics,
    syncs: [IntCounter; SyncEnd::ALL.len()],
}

impl ControllerMetrics {
    /// Counts a sync.
    pub fn sync_ended(&self, end: SyncEnd) {
        self.syncs[end as usize].inc();
    }
}

/// Counters of requests, one for each [`Outcome`].
#[derive(Clone, Debug)]
pub struct ByOutcome([IntCounter; Outcome::ALL.len()]);

impl ByOutcome {
    /// Counts a request.
    pub fn count(&self, outcome: Outcome) {
        self.0[outcome as usize].inc();
    }

    /// Requests so far.
    pub fn get(&self, outcome: Outcome) -> u64 {
        self.0[outcome as usize].get()
    }
}

/// What is seen of other writers: in a dry run beside one, and when there should be none. A series is
/// there from the first thing that it counts.
#[derive(Clone, Debug)]
pub struct OtherWriterMetrics {
    shadow_decisions: IntCounterVec,
    other_writer: IntCounterVec,
}

impl OtherWriterMetrics {
    fn new(registry: &Registry) -> Self {
        Self {
            shadow_decisions: registry.counters(
                "replicaset_controller_shadow_decisions_total",
                "Decisions of a dry run by what they are about (create, delete, adopt, release, \
                 status) and how they compare with what another writer did.",
                &["decision", "verdict"],
            ),
            other_writer: registry.counters(
                "replicaset_controller_other_writer_total",
                "Writes by somebody else to what this daemon controls, by what was written (pod, \
                 status).",
                &["what"],
            ),
        }
    }

    /// Counts a comparison of a dry run.
    pub fn shadow(&self, decision: &str, verdict: &str) {
        let labels = [decision, verdict];
        self.shadow_decisions.with_label_values(&labels).inc();
    }

    /// Counts a write by somebody else.
    pub fn seen(&self, what: &str) {
        self.other_writer.with_label_values(&[what]).inc();
    }
}
