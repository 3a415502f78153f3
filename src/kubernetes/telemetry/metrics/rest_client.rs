//! Metrics of API requests (component-base `metrics/prometheus/restclient/metrics.go`), of work
//! queues and of watches.

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec};

use super::{Computed, Registry};

/// In seconds.
const DURATIONS: [f64; 12] = [
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
];

/// In bytes, from 64 bytes to 16 MiB.
const SIZES: [f64; 11] = [
    64.0,
    256.0,
    512.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
];

/// `code` of a request without a response. The error itself is not a label, since its values are
/// unbounded (client-go `rest/request.go:sanitize`).
const NO_RESPONSE: &str = "<error>";

/// The families by host and verb.
#[derive(Debug)]
pub struct RestClientFamilies {
    request_duration: HistogramVec,
    rate_limiter_duration: HistogramVec,
    request_size: HistogramVec,
    response_size: HistogramVec,
    requests: IntCounterVec,
    retries: IntCounterVec,
}

impl RestClientFamilies {
    pub(super) fn new(registry: &Registry) -> Self {
        let labels = &["verb", "host"];
        let histograms = |name, help, buckets| registry.histograms(name, help, labels, buckets);
        Self {
            request_duration: histograms(
                "rest_client_request_duration_seconds",
                "[ALPHA] Request latency in seconds. Broken down by verb, and host.",
                &DURATIONS,
            ),
            rate_limiter_duration: histograms(
                "rest_client_rate_limiter_duration_seconds",
                "[ALPHA] Client side rate limiter latency in seconds. Broken down by verb, and \
                 host.",
                &DURATIONS,
            ),
            request_size: histograms(
                "rest_client_request_size_bytes",
                "[ALPHA] Request size in bytes. Broken down by verb and host.",
                &SIZES,
            ),
            response_size: histograms(
                "rest_client_response_size_bytes",
                "[ALPHA] Response size in bytes. Broken down by verb and host.",
                &SIZES,
            ),
            requests: registry.counters(
                "rest_client_requests_total",
                "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.",
                &["code", "method", "host"],
            ),
            retries: registry.counters(
                "rest_client_request_retries_total",
                "[ALPHA] Number of request retries, partitioned by status code, verb, and host.",
                &["code", "verb", "host"],
            ),
        }
    }

    /// The metrics of requests with the method `verb` to `host` (name and port). Creates the
    /// series, so call it for such a request only.
    pub fn of(&self, verb: &str, host: &str) -> VerbMetrics {
        let labels = &[verb, host];
        VerbMetrics {
            request_duration: self.request_duration.with_label_values(labels),
            rate_limiter_duration: self.rate_limiter_duration.with_label_values(labels),
            request_size: self.request_size.with_label_values(labels),
            response_size: self.response_size.with_label_values(labels),
            requests: self.requests.clone(),
            retries: self.retries.clone(),
            verb: verb.to_owned(),
            host: host.to_owned(),
        }
    }
}

/// The metrics of requests with one verb to one host.
#[derive(Clone, Debug)]
pub struct VerbMetrics {
    /// Seconds from the call until the response is read, including waits and retries; without
    /// watches.
    pub request_duration: Histogram,
    /// Seconds at the throttle, including zero.
    pub rate_limiter_duration: Histogram,
    /// Body size of each attempt, in bytes; without watches.
    pub request_size: Histogram,
    /// Body size of the response, in bytes; without watches.
    pub response_size: Histogram,
    requests: IntCounterVec,
    retries: IntCounterVec,
    verb: String,
    host: String,
}

impl VerbMetrics {
    /// Counts one attempt by its response `code`, or `None` without a response.
    pub fn attempted(&self, code: Option<u16>) {
        self.with_code(&self.requests, code).inc();
    }

    /// Counts one attempt after the first, in addition to [`attempted`](Self::attempted).
    pub fn retried(&self, code: Option<u16>) {
        self.with_code(&self.retries, code).inc();
    }

    fn with_code(&self, family: &IntCounterVec, code: Option<u16>) -> IntCounter {
        let code = code.map_or(NO_RESPONSE.to_owned(), |code| code.to_string());
        family.with_label_values(&[&code, &self.verb, &self.host])
    }
}

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

// Metrics of watches and caches by resource: upstream's informer families (component-base
// `metrics/prometheus/clientgo/fifo/metrics.go`) and this project's own.

/// Value of the label `name` of `informer_*`; upstream uses `kube-controller-manager`.
pub const INFORMER: &str = "replicaset-controller";

/// In seconds.
const LATENCIES: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// The families by resource. Computed values come from the caches' own counters.
pub struct WatchFamilies {
    /// The last 15 digits of the store's resource version.
    pub store_resource_version: Computed,
    pub objects: Computed,
    /// Lists after the first one.
    pub relists: Computed,
    pub watches: Computed,
    /// Events delivered to the handlers.
    pub events: Computed,
    /// Objects on the wire that failed to decode.
    pub decode_failures: Computed,
    /// Seconds since the last byte arrived.
    pub silence: Computed,
    processing_latency: HistogramVec,
}

impl WatchFamilies {
    pub(super) fn new(registry: &Registry) -> Self {
        let informer = &["name", "group", "version", "resource"];
        let gauges = |name, help| registry.computed_gauges(name, help, &["resource"]);
        let counters = |name, help| registry.computed_counters(name, help, &["resource"]);
        Self {
            store_resource_version: registry.computed_gauges(
                "informer_store_resource_version",
                "[ALPHA] The 15 least significant digits of the resource version of the store.",
                informer,
            ),
            processing_latency: registry.histograms(
                "informer_processing_latency_seconds",
                "[ALPHA] Time taken to process events after popping from the queue.",
                informer,
                &LATENCIES,
            ),
            objects: gauges(
                "replicaset_controller_cache_objects",
                "Objects in the cache.",
            ),
            silence: gauges(
                "replicaset_controller_watch_silence_seconds",
                "Seconds since a message of the watch, or an object of a list, could be read. \
                 Bookmarks arrive about once a minute.",
            ),
            relists: counters(
                "replicaset_controller_relists_total",
                "Lists completed after the first one.",
            ),
            watches: counters(
                "replicaset_controller_watches_total",
                "Watches that the API server opened.",
            ),
            events: counters(
                "replicaset_controller_cache_events_total",
                "Cache events delivered to the controller, including resyncs.",
            ),
            decode_failures: counters(
                "replicaset_controller_decode_failures_total",
                "Objects from the API server that failed to decode.",
            ),
        }
    }

    /// The histogram of the seconds that the controller takes per event of this resource.
    pub fn processing_latency(&self, group: &str, version: &str, resource: &str) -> Histogram {
        let labels = &[INFORMER, group, version, resource];
        self.processing_latency.with_label_values(labels)
    }
}
