//! Metrics of watches and caches by resource: upstream's informer families (component-base
//! `metrics/prometheus/clientgo/fifo/metrics.go`) and this project's own.

use prometheus::{Histogram, HistogramVec};

use super::computed::Computed;
use super::registry::Registry;

/// Value of the label `name` of `informer_*`; upstream uses `kube-controller-manager`.
pub const INFORMER: &str = "replicaset-controller";

/// In seconds.
const LATENCIES: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// The families by resource. Computed values come from the caches' own counters.
#[derive(Debug)]
pub struct WatchFamilies {
    /// The last 15 digits of the store's resource version.
    pub store_resource_version: Computed,
    /// Objects in the store.
    pub objects: Computed,
    /// Lists after the first one.
    pub relists: Computed,
    /// Opened watches.
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
