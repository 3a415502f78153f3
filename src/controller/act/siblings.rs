//! The related pods of a ReplicaSet.

use std::collections::HashSet;
use std::sync::Arc;

use crate::api::{OwnerKey, Pod, ReplicaSet, Selector, Uid};
use crate::controller::ReplicaSetController;
use crate::controller::decide::plan::RelatedPods;

impl ReplicaSetController {
    /// Finds the related pods of `rs` when they are asked for.
    pub(in crate::controller) fn siblings<'a>(
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
}

/// The pods of all ReplicaSets that share this one's controller, such as the old and the new one of
/// a Deployment (kubernetes `pkg/controller/replicaset/replica_set.go:getIndirectlyRelatedPods`).
///
/// DIFFERS: upstream takes every pod of the namespace that a selector matches. Here pods that belong to
/// somebody else do not count, so that the look-up costs no more than the pods it finds. A ReplicaSet
/// without a controller has no related pods; upstream logs an error about that, we do not.
#[derive(Debug)]
pub(in crate::controller) struct Siblings<'a> {
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
