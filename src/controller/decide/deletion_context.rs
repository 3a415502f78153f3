//! What the choice of pods to delete reads besides the pods.

use std::sync::Arc;

use super::deletion_order::DeletionOrder;
use crate::api::policy::ScaleDownOrder;
use crate::api::{Pod, ReplicaSet, Uid};
use crate::stdx::hash::HashMap;

/// The input of the choice of pods to delete, besides the pods.
#[derive(Debug)]
pub struct DeletionContext<'a> {
    /// Finds the pods of all ReplicaSets with the same controller, including this one; none if the
    /// ReplicaSet has no controller. Called only if the choice sorts pods.
    pub related_pods: &'a dyn RelatedPods,
    /// Pods whose deletion may have happened already. The choice takes them first, in this order.
    pub unresolved: &'a [Uid],
    /// The order of the other pods.
    pub order: DeletionOrder,
    /// The preferences among pods that `order` does not tell apart by state.
    pub preferences: Preferences<'a>,
}

/// Finds the pods that determine how crowded a node is.
pub trait RelatedPods: std::fmt::Debug {
    /// Returns the pods of all ReplicaSets with the same controller.
    fn related_pods(&self) -> Vec<Arc<Pod>>;

    /// Counts the active pods of all owners on each node, except those that
    /// [belong to the node](Pod::belongs_to_node). Called only if the choice consolidates.
    fn active_pods_per_node(&self) -> NodeCounts;
}

/// Number of pods on each node.
pub type NodeCounts = HashMap<Arc<str>, usize>;

/// Counts `pod` on its node, if it keeps the node from being empty.
pub fn count_on_node(pod: &Pod, counts: &mut NodeCounts) {
    let Some(node) = &pod.node else { return };
    if !pod.is_active() || pod.belongs_to_node() {
        return;
    }
    // The name is cloned only once for each node.
    match counts.get_mut(node) {
        Some(count) => *count += 1,
        None => drop(counts.insert(Arc::clone(node), 1)),
    }
}

/// What the preferences of a ReplicaSet read besides its pods.
#[derive(Clone, Copy, Debug)]
pub struct Preferences<'a> {
    /// The preferences.
    pub order: ScaleDownOrder,
    /// The ReplicaSet, whose template names the topology.
    pub rs: &'a ReplicaSet,
}
