//! The threads `watch-rs` and `watch-pods`: one reflector each, telling the controller.

use std::sync::Arc;

use super::ManagerOptions;
use crate::api::workload_kind::{REPLICA_SET, collection_path};
use crate::api::{Pod, ReplicaSet, ResourceVersion};
use crate::cache::decode::Decode;
use crate::cache::reflector::{Collection, Handler, Reflector, ReflectorOptions, ReflectorParts};
use crate::cache::stats::CacheStats;
use crate::cache::{Cache, CacheEvent, Store};
use crate::client::Client;
use crate::controller::ReplicaSetController;
use crate::stdx::clock::SystemClock;
use crate::stdx::stop::Stop;
use crate::stdx::thread::Thread;

/// Tells the controller what the watch of ReplicaSets brings.
struct ReplicaSetHandler(Arc<ReplicaSetController>);

impl Handler<ReplicaSet> for ReplicaSetHandler {
    fn on_event(&mut self, event: &CacheEvent<ReplicaSet>) {
        self.0.handle_replica_set_event(event);
    }

    fn on_position(&mut self, _resource_version: &ResourceVersion) {
        self.0.handle_cache_advanced();
    }
}

/// Tells the controller what the watch of pods brings.
struct PodHandler(Arc<ReplicaSetController>);

impl Handler<Pod> for PodHandler {
    fn on_event(&mut self, event: &CacheEvent<Pod>) {
        self.0.handle_pod_event(event);
    }

    fn on_position(&mut self, _resource_version: &ResourceVersion) {
        self.0.handle_cache_advanced();
    }
}

/// Starts both watches.
pub(super) fn start_watches(
    client: &Client,
    cache: &Cache,
    controller: &Arc<ReplicaSetController>,
    options: &ManagerOptions,
    stop: &Stop,
) -> Vec<Thread> {
    let namespace = options.namespace.as_deref();
    let watch = Watch {
        client,
        options,
        stop,
    };
    vec![
        watch.start(
            "watch-rs",
            REPLICA_SET.collection_path(namespace),
            &cache.replica_sets,
            ReplicaSetHandler(Arc::clone(controller)),
        ),
        watch.start(
            "watch-pods",
            collection_path("/api/v1", "pods", namespace),
            &cache.pods,
            PodHandler(Arc::clone(controller)),
        ),
    ]
}

/// What both watches have in common.
struct Watch<'a> {
    client: &'a Client,
    options: &'a ManagerOptions,
    stop: &'a Stop,
}

impl Watch<'_> {
    fn start<T: Decode>(
        &self,
        name: &str,
        path: String,
        store: &Arc<Store<T>>,
        handler: impl Handler<T> + 'static,
    ) -> Thread {
        let options = ReflectorOptions {
            min_resync_period: self.options.min_resync_period,
            ..ReflectorOptions::default()
        };
        let accept = self.options.content_type.accept::<T>();
        let parts = ReflectorParts {
            store: Arc::clone(store),
            source: Box::new(Collection::new(self.client.stream_client(), path, accept)),
            handler: Box::new(handler),
            stats: Arc::new(CacheStats::default()),
            pace: Arc::new(SystemClock),
            random: Box::new(fastrand::f64),
            stop: self.stop.clone(),
        };
        Thread::spawn(name, self.stop, move || {
            Reflector::new(options, parts).run();
        })
    }
}
