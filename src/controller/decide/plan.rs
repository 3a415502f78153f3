//! Plans creates and deletes: pure arithmetic over a snapshot.

use std::cmp::Ordering;
use std::sync::Arc;

use super::deletion_context::DeletionContext;
use super::deletion_order::{RankedPod, sort_for_deletion};
use super::optional::prefer;
use crate::api::{Pod, Uid};
use crate::stdx::hash::HashMap;

pub use crate::batches::LARGE;

/// Maximum pods created or deleted per sync (kubernetes
/// `pkg/controller/replicaset/replica_set.go:BurstReplicas`).
pub const BURST_REPLICAS: usize = 500;

/// The creates or deletes of one sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plan {
    /// The number of pods is right.
    #[default]
    Nothing,
    /// Create this many pods.
    Create(usize),
    /// Delete this many pods.
    Delete(usize),
}

impl Plan {
    /// Number of pods created or deleted.
    pub fn n_pods(self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Create(count) | Self::Delete(count) => count,
        }
    }

    /// The plan with at most this many creates.
    #[must_use]
    pub fn limited_by(self, n_creates_max: Option<usize>) -> Self {
        match (self, n_creates_max) {
            (Self::Create(_), Some(0)) => Self::Nothing,
            (Self::Create(count), Some(max)) => Self::Create(count.min(max)),
            (plan, _) => plan,
        }
    }
}

/// Compares the number of active pods with `replicas`. The plan never exceeds `burst` pods.
pub fn plan(active: usize, replicas: i32, burst: usize) -> Plan {
    let wanted = usize::try_from(replicas).unwrap_or(0);
    match active.cmp(&wanted) {
        Ordering::Less => Plan::Create((wanted - active).min(burst)),
        Ordering::Greater => Plan::Delete((active - wanted).min(burst)),
        Ordering::Equal => Plan::Nothing,
    }
}

/// Chooses `count` of `pods`, in deletion order; never more than may be chosen
/// ([`OptIns::n_kept`](super::optional::OptIns::n_kept)). If `count` covers all pods, they keep
/// their order without a sort (kubernetes
/// `pkg/controller/replicaset/replica_set.go:getPodsToDelete`).
pub fn pods_to_delete(
    pods: &[Arc<Pod>],
    count: usize,
    context: &DeletionContext<'_>,
) -> Vec<Arc<Pod>> {
    if count >= pods.len() {
        return pods.to_vec();
    }
    // A protected pod is not even deleted again. Its delete was on condition of a version that the
    // mark has ended, unless it was sent before protection was switched on.
    let is_unresolved = |pod: &Pod, uid: &Uid| *uid == pod.uid && !context.order.marks.spare(pod);
    let rank = |pod: &Arc<Pod>| {
        let mut unresolved = context.unresolved.iter();
        unresolved.position(|uid| is_unresolved(pod, uid))
    };
    let (mut chosen, rest): (Vec<_>, Vec<_>) =
        pods.iter().cloned().partition(|pod| rank(pod).is_some());
    // A delete of unknown outcome is repeated on the same pod, so that it costs no second pod.
    chosen.sort_by_cached_key(rank);
    chosen.truncate(count);
    let more = count - chosen.len();
    if more > 0 {
        let sorted = deletion_ranking(&rest, context);
        let preferred = prefer(sorted, more, (pods, &chosen), context);
        chosen.extend(preferred.into_iter().take(more).map(|it| it.ranked.pod));
    }
    chosen
}

/// Ranks all of `pods` and sorts them into deletion order. Unresolved deletes do not affect it.
pub fn deletion_ranking(pods: &[Arc<Pod>], context: &DeletionContext<'_>) -> Vec<RankedPod> {
    let related = context.related_pods.related_pods();
    sort_for_deletion(rank_by_node(pods, &related), context.order)
}

/// Ranks each pod by the number of active related pods on its node
/// (kubernetes `pkg/controller/replicaset/replica_set.go:getPodsRankedByRelatedPodsOnSameNode`).
fn rank_by_node(pods: &[Arc<Pod>], related: &[Arc<Pod>]) -> Vec<RankedPod> {
    let mut on_node: HashMap<Option<&str>, usize> = HashMap::default();
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
