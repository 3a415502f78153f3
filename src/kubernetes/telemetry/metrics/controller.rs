//! Metrics of the controllers: upstream's two families (kubernetes
//! `pkg/controller/replicaset/metrics/metrics.go`) and this project's own.
//!
//! Our own metric families carry the label `name` with the value of `workqueue_*` (`replicaset` or
//! `replicationmanager`), so that queries can join them. Upstream's families have no such label and
//! cover all controllers of the process, and so do our own families about other writers.

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec};

use super::{Computed, Registry};

/// `ExponentialBuckets(0.25, 2, 6)`; a ratio.
const AGE_RATIOS: [f64; 6] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0];

/// In seconds, from one request on an idle machine up to five minutes, when alerts fire.
const WAITS: [f64; 15] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    Success,
    /// The request changed nothing: the pod to delete is gone or replaced, or the name of the pod
    /// to create is taken.
    NotNeeded,
    Rejected,
    /// The outcome is unknown, since no conclusive response arrived.
    Unknown,
    NotSent,
}

impl WriteOutcome {
    /// The label's values, in the order of the variants.
    const LABELS: [&str; 5] = ["success", "not_needed", "rejected", "unknown", "not_sent"];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncEnd {
    Synced,
    /// The cache did not contain the controller's last writes yet.
    TooEarly,
    /// The API server rejected a create before, and the next attempt is not due yet.
    BackedOff,
    /// An error occurred, and the worker requeues the key.
    Failed,
    /// The sync panicked, and the worker requeues the key.
    Panicked,
}

impl SyncEnd {
    /// The label's values, in the order of the variants.
    const LABELS: [&str; 5] = ["synced", "too_early", "backed_off", "failed", "panicked"];
}

families! {
    pub struct ControllerFamilies {
        /// Pods whose creation or deletion was requested and is not yet in the cache.
        pub open_expectations: Computed
            = computed_gauges("replicaset_controller_open_expectations", &["name", "type"]);
        /// Objects whose status does not report exactly spec.replicas replicas, all of them
        /// available, for the current generation.
        pub not_converged: Computed
            = computed_gauges("replicaset_controller_not_converged", &["name"]);
        /// Objects whose pod creation is backed off after a rejection, by kind: quota, overload
        /// (429, 503 or a webhook that did not respond), invalid (422), denied (400, 403 or 413).
        pub backed_off: Computed
            = computed_gauges("replicaset_controller_backed_off", &["name", "kind"]);
        /// Missing pods whose creation is backed off because pods of their object fail.
        pub pods_backed_off: Computed
            = computed_gauges("replicaset_controller_pods_backed_off", &["name"]);
        /// Pods kept above spec.replicas because they are protected from scale-downs.
        pub scale_down_blocked_pods: Computed
            = computed_gauges("replicaset_controller_scale_down_blocked_pods", &["name"]);
        /// [ALPHA] The ratio of chosen deleted pod's ages to the current youngest pod's age (at the
        /// time). Should be <2. The intent of this metric is to measure the rough efficacy of the
        /// sorting (and deletion) of pods when a replicaset scales down. This only considers Ready
        /// pods when calculating and reporting.
        sorting_deletion_age_ratio: Histogram
            = histogram("replicaset_controller_sorting_deletion_age_ratio", &AGE_RATIOS);
        /// [ALPHA] Total number of ReplicaSet syncs skipped due to a stale watch cache.
        stale_sync_skips: IntCounterVec
            = counters("replicaset_controller_stale_sync_skips_total", &["group", "resource"]);
        /// Requests to create a pod, by outcome.
        pods_created: IntCounterVec
            = counters("replicaset_controller_pods_created_total", &["name", "outcome"]);
        /// Requests to delete a pod, by outcome.
        pods_deleted: IntCounterVec
            = counters("replicaset_controller_pods_deleted_total", &["name", "outcome"]);
        /// Requests to adopt an orphaned pod, by outcome.
        pods_adopted: IntCounterVec
            = counters("replicaset_controller_pods_adopted_total", &["name", "outcome"]);
        /// Requests to release a pod that the selector no longer matches, by outcome.
        pods_released: IntCounterVec
            = counters("replicaset_controller_pods_released_total", &["name", "outcome"]);
        /// Objects and generations whose Workload asks for gang scheduling, which is unsupported.
        gangs_ignored: IntCounterVec
            = counters("replicaset_controller_gangs_ignored_total", &["name"]);
        /// Owned pods that were observed to fail. Each is replaced at once, unless a back-off is
        /// configured.
        pods_failed: IntCounterVec = counters("replicaset_controller_pods_failed_total", &["name"]);
        /// Requests to delete an old Failed pod (--failed-pods-kept), by outcome.
        old_failed_pods_deleted: IntCounterVec
            = counters("replicaset_controller_old_failed_pods_deleted_total", &["name", "outcome"]);
        /// Syncs of one ReplicaSet, by outcome.
        syncs: IntCounterVec = counters("replicaset_controller_syncs_total", &["name", "outcome"]);
        /// Seconds from the observation of a spec change to the first request to create or delete a
        /// pod that followed.
        first_request: HistogramVec
            = histograms("replicaset_controller_first_request_seconds", &["name"], &WAITS);
        /// Seconds from the observation of a spec change to the first sync that found the desired
        /// number of pods and no open expectations.
        converge: HistogramVec
            = histograms("replicaset_controller_converge_seconds", &["name"], &WAITS);
        /// New decisions of a dry run, by kind (create, delete, adopt, release, discard).
        dry_run_decisions: IntCounterVec
            = counters("replicaset_controller_dry_run_decisions_total", &["decision"]);
        /// Pods of this daemon's ReplicaSets that another client created, by resource (pod).
        other_writer: IntCounterVec
            = counters("replicaset_controller_other_writer_total", &["what"]);
    }
}

impl ControllerFamilies {
    /// The metrics of the controller `name` for `resource` of `group`.
    pub fn of(&self, name: &str, group: &str, resource: &str) -> ControllerMetrics {
        let by_outcome = |family: &IntCounterVec| {
            ByOutcome(WriteOutcome::LABELS.map(|label| family.with_label_values(&[name, label])))
        };
        ControllerMetrics {
            sorting_deletion_age_ratio: self.sorting_deletion_age_ratio.clone(),
            stale_pods_skips: self.stale_sync_skips.with_label_values(&["", "pods"]),
            stale_owners_skips: self.stale_sync_skips.with_label_values(&[group, resource]),
            pods_created: by_outcome(&self.pods_created),
            pods_deleted: by_outcome(&self.pods_deleted),
            pods_adopted: by_outcome(&self.pods_adopted),
            pods_released: by_outcome(&self.pods_released),
            pods_failed: self.pods_failed.with_label_values(&[name]),
            gangs_ignored: self.gangs_ignored.with_label_values(&[name]),
            old_failed_pods_deleted: by_outcome(&self.old_failed_pods_deleted),
            syncs: SyncEnd::LABELS.map(|label| self.syncs.with_label_values(&[name, label])),
            first_request: self.first_request.with_label_values(&[name]),
            converge: self.converge.with_label_values(&[name]),
            dry_run_decisions: self.dry_run_decisions.clone(),
            other_writer: self.other_writer.clone(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct ControllerMetrics {
    pub sorting_deletion_age_ratio: Histogram,
    /// Syncs skipped because the pod cache was stale.
    pub stale_pods_skips: IntCounter,
    /// Syncs skipped because the ReplicaSet cache was stale.
    pub stale_owners_skips: IntCounter,
    pub pods_created: ByOutcome,
    pub pods_deleted: ByOutcome,
    pub pods_adopted: ByOutcome,
    pub pods_released: ByOutcome,
    pub pods_failed: IntCounter,
    pub gangs_ignored: IntCounter,
    pub old_failed_pods_deleted: ByOutcome,
    pub first_request: Histogram,
    pub converge: Histogram,
    /// New decisions of a dry run, by kind. A series appears with its first count.
    pub dry_run_decisions: IntCounterVec,
    /// Writes by another client, by what was written. A series appears with its first count.
    pub other_writer: IntCounterVec,
    syncs: [IntCounter; SyncEnd::LABELS.len()],
}

impl ControllerMetrics {
    pub fn sync_ended(&self, end: SyncEnd) {
        self.syncs[end as usize].inc();
    }
}

/// Counters of requests, one per [`WriteOutcome`].
#[derive(Clone, Debug)]
pub struct ByOutcome([IntCounter; WriteOutcome::LABELS.len()]);

impl ByOutcome {
    pub fn count(&self, outcome: WriteOutcome) {
        self.0[outcome as usize].inc();
    }

    pub fn get(&self, outcome: WriteOutcome) -> u64 {
        self.0[outcome as usize].get()
    }
}
