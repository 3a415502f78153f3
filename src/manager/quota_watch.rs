//! The thread `watch-quotas`: a reflector of the ResourceQuotas, from the first refusal of a quota
//! on, if the account may watch them. A quota that shows more room wakes its queue in each
//! controller.
//!
//! The right is optional. Without it pods that end wake the queues, no health check fails, and the
//! log says so once. A right that is taken away later is an outage of the watch, with its warnings.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::Histogram;

use super::controller_instance::Shared;
use super::metrics_export::export_watch;
use crate::api::workload_kind::collection_path;
use crate::api::{ResourceQuota, ResourceVersion, RetryBackoff, Status};
use crate::cache::decode::Decode;
use crate::cache::list_watch::{ListQuery, WatchQuery};
use crate::cache::reflector::{
    Body, Collection, Handler, Reflector, ReflectorOptions, ReflectorParts, Source,
};
use crate::cache::{CacheEvent, ResourceQuotaStore};
use crate::client::{Client, ClientError};
use crate::controller::ReplicaSetController;
use crate::controller::quota_watch::QuotaWatch;
use crate::rights::QUOTAS_FORBIDDEN;
use crate::stdx::activity;
use crate::stdx::clock::SystemClock;
use crate::stdx::latch::Woken;
use crate::stdx::stop::Stop;
use crate::stdx::thread::Thread;

/// Time between two requests of an account without the right, which may be granted meanwhile.
const ASK_AGAIN_AFTER: Duration = Duration::from_mins(10);

/// The same while the API server does not say whether the account has it.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// Passes the events to all controllers.
struct QuotaHandler {
    controllers: Vec<Arc<ReplicaSetController>>,
    latency: Histogram,
}

impl Handler<ResourceQuota> for QuotaHandler {
    fn on_event(&mut self, event: &CacheEvent<ResourceQuota>) {
        let began = Instant::now();
        for controller in &self.controllers {
            controller.handle_quota_event(event);
        }
        self.latency.observe(began.elapsed().as_secs_f64());
    }

    fn on_position(&mut self) {}
}

/// Starts the thread; `None` if no controller holds back creates.
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
    let accept = options.content_type.accept();
    let collection = Collection::new(client.stream_client(), &*path, accept);
    let reflector_options = ReflectorOptions {
        streams_lists: options.streams_lists,
        // An unchanged quota wakes no queue.
        min_resync_period: Duration::ZERO,
        coalesces_reads: false,
    };
    let (quota_watch, stop) = (Arc::clone(shared.quota_watch), shared.stop.clone());
    Some(Thread::spawn("watch-quotas", shared.stop, move || {
        let wait = activity::enter("waits until a quota refuses a pod", "");
        if quota_watch.requested().wait(&stop, Duration::MAX) != Woken::Set {
            return;
        }
        drop(wait);
        if let Some(collection) = with_right(collection, &stop) {
            let source = QuotaSource {
                collection,
                quota_watch,
            };
            watch(source, &path, reflector_options, controllers, stop);
        }
    }))
}

/// Returns the collection once this account may list it; `None` if the daemon stops first.
fn with_right(mut collection: Collection, stop: &Stop) -> Option<Collection> {
    let query = ListQuery {
        resource_version: ResourceVersion::default(),
        limit: Some(1),
        continue_token: String::new(),
    };
    let mut is_logged = false;
    loop {
        let Err(error) = collection.open_list(&query) else {
            return Some(collection);
        };
        // 404: an API server without quotas.
        let is_denied = matches!(error.status().map(Status::code), Some(403 | 404));
        if is_denied && !std::mem::replace(&mut is_logged, true) {
            log::info!(error:%; "{QUOTAS_FORBIDDEN}");
        }
        let _wait = activity::enter("waits for the right to watch", ResourceQuota::RESOURCE);
        let delay = if is_denied {
            ASK_AGAIN_AFTER
        } else {
            RETRY_AFTER
        };
        if stop.wait_timeout(delay) {
            return None;
        }
    }
}

/// Watches until the stop signal.
fn watch(
    source: QuotaSource,
    path: &str,
    options: ReflectorOptions,
    controllers: Vec<Arc<ReplicaSetController>>,
    stop: Stop,
) {
    let (store, stats) = (Arc::new(ResourceQuotaStore::default()), Arc::default());
    let latency = export_watch(path, &store, &stats);
    let parts = ReflectorParts::<ResourceQuota> {
        store,
        source: Box::new(source),
        handler: Box::new(QuotaHandler {
            controllers,
            latency,
        }),
        stats,
        pace: Arc::new(SystemClock),
        random: Box::new(fastrand::f64),
        if_forbidden: None,
        stop,
    };
    Reflector::new(options, parts).run();
}

/// Opens lists and watches, and notes whether a watch is open.
#[derive(Debug)]
struct QuotaSource {
    collection: Collection,
    quota_watch: Arc<QuotaWatch>,
}

impl Source for QuotaSource {
    fn open_list(&mut self, query: &ListQuery) -> Result<Body, ClientError> {
        self.collection.open_list(query)
    }

    fn open_watch(&mut self, query: &WatchQuery) -> Result<Body, ClientError> {
        let opened = self.collection.open_watch(query);
        self.quota_watch.set_open(opened.is_ok());
        opened
    }
}
