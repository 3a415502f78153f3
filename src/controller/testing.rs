//! Fixtures of the controller's unit tests: objects, recorded writes, and a controller over a real
//! cache and queue with a manual clock.

mod fake_writes;
mod hooked_clock;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::act::Writer;
use super::decide::Pods;
use super::decide::plan::BURST_REPLICAS;
use super::decide::status::Counts;
use super::memory::Memory;
use super::memory::history::SyncEnd;
use super::memory::positions::{Resource, Versions};
use super::{FeatureGates, Mode, Options, Parts, ReplicaSetController, SyncError};
use crate::api::interner::Interner;
use crate::api::workload_kind::REPLICA_SET;
use crate::api::{
    ArcStr, CompactTimestamp, ControllerRef, ObjectKey, Pod, PodPhase, ReplicaSet, RetryBackoff,
    Selector, Uid, WorkloadKind,
};
use crate::batches::FairPool;
use crate::cache::Cache;
use crate::stdx::clock::Clock;
use crate::stdx::testing::FakeClock;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::controller::ControllerMetrics;
use crate::workqueue::WorkQueue;
use crate::writes::WriteError;

pub(super) use fake_writes::{FakeWrites, Write, rejected, with_status};
pub(super) use hooked_clock::HookedClock;

/// Returns the JSON of a ReplicaSet in `default` with selector and labels `type=production`.
pub(super) fn replica_set_json(name: &str, replicas: i32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("uid-{name}"),
            "resourceVersion": "1", "generation": 1,
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"type": "production"}},
            "template": {
                "metadata": {"labels": {"type": "production"}},
                "spec": {"containers": [{"name": "c", "image": "example.invalid/none:0"}]},
            },
        },
        "status": {"replicas": 0},
    })
}

/// Parses a ReplicaSet from JSON.
pub(super) fn read_replica_set(object: &Value) -> ReplicaSet {
    ReplicaSet::from_json(object.to_string().as_bytes(), &mut Interner::default())
        .expect("a readable ReplicaSet")
}

/// [`replica_set_json`], parsed.
pub(super) fn replica_set(name: &str, replicas: i32) -> ReplicaSet {
    read_replica_set(&replica_set_json(name, replicas))
}

/// A running pod in `default` on `node-1`, labelled `type=production`, without an owner.
pub(super) fn pod(name: &str) -> Pod {
    Pod {
        key: ObjectKey::new("default", name),
        uid: format!("uid-{name}").as_str().into(),
        resource_version: "1".into(),
        labels: [("type", "production")].into_iter().collect(),
        phase: PodPhase::Running,
        node: Some("node-1".into()),
        ..Pod::default()
    }
}

/// [`pod`] owned by `rs`.
pub(super) fn owned_pod(name: &str, rs: &ReplicaSet) -> Pod {
    Pod {
        controller: Some(controller_ref(
            "ReplicaSet",
            &rs.key.name,
            &rs.uid.to_string(),
        )),
        ..pod(name)
    }
}

/// [`owned_pod`], ready for a day.
pub(super) fn ready_pod(name: &str, rs: &ReplicaSet) -> Pod {
    Pod {
        is_ready: true,
        ready_transition: Some(seconds_ago(86_400)),
        ..owned_pod(name, rs)
    }
}

/// An owner reference with `controller: true`.
pub(super) fn controller_ref(kind: &str, name: &str, uid: &str) -> Arc<ControllerRef> {
    Arc::new(ControllerRef {
        kind: kind.into(),
        name: name.into(),
        uid: uid.into(),
    })
}

/// The start of the fixture's clock.
pub(super) fn now() -> Timestamp {
    FakeClock::default().wall()
}

/// A time before [`now`], or after it if negative.
pub(super) fn seconds_ago(seconds: i64) -> CompactTimestamp {
    (now() - SignedDuration::from_secs(seconds)).into()
}

/// `default/name`.
pub(super) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

/// A controller with its collaborators, driven by the test's own thread.
pub(super) struct Fixture {
    pub(super) cache: Cache,
    pub(super) writes: Arc<FakeWrites>,
    pub(super) queue: Arc<WorkQueue<ObjectKey>>,
    pub(super) clock: Arc<FakeClock>,
    pub(super) metrics: ControllerMetrics,
    pub(super) controller: ReplicaSetController,
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self::with_burst(BURST_REPLICAS)
    }

    pub(super) fn with_burst(burst_replicas: usize) -> Self {
        Self::with(
            &REPLICA_SET,
            burst_replicas,
            Duration::ZERO,
            FeatureGates::default(),
        )
    }

    pub(super) fn of(kind: &'static WorkloadKind) -> Self {
        Self::with(
            kind,
            BURST_REPLICAS,
            Duration::ZERO,
            FeatureGates::default(),
        )
    }

    /// A fixture that defers status writes with mere progress by at most this long.
    pub(super) fn with_status_interval(interval: Duration) -> Self {
        Self::with(
            &REPLICA_SET,
            BURST_REPLICAS,
            interval,
            FeatureGates::default(),
        )
    }

    pub(super) fn with_gates(gates: FeatureGates) -> Self {
        Self::with(&REPLICA_SET, BURST_REPLICAS, Duration::ZERO, gates)
    }

    pub(super) fn with_retry_backoff(retry_backoff: RetryBackoff) -> Self {
        let options = Options {
            status_update_interval: Duration::ZERO,
            retry_backoff,
            ..Options::default()
        };
        Self::with_options(&REPLICA_SET, options)
    }

    fn with(
        kind: &'static WorkloadKind,
        burst_replicas: usize,
        status_update_interval: Duration,
        gates: FeatureGates,
    ) -> Self {
        let options = Options {
            burst_replicas,
            status_update_interval,
            gates,
            ..Options::default()
        };
        Self::with_options(kind, options)
    }

    fn with_options(kind: &'static WorkloadKind, options: Options) -> Self {
        Self::with_queue(kind, options, |queue| queue)
    }

    /// A fixture with one permit for large work, and the key in progress that has it.
    pub(super) fn with_held_permit() -> (Self, ObjectKey) {
        let options = Options {
            status_update_interval: Duration::ZERO,
            ..Options::default()
        };
        let share = |queue: WorkQueue<ObjectKey>| queue.with_tenants(2, |_| 0);
        let (fixture, held) = (Self::with_queue(&REPLICA_SET, options, share), key("held"));
        fixture.queue.add(held.clone());
        assert_eq!(fixture.queue.try_get().as_ref(), Some(&held));
        assert!(fixture.queue.begin_large(&held));
        (fixture, held)
    }

    fn with_queue(
        kind: &'static WorkloadKind,
        options: Options,
        change: impl FnOnce(WorkQueue<ObjectKey>) -> WorkQueue<ObjectKey>,
    ) -> Self {
        let fixture = Self::unsynced(kind, options, change);
        fixture.cache.pods.set_synced();
        fixture.cache.replica_sets.set_synced();
        fixture
    }

    /// A fixture whose caches have received no list yet.
    pub(super) fn before_the_first_list() -> Self {
        let options = Options {
            status_update_interval: Duration::ZERO,
            ..Options::default()
        };
        Self::unsynced(&REPLICA_SET, options, |queue| queue)
    }

    fn unsynced(
        kind: &'static WorkloadKind,
        options: Options,
        change: impl FnOnce(WorkQueue<ObjectKey>) -> WorkQueue<ObjectKey>,
    ) -> Self {
        let (cache, writes) = (Cache::default(), Arc::new(FakeWrites::default()));
        let clock = Arc::new(FakeClock::default());
        let queue = Arc::new(change(WorkQueue::new(Arc::clone(&clock) as Arc<_>)));
        let metrics = Metrics::new()
            .controller
            .of("replicaset", "apps", "replicasets");
        let controller = ReplicaSetController::new(Parts {
            kind,
            cache: cache.clone(),
            live: Arc::clone(&writes) as Arc<_>,
            pod_control: Arc::clone(&writes) as Arc<_>,
            replica_set_control: Arc::clone(&writes) as Arc<_>,
            queue: Arc::clone(&queue),
            batches: Arc::new(FairPool::default()),
            clock: Arc::clone(&clock) as Arc<_>,
            options,
            metrics: metrics.clone(),
            quota_watch: Arc::default(),
        });
        Self {
            cache,
            writes,
            queue,
            clock,
            metrics,
            controller,
        }
    }

    /// Creates another controller over the same cache, queue and writes, with another clock.
    pub(super) fn controller_with(&self, clock: Arc<dyn Clock>) -> ReplicaSetController {
        ReplicaSetController::new(Parts {
            kind: &REPLICA_SET,
            cache: self.cache.clone(),
            live: Arc::clone(&self.writes) as Arc<_>,
            pod_control: Arc::clone(&self.writes) as Arc<_>,
            replica_set_control: Arc::clone(&self.writes) as Arc<_>,
            queue: Arc::clone(&self.queue),
            batches: Arc::new(FairPool::default()),
            clock,
            options: Options {
                status_update_interval: Duration::ZERO,
                ..Options::default()
            },
            metrics: self.metrics.clone(),
            quota_watch: Arc::default(),
        })
    }

    /// The same cache, clock and writes with a new controller and queue, as after a restart of the
    /// daemon.
    pub(super) fn restarted(self) -> Self {
        let queue = Arc::new(WorkQueue::new(Arc::clone(&self.clock) as Arc<_>));
        let fixture = Self { queue, ..self };
        let controller = fixture.controller_with(Arc::clone(&fixture.clock) as Arc<_>);
        controller.enqueue_all();
        Self {
            controller,
            ..fixture
        }
    }

    /// Puts a new or changed ReplicaSet into the cache and passes the event to the handlers.
    pub(super) fn deliver_replica_set(&self, rs: ReplicaSet) {
        if let Some(event) = self.cache.replica_sets.apply(rs) {
            self.controller.handle_replica_set_event(&event);
        }
        self.controller.handle_cache_advanced();
    }

    /// Removes a ReplicaSet from the cache and passes the event to the handlers.
    pub(super) fn deliver_replica_set_deleted(&self, rs: ReplicaSet) {
        if let Some(event) = self.cache.replica_sets.apply_deleted(rs) {
            self.controller.handle_replica_set_event(&event);
        }
        self.controller.handle_cache_advanced();
    }

    /// Puts a new or changed pod into the cache and passes the event to the handlers.
    pub(super) fn deliver_pod(&self, pod: Pod) {
        if let Some(event) = self.cache.pods.apply(pod) {
            self.controller.handle_pod_event(&event);
        }
        self.controller.handle_cache_advanced();
    }

    /// Removes a pod from the cache and passes the event to the handlers.
    pub(super) fn deliver_pod_deleted(&self, pod: Pod) {
        if let Some(event) = self.cache.pods.apply_deleted(pod) {
            self.controller.handle_pod_event(&event);
        }
        self.controller.handle_cache_advanced();
    }

    /// Puts objects into the cache without any event.
    pub(super) fn cache_silently(
        &self,
        rs: Option<ReplicaSet>,
        pods: impl IntoIterator<Item = Pod>,
    ) {
        if let Some(rs) = rs {
            self.cache.replica_sets.apply(rs);
        }
        for pod in pods {
            self.cache.pods.apply(pod);
        }
    }

    /// Advances the caches to these versions; an empty version changes nothing.
    pub(super) fn deliver_bookmarks(&self, pods: &str, replica_sets: &str) {
        if !pods.is_empty() {
            self.cache.pods.apply_bookmark(&pods.into());
        }
        if !replica_sets.is_empty() {
            self.cache.replica_sets.apply_bookmark(&replica_sets.into());
        }
        self.controller.handle_cache_advanced();
    }

    /// The part of the controller that sends requests.
    pub(super) fn writer(&self) -> &Writer {
        match &self.controller.mode {
            Mode::Writes(writer) => writer,
            Mode::DryRun(_) => panic!("a dry run has no writer"),
        }
    }

    /// Syncs `default/name` once.
    pub(super) fn sync(&self, name: &str) -> Result<SyncEnd, SyncError> {
        self.controller.sync(&key(name))
    }

    /// Syncs a key from the queue, as a worker does.
    pub(super) fn process(&self, key: &ObjectKey) {
        self.controller.process(key);
    }

    /// Syncs `default/name` once; the sync must run to its end.
    #[track_caller]
    pub(super) fn sync_ok(&self, name: &str) {
        let outcome = self.sync(name).expect("a sync without error");
        assert_eq!(outcome, SyncEnd::Synced);
    }

    /// As [`sync_ok`](Self::sync_ok), but syncs again if that sync only queried the API server.
    #[track_caller]
    pub(super) fn sync_verified(&self, name: &str) {
        if self.sync(name).expect("a sync without error") == SyncEnd::TooEarly {
            self.sync_ok(name);
        }
    }

    /// Asserts the numbers of creates, deletes and patches since the last [`FakeWrites::take`].
    #[track_caller]
    pub(super) fn assert_counts(&self, creates: usize, deletes: usize, patches: usize) {
        let counts = self.writes.counts();
        assert_eq!(
            counts,
            (creates, deletes, patches),
            "creates, deletes, patches"
        );
    }

    /// Returns the open expectations of `rs`: creations, deletions.
    pub(super) fn open(&self, rs: &ReplicaSet) -> Option<(usize, usize)> {
        let open = |memory: &mut Memory| {
            memory
                .own_writes
                .since
                .map(|_| memory.own_writes.n_expected())
        };
        let memories = &self.controller.memories;
        memories.get(rs, open).flatten()
    }

    /// Expects pods with these names to appear and pods with these UIDs to terminate.
    pub(super) fn expect(
        &self,
        rs: &ReplicaSet,
        creations: impl IntoIterator<Item = ArcStr>,
        deletions: impl IntoIterator<Item = Uid>,
    ) {
        self.writer().expect(rs, creations, deletions);
    }

    /// Observes the creation of the pod with this name.
    pub(super) fn see_creation(&self, rs: &ReplicaSet, name: &str) {
        let writer = self.writer();
        writer.own_writes(rs, |writes| writes.creation_seen(name));
    }

    /// Records the version of a write for `rs`.
    pub(super) fn wrote_at(&self, rs: &ReplicaSet, resource: Resource, version: &str) {
        let (now, memories) = (self.clock.now(), &self.controller.memories);
        memories.with(rs, |memory| {
            memory.positions.wrote_at(resource, &version.into(), now);
        });
    }

    /// Returns the written versions of `rs` that no sync has found in the caches yet.
    pub(super) fn written(&self, rs: &ReplicaSet) -> Option<Versions> {
        let written = |memory: &mut Memory| memory.positions.written().cloned();
        let memories = &self.controller.memories;
        memories.get(rs, written).flatten()
    }

    /// Advances the clock and takes the keys that are due then.
    pub(super) fn queued_after(&self, delay: Duration) -> Vec<String> {
        self.clock.advance(delay);
        self.queue.advance(self.clock.now());
        self.queued()
    }

    /// Takes all waiting keys from the queue, in order, and marks them done.
    pub(super) fn queued(&self) -> Vec<String> {
        let take = || {
            let key = self.queue.try_get()?;
            self.queue.done(&key);
            Some(key.to_string())
        };
        std::iter::from_fn(take).collect()
    }
}

/// A controller with `rs` and `pods` in its cache, without any event.
pub(super) fn fixture(rs: &ReplicaSet, pods: impl IntoIterator<Item = Pod>) -> Fixture {
    let fixture = Fixture::new();
    fixture.cache_silently(Some(rs.clone()), pods);
    fixture
}

/// The error of a lost response.
pub(super) fn lost() -> WriteError {
    WriteError::unknown("connection reset")
}

/// An error of no known kind of rejection, after which creates have upstream's back-off.
pub(super) fn not_allowed() -> WriteError {
    rejected(405, "MethodNotAllowed", "exceeded quota")
}

/// Takes the names of the pods created since the last call.
pub(super) fn creates(fixture: &Fixture) -> Vec<String> {
    let created = fixture.writes.created();
    fixture.writes.take();
    created
}

/// Takes the names of the pods deleted since the last call.
pub(super) fn deletes(fixture: &Fixture) -> Vec<String> {
    let deleted = fixture.writes.deleted();
    fixture.writes.take();
    deleted
}

impl ReplicaSetController {
    /// Asserts that the tallies give the same counts as the single pods, or none if the sync needs
    /// the pods themselves. The cache must not change meanwhile.
    #[track_caller]
    pub(super) fn check_tally_counts(&self, key: &ObjectKey) {
        let Some((rs, counted)) = self.count_every_pod(key) else {
            return;
        };
        let selector = rs.selector.as_ref().expect("its pods were counted");
        let owned = self.cache.pods_owned_by(&self.owner_key(&rs));
        let orphans = self.cache.orphans_in(&key.namespace);
        let is_ours = |pod: &Arc<Pod>| selector.matches(&pod.labels);
        let is_active = |pod: &&Arc<Pod>| pod.is_active();
        let needs_claims = !owned.iter().filter(is_active).all(is_ours)
            || orphans.iter().filter(is_active).any(is_ours);
        let is_timed = rs.min_ready_seconds != 0 && counted.ready > 0;
        let by_tally = self.count_tallies(&rs, selector);
        let by_tally = by_tally.filter(|counts| !counts.depend_on_time(&rs));
        assert_eq!(
            by_tally,
            (!needs_claims && !is_timed).then_some(counted),
            "{key}"
        );
    }

    pub(super) fn count_tallies(&self, rs: &ReplicaSet, selector: &Selector) -> Option<Counts> {
        let owned = self.cache.tally_of_pods_owned_by(&self.owner_key(rs));
        self.count(rs, selector, &owned)
    }

    /// Counts the pods as a sync does before it adopts or releases any. `None` if a sync would not
    /// get that far.
    pub(super) fn count_every_pod(&self, key: &ObjectKey) -> Option<(Arc<ReplicaSet>, Counts)> {
        let rs = self.cache.replica_sets.get(key)?;
        let selector = rs.selector.as_ref().ok()?;
        let owned = self.cache.pods_owned_by(&self.owner_key(&rs));
        let orphans = Vec::new();
        let view = self.view_of(&rs, selector, Pods::Listed { owned, orphans });
        let counts = view.decide().counts;
        drop(view);
        Some((rs, counts))
    }
}
