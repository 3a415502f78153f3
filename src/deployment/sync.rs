//! The controller: events enqueue keys, and workers sync them: claim ReplicaSets, decide, write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::act::{SyncError, Writer};
use crate::api::status::spread_wait;
use crate::api::{ControllerRef, ObjectKey, OwnerKey, Pod, PodPhase, Uid};
use crate::cache::pods::PodBucket;
use crate::cache::{CacheEvent, PodStore};
use crate::decide::{Claims, View, decide};
use crate::objects::{
    DEPLOYMENT, Deployment, DeploymentStore, REPLICA_SET, ReplicaSet, ReplicaSetBucket,
    ReplicaSetStore, Strategy,
};
use crate::stdx::clock::Clock;
use crate::stdx::thread;
use crate::stdx::thread::catch_panic;
use crate::workqueue::WorkQueue;

pub struct Parts {
    /// Filled by the watch of Deployments.
    pub deployments: Arc<DeploymentStore>,
    /// Filled by the controller's own watch of ReplicaSets, which keeps their templates.
    pub replica_sets: Arc<ReplicaSetStore>,
    /// Filled by the watch of pods. Only the strategy `Recreate` reads it.
    pub pods: Arc<PodStore>,
    pub queue: Arc<WorkQueue<ObjectKey>>,
    pub writer: Writer,
    pub clock: Arc<dyn Clock>,
    /// Whether `status.terminatingReplicas` is written: the feature gate
    /// `DeploymentReplicaSetTerminatingReplicas`.
    pub counts_terminating: bool,
    /// True for a dry run: syncs decide and log what is new, but send no request.
    pub dry_run: bool,
}

/// Rolls out Deployments. Any number of workers may call
/// [`process_next_work_item`](Self::process_next_work_item); watch threads call the handlers, which
/// never block.
///
/// It keeps no memory of its writes. A decision on a stale cache does no harm: each write names the
/// version or the UID that it rests on, and the name of a new ReplicaSet follows from its template.
///
/// # Locks
///
/// One guards what a dry run has logged last about each Deployment. Workers take it.
pub struct DeploymentController(
    pub(crate) Parts,
    Mutex<BTreeMap<ObjectKey, String>>,
    /// True once [`enqueue_all`](Self::enqueue_all) was called: events enqueue keys.
    AtomicBool,
);

impl DeploymentController {
    pub fn new(parts: Parts) -> Self {
        Self(parts, Mutex::default(), AtomicBool::new(false))
    }

    /// The Deployments for which a dry run has decided what no controller has carried out; `None`
    /// if this is no dry run.
    pub fn n_open(&self) -> Option<usize> {
        let n_open = || self.1.lock().values().filter(|it| !it.is_empty()).count();
        self.0.dry_run.then(n_open)
    }

    pub fn queue(&self) -> &Arc<WorkQueue<ObjectKey>> {
        &self.0.queue
    }

    /// Enqueues all Deployments, and from here on lets each event enqueue its own. The first
    /// worker calls this once the daemon leads: in a standby, keys that wait for the
    /// Lease would fail the check of the queue.
    pub fn enqueue_all(&self) {
        // ORDER: first. A change from before is in the cache, and one from after queues its key.
        self.2.store(true, Ordering::SeqCst);
        self.0.deployments.visit_all(&mut |d| self.enqueue(&d.key));
    }

    pub fn handle_deployment_event(&self, event: &CacheEvent<Deployment>) {
        self.enqueue(&event.object().key);
    }

    /// Handles a change of a ReplicaSet: its owner is synced, and an earlier one that lost it. For
    /// an orphan, so are the Deployments that may adopt it.
    pub fn handle_replica_set_event(&self, event: &CacheEvent<ReplicaSet>) {
        let (old, new) = match event {
            CacheEvent::Added(new) => (None, new),
            CacheEvent::Updated { old, new } => (Some(old), new),
            CacheEvent::Deleted(gone) => {
                self.enqueue_owner(gone);
                return;
            }
        };
        if old.is_some_and(|old| old.resource_version == new.resource_version) {
            return;
        }
        let has_moved = old.is_some_and(|old| old.controller != new.controller);
        if let Some(old) = old.filter(|_| has_moved) {
            self.enqueue_owner(old);
        }
        if new.controller.is_some() {
            self.enqueue_owner(new);
        } else if old.is_none_or(|old| has_moved || old.labels != new.labels) && !new.is_terminating
        {
            for d in self.0.deployments.bucket(&new.key.namespace) {
                if d.selects(&new.labels) {
                    self.enqueue(&d.key);
                }
            }
        }
    }

    /// Handles a change of a pod: the end of an old one lets `Recreate` continue.
    pub fn handle_pod_event(&self, event: &CacheEvent<Pod>) {
        let CacheEvent::Deleted(pod) = event else {
            return;
        };
        let Some(owner) = &pod.controller else { return };
        if &*owner.kind != REPLICA_SET {
            return;
        }
        let key = ObjectKey::new(pod.key.namespace.clone(), owner.name.clone());
        let Some(rs) = self
            .0
            .replica_sets
            .get(&key)
            .filter(|rs| rs.uid == owner.uid)
        else {
            return;
        };
        if let Some(d) = self.owner_of(&rs)
            && d.strategy == Strategy::Recreate
        {
            self.enqueue(&d.key);
        }
    }

    /// Enqueues the keys that have failed, without the rest of their back-off: the API server is
    /// back after an outage.
    ///
    /// DIFFERS: upstream's back-off continues, as long again as the outage lasted.
    pub fn handle_recovered(&self) {
        for key in self.0.queue.forget_all() {
            self.enqueue(&key);
        }
    }

    fn enqueue(&self, key: &ObjectKey) {
        if self.2.load(Ordering::SeqCst) {
            self.0.queue.add(key.clone());
        }
    }

    fn enqueue_owner(&self, rs: &ReplicaSet) {
        if let Some(d) = self.owner_of(rs) {
            self.enqueue(&d.key);
        }
    }

    fn owner_of(&self, rs: &ReplicaSet) -> Option<Arc<Deployment>> {
        let ControllerRef { kind, name, uid } = rs.controller.as_ref()?;
        if &**kind != DEPLOYMENT {
            return None;
        }
        let key = ObjectKey::new(rs.key.namespace.clone(), name.clone());
        self.0.deployments.get(&key).filter(|d| d.uid == *uid)
    }

    /// Waits for a key and syncs it. Returns false once the queue is shut down and empty.
    pub fn process_next_work_item(&self) -> bool {
        let wait = thread::enter("waits for work", "");
        let key = self.0.queue.get();
        drop(wait);
        key.map(|key| self.process(&key)).is_some()
    }

    /// Syncs a key from the queue and marks it done. After an error, a panic included, the key is
    /// queued again with back-off.
    ///
    /// DIFFERS: upstream drops a key after 15 failures.
    pub fn process(&self, key: &ObjectKey) {
        let _sync = thread::enter("sync", key);
        let queue = &self.0.queue;
        let result = catch_panic(|| self.sync(key))
            .unwrap_or_else(|message| Err(SyncError::Other(format!("a sync panicked: {message}"))));
        match result {
            Ok(next) => {
                queue.forget(key);
                if let Some(next) = next {
                    queue.add_after(key.clone(), next);
                }
            }
            Err(error) if error.is_namespace_terminating() => queue.forget(key),
            Err(error) => {
                let delay = match error
                    .retry_after()
                    .map(|it| spread_wait(it, fastrand::f64()))
                {
                    Some(after) => {
                        queue.add_after(key.clone(), after);
                        after
                    }
                    None => queue.add_rate_limited(key.clone()),
                };
                if error.is_race() {
                    log::debug!(error:%; "deployment {key} is synced again in {delay:?}");
                } else {
                    log::warn!(
                        object:% = format_args!("deployment={key}"), error:%;
                        "sync failed, next attempt in {delay:?}"
                    );
                }
            }
        }
        queue.done(key);
    }

    /// Returns when to sync again even if nothing changes.
    fn sync(&self, key: &ObjectKey) -> Result<Option<Duration>, SyncError> {
        let Parts {
            deployments,
            replica_sets,
            writer,
            clock,
            ..
        } = &self.0;
        let Some(d) = deployments.get(key) else {
            self.1.lock().remove(key);
            return Ok(None);
        };
        let owned = ReplicaSetBucket::ControlledBy(d.uid.clone());
        let orphans = ReplicaSetBucket::OrphansIn(key.namespace.clone());
        let [owned, orphans] = replica_sets.buckets([&owned, &orphans]);
        if let Err(error) = &d.parsed_selector {
            let why = format!("the selector of deployment {key} cannot be used: {error}");
            return Err(SyncError::Other(why));
        }
        let claims = Claims::of(&d, owned, orphans);
        let (replica_sets, mut texts) = if self.0.dry_run {
            claims.settled()
        } else {
            (writer.claim(&d, claims)?, Vec::new())
        };
        let with_pods = match d.strategy {
            Strategy::Recreate => with_pods(&self.0.pods, &replica_sets),
            _ => BTreeSet::new(),
        };
        let step = decide(View {
            deployment: &d,
            replica_sets,
            with_pods,
            counts_terminating: self.0.counts_terminating,
            now: clock.wall(),
        })
        .map_err(SyncError::Other)?;
        if self.0.dry_run {
            texts.extend(step.texts());
            self.log_once(key, &texts.join(", and "));
            return Ok(step.next);
        }
        for note in &step.events {
            writer.note(&d, note);
        }
        for write in &step.writes {
            writer.execute(&d, write)?;
        }
        Ok(step.next)
    }

    /// Logs what a dry run would do, unless it has done so already.
    fn log_once(&self, key: &ObjectKey, text: &str) {
        let before = self.1.lock().insert(key.clone(), text.to_owned());
        if !text.is_empty() && before.as_deref() != Some(text) {
            log::info!(object:% = format_args!("deployment={key}"); "would {text}");
        }
    }
}

/// The ReplicaSets of which a pod has not ended.
pub fn with_pods(pods: &PodStore, sets: &[Arc<ReplicaSet>]) -> BTreeSet<Uid> {
    let has_pods = |rs: &&Arc<ReplicaSet>| {
        let owner = OwnerKey::new(REPLICA_SET, &rs.key, &rs.uid);
        let pods = pods.bucket(&PodBucket::OwnedBy(owner));
        let has_ended = |pod: &Pod| matches!(pod.phase, PodPhase::Failed | PodPhase::Succeeded);
        !pods.iter().all(|pod| has_ended(pod))
    };
    let sets = sets.iter().filter(has_pods);
    sets.map(|rs| rs.uid.clone()).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::json;

    use super::Parts;
    use crate::api::ObjectKey;
    use crate::cache::CacheEvent;
    use crate::client::{Client, ClientConfig, ClientOptions};
    use crate::objects::Deployment;
    use crate::simulation::controller;
    use crate::stdx::stop::Stop;

    fn deployment(name: &str) -> Arc<Deployment> {
        let labels = json!({"app": name});
        let text = json!({
            "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}},
        });
        let read = Deployment::from_json(text.to_string().as_bytes());
        Arc::new(read.expect("a Deployment"))
    }

    /// A key that waits for the lease would fail the standby's check of the queue.
    #[test]
    fn a_standby_queues_no_deployment_and_a_leader_all() {
        let config = ClientConfig::plain("http://127.0.0.1:1");
        let client = Client::new(&config, &ClientOptions::default(), &Stop::new());
        let controller = controller(&client);
        let Parts {
            deployments, queue, ..
        } = &controller.0;
        let all = ["a", "b"].map(deployment);
        deployments.replace(all.to_vec(), &[], &"1".into());
        for d in &all {
            controller.handle_deployment_event(&CacheEvent::Added(Arc::clone(d)));
        }
        assert_eq!((queue.len(), queue.longest_wait()), (0, Duration::ZERO));
        controller.enqueue_all();
        for name in ["a", "b"] {
            let key = queue.try_get();
            assert_eq!(key, Some(ObjectKey::new("default", name)));
            queue.done(&key.expect("just compared"));
        }
        controller.handle_deployment_event(&CacheEvent::Added(deployment("c")));
        assert_eq!(queue.try_get(), Some(ObjectKey::new("default", "c")));
    }

    /// Its back-off is as long as the outage was.
    #[test]
    fn failed_keys_are_synced_as_soon_as_the_api_server_is_back() {
        let config = ClientConfig::plain("http://127.0.0.1:1");
        let client = Client::new(&config, &ClientOptions::default(), &Stop::new());
        let controller = controller(&client);
        let (queue, key) = (controller.queue(), ObjectKey::new("default", "web"));
        controller.enqueue_all();
        for _ in 0..15 {
            queue.add_rate_limited(key.clone());
        }
        controller.handle_recovered();
        assert_eq!(queue.try_get(), Some(key.clone()));
        queue.done(&key);
        controller.handle_recovered();
        assert_eq!(queue.try_get(), None, "its failures are forgotten");
    }
}
