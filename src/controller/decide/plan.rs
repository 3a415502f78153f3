//! What a sync does about the number of pods: pure arithmetic over a snapshot.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use super::deletion_order::{DeletionOrder, RankedPod, sort_for_deletion};
use crate::api::{Pod, Uid};

pub use crate::batches::LARGE;

/// The most pods that one sync creates or deletes
/// (kubernetes `pkg/controller/replicaset/replica_set.go:BurstReplicas`).
pub const BURST_REPLICAS: usize = 500;

/// What one sync does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// There are as many pods as wanted.
    Nothing,
    /// Create this many pods.
    Create(usize),
    /// Delete this many pods.
    Delete(usize),
}

impl Plan {
    /// How many pods it creates or deletes.
    pub fn n_pods(self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Create(count) | Self::Delete(count) => count,
        }
    }
}

/// Compares the active pods with what is wanted; never more than `burst` at once.
pub fn plan(active: usize, replicas: i32, burst: usize) -> Plan {
    let wanted = usize::try_from(replicas).unwrap_or(0);
    match active.cmp(&wanted) {
        Ordering::Less => Plan::Create((wanted - active).min(burst)),
        Ordering::Greater => Plan::Delete((active - wanted).min(burst)),
        Ordering::Equal => Plan::Nothing,
    }
}

/// What the choice of pods rests on, beside the pods themselves.
#[derive(Debug)]
pub struct DeletionContext<'a> {
    /// Pods of all ReplicaSets with the same controller, this one's included; none if the
    /// ReplicaSet has no controller. Asked only if pods have to be sorted.
    pub related_pods: &'a dyn RelatedPods,
    /// Pods whose deletion may already have happened: chosen before all others, in this order.
    pub unresolved: &'a [Uid],
    /// What the order of the others rests on.
    pub order: DeletionOrder,
}

/// Finds the pods that decide how crowded a node is.
pub trait RelatedPods: std::fmt::Debug {
    /// The pods of all ReplicaSets with the same controller.
    fn related_pods(&self) -> Vec<Arc<Pod>>;
}

/// Which `count` of `pods` to delete, first to be deleted first. If that is all of them, they stay in
/// their order and nothing is sorted
/// (kubernetes `pkg/controller/replicaset/replica_set.go:getPodsToDelete`).
pub fn pods_to_delete(
    pods: &[Arc<Pod>],
    count: usize,
    context: &DeletionContext<'_>,
) -> Vec<Arc<Pod>> {
    if count >= pods.len() {
        return pods.to_vec();
    }
    let rank = |pod: &Arc<Pod>| context.unresolved.iter().position(|uid| *uid == pod.uid);
    let (mut chosen, rest): (Vec<_>, Vec<_>) =
        pods.iter().cloned().partition(|pod| rank(pod).is_some());
    chosen.sort_by_cached_key(rank);
    chosen.truncate(count);
    let more = count - chosen.len();
    if more > 0 {
        let sorted = deletion_ranking(&rest, context);
        chosen.extend(sorted.into_iter().take(more).map(|ranked| ranked.pod));
    }
    chosen
}

/// All of `pods` with their ranks, the one to be deleted first in front; unresolved ones not moved.
pub fn deletion_ranking(pods: &[Arc<Pod>], context: &DeletionContext<'_>) -> Vec<RankedPod> {
    let related = context.related_pods.related_pods();
    sort_for_deletion(rank_by_node(pods, &related), context.order)
}

/// The rank of a pod is the number of active related pods on its node
/// (kubernetes `pkg/controller/replicaset/replica_set.go:getPodsRankedByRelatedPodsOnSameNode`).
fn rank_by_node(pods: &[Arc<Pod>], related: &[Arc<Pod>]) -> Vec<RankedPod> {
    let mut on_node: HashMap<Option<&str>, usize> = HashMap::new();
    for pod in related.iter().filter(|pod| pod.is_active()) {
        *on_node.entry(pod.node.as_deref()).or_default() += 1;
    }
    let ranked = |pod: &Arc<Pod>| RankedPod {
        pod: Arc::clone(pod),
        rank: on_node.get(&pod.node.as_deref()).copied().unwrap_or(0),
    };
    pods.iter().map(ranked).collect()
}

#[cfg(test)]
mod tests;
