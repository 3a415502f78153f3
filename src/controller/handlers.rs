//! What an event of the cache means: which keys are enqueued, which expectations are struck out
//! (kubernetes `pkg/controller/replicaset/replica_set.go:addPod` and its neighbours).
//!
//! Handlers run on the watch threads. They never call the API server and never wait for a sync,
//! because a running sync rests on its expectations being struck out meanwhile.

use std::sync::Arc;
use std::time::Duration;

use super::ReplicaSetController;
use super::memory::Memory;
use crate::api::{ControllerRef, ObjectKey, Pod, ReplicaSet};
use crate::cache::CacheEvent;

impl ReplicaSetController {
    /// Takes one event of the ReplicaSet store.
    pub fn handle_replica_set_event(&self, event: &CacheEvent<ReplicaSet>) {
        match event {
            CacheEvent::Added(rs) => self.add_replica_set(rs),
            CacheEvent::Updated { old, new } => self.update_replica_set(old, new),
            CacheEvent::Deleted(rs) => self.delete_replica_set(rs),
        }
    }

    /// Takes one event of the pod store.
    pub fn handle_pod_event(&self, event: &CacheEvent<Pod>) {
        match event {
            CacheEvent::Added(pod) => self.add_pod(pod),
            CacheEvent::Updated { old, new } => self.update_pod(old, new),
            CacheEvent::Deleted(pod) => self.delete_pod(pod),
        }
    }

    /// Takes the news that a store has come to a newer version: whoever waited for it is enqueued.
    pub fn handle_cache_advanced(&self) {
        for key in self.memories.advanced(|| self.cached_versions()) {
            self.enqueue(&key);
        }
    }

    fn add_replica_set(&self, rs: &ReplicaSet) {
        self.note_change(None, rs);
        if self.cache.has_synced() {
            self.enqueue(&rs.key);
        } else {
            self.enqueue_low(&rs.key);
        }
    }

    fn update_replica_set(&self, old: &ReplicaSet, new: &ReplicaSet) {
        if old.uid != new.uid {
            self.delete_replica_set(old);
        }
        if old.replicas != new.replicas {
            log::debug!(
                object:% = self.kind.named(&new.key);
                "replicas {} -> {}",
                old.replicas,
                new.replicas
            );
        }
        self.note_change(Some(old), new);
        let is_asked_for = old.uid != new.uid
            || old.generation != new.generation
            || old.replicas != new.replicas
            || old.deletion != new.deletion;
        if is_asked_for {
            self.enqueue(&new.key);
        } else {
            // Also when nothing relevant changed: a periodic resync repairs what was missed this
            // way, and a status that was written may hide what has happened before it was seen.
            self.enqueue_owner(new);
        }
    }

    /// What a standby sees is on its way without it.
    fn note_change(&self, old: Option<&ReplicaSet>, rs: &ReplicaSet) {
        if self.memories.stands_by() {
            return;
        }
        let now = self.clock.now();
        self.memories.with(&rs.key, &rs.uid, |memory| {
            memory.history.saw_change(old, rs, now);
            if let Some(old) = old {
                self.suspect_status(memory, old, rs);
            }
        });
    }

    fn delete_replica_set(&self, rs: &ReplicaSet) {
        self.memories.forget(&rs.key, Some(&rs.uid));
        self.enqueue(&rs.key);
    }

    fn add_pod(&self, pod: &Pod) {
        if pod.controller.is_none() && !pod.is_terminating() {
            return self.enqueue_replica_sets_matching(pod);
        }
        let Some(rs) = self.controller_of(pod) else {
            return;
        };
        self.enqueue_owner_after(&rs, |memory| {
            if pod.is_terminating() {
                // After a restart of the daemon a pod may show up that is going away already.
                observe_first_sight(memory, pod);
                self.observe_loss(memory, pod);
            } else {
                self.suspect_pod(memory, pod);
                observe_first_sight(memory, pod);
            }
        });
    }

    /// DIFFERS: upstream ignores every update to the version of before. Here only a resync is one:
    /// a server that was restored from a backup hands out versions a second time.
    fn update_pod(&self, old: &Pod, new: &Pod) {
        if old == new {
            return; // A resync.
        }
        if new.differs_in_version_only(old) {
            self.repeat_if_failing(new);
            return;
        }
        // Deleted and made anew unseen: the new pod may be one that is waited for.
        let is_another = old.uid != new.uid;
        let controller_changed = old.controller != new.controller;
        // Others may be concerned by it than before. A relist makes one update of several.
        let concerns_others = controller_changed || old.labels != new.labels || is_another;
        if new.is_terminating() {
            // The deletion counts from its start: a pod may take long to go.
            if let Some(rs) = self.controller_of(new) {
                self.enqueue_owner_after(&rs, |memory| {
                    if is_another {
                        observe_first_sight(memory, new);
                    }
                    self.observe_loss(memory, new);
                });
            }
            if concerns_others {
                self.delete_pod(old);
            }
            return;
        }
        if controller_changed && let Some(rs) = self.controller_of(old) {
            // When it goes at last, nothing will tell whose it was.
            self.enqueue_after(&rs, |memory| memory.own_writes.deletion_seen(&old.uid));
        }
        if let Some(rs) = self.controller_of(new) {
            let mut failures = None;
            let observe = |memory: &mut Memory| {
                if is_another {
                    observe_first_sight(memory, new);
                }
                if !new.is_active() {
                    // A pod that has finished counts no more than one that is going away.
                    memory.own_writes.deletion_seen(&new.uid);
                    failures = self.note_failure(memory, &rs, old, new);
                }
            };
            if concerns_others {
                self.enqueue_after(&rs, observe);
            } else {
                self.enqueue_owner_after(&rs, observe);
            }
            if let Some(failures) = failures {
                self.warn_of_failures(&rs, new, failures);
            }
            let becomes_ready = !old.is_ready && new.is_ready;
            if becomes_ready && rs.min_ready_seconds > 0 && !self.memories.stands_by() {
                let seconds = u64::try_from(rs.min_ready_seconds).unwrap_or(0);
                self.queue
                    .add_low_after(rs.key.clone(), Duration::from_secs(seconds));
            }
        } else if new.controller.is_none() && concerns_others {
            self.enqueue_replica_sets_matching(new);
        }
        if is_another {
            self.delete_pod(old);
        }
    }

    fn delete_pod(&self, pod: &Pod) {
        if let Some(rs) = self.controller_of(pod) {
            self.enqueue_owner_after(&rs, |memory| self.observe_loss(memory, pod));
        } else if pod.controller.is_none() {
            // Adopted and deleted since the cache saw it last: a relist tells of its going alone, and its
            // labels may have matched only before or after that.
            for rs in self.cache.replica_sets_in(&pod.key.namespace) {
                let expects = |memory: &mut Memory| memory.own_writes.expects_deletion(&pod.uid);
                if self.memories.get(&rs.key, &rs.uid, expects) == Some(true) {
                    self.enqueue_owner_after(&rs, |memory| self.observe_loss(memory, pod));
                }
            }
        }
    }

    /// Nothing that a sync reads has changed, so none is needed; but one that failed and waits for its
    /// back-off is tried at once, as with every event of a pod.
    ///
    /// DIFFERS: upstream syncs after every new version of a pod, such as a kubelet's heartbeat.
    fn repeat_if_failing(&self, pod: &Pod) {
        if let Some(rs) = self.controller_of(pod)
            && self.queue.num_requeues(&rs.key) > 0
        {
            self.enqueue(&rs.key);
        }
    }

    /// A pod goes, or has gone.
    fn observe_loss(&self, memory: &mut Memory, pod: &Pod) {
        memory.own_writes.deletion_seen(&pod.uid);
        // A standby creates no pods, so it has no create that would wait.
        if !self.memories.stands_by() {
            let now = self.clock.now();
            memory.positions.lost_pod(&pod.resource_version, now);
        }
    }

    /// The ReplicaSet that controls `pod`, if it is in the cache.
    fn controller_of(&self, pod: &Pod) -> Option<Arc<ReplicaSet>> {
        let controller = pod.controller.as_ref()?;
        self.resolve_controller_ref(pod, controller)
    }

    /// The ReplicaSet that `controller` means, if it is of our kind, in the cache, and has that UID.
    fn resolve_controller_ref(
        &self,
        pod: &Pod,
        controller: &ControllerRef,
    ) -> Option<Arc<ReplicaSet>> {
        if *controller.kind != *self.kind.kind {
            return None;
        }
        let key = ObjectKey {
            namespace: Arc::clone(&pod.key.namespace),
            name: Arc::clone(&controller.name),
        };
        self.cache
            .replica_set(&key)
            .filter(|rs| rs.uid == controller.uid)
    }

    /// An orphan concerns every ReplicaSet that would adopt it.
    fn enqueue_replica_sets_matching(&self, pod: &Pod) {
        let matching = self.replica_sets_matching(pod);
        if matching.len() > 1 {
            let (kind, labels) = (self.kind.kind, &pod.labels);
            log::warn!("user error! more than one {kind} is selecting pods with labels: {labels}");
        }
        for rs in matching {
            self.enqueue(&rs.key);
        }
    }

    /// All ReplicaSets of the pod's namespace whose selector matches its labels.
    pub(super) fn replica_sets_matching(&self, pod: &Pod) -> Vec<Arc<ReplicaSet>> {
        if pod.labels.is_empty() {
            return Vec::new();
        }
        let mut candidates = self.cache.replica_sets_in(&pod.key.namespace);
        candidates.retain(|rs| {
            rs.selector
                .as_ref()
                .is_ok_and(|selector| selector.matches(&pod.labels))
        });
        candidates
    }
}

/// A pod is seen for the first time, if only to go. That an older one of its name has gone says
/// nothing, so a deletion alone is no creation observed.
fn observe_first_sight(memory: &mut Memory, pod: &Pod) {
    memory.own_writes.creation_seen(&pod.key.name);
}

#[cfg(test)]
mod tests;
