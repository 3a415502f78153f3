//! Creating and deleting pods
//! (kubernetes `pkg/controller/replicaset/replica_set.go:manageReplicas`).

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use log::Level;

use super::decide::age_ratio::age_ratios;
use super::decide::plan::{Plan, RelatedPods};
use super::decide::{Decision, Facts};
use super::memory::Memory;
use super::memory::own_writes::OwnWrites;
use super::memory::pod_names::{self, PodNames};
use super::memory::positions::Resource;
use super::{ReplicaSetController, SyncError, outcome_of};
use crate::api::{ObjectKey, OwnerKey, Pod, ReplicaSet, ResourceVersion, Selector, Uid};
use crate::batches::{run_all, slow_start_batch};
use crate::stdx::activity;
use crate::telemetry::metrics::controller::Outcome;
use crate::writes::WriteError;

/// Names tried for one pod before its creation counts as failed
/// (apiserver `pkg/registry/generic/registry/store.go:maxNameGenerationCreateAttempts`).
const NAMES_TRIED_MAX: usize = 8;

impl ReplicaSetController {
    /// Creates or deletes pods, if that is decided. Blocks until every request was answered.
    ///
    /// # Errors
    /// The first error that came in.
    pub(super) fn manage_replicas(
        &self,
        facts: &Facts<'_>,
        decision: &Decision,
    ) -> Result<(), SyncError> {
        let (rs, selector, active) = (facts.rs, facts.selector, &decision.active);
        match decision.plan {
            Plan::Create(count) if decision.acts => {
                let names = self.choose_names(rs, selector, count)?;
                // ORDER: names are chosen before pods are counted once more. A create of unknown
                // outcome may have shown up since the sync looked at its pods; its name is not
                // repeated then, so the pod has to count.
                let arrived = self.count_arrived(rs, selector, active);
                let (names, left_over) = names.split_at(count - arrived.min(count));
                self.give_back(rs, left_over, PodNames::untried);
                self.create_pods(rs, names)
            }
            Plan::Delete(_) if decision.acts => self.delete_pods(rs, decision),
            Plan::Create(_) | Plan::Delete(_) | Plan::Nothing => Ok(()),
        }
    }

    fn create_pods(&self, rs: &ReplicaSet, names: &[Arc<str>]) -> Result<(), SyncError> {
        let count = names.len();
        if count == 0 {
            return Ok(());
        }
        // ORDER: every name is expected before the first request, since a pod may come back through
        // the watch before the answer to its create.
        self.expect(rs, names.iter().cloned(), []);
        self.note_first_request(rs);
        let tried: Vec<AtomicBool> = names.iter().map(|_| AtomicBool::new(false)).collect();
        let _batches = activity::enter("waits for batches of creates", count);
        let (created, result) = slow_start_batch(count, &*self.batches, &|index| {
            tried[index].store(true, Ordering::Relaxed);
            self.create_pod(rs, &names[index])
        });
        // What was not tried are the last ones, since batches are begun in order.
        let n_tried = tried.iter().filter(|it| it.load(Ordering::Relaxed)).count();
        let skipped = &names[n_tried..];
        self.own_writes(rs, |writes| {
            for name in skipped {
                writes.creation_failed(name);
            }
        });
        self.give_back(rs, skipped, PodNames::untried);
        self.log_batch(rs, "created", (created, count), &result);
        result.map_err(SyncError::Write)
    }

    fn log_batch(
        &self,
        rs: &ReplicaSet,
        what: &str,
        (done, count): (usize, usize),
        result: &Result<(), WriteError>,
    ) {
        let object = self.kind.named(&rs.key);
        let level = level_of_batch(done, result);
        log::log!(level, object:% = object; "{what} {done} of {count} pods");
    }

    fn note_first_request(&self, rs: &ReplicaSet) {
        let now = self.clock.now();
        let note = |memory: &mut Memory| memory.history.note_request(rs, now);
        if let Some(after) = self.memories.get(&rs.key, &rs.uid, note).flatten() {
            self.metrics.first_request.observe(after.as_secs_f64());
        }
    }

    /// How many pods of `rs` the cache shows that are not among `active`.
    fn count_arrived(&self, rs: &ReplicaSet, selector: &Selector, active: &[Arc<Pod>]) -> usize {
        let known: HashSet<&Uid> = active.iter().map(|pod| &pod.uid).collect();
        let owner = OwnerKey::new(self.kind.kind, &rs.key, &rs.uid);
        let pods = self.cache.pods_owned_by(&owner);
        let has_arrived = |pod: &&Arc<Pod>| {
            pod.is_active() && selector.matches(&pod.labels) && !known.contains(&pod.uid)
        };
        pods.iter().filter(has_arrived).count()
    }

    /// Names whose fate is unknown come first: repeating those cannot make a second pod.
    fn choose_names(
        &self,
        rs: &ReplicaSet,
        selector: &Selector,
        count: usize,
    ) -> Result<Vec<Arc<str>>, SyncError> {
        let mut names = self.creations_to_repeat(rs, selector, count)?;
        let is_known = |name: &str| {
            self.cache.pod(&pod_key(rs, name)).is_some()
                || names.iter().any(|known| **known == *name)
        };
        let more = count - names.len();
        let fresh = pod_names::take(more, |count| self.draw_names(rs, count), is_known);
        names.extend(fresh);
        Ok(names)
    }

    fn draw_names(&self, rs: &ReplicaSet, count: usize) -> Vec<Arc<str>> {
        let draw = |memory: &mut Memory| memory.names.draw(rs, count);
        self.memories.with(&rs.key, &rs.uid, draw)
    }

    /// Creates one pod; its expectation stays exactly if the pod is there and will be seen.
    fn create_pod(&self, rs: &ReplicaSet, name: &Arc<str>) -> Result<(), WriteError> {
        let _job = activity::enter("creates a pod of", &rs.key);
        let mut name = Arc::clone(name);
        let mut tried = 1;
        loop {
            let created = self.pod_control.create_pod(rs, &name);
            self.metrics.pods_created.count(match &created {
                Ok(_) => Outcome::Success,
                Err(error) if error.is_already_exists() => Outcome::Moot,
                Err(error) => outcome_of(error),
            });
            let error = match created {
                Ok(pod) => {
                    self.creation_succeeded(rs, &name, &pod.resource_version);
                    return Ok(());
                }
                Err(error) if error.is_already_exists() => error,
                Err(error) => return self.creation_failed(rs, &name, error),
            };
            match self.pod_control.find_pod(rs, &name) {
                Ok(Some(pod)) if pod.is_controlled_by(&rs.uid) && pod.is_active() => {
                    // An earlier create of ours has arrived after all.
                    self.creation_succeeded(rs, &name, &pod.resource_version);
                    self.observe_if_cached(rs, &name);
                    return Ok(());
                }
                Ok(_) if tried < NAMES_TRIED_MAX => name = self.rename_creation(rs, &name),
                Ok(_) => return self.creation_failed(rs, &name, error),
                Err(error) => {
                    // The pod may be ours: only the same name is safe to be tried next.
                    self.own_writes(rs, |writes| writes.creation_is_unknown(&name));
                    return self.creation_failed(rs, &name, error);
                }
            }
            tried += 1;
        }
    }

    fn creation_succeeded(&self, rs: &ReplicaSet, name: &str, version: &ResourceVersion) {
        let now = self.clock.now();
        self.memories.with(&rs.key, &rs.uid, |memory| {
            memory.own_writes.creation_answered(name, version);
            memory.positions.wrote_at(Resource::Pods, version, now);
        });
    }

    fn creation_failed(
        &self,
        rs: &ReplicaSet,
        name: &Arc<str>,
        error: WriteError,
    ) -> Result<(), WriteError> {
        // Nothing more can be created there, so there is nothing to repeat. The expectation stays
        // and keeps later syncs from trying.
        if error.is_namespace_terminating() {
            let (message, at) = (error.to_string(), self.clock.wall());
            let note = |memory: &mut Memory| memory.history.note_error_for_good(message, at);
            self.memories.with(&rs.key, &rs.uid, note);
            return Ok(());
        }
        self.own_writes(rs, |writes| writes.creation_failed(name));
        if error.is_unknown() {
            self.own_writes(rs, |writes| writes.creation_is_unknown(name));
        } else if error.status().is_some() && !error.is_already_exists() {
            // ORDER: last, since another creation of this batch may take the name and expect it.
            self.give_back(rs, std::slice::from_ref(name), PodNames::refused);
        }
        Err(error)
    }

    /// Names under which nothing was stored come first next time, but for those that are repeated anyway.
    /// So whoever restarts the daemon meets the creates that are under way: they have the first names.
    ///
    /// DIFFERS: upstream has no names to repeat. The API server names the pod after the first half of
    /// admission, so its refusals have no name in them, or a new one each time.
    fn give_back(
        &self,
        rs: &ReplicaSet,
        names: &[Arc<str>],
        how: impl Fn(&mut PodNames, &Arc<str>),
    ) {
        self.memories.get(&rs.key, &rs.uid, |memory| {
            let unknown = memory.own_writes.unknown_creations();
            for name in names.iter().filter(|name| !unknown.contains(*name)) {
                how(&mut memory.names, name);
            }
        });
    }

    /// Expects pods of these names to appear and of these UIDs to go, and nothing else any more.
    pub(super) fn expect(
        &self,
        rs: &ReplicaSet,
        creations: impl IntoIterator<Item = Arc<str>>,
        deletions: impl IntoIterator<Item = Uid>,
    ) {
        let now = self.clock.now();
        self.memories.with(&rs.key, &rs.uid, |memory| {
            memory.own_writes.expect(creations, deletions, now);
        });
    }

    /// Changes what is remembered of the own writes of `rs`.
    pub(super) fn own_writes<R>(
        &self,
        rs: &ReplicaSet,
        change: impl FnOnce(&mut OwnWrites) -> R,
    ) -> R {
        self.memories
            .with(&rs.key, &rs.uid, |memory| change(&mut memory.own_writes))
    }

    /// The name belongs to somebody else, or to a pod of ours that is going away.
    fn rename_creation(&self, rs: &ReplicaSet, name: &Arc<str>) -> Arc<str> {
        self.memories.with(&rs.key, &rs.uid, |memory| {
            loop {
                let mut other = memory.names.draw(rs, 1);
                let other = other.pop().expect("one name was asked for");
                if other != *name {
                    memory.own_writes.rename_creation(name, &other);
                    return other;
                }
            }
        })
    }

    /// Strikes out the creation of a pod that the cache shows already: its event may have come before
    /// the expectation was written down.
    pub(super) fn observe_if_cached(&self, rs: &ReplicaSet, name: &str) {
        if self.cache.pod(&pod_key(rs, name)).is_some() {
            self.own_writes(rs, |writes| writes.creation_seen(name));
        }
    }

    /// Finds the related pods of `rs` when they are asked for.
    pub(super) fn siblings<'a>(
        &'a self,
        rs: &'a ReplicaSet,
        selector: &'a Selector,
    ) -> Siblings<'a> {
        Siblings {
            controller: self,
            rs,
            selector,
        }
    }

    fn delete_pods(&self, rs: &ReplicaSet, decision: &Decision) -> Result<(), SyncError> {
        let Decision {
            active,
            delete: pods,
            ..
        } = decision;
        // ORDER: every pod is expected to go before the first request is sent.
        let uids = pods.iter().map(|pod| pod.uid.clone());
        self.expect(rs, [], uids);
        self.note_first_request(rs);
        if pods.len() < active.len() {
            for ratio in age_ratios(active, pods, decision.now) {
                self.metrics.sorting_deletion_age_ratio.observe(ratio);
            }
        }
        let delete = |index: usize| self.delete_pod_of(rs, &pods[index]);
        let _batch = activity::enter("waits for a batch of deletes", pods.len());
        let (deleted, result) = run_all(pods.len(), &*self.batches, &delete);
        self.log_batch(rs, "deleted", (deleted, pods.len()), &result);
        result.map_err(SyncError::Delete)
    }

    /// Deletes one pod; its expectation stays exactly if its going will be seen.
    fn delete_pod_of(&self, rs: &ReplicaSet, pod: &Pod) -> Result<(), WriteError> {
        let _job = activity::enter("deletes a pod of", &rs.key);
        let deleted = match self.pod_control.delete_pod(rs, pod) {
            // DIFFERS: upstream stops waiting for a pod that is gone, and would take another one for it
            // as long as the cache shows it.
            Err(error) if error.is_not_found() => Ok(Outcome::Moot),
            Err(error) if error.is_conflict() => self.look_after_conflict(rs, pod, error),
            answer => answer.map(|()| Outcome::Success),
        };
        self.metrics.pods_deleted.count(match &deleted {
            Ok(outcome) => *outcome,
            Err(error) => outcome_of(error),
        });
        if let Err(error) = deleted {
            if error.is_unknown() {
                self.deletion_is_unknown(rs, pod);
            }
            self.own_writes(rs, |writes| writes.deletion_failed(&pod.uid));
            return Err(error);
        }
        // The event may have come before the expectation was written down, and may have been the only
        // one for a long time: a pod can take its time to go.
        let cached = self.cache.pod(&pod.key);
        let is_seen = !cached.is_some_and(|cached| cached.uid == pod.uid && cached.is_active());
        self.own_writes(rs, |writes| {
            writes.deletion_resolved(&pod.uid);
            if is_seen {
                writes.deletion_seen(&pod.uid);
            }
        });
        Ok(())
    }

    fn deletion_is_unknown(&self, rs: &ReplicaSet, pod: &Pod) {
        let now = self.clock.now();
        self.own_writes(rs, |writes| writes.deletion_is_unknown(&pod.uid, now));
    }

    /// A delete that meets a conflict was for a pod that is another one by now, or an admission webhook
    /// has refused it with that code. Blocks for one LIST.
    fn look_after_conflict(
        &self,
        rs: &ReplicaSet,
        pod: &Pod,
        conflict: WriteError,
    ) -> Result<Outcome, WriteError> {
        match self.pod_control.find_pod(rs, &pod.key.name) {
            Ok(Some(live)) if live.uid == pod.uid && live.is_active() => {
                self.pod_control.warn_of_failed_delete(rs, &conflict);
                Err(conflict)
            }
            Ok(_) => Ok(Outcome::Moot),
            Err(error) => {
                // The pod may be gone: no other one is safe to be taken next.
                self.deletion_is_unknown(rs, pod);
                Err(error)
            }
        }
    }
}

/// Of a batch of which nothing was sent there is nothing to tell.
fn level_of_batch(done: usize, result: &Result<(), WriteError>) -> Level {
    match result {
        Err(WriteError::Stopped) if done == 0 => Level::Debug,
        _ => Level::Info,
    }
}

/// The key of a pod of `rs`.
pub(super) fn pod_key(rs: &ReplicaSet, name: &str) -> ObjectKey {
    ObjectKey {
        namespace: Arc::clone(&rs.key.namespace),
        name: name.into(),
    }
}

/// The pods of all ReplicaSets that share this one's controller, such as the old and the new one of
/// a Deployment (kubernetes `pkg/controller/replicaset/replica_set.go:getIndirectlyRelatedPods`).
///
/// DIFFERS: upstream takes every pod of the namespace that a selector matches. Here pods that belong to
/// somebody else do not count, so that the look-up costs no more than the pods it finds. A ReplicaSet
/// without a controller has no related pods; upstream logs an error about that, we do not.
#[derive(Debug)]
pub(super) struct Siblings<'a> {
    controller: &'a ReplicaSetController,
    rs: &'a ReplicaSet,
    selector: &'a Selector,
}

impl RelatedPods for Siblings<'_> {
    fn related_pods(&self) -> Vec<Arc<Pod>> {
        let controller = self.controller;
        if !controller.kind.ranks_by_siblings {
            return Vec::new();
        }
        let Some(owner) = &self.rs.controller else {
            return Vec::new();
        };
        let mut seen: HashSet<Uid> = HashSet::new();
        let mut related = Vec::new();
        let mut add = |selector: &Selector, pods: Vec<Arc<Pod>>| {
            for pod in pods {
                if selector.matches(&pod.labels) && seen.insert(pod.uid.clone()) {
                    related.push(pod);
                }
            }
        };
        let cache = &controller.cache;
        let kind = controller.kind.kind;
        let owned = |rs: &ReplicaSet| cache.pods_owned_by(&OwnerKey::new(kind, &rs.key, &rs.uid));
        add(self.selector, owned(self.rs));
        for sibling in cache.replica_sets_controlled_by(&owner.uid) {
            if let Ok(selector) = &sibling.selector {
                add(selector, owned(&sibling));
                add(selector, cache.orphans_in(&sibling.key.namespace));
            }
        }
        related
    }
}

#[cfg(test)]
mod tests;
