//! Exports the counters of queues, caches and recorders as metrics. The manager registers them at
//! startup; the thread that serves `/metrics` computes the values. A series disappears when its
//! source is dropped.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use prometheus::Histogram;

use crate::cache::Store;
use crate::cache::pods::CacheStats;
use crate::cache::store::Indexed;
use crate::controller::ReplicaSetController;
use crate::controller::memory::rejections::Rejection;
use crate::event_recorder::{Counters, EventRecorder};
use crate::explain::inspect::Inspector;
use crate::telemetry::metrics::rest_client::INFORMER;
use crate::telemetry::metrics::{Computed, global, whole};
use crate::workqueue::WorkQueue;

/// Keeps as many digits of a resource version as a float holds exactly (client-go
/// `tools/cache/informer_metrics.go`).
const VERSION_DIGITS: u64 = 1_000_000_000_000_000;

type EventCount = fn(&Counters) -> &AtomicU64;
type QueueFigure<K> = fn(&WorkQueue<K>) -> f64;
type ControllerFigure = fn(&Inspector<'_>) -> usize;
type WatchCount = fn(&CacheStats) -> &AtomicU64;

/// Exports depth, adds, retries and work in progress of the queue `name`.
pub(super) fn export_queue<K>(name: &str, queue: &Arc<WorkQueue<K>>)
where
    K: Clone + Debug + Eq + Hash + Send + Sync + 'static,
{
    let families = &global().workqueue;
    let figures: [(&Computed, QueueFigure<K>); 5] = [
        (&families.depth, |it| count(it.stats().depth)),
        (&families.adds, |it| whole(it.stats().adds_total)),
        (&families.retries, |it| whole(it.stats().retries_total)),
        (&families.unfinished_work, |it| {
            it.in_progress().total.as_secs_f64()
        }),
        (&families.longest_running_processor, |it| {
            it.in_progress().longest.as_secs_f64()
        }),
    ];
    for (family, figure) in figures {
        export(family, &[name], queue, figure);
    }
}

/// Exports the outcomes of the events that the controller `name` records.
pub(super) fn export_events(name: &str, recorder: &Arc<EventRecorder>) {
    let outcomes: [(&str, EventCount); 4] = [
        ("sent", |counters| &counters.written),
        ("filtered", |counters| &counters.filtered),
        ("failed", |counters| &counters.failed),
        ("dropped", |counters| &counters.dropped),
    ];
    for (outcome, of) in outcomes {
        export(
            &global().events.events,
            &[name, outcome],
            recorder,
            move |recorder| whole(of(&recorder.counters).load(Ordering::Relaxed)),
        );
    }
}

/// Exports what the controller `name` remembers of its objects.
pub(super) fn export_controller(name: &str, controller: &Arc<ReplicaSetController>) {
    let families = &global().controller;
    let figures: [(_, &[_], ControllerFigure); 5] = [
        (&families.open_expectations, &[name, "creation"], |it| {
            it.totals().expected.0
        }),
        (&families.open_expectations, &[name, "deletion"], |it| {
            it.totals().expected.1
        }),
        (&families.not_converged, &[name], |it| it.n_not_converged()),
        (&families.pods_backed_off, &[name], |it| {
            it.totals().pods_backed_off
        }),
        (&families.scale_down_blocked_pods, &[name], |it| {
            it.n_kept_by_protection()
        }),
    ];
    for (family, labels, figure) in figures {
        export(family, labels, controller, move |it| {
            count(figure(&it.inspector()))
        });
    }
    for (index, kind) in Rejection::KINDS.into_iter().enumerate() {
        export(&families.backed_off, &[name, kind], controller, move |it| {
            count(it.inspector().totals().rejected[index])
        });
    }
}

/// Exports the counters of the watch at `path` and of its store, as `resource`. Returns the
/// histogram of the seconds that the controller takes per event.
pub(super) fn export_watch<T: Indexed>(
    path: &str,
    resource: &str,
    store: &Arc<Store<T>>,
    stats: &Arc<CacheStats>,
) -> Histogram {
    let families = &global().watch;
    let (group, version, _) = group_version_resource(path);
    let labels = &[resource];
    let counters: [(&Computed, WatchCount); 4] = [
        (&families.relists, |stats| &stats.relists),
        (&families.watches, |stats| &stats.watches),
        (&families.events, |stats| &stats.events),
        (&families.decode_failures, |stats| &stats.unread_objects),
    ];
    for (family, of) in counters {
        export(family, labels, stats, move |stats| {
            whole(of(stats).load(Ordering::Relaxed))
        });
    }
    export(&families.silence, labels, stats, |stats| {
        stats.silence(Instant::now()).as_secs_f64()
    });
    export(&families.objects, labels, store, |store| count(store.len()));
    let informer = &[INFORMER, group, version, resource];
    export(&families.store_resource_version, informer, store, |store| {
        let version = store.resource_version().to_string();
        let version = version.parse::<u64>().unwrap_or(0);
        whole(version % VERSION_DIGITS)
    });
    families.processing_latency(group, version, resource)
}

/// Splits a collection's path: `/apis/apps/v1/namespaces/default/replicasets` has group `apps`.
fn group_version_resource(path: &str) -> (&str, &str, &str) {
    let resource = path.rsplit('/').next().unwrap_or_default();
    let mut parts = path.trim_start_matches('/').split('/');
    let group = match parts.next() {
        Some("apis") => parts.next().unwrap_or_default(),
        _ => "",
    };
    (group, parts.next().unwrap_or_default(), resource)
}

/// Exports a value of `source` until `source` is dropped.
fn export<T: Send + Sync + 'static>(
    family: &Computed,
    labels: &[&str],
    source: &Arc<T>,
    value: impl Fn(&T) -> f64 + Send + Sync + 'static,
) {
    let source: Weak<T> = Arc::downgrade(source);
    family.register(labels, move || Some(value(&*source.upgrade()?)));
}

fn count(count: usize) -> f64 {
    whole(u64::try_from(count).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::group_version_resource;

    #[test]
    fn a_path_names_group_version_and_resource() {
        for (path, expected) in [
            ("/api/v1/pods", ("", "v1", "pods")),
            ("/api/v1/namespaces/a/pods", ("", "v1", "pods")),
            ("/apis/apps/v1/replicasets", ("apps", "v1", "replicasets")),
            (
                "/apis/apps/v1/namespaces/a/replicasets",
                ("apps", "v1", "replicasets"),
            ),
        ] {
            assert_eq!(group_version_resource(path), expected);
        }
    }
}
