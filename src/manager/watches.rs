//! The threads `watch-pods` and, per controlled kind, `watch-rs` and `watch-rc`: one reflector
//! each; and two for the Deployment controller. Every controller handles the pod events; each other
//! event reaches one controller only.

use std::io::{BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use prometheus::Histogram;
use serde::Deserialize as _;
use serde_json::Value;

use super::controller_instance::{ControllerInstance, DeploymentInstance, Shared};
use super::{health_checks, metrics_export};
use crate::api::workload_kind::{REPLICATION_CONTROLLER, collection_path};
use crate::api::{Pod, ReplicaSet, RetryBackoff, Status};
use crate::cache::decode::{ContentType, Decode, ReplicationController};
use crate::cache::reflector::{Collection, Handler, Reflector, ReflectorOptions, ReflectorParts};
use crate::cache::{CacheEvent, PodStore, Store};
use crate::client::{BodyStream, Client, Request};
use crate::controller::ReplicaSetController;
use crate::deployment::{self, Deployment, DeploymentController};
use crate::rights::{DEPLOYMENTS_FORBIDDEN, PODS_FORBIDDEN, QUOTAS_FORBIDDEN, forbidden_workload};
use crate::stdx::clock::SystemClock;
use crate::stdx::stop::Woken;
use crate::stdx::thread;
use crate::stdx::thread::Thread;

/// Handles one event. Each controller ignores objects of other kinds.
type EventHandler<T> = Box<dyn Fn(&CacheEvent<T>) + Send>;

fn handler<C: Send + Sync + 'static, T: 'static>(
    controller: &Arc<C>,
    handle: fn(&C, &CacheEvent<T>),
) -> EventHandler<T> {
    let controller = Arc::clone(controller);
    Box::new(move |event| handle(&controller, event))
}

/// A controller that is interested in a watch itself, besides its events.
trait Watcher: Send + Sync {
    fn on_position(&self);
    fn on_recovered(&self);
}

impl Watcher for ReplicaSetController {
    fn on_position(&self) {
        self.handle_cache_advanced();
    }

    fn on_recovered(&self) {
        self.handle_recovered();
    }
}

impl Watcher for DeploymentController {
    /// No key waits for a position.
    fn on_position(&self) {}

    fn on_recovered(&self) {
        self.handle_recovered();
    }
}

/// Passes the events of a watch on, and measures how long that takes.
struct WatchHandler<T> {
    handlers: Vec<EventHandler<T>>,
    controllers: Vec<Arc<dyn Watcher>>,
    latency: Histogram,
}

impl<T> Handler<T> for WatchHandler<T> {
    fn on_event(&mut self, event: &CacheEvent<T>) {
        let began = Instant::now();
        for handle in &self.handlers {
            handle(event);
        }
        self.latency.observe(began.elapsed().as_secs_f64());
    }

    fn on_position(&mut self) {
        for controller in &self.controllers {
            controller.on_position();
        }
    }

    fn on_recovered(&mut self) {
        for controller in &self.controllers {
            controller.on_recovered();
        }
    }
}

pub(super) fn start_watches(
    client: &Client,
    pods: &Arc<PodStore>,
    instances: &[ControllerInstance],
    deployments: Option<&DeploymentInstance>,
    shared: &Shared<'_>,
) -> Vec<Thread> {
    let namespace = shared.options.namespace.as_deref();
    let watch = Watch {
        client,
        shared,
        content_type: shared.options.content_type,
        coalesces_reads: false,
    };
    let objects = instances.iter().map(|instance| {
        let name = format!("watch-{}", instance.kind.short_name);
        let path = instance.kind.collection_path(namespace);
        let meaning = forbidden_workload(instance.kind);
        let store = &instance.cache.replica_sets;
        let controllers = vec![Arc::clone(&instance.controller) as Arc<dyn Watcher>];
        let handle = ReplicaSetController::handle_replica_set_event;
        let handlers = vec![handler(&instance.controller, handle)];
        if *instance.kind == REPLICATION_CONTROLLER {
            watch.start::<ReplicationController>(&name, path, meaning, store, handlers, controllers)
        } else {
            watch.start::<ReplicaSet>(&name, path, meaning, store, handlers, controllers)
        }
    });
    let mut watches: Vec<Thread> = objects.collect();
    let controllers = instances
        .iter()
        .map(|it| Arc::clone(&it.controller) as Arc<dyn Watcher>);
    let controllers = controllers.collect();
    let handlers = instances
        .iter()
        .map(|it| handler(&it.controller, ReplicaSetController::handle_pod_event));
    let too = deployments.map(|it| handler(&it.controller, DeploymentController::handle_pod_event));
    let handlers = handlers.chain(too).collect();
    let path = collection_path("/api/v1", "pods", namespace);
    let meaning = PODS_FORBIDDEN.to_owned();
    // Pods change in bulk, so their watch coalesces reads. Workloads change rarely, and each change
    // is urgent.
    let pod_watch = Watch {
        coalesces_reads: true,
        ..watch
    };
    watches.push(pod_watch.start::<Pod>("watch-pods", path, meaning, pods, handlers, controllers));
    if let Some(instance) = deployments {
        // Templates must pass through as they are.
        let watch = Watch {
            content_type: ContentType::Json,
            ..watch
        };
        watches.extend(watch.start_for_deployments(instance, namespace));
    }
    watches
}

/// The parameters that all watches share.
struct Watch<'a> {
    client: &'a Client,
    shared: &'a Shared<'a>,
    content_type: ContentType,
    coalesces_reads: bool,
}

impl Watch<'_> {
    fn start_for_deployments(
        &self,
        instance: &DeploymentInstance,
        namespace: Option<&str>,
    ) -> [Thread; 2] {
        let path = |resource| collection_path("/apis/apps/v1", resource, namespace);
        let (controller, meaning) = (&instance.controller, DEPLOYMENTS_FORBIDDEN);
        let deployments = self.start::<Deployment>(
            "watch-deploy",
            path("deployments"),
            meaning.to_owned(),
            &instance.deployments,
            vec![handler(
                controller,
                DeploymentController::handle_deployment_event,
            )],
            vec![Arc::clone(controller) as _],
        );
        let replica_sets = self.start::<deployment::ReplicaSet>(
            "watch-deploy-rs",
            path("replicasets"),
            meaning.to_owned(),
            &instance.replica_sets,
            vec![handler(
                controller,
                DeploymentController::handle_replica_set_event,
            )],
            vec![Arc::clone(controller) as _],
        );
        [deployments, replica_sets]
    }

    fn start<T: Decode>(
        &self,
        name: &str,
        path: String,
        meaning: String,
        store: &Arc<Store<T::Object>>,
        handlers: Vec<EventHandler<T::Object>>,
        controllers: Vec<Arc<dyn Watcher>>,
    ) -> Thread {
        let Shared {
            options,
            health,
            stop,
            ..
        } = *self.shared;
        let accept = self.content_type.accept();
        let options = ReflectorOptions {
            streams_lists: options.streams_lists,
            min_resync_period: options.min_resync_period,
            coalesces_reads: self.coalesces_reads,
        };
        let stats = Arc::default();
        let latency = metrics_export::export_watch(&path, T::LABEL, store, &stats);
        let collection = Collection::new(self.client.stream_client(), path, accept);
        health_checks::add_watch(health, name, &stats);
        let parts = ReflectorParts::<T> {
            store: Arc::clone(store),
            source: Box::new(collection),
            handler: Box::new(WatchHandler {
                handlers,
                controllers,
                latency,
            }),
            stats,
            pace: Arc::new(SystemClock),
            if_forbidden: Some(meaning),
            stop: stop.clone(),
        };
        Thread::spawn(name, stop, move || {
            Reflector::new(options, parts, fastrand::f64).run();
        })
    }
}

// The thread `watch-quotas`: it watches the ResourceQuotas once a quota has rejected a pod, if the
// account may do that. A quota that changes wakes its queue in each controller.
//
// The right is optional. Without it pods that end trigger the retries, which is logged once.

/// Pauses: after a watch, while the API server fails, and without the right, which may be granted.
const PAUSES: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(30),
    Duration::from_mins(10),
];

/// Maximum bytes of a quota in JSON. etcd stores none of more than 1.5 MiB.
const QUOTA_BYTES_MAX: u64 = 4 << 20;

/// Starts the thread; `None` if no creates wait for a quota.
pub(super) fn start_quota_watch(
    client: &Client,
    controllers: Vec<Arc<ReplicaSetController>>,
    shared: &Shared<'_>,
) -> Option<Thread> {
    let options = shared.options;
    if options.dry_run || options.controller.retry_backoff == RetryBackoff::Kcm {
        return None;
    }
    let path = collection_path("/api/v1", "resourcequotas", options.namespace.as_deref());
    // Without a version, it begins with all quotas: each may have changed.
    let request = Request::get(path)
        .query("watch", "true")
        .query("allowWatchBookmarks", "true")
        .query("timeoutSeconds", "600");
    let streams = client.stream_client();
    let (quota_watch, stop) = (Arc::clone(shared.quota_watch), shared.stop.clone());
    Some(Thread::spawn("watch-quotas", shared.stop, move || {
        let wait = thread::enter("waits until a quota rejects a pod", "");
        if quota_watch.is_needed.wait(&stop, Duration::MAX) != Woken::Set {
            return;
        }
        drop(wait);
        let mut was_open = None;
        loop {
            let opened = streams.open_watch(&request);
            let is_open = opened.is_ok();
            quota_watch.is_open.store(is_open, Ordering::Relaxed);
            // 404: an API server without quotas.
            let is_denied = |status: &Status| matches!(status.code(), 403 | 404);
            let pause = match opened {
                Ok(body) => {
                    if was_open.replace(true) != Some(true) {
                        log::info!("quotas are watched");
                    }
                    read(body, &controllers);
                    PAUSES[0]
                }
                Err(error) if error.status().is_some_and(is_denied) => {
                    if was_open.replace(false) != Some(false) {
                        log::info!(error:%; "{QUOTAS_FORBIDDEN}");
                    }
                    PAUSES[2]
                }
                Err(_) => PAUSES[1],
            };
            quota_watch.is_open.store(false, Ordering::Relaxed);
            let _wait = thread::enter("waits to watch again", "resourcequotas");
            if stop.wait_timeout(pause) {
                return;
            }
        }
    }))
}

/// Passes on the changes of quotas until the watch ends, or a message is too large.
fn read(body: BodyStream, controllers: &[Arc<ReplicaSetController>]) {
    body.state().begin_watch(false);
    let mut body = BufReader::new(body);
    while let Some(event) = next_event(&mut body) {
        let [namespace, name] = ["namespace", "name"].map(|it| &event["object"]["metadata"][it]);
        // A bookmark names no quota.
        if let (Some(namespace), Some(name)) = (namespace.as_str(), name.as_str()) {
            for controller in controllers {
                controller.handle_quota_change(namespace, name);
            }
        }
    }
}

fn next_event(body: &mut impl Read) -> Option<Value> {
    let message = body.take(QUOTA_BYTES_MAX);
    Value::deserialize(&mut serde_json::Deserializer::from_reader(message)).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use serde_json::json;

    use super::next_event;

    #[test]
    fn an_endless_quota_ends_the_watch() {
        let events = [json!({"type": "ADDED"}), json!({"type": "MODIFIED"})];
        let text = events.iter().map(ToString::to_string).collect::<String>();
        let mut body = text.as_bytes().chain(&b"{\"object\": \""[..]);
        let mut body = body.by_ref().chain(std::io::repeat(b'x'));
        for event in events {
            assert_eq!(next_event(&mut body), Some(event));
        }
        assert_eq!(next_event(&mut body), None);
    }
}
