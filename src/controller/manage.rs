//! Creating and deleting pods
//! (kubernetes `pkg/controller/replicaset/replica_set.go:manageReplicas`).

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::plan::{DeletionContext, Plan, RelatedPods, pods_to_delete};
use super::slow_start::{run_all, slow_start_batch};
use super::written_versions::Resource;
use super::{ReplicaSetController, SyncError};
use crate::api::{ObjectKey, OwnerKey, Pod, ReplicaSet, ResourceVersion, Selector, Uid};
use crate::writes::WriteError;

/// Names tried for one pod before its creation counts as failed
/// (apiserver `pkg/registry/generic/registry/store.go:maxNameGenerationCreateAttempts`).
const NAMES_TRIED_MAX: usize = 8;

impl ReplicaSetController {
    /// Carries out the plan. Blocks until every request of it was answered.
    ///
    /// # Errors
    /// The first error that came in.
    pub(super) fn manage_replicas(
        &self,
        rs: &ReplicaSet,
        selector: &Selector,
        active: &[Arc<Pod>],
        plan: Plan,
    ) -> Result<(), SyncError> {
        match plan {
            Plan::Nothing => Ok(()),
            Plan::Create(count) => self.create_pods(rs, count),
            Plan::Delete(count) => self.delete_pods(rs, selector, active, count),
        }
    }

    fn create_pods(&self, rs: &ReplicaSet, count: usize) -> Result<(), SyncError> {
        let names = self.choose_names(rs, count);
        // ORDER: every name is expected before the first request, since a pod may come back through
        // the watch before the answer to its create.
        self.expectations
            .expect_creations(&rs.key, &rs.uid, names.iter().cloned());
        let tried: Vec<AtomicBool> = names.iter().map(|_| AtomicBool::new(false)).collect();
        let (created, result) = slow_start_batch(count, &*self.batches, &|index| {
            tried[index].store(true, Ordering::Relaxed);
            self.create_pod(rs, &names[index])
        });
        let skipped = names
            .iter()
            .zip(tried)
            .filter(|(_, tried)| !tried.load(Ordering::Relaxed));
        for (name, _) in skipped {
            self.expectations.creation_observed(&rs.key, &rs.uid, name);
        }
        log::info!("created {created} of {count} pods replicaset={}", rs.key);
        result.map_err(SyncError::Write)
    }

    /// Names whose fate is unknown come first: repeating those cannot make a second pod.
    fn choose_names(&self, rs: &ReplicaSet, count: usize) -> Vec<Arc<str>> {
        let is_taken = |name: &str| self.cache.pod(&pod_key(rs, name)).is_some();
        let mut names = self.unresolved.take_creations(&rs.key, &rs.uid);
        names.retain(|name| !is_taken(name));
        for surplus in names.split_off(count.min(names.len())) {
            self.unresolved.add_creation(&rs.key, &rs.uid, &surplus);
        }
        let more = count - names.len();
        let is_known = |name: &str| is_taken(name) || names.iter().any(|known| **known == *name);
        let fresh = self.names.take(rs, self.clock.wall(), more, is_known);
        names.extend(fresh);
        names
    }

    /// Creates one pod; its expectation stays exactly if the pod is there and will be seen.
    fn create_pod(&self, rs: &ReplicaSet, name: &Arc<str>) -> Result<(), WriteError> {
        let mut name = Arc::clone(name);
        for _ in 1..NAMES_TRIED_MAX {
            match self.pod_control.create_pod(rs, &name) {
                Err(error) if error.is_already_exists() => {}
                result => {
                    return self.settle_creation(rs, &name, result.map(|pod| pod.resource_version));
                }
            }
            match self.pod_control.find_pod(rs, &name) {
                Ok(Some(pod)) if pod.is_controlled_by(&rs.uid) && pod.is_active() => {
                    // An earlier create of ours has arrived after all.
                    self.settle_creation(rs, &name, Ok(pod.resource_version))?;
                    self.observe_if_cached(rs, &name);
                    return Ok(());
                }
                Ok(_) => name = self.rename_creation(rs, &name),
                Err(error) => return self.settle_creation(rs, &name, Err(error)),
            }
        }
        let result = self
            .pod_control
            .create_pod(rs, &name)
            .map(|pod| pod.resource_version);
        self.settle_creation(rs, &name, result)
    }

    fn settle_creation(
        &self,
        rs: &ReplicaSet,
        name: &Arc<str>,
        result: Result<ResourceVersion, WriteError>,
    ) -> Result<(), WriteError> {
        match result {
            Ok(version) => {
                self.written
                    .wrote_at(&rs.key, &rs.uid, Resource::Pods, &version);
                Ok(())
            }
            // Nothing more can be created there, so there is nothing to repeat. The expectation stays
            // and keeps later syncs from trying.
            Err(error) if error.is_namespace_terminating() => Ok(()),
            Err(error) => {
                if error.is_unknown() {
                    self.unresolved.add_creation(&rs.key, &rs.uid, name);
                }
                self.expectations.creation_observed(&rs.key, &rs.uid, name);
                Err(error)
            }
        }
    }

    /// The name belongs to somebody else, or to a pod of ours that is going away.
    fn rename_creation(&self, rs: &ReplicaSet, name: &Arc<str>) -> Arc<str> {
        let is_taken = |other: &str| other == &**name;
        let mut other = self.names.take(rs, self.clock.wall(), 1, is_taken);
        let other = other.pop().expect("one name was asked for");
        self.expectations
            .rename_creation(&rs.key, &rs.uid, name, &other);
        other
    }

    /// Strikes out the creation of a pod that the cache shows already: its event may have come before
    /// the expectation was written down.
    pub(super) fn observe_if_cached(&self, rs: &ReplicaSet, name: &str) {
        if self.cache.pod(&pod_key(rs, name)).is_some() {
            self.expectations.creation_observed(&rs.key, &rs.uid, name);
        }
    }

    fn delete_pods(
        &self,
        rs: &ReplicaSet,
        selector: &Selector,
        active: &[Arc<Pod>],
        count: usize,
    ) -> Result<(), SyncError> {
        let context = DeletionContext {
            related_pods: &Siblings {
                controller: self,
                rs,
                selector,
            },
            unresolved: &self.unresolved.take_deletions(&rs.key, &rs.uid),
            now: self.clock.wall(),
        };
        let pods = pods_to_delete(active, count, &context);
        // ORDER: every pod is expected to go before the first request is sent.
        let uids = pods.iter().map(|pod| pod.uid.clone());
        self.expectations.expect_deletions(&rs.key, &rs.uid, uids);
        let delete = |index: usize| self.delete_pod_of(rs, &pods[index]);
        let (deleted, result) = run_all(0..pods.len(), &*self.batches, &delete);
        log::info!("deleted {deleted} of {count} pods replicaset={}", rs.key);
        result.map_err(SyncError::Delete)
    }

    fn delete_pod_of(&self, rs: &ReplicaSet, pod: &Pod) -> Result<(), WriteError> {
        let Err(error) = self.pod_control.delete_pod(rs, pod) else {
            return Ok(());
        };
        self.expectations
            .deletion_observed(&rs.key, &rs.uid, &pod.uid);
        if error.is_unknown() {
            self.unresolved.add_deletion(&rs.key, &rs.uid, &pod.uid);
        }
        // The pod that was meant is gone if nothing has its name, or something with another UID.
        if error.is_not_found() || error.is_conflict() {
            return Ok(());
        }
        Err(error)
    }
}

fn pod_key(rs: &ReplicaSet, name: &str) -> ObjectKey {
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
struct Siblings<'a> {
    controller: &'a ReplicaSetController,
    rs: &'a ReplicaSet,
    selector: &'a Selector,
}

impl RelatedPods for Siblings<'_> {
    fn related_pods(&self) -> Vec<Arc<Pod>> {
        let Some(owner) = &self.rs.controller else {
            return Vec::new();
        };
        let controller = self.controller;
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
