//! Event handlers: each cache event updates expectations and enqueues keys (kubernetes
//! `pkg/controller/replicaset/replica_set.go:addPod` and its neighbours).
//!
//! Handlers run on the watch threads. They never call the API server and never wait for a sync,
//! because a running sync relies on the handlers to observe its creations and deletions.

use std::sync::Arc;
use std::time::Duration;

use super::ReplicaSetController;
use super::memory::Memory;
use super::warnings::warn_of_failures;
use crate::api::{ObjectKey, Pod, PodPhase, Policy, ReplicaSet, ResourceVersion, Selector};
use crate::cache::CacheEvent;
use crate::workqueue::Priority;

impl ReplicaSetController {
    pub fn handle_replica_set_event(&self, event: &CacheEvent<ReplicaSet>) {
        let (rs, frees_quota) = match event {
            CacheEvent::Added(rs) => return self.add_replica_set(rs),
            CacheEvent::Updated { old, new } => {
                self.update_replica_set(old, new);
                (new, new.replicas < old.replicas)
            }
            CacheEvent::Deleted(rs) => {
                self.delete_replica_set(rs);
                (rs, true)
            }
        };
        if frees_quota {
            self.may_free_quota(&rs.key.namespace);
        }
    }

    pub fn handle_pod_event(&self, event: &CacheEvent<Pod>) {
        let (pod, frees_quota) = match event {
            CacheEvent::Added(pod) => return self.add_pod(pod),
            CacheEvent::Updated { old, new } => {
                self.update_pod(old, new);
                let ends = new.phase.is_terminal() && !old.phase.is_terminal();
                (new, ends || old.uid != new.uid)
            }
            CacheEvent::Deleted(pod) => {
                self.delete_pod(pod);
                (pod, true)
            }
        };
        if frees_quota {
            self.may_free_quota(&pod.key.namespace);
        }
    }

    /// Enqueues the keys that have failed, without the rest of their back-off: the API server is
    /// back after an outage. A key that waits for `Retry-After` keeps its wait.
    ///
    /// DIFFERS: upstream's back-off continues, as long again as the outage lasted.
    pub fn handle_recovered(&self) {
        let failed = self.queue.forget_all().into_iter();
        for key in failed.chain(self.memories.end_overloads()) {
            self.enqueue(&key);
        }
    }

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
            self.add_to_queue(&rs.key, Priority::Low, Duration::ZERO);
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
        let is_urgent = old.uid != new.uid
            || old.generation != new.generation
            || old.replicas != new.replicas
            || old.deletion != new.deletion;
        if is_urgent {
            self.enqueue(&new.key);
        } else {
            // An update without a relevant change still enqueues: a periodic resync repairs missed
            // events this way, and a written status may hide a change that came before the cache
            // showed it.
            self.observe_and_enqueue(new, false, |_| {});
        }
    }

    /// Records the change in the ReplicaSet's history. A standby records nothing, because the
    /// leader serves that change.
    fn note_change(&self, old: Option<&ReplicaSet>, rs: &ReplicaSet) {
        if self.memories.is_standby() {
            return;
        }
        let now = self.clock.now();
        self.memories.with(rs, |memory| {
            memory.history.observe_change(old, rs, now);
        });
    }

    /// As upstream: forget the expectations, then enqueue the key, so that a sync finds a recreated
    /// ReplicaSet of that name or cleans up.
    fn delete_replica_set(&self, rs: &ReplicaSet) {
        self.memories.forget(&rs.key, Some(&rs.uid));
        self.enqueue(&rs.key);
    }

    /// Handles a pod that is new in the cache. An orphan enqueues every ReplicaSet that may adopt
    /// it.
    fn add_pod(&self, pod: &Pod) {
        if pod.controller.is_none() && !pod.is_terminating() {
            return self.enqueue_replica_sets_matching(pod);
        }
        let Some(rs) = self.controller_of(pod) else {
            return;
        };
        let shown = self.cache.pods.resource_version();
        self.observe_and_enqueue(&rs, false, |memory| {
            if pod.is_terminating() {
                // After a restart of the daemon the first event of a pod may show it terminating. A
                // deletion event does not prove that the pod was created: an earlier pod may have
                // had the name.
                memory.own_writes.creation_seen(&pod.key.name);
                self.observe_deletion(memory, pod, &shown);
            } else {
                // ORDER: read before the next line removes the expectation that distinguishes own
                // pods from foreign ones.
                self.note_foreign(memory, pod);
                memory.own_writes.creation_seen(&pod.key.name);
            }
        });
    }

    /// DIFFERS: upstream ignores every update with an unchanged resource version. Here only an
    /// equal object counts as a resync: an API server restored from a backup reuses versions.
    fn update_pod(&self, old: &Pod, new: &Pod) {
        if old == new {
            return; // A resync.
        }
        if old.uid != new.uid {
            // The pod was deleted and recreated unseen.
            self.delete_pod(old);
            return self.add_pod(new);
        }
        if new.differs_in_version_only(old) {
            self.retry_if_failing(new);
            return;
        }
        let controller_changed = old.controller != new.controller;
        // True if the update may affect other ReplicaSets than the new owner. A relist merges
        // several updates into one.
        let affects_others = controller_changed || old.labels != new.labels;
        if new.is_terminating() {
            // The deletion counts from its start, because a pod may take long to terminate.
            if let Some(rs) = self.controller_of(new) {
                let shown = self.cache.pods.resource_version();
                self.observe_and_enqueue(&rs, false, |memory| {
                    if controller_changed {
                        memory.own_writes.creation_seen(&new.key.name);
                    }
                    if old.is_active() {
                        self.observe_deletion(memory, new, &shown);
                    } else {
                        memory.own_writes.deletion_seen(&new.uid);
                    }
                });
            }
            if affects_others {
                self.delete_pod(old);
            }
            return;
        }
        if controller_changed && let Some(rs) = self.controller_of(old) {
            // The event of its final deletion will no longer name this controller.
            self.observe_and_enqueue(&rs, true, |it| it.own_writes.deletion_seen(&old.uid));
        }
        if let Some(rs) = self.controller_of(new) {
            let mut failures = None;
            let observe = |memory: &mut Memory| {
                // A live list may have shown the pod with this owner before the watch showed it
                // without.
                if controller_changed {
                    memory.own_writes.creation_seen(&new.key.name);
                }
                if !new.is_active() {
                    // A finished pod is inactive, as a terminating pod is, so its deletion counts
                    // as done.
                    memory.own_writes.deletion_seen(&new.uid);
                    failures = self.note_failure(memory, &rs, old, new);
                }
            };
            self.observe_and_enqueue(&rs, affects_others, observe);
            if let Some(failures) = failures {
                warn_of_failures(self.kind, &rs, new, failures);
            }
            // No event announces that a Ready pod becomes available.
            if !old.is_ready && new.is_ready && rs.min_ready_seconds > 0 {
                let seconds = rs.min_ready_seconds.unsigned_abs().into();
                self.add_to_queue(&rs.key, Priority::Low, Duration::from_secs(seconds));
            }
        } else if new.controller.is_none() {
            // An orphan that ends is adopted no more. A dry run may have decided to adopt it.
            if affects_others || old.is_active() && !new.is_active() {
                self.enqueue_replica_sets_matching(new);
            }
        }
    }

    fn delete_pod(&self, pod: &Pod) {
        let shown = self.cache.pods.resource_version();
        let observe = |memory: &mut Memory| self.observe_deletion(memory, pod, &shown);
        if let Some(rs) = self.controller_of(pod) {
            self.observe_and_enqueue(&rs, false, observe);
        } else if pod.controller.is_none() {
            // DIFFERS: upstream handles no orphan that is gone. It may have been adopted, and then
            // deleted, since its last event: a relist shows only the deletion. Match it to its
            // owner by expected UID (a sync deleted it) or by selector (a sync adopted it).
            for rs in self.cache.replica_sets_in(&pod.key.namespace) {
                let expects = |memory: &mut Memory| memory.own_writes.expects_deletion(&pod.uid);
                let selects = |selector: &Selector| selector.matches(&pod.labels);
                if self.memories.get(&rs, expects) == Some(true) {
                    self.observe_and_enqueue(&rs, false, observe);
                } else if rs.selector.as_ref().is_ok_and(selects) {
                    self.observe_and_enqueue(&rs, false, |_| {});
                }
            }
        }
    }

    /// Retries a failed sync at once instead of after its back-off. The update itself needs no
    /// sync, because nothing that a sync reads has changed.
    ///
    /// DIFFERS: upstream syncs after every new version of a pod, such as a kubelet's heartbeat.
    fn retry_if_failing(&self, pod: &Pod) {
        if let Some(rs) = self.controller_of(pod)
            && self.queue.num_requeues(&rs.key) > 0
        {
            self.enqueue(&rs.key);
        }
    }

    /// Counts a failed pod in the record of `rs`. Returns the number of failures and their period
    /// if that causes a warning. A standby counts nothing: the leader counts this pod, and a sum
    /// over all daemons must not count it twice.
    fn note_failure(
        &self,
        memory: &mut Memory,
        rs: &ReplicaSet,
        old: &Pod,
        new: &Pod,
    ) -> Option<(usize, Duration)> {
        let fails = new.phase == PodPhase::Failed && old.phase != PodPhase::Failed;
        if !fails || self.memories.is_standby() {
            return None;
        }
        self.metrics.pods_failed.inc();
        let policy = Policy::of(&rs.opt_ins, &self.options.policy);
        if policy.failed_pod_backoff.is_some() {
            return None;
        }
        memory.history.count_failure(rs, self.clock.now())
    }

    /// Observes that a pod is terminating or gone in the cache at the version `shown`. Of a pod
    /// that a list lacks only an older version is known.
    fn observe_deletion(&self, memory: &mut Memory, pod: &Pod, shown: &ResourceVersion) {
        memory.own_writes.deletion_seen(&pod.uid);
        // A standby creates no pods, so no create has to wait for this loss.
        if !self.memories.is_standby() {
            memory.positions.lost_pod(shown, self.clock.now());
        }
    }

    fn controller_of(&self, pod: &Pod) -> Option<Arc<ReplicaSet>> {
        let controller = pod.controller.as_ref()?;
        // Upstream compares the kind only, not the API group.
        if *controller.kind != *self.kind.kind {
            return None;
        }
        let key = ObjectKey::new(pod.key.namespace.clone(), controller.name.clone());
        self.cache
            .replica_sets
            .get(&key)
            .filter(|rs| rs.uid == controller.uid)
    }

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

    pub(super) fn replica_sets_matching(&self, pod: &Pod) -> Vec<Arc<ReplicaSet>> {
        if pod.labels.is_empty() {
            return Vec::new();
        }
        let selects = |selector: &Selector| selector.matches(&pod.labels);
        let mut candidates = self.cache.replica_sets_in(&pod.key.namespace);
        candidates.retain(|rs| rs.selector.as_ref().is_ok_and(selects));
        candidates
    }
}

#[cfg(test)]
mod tests;
