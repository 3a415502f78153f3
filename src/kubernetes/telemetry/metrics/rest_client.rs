//! Metrics of API requests (component-base `metrics/prometheus/restclient/metrics.go`), of work
//! queues and of watches.

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec};

use super::{Computed, Registry};

/// In seconds.
const DURATIONS: [f64; 12] = [
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
];

/// In bytes, from 64 bytes to 16 MiB.
#[rustfmt::skip]
const SIZES: [f64; 11] = [
    64.0, 256.0, 512.0, 1024.0, 4096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0, 4_194_304.0,
    16_777_216.0,
];

/// `code` of a request without a response. The error itself is not a label, since its values are
/// unbounded (client-go `rest/request.go:sanitize`).
const NO_RESPONSE: &str = "<error>";

const VERB_LABELS: &[&str] = &["verb", "host"];

families! {
    pub struct RestClientFamilies {
        /// [ALPHA] Request latency in seconds. Broken down by verb, and host.
        request_duration: HistogramVec
            = histograms("rest_client_request_duration_seconds", VERB_LABELS, &DURATIONS);
        /// [ALPHA] Client side rate limiter latency in seconds. Broken down by verb, and host.
        rate_limiter_duration: HistogramVec
            = histograms("rest_client_rate_limiter_duration_seconds", VERB_LABELS, &DURATIONS);
        /// [ALPHA] Request size in bytes. Broken down by verb and host.
        request_size: HistogramVec
            = histograms("rest_client_request_size_bytes", VERB_LABELS, &SIZES);
        /// [ALPHA] Response size in bytes. Broken down by verb and host.
        response_size: HistogramVec
            = histograms("rest_client_response_size_bytes", VERB_LABELS, &SIZES);
        /// [ALPHA] Number of HTTP requests, partitioned by status code, method, and host.
        requests: IntCounterVec
            = counters("rest_client_requests_total", &["code", "method", "host"]);
        /// [ALPHA] Number of request retries, partitioned by status code, verb, and host.
        retries: IntCounterVec
            = counters("rest_client_request_retries_total", &["code", "verb", "host"]);
    }
}

impl RestClientFamilies {
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
    /// Seconds from the call until the response is read, including waits and retries. Watches are
    /// not observed.
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
#[rustfmt::skip]
const BUCKETS: [f64; 10] = [
    1e-8, 1e-7, 1e-6, 9.999_999_999_999_999e-6, 9.999_999_999_999_999e-5, 0.001, 0.01, 0.1, 1.0,
    10.0,
];

families! {
    /// Computed values come from the queues' own counters.
    pub struct WorkQueueFamilies {
        /// [BETA] Current depth of workqueue
        pub depth: Computed = computed_gauges("workqueue_depth", &["name"]);
        /// [BETA] Total number of adds handled by workqueue
        pub adds: Computed = computed_counters("workqueue_adds_total", &["name"]);
        /// [BETA] Total number of retries handled by workqueue
        pub retries: Computed = computed_counters("workqueue_retries_total", &["name"]);
        /// [BETA] How many seconds of work has done that is in progress and hasn't been observed by
        /// work_duration. Large values indicate stuck threads. One can deduce the number of stuck
        /// threads by observing the rate at which this increases.
        pub unfinished_work: Computed
            = computed_gauges("workqueue_unfinished_work_seconds", &["name"]);
        /// [BETA] How many seconds has the longest running processor for workqueue been running.
        pub longest_running_processor: Computed
            = computed_gauges("workqueue_longest_running_processor_seconds", &["name"]);
        /// [BETA] How long in seconds an item stays in workqueue before being requested.
        queue_duration: HistogramVec
            = histograms("workqueue_queue_duration_seconds", &["name"], &BUCKETS);
        /// [BETA] How long in seconds processing an item from workqueue takes.
        work_duration: HistogramVec
            = histograms("workqueue_work_duration_seconds", &["name"], &BUCKETS);
    }
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

const INFORMER_LABELS: &[&str] = &["name", "group", "version", "resource"];

families! {
    /// Computed values come from the caches' own counters.
    pub struct WatchFamilies {
        /// [ALPHA] The 15 least significant digits of the resource version of the store.
        pub store_resource_version: Computed
            = computed_gauges("informer_store_resource_version", INFORMER_LABELS);
        /// [ALPHA] Time taken to process events after popping from the queue.
        processing_latency: HistogramVec
            = histograms("informer_processing_latency_seconds", INFORMER_LABELS, &LATENCIES);
        /// Objects in the cache.
        pub objects: Computed
            = computed_gauges("replicaset_controller_cache_objects", &["resource"]);
        /// Seconds since a message of the watch, or an object of a list, could be read. Bookmarks
        /// arrive about once a minute.
        pub silence: Computed
            = computed_gauges("replicaset_controller_watch_silence_seconds", &["resource"]);
        /// Lists completed after the first one.
        pub relists: Computed
            = computed_counters("replicaset_controller_relists_total", &["resource"]);
        /// Watches that the API server opened.
        pub watches: Computed
            = computed_counters("replicaset_controller_watches_total", &["resource"]);
        /// Cache events delivered to the controller, including resyncs.
        pub events: Computed
            = computed_counters("replicaset_controller_cache_events_total", &["resource"]);
        /// Objects from the API server that failed to decode.
        pub decode_failures: Computed
            = computed_counters("replicaset_controller_decode_failures_total", &["resource"]);
    }
}

impl WatchFamilies {
    /// The histogram of the seconds that the controller takes per event of this resource.
    pub fn processing_latency(&self, group: &str, version: &str, resource: &str) -> Histogram {
        let labels = &[INFORMER, group, version, resource];
        self.processing_latency.with_label_values(labels)
    }
}
