//! The thread `watch-quotas`: it watches the ResourceQuotas from the first refusal of a quota on,
//! if the account may do that. A quota that changes wakes its queue in each controller.
//!
//! The right is optional. Without it pods that end wake the queues, and the log says so once.

use std::io::BufReader;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Deserialize;

use super::controller_instance::Shared;
use crate::api::workload_kind::collection_path;
use crate::api::{RetryBackoff, Status};
use crate::client::{BodyStream, Client, Request};
use crate::controller::ReplicaSetController;
use crate::rights::QUOTAS_FORBIDDEN;
use crate::stdx::activity;
use crate::stdx::latch::Woken;
use crate::stdx::thread::Thread;

/// Pauses: after a watch, while the API server fails, and without the right, which may be granted.
const PAUSES: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(30),
    Duration::from_mins(10),
];

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
        let wait = activity::enter("waits until a quota refuses a pod", "");
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
            let _wait = activity::enter("waits to watch again", "resourcequotas");
            if stop.wait_timeout(pause) {
                return;
            }
        }
    }))
}

/// Passes on the changes of quotas until the watch ends.
fn read(body: BodyStream, controllers: &[Arc<ReplicaSetController>]) {
    body.state().begin_watch(false);
    let events = serde_json::Deserializer::from_reader(BufReader::new(body)).into_iter::<Event>();
    for Event { object } in events.map_while(Result::ok) {
        // A bookmark names no quota.
        let Metadata { namespace, name } = object.metadata;
        for controller in controllers.iter().filter(|_| !name.is_empty()) {
            controller.handle_quota_change(&namespace, &name);
        }
    }
}

#[derive(Deserialize)]
struct Event {
    object: Object,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Metadata {
    namespace: String,
    name: String,
}
