//! Metrics of work queues by queue name (component-base `metrics/prometheus/workqueue/metrics.go`).

use prometheus::{Histogram, HistogramVec};

use super::computed::Computed;
use super::registry::Registry;

/// `ExponentialBuckets(10e-9, 10, 10)`, in seconds. Go's repeated multiplication causes the
/// rounding errors.
const BUCKETS: [f64; 10] = [
    1e-8,
    1e-7,
    1e-6,
    9.999_999_999_999_999e-6,
    9.999_999_999_999_999e-5,
    0.001,
    0.01,
    0.1,
    1.0,
    10.0,
];

/// The families by queue name. Computed values come from the queues' own counters.
#[derive(Debug)]
pub struct WorkQueueFamilies {
    /// Waiting keys, including those that the queue re-adds after their current sync.
    pub depth: Computed,
    /// Adds, without those that coalesce with a waiting key.
    pub adds: Computed,
    /// Delayed and rate-limited adds.
    pub retries: Computed,
    /// Seconds of all work in progress, summed.
    pub unfinished_work: Computed,
    /// Seconds of the longest work in progress.
    pub longest_running_processor: Computed,
    queue_duration: HistogramVec,
    work_duration: HistogramVec,
}

/// The histograms of one queue. Clones share their series.
#[derive(Clone, Debug)]
pub struct WorkQueueMetrics {
    /// Seconds from an add until a worker gets the key.
    pub queue_duration: Histogram,
    /// Seconds from then until the worker is done with the key.
    pub work_duration: Histogram,
}

impl WorkQueueFamilies {
    pub(super) fn new(registry: &Registry) -> Self {
        let gauges = |name, help| registry.computed_gauges(name, help, &["name"]);
        let counters = |name, help| registry.computed_counters(name, help, &["name"]);
        let histograms = |name, help| registry.histograms(name, help, &["name"], &BUCKETS);
        Self {
            depth: gauges("workqueue_depth", "[BETA] Current depth of workqueue"),
            adds: counters(
                "workqueue_adds_total",
                "[BETA] Total number of adds handled by workqueue",
            ),
            retries: counters(
                "workqueue_retries_total",
                "[BETA] Total number of retries handled by workqueue",
            ),
            unfinished_work: gauges(
                "workqueue_unfinished_work_seconds",
                "[BETA] How many seconds of work has done that is in progress and hasn't been \
                 observed by work_duration. Large values indicate stuck threads. One can deduce \
                 the number of stuck threads by observing the rate at which this increases.",
            ),
            longest_running_processor: gauges(
                "workqueue_longest_running_processor_seconds",
                "[BETA] How many seconds has the longest running processor for workqueue been \
                 running.",
            ),
            queue_duration: histograms(
                "workqueue_queue_duration_seconds",
                "[BETA] How long in seconds an item stays in workqueue before being requested.",
            ),
            work_duration: histograms(
                "workqueue_work_duration_seconds",
                "[BETA] How long in seconds processing an item from workqueue takes.",
            ),
        }
    }

    /// The histograms of the queue `name`.
    pub fn of(&self, name: &str) -> WorkQueueMetrics {
        WorkQueueMetrics {
            queue_duration: self.queue_duration.with_label_values(&[name]),
            work_duration: self.work_duration.with_label_values(&[name]),
        }
    }
}
