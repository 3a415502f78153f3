//! What the watches and their caches say of themselves, by resource: upstream's families for informers
//! (component-base `metrics/prometheus/clientgo/fifo/metrics.go`) and ours.

use prometheus::{Histogram, HistogramVec};

use super::computed::Computed;
use super::registry::Registry;

/// Value of the label `name` of `informer_*`; upstream's is `kube-controller-manager`.
pub const INFORMER: &str = "replicaset-controller";

/// In seconds.
const LATENCIES: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Families by resource. What is computed is what the cache counts for itself anyway.
#[derive(Debug)]
pub struct WatchFamilies {
    /// The last 15 digits of the version that the store has come to.
    pub store_resource_version: Computed,
    /// Objects in the store.
    pub objects: Computed,
    /// Lists after the first one.
    pub relists: Computed,
    /// Watches that were opened.
    pub watches: Computed,
    /// Changes that were told to the handlers.
    pub events: Computed,
    /// Objects on the wire that could not be read.
    pub decode_failures: Computed,
    /// Seconds since the last byte came.
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
                "Seconds since the API server sent the last byte of a list or watch. Bookmarks come \
                 about once a minute.",
            ),
            relists: counters(
                "replicaset_controller_relists_total",
                "Lists that were read to their end after the first one.",
            ),
            watches: counters(
                "replicaset_controller_watches_total",
                "Watches that the API server has opened.",
            ),
            events: counters(
                "replicaset_controller_cache_events_total",
                "Changes of the cache that were told to the controller, resyncs included.",
            ),
            decode_failures: counters(
                "replicaset_controller_decode_failures_total",
                "Objects that the API server sent and that could not be read.",
            ),
        }
    }

    /// What the watch of this resource observes: seconds that the controller takes for one change.
    pub fn processing_latency(&self, group: &str, version: &str, resource: &str) -> Histogram {
        let labels = &[INFORMER, group, version, resource];
        self.processing_latency.with_label_values(labels)
    }
}
