//! The related pods of a ReplicaSet, for the deletion order.

use std::collections::HashSet;
use std::sync::Arc;

use crate::api::{OwnerKey, Pod, ReplicaSet, Selector, Uid};
use crate::controller::ReplicaSetController;
use crate::controller::decide::deletion_context::{NodeCounts, RelatedPods, count_on_node};

impl ReplicaSetController {
    /// Returns a finder of the related pods of `rs`. It reads the cache only when called.
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
/// DIFFERS: upstream takes every pod of the namespace that a selector matches. Here pods of other
/// controllers do not count, so the cost follows the pods found. A ReplicaSet without a controller
/// has no related pods; upstream logs an error in that case, this controller does not.
#[derive(Debug)]
pub(in crate::controller) struct Siblings<'a> {
    controller: &'a ReplicaSetController,
    rs: &'a ReplicaSet,
    selector: &'a Selector,
}

impl RelatedPods for Siblings<'_> {
    fn related_pods(&self) -> Vec<Arc<Pod>> {
        let controller = self.controller;
        // Upstream's index of siblings holds no ReplicationControllers, so their ranks are all 0.
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

    fn active_pods_per_node(&self) -> NodeCounts {
        let mut counts = NodeCounts::default();
        let count = &mut |pod: &Pod| count_on_node(pod, &mut counts);
        self.controller.cache.visit_pods(count);
        counts
    }
}

#[cfg(test)]
mod tests;
