//! The threads `watch-pods` and, per controlled kind, `watch-rs` and `watch-rc`: one reflector
//! each. Every controller handles the pod events; each other event goes to its kind's controller
//! only.

use std::sync::Arc;
use std::time::Instant;

use prometheus::Histogram;

use super::controller_instance::{ControllerInstance, Shared};
use super::{health_checks, metrics_export};
use crate::api::workload_kind::{REPLICATION_CONTROLLER, collection_path};
use crate::api::{Pod, ReplicaSet};
use crate::cache::decode::{Decode, ReplicationController};
use crate::cache::reflector::{Collection, Handler, Reflector, ReflectorOptions, ReflectorParts};
use crate::cache::{CacheEvent, PodStore, Store};
use crate::client::Client;
use crate::controller::ReplicaSetController;
use crate::rights::{PODS_FORBIDDEN, forbidden_workload};
use crate::stdx::clock::SystemClock;
use crate::stdx::thread::Thread;

/// Passes the events of a watch to controllers, and measures how long they take. Each controller
/// ignores pods of other kinds.
struct WatchHandler<T> {
    controllers: Vec<Arc<ReplicaSetController>>,
    handle: fn(&ReplicaSetController, &CacheEvent<T>),
    latency: Histogram,
}

impl<T> Handler<T> for WatchHandler<T> {
    fn on_event(&mut self, event: &CacheEvent<T>) {
        let began = Instant::now();
        for controller in &self.controllers {
            (self.handle)(controller, event);
        }
        self.latency.observe(began.elapsed().as_secs_f64());
    }

    fn on_position(&mut self) {
        for controller in &self.controllers {
            controller.handle_cache_advanced();
        }
    }

    fn on_recovered(&mut self) {
        for controller in &self.controllers {
            controller.handle_recovered();
        }
    }
}

/// Starts all watches.
pub(super) fn start_watches(
    client: &Client,
    pods: &Arc<PodStore>,
    instances: &[ControllerInstance],
    shared: &Shared<'_>,
) -> Vec<Thread> {
    let namespace = shared.options.namespace.as_deref();
    let watch = Watch {
        client,
        shared,
        coalesces_reads: false,
    };
    let controller = |instance: &ControllerInstance| Arc::clone(instance.controller());
    let objects = instances.iter().map(|instance| {
        let name = format!("watch-{}", instance.kind().short_name);
        let path = instance.kind().collection_path(namespace);
        let meaning = forbidden_workload(instance.kind());
        let store = &instance.cache().replica_sets;
        let controllers = vec![controller(instance)];
        let handle = ReplicaSetController::handle_replica_set_event;
        if *instance.kind() == REPLICATION_CONTROLLER {
            watch.start::<ReplicationController>(&name, path, meaning, store, controllers, handle)
        } else {
            watch.start::<ReplicaSet>(&name, path, meaning, store, controllers, handle)
        }
    });
    let mut watches: Vec<Thread> = objects.collect();
    let path = collection_path("/api/v1", "pods", namespace);
    // Pods change in bulk, so their watch coalesces reads. Workloads change rarely, and each change
    // is urgent.
    let watch = Watch {
        coalesces_reads: true,
        ..watch
    };
    watches.push(watch.start::<Pod>(
        "watch-pods",
        path,
        PODS_FORBIDDEN.to_owned(),
        pods,
        instances.iter().map(controller).collect(),
        ReplicaSetController::handle_pod_event,
    ));
    watches
}

/// The parameters that all watches share.
struct Watch<'a> {
    client: &'a Client,
    shared: &'a Shared<'a>,
    coalesces_reads: bool,
}

impl Watch<'_> {
    fn start<T: Decode>(
        &self,
        name: &str,
        path: String,
        meaning: String,
        store: &Arc<Store<T::Object>>,
        controllers: Vec<Arc<ReplicaSetController>>,
        handle: fn(&ReplicaSetController, &CacheEvent<T::Object>),
    ) -> Thread {
        let Shared {
            options,
            health,
            stop,
            ..
        } = *self.shared;
        let accept = options.content_type.accept();
        let options = ReflectorOptions {
            streams_lists: options.streams_lists,
            min_resync_period: options.min_resync_period,
            coalesces_reads: self.coalesces_reads,
        };
        let stats = Arc::default();
        let latency = metrics_export::export_watch(&path, store, &stats);
        let collection = Collection::new(self.client.stream_client(), path, accept);
        health_checks::add_watch(health, name, &stats);
        let parts = ReflectorParts::<T> {
            store: Arc::clone(store),
            source: Box::new(collection),
            handler: Box::new(WatchHandler {
                controllers,
                handle,
                latency,
            }),
            stats,
            pace: Arc::new(SystemClock),
            random: Box::new(fastrand::f64),
            if_forbidden: Some(meaning),
            stop: stop.clone(),
        };
        Thread::spawn(name, stop, move || {
            Reflector::new(options, parts).run();
        })
    }
}
