//! Metrics of API requests (component-base `metrics/prometheus/restclient/metrics.go`).

use std::sync::OnceLock;

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec};

use super::registry::Registry;

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

/// `code` of a request without a response. The error itself is no label, since its values are
/// unbounded (client-go `rest/request.go:sanitize`).
const NO_RESPONSE: &str = "<error>";

/// HTTP codes below this have cached handles.
const CODES: usize = 600;

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
    /// series, so call it at the first such request and keep the result.
    pub fn of(&self, verb: &str, host: &str) -> VerbMetrics {
        let labels = &[verb, host];
        VerbMetrics {
            request_duration: self.request_duration.with_label_values(labels),
            rate_limiter_duration: self.rate_limiter_duration.with_label_values(labels),
            request_size: self.request_size.with_label_values(labels),
            response_size: self.response_size.with_label_values(labels),
            requests: self.requests.clone(),
            retries: self.retries.clone(),
            by_code: (0..CODES).map(|_| OnceLock::new()).collect(),
            verb: verb.to_owned(),
            host: host.to_owned(),
        }
    }
}

/// The metrics of requests with one verb to one host.
#[derive(Debug)]
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
    /// Handles into `requests` by code; index 0 counts requests without a response.
    by_code: Box<[OnceLock<IntCounter>]>,
    verb: String,
    host: String,
}

impl VerbMetrics {
    /// Counts one attempt by its response `code`, or `None` without a response.
    pub fn attempted(&self, code: Option<u16>) {
        let counter = || self.with_code(&self.requests, code);
        match self.by_code.get(usize::from(code.unwrap_or(0))) {
            Some(handle) => handle.get_or_init(counter).inc(),
            None => counter().inc(),
        }
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
