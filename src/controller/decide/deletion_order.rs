//! The choice of surplus pods to delete, and its order: upstream's nine criteria (kubernetes
//! `pkg/controller/controller_utils.go:ActivePodsWithRanks`), preceded by the pods' scale-down
//! marks if the ReplicaSet has opted in to protection.
//!
//! The order is **not** a strict weak order: pods with about the same ready time compare by UID,
//! while pods with exactly the same ready time compare by restarts, so cycles exist. The sort must
//! therefore neither panic nor loop for any comparison, as [`merge_sort`].

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::Timestamp;

use super::optional::{Marks, prefer};
use crate::api::policy::ScaleDownOrder;
use crate::api::{ArcStr, CompactTimestamp, Pod, PodPhase, ReplicaSet, Uid};
use crate::stdx::{HashMap, merge_sort};

#[derive(Debug)]
pub struct DeletionContext<'a> {
    /// Finds the pods of all ReplicaSets with the same controller, including this one; none if the
    /// ReplicaSet has no controller. Called only if the choice sorts pods.
    pub related_pods: &'a dyn RelatedPods,
    /// Pods whose deletion may have happened already. The choice takes them first, in this order.
    pub unresolved: &'a [Uid],
    pub order: DeletionOrder,
    pub preferences: ScaleDownOrder,
    pub rs: &'a ReplicaSet,
}

/// Finds the pods that determine how crowded a node is.
pub trait RelatedPods: std::fmt::Debug {
    fn related_pods(&self) -> Vec<Arc<Pod>>;

    /// Counts the active pods of all owners on each node, except those that
    /// [belong to the node](Pod::belongs_to_node). Called only if the choice consolidates.
    fn active_pods_per_node(&self) -> NodeCounts;
}

pub type NodeCounts = HashMap<ArcStr, usize>;

/// Counts `pod` on its node, if it keeps the node from being empty.
pub fn count_on_node(pod: &Pod, counts: &mut NodeCounts) {
    let Some(node) = &pod.node else { return };
    if !pod.is_active() || pod.belongs_to_node() {
        return;
    }
    // The name is cloned only once for each node.
    match counts.get_mut(node) {
        Some(count) => *count += 1,
        None => drop(counts.insert(node.clone(), 1)),
    }
}

/// Chooses `count` of `pods`, in deletion order; never more than may be chosen
/// ([`Effects::n_kept`](super::optional::Effects::n_kept)). If `count` covers all pods, they keep
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
    // Do not repeat the delete of a pod that has been protected since: the earlier delete named the
    // version before the annotation and therefore failed, unless it was sent before protection was
    // switched on.
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
        let preferred = prefer(&sorted, Some(more), (pods, &chosen), context);
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

#[derive(Clone, Debug)]
pub struct RankedPod {
    pub pod: Arc<Pod>,
    /// Number of active related pods on the pod's node.
    pub rank: usize,
}

#[derive(Clone, Copy, Debug)]
pub struct DeletionOrder {
    pub now: Timestamp,
    pub uses_deletion_cost: bool,
    pub marks: Marks,
}

pub fn sort_for_deletion(pods: Vec<RankedPod>, order: DeletionOrder) -> Vec<RankedPod> {
    merge_sort(pods, &|a, b| compare(a, b, order) == Ordering::Greater)
}

/// One of the criteria, named for `explain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Marked `first` before unmarked before marked `never`. Upstream has no such criterion.
    Mark,
    /// Not assigned to a node before assigned.
    Unassigned,
    /// Pending before Unknown before Running.
    Phase,
    /// Not ready before ready.
    NotReady,
    /// The lower deletion cost first.
    DeletionCost,
    /// On the node with more related pods first.
    CrowdedNode,
    /// Ready for a shorter time first.
    ReadyTime,
    /// More restarts first.
    Restarts,
    /// More restarts of sidecars first.
    SidecarRestarts,
    /// The younger pod first.
    Age,
}

impl Rule {
    /// In their order, with their names in machine-readable output.
    const ALL: [(Self, &str); 10] = [
        (Self::Mark, "scale-down"),
        (Self::Unassigned, "unassigned"),
        (Self::Phase, "phase"),
        (Self::NotReady, "not-ready"),
        (Self::DeletionCost, "deletion-cost"),
        (Self::CrowdedNode, "crowded-node"),
        (Self::ReadyTime, "ready-time"),
        (Self::Restarts, "restarts"),
        (Self::SidecarRestarts, "sidecar-restarts"),
        (Self::Age, "age"),
    ];

    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// True for the criteria that compare state or the user's deletion cost. `scale-down-order`
    /// overrides the others only.
    pub fn precedes_preferences(self) -> bool {
        matches!(
            self,
            Self::Mark | Self::Unassigned | Self::Phase | Self::NotReady | Self::DeletionCost
        )
    }

    /// `Less` means that this criterion puts `a` before `b`.
    fn compare(self, a: &RankedPod, b: &RankedPod, order: DeletionOrder) -> Ordering {
        let now = order.now;
        let (rank_a, rank_b) = (a.rank, b.rank);
        let (a, b) = (&*a.pod, &*b.pod);
        match self {
            Self::Mark => order.marks.place_of(a).cmp(&order.marks.place_of(b)),
            Self::Unassigned => a.node.is_some().cmp(&b.node.is_some()),
            Self::Phase => phase_order(a.phase).cmp(&phase_order(b.phase)),
            Self::NotReady => a.is_ready.cmp(&b.is_ready),
            Self::DeletionCost if !order.uses_deletion_cost => Ordering::Equal,
            Self::DeletionCost => a.deletion_cost.cmp(&b.deletion_cost),
            // Upstream also reverses this comparison: the higher rank is deleted first.
            Self::CrowdedNode => rank_b.cmp(&rank_a),
            Self::ReadyTime => by_ready_time(a, b, now),
            Self::Restarts => b.restarts.cmp(&a.restarts),
            Self::SidecarRestarts => b.sidecar_restarts.cmp(&a.sidecar_restarts),
            Self::Age => by_age((a, a.creation), (b, b.creation), now),
        }
    }
}

/// `Less` means that `a` is deleted before `b`. The first criterion that differs decides.
pub fn compare(a: &RankedPod, b: &RankedPod, order: DeletionOrder) -> Ordering {
    first_difference(a, b, order).map_or(Ordering::Equal, |(_, order)| order)
}

/// Returns the first criterion that differs, and its result; `None` if all are equal.
pub fn first_difference(
    a: &RankedPod,
    b: &RankedPod,
    order: DeletionOrder,
) -> Option<(Rule, Ordering)> {
    let rules = Rule::ALL.into_iter();
    let mut decided = rules.map(|(rule, _)| (rule, rule.compare(a, b, order)));
    decided.find(|(_, order)| order.is_ne())
}

fn phase_order(phase: PodPhase) -> u8 {
    match phase {
        PodPhase::Unknown => 1,
        PodPhase::Running => 2,
        // Upstream uses a map, where every unlisted phase gets 0, as Pending does.
        _ => 0,
    }
}

fn by_ready_time(a: &Pod, b: &Pod, now: Timestamp) -> Ordering {
    if a.is_ready && b.is_ready {
        by_age((a, a.ready_transition), (b, b.ready_transition), now)
    } else {
        Ordering::Equal
    }
}

/// Compares ages on a logarithmic scale, younger first. Old pods of about the same age fall into
/// one bucket, where the UID decides, which makes the choice random. An unset time counts as
/// youngest.
fn by_age(
    (a, time_a): (&Pod, Option<CompactTimestamp>),
    (b, time_b): (&Pod, Option<CompactTimestamp>),
    now: Timestamp,
) -> Ordering {
    match (time_a, time_b) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(time_a), Some(time_b)) if time_a == time_b => Ordering::Equal,
        (Some(time_a), Some(time_b)) => {
            let buckets = log_bucket(time_a, now).cmp(&log_bucket(time_b, now));
            buckets.then_with(|| a.uid.cmp(&b.uid))
        }
    }
}

/// Returns the binary logarithm of the age in nanoseconds; −1 for a time in the future.
fn log_bucket(time: CompactTimestamp, now: Timestamp) -> i64 {
    let age = time.age(now).as_nanos();
    match u128::try_from(age) {
        Ok(age) if age > 0 => i64::from(age.ilog2()),
        _ => -1,
    }
}

/// Measures how well the order prefers young pods. Returns one ratio for each Ready pod among
/// `chosen`: its age divided by the age of the youngest Ready pod of `all`. As upstream's, this is
/// an integer division of milliseconds (kubernetes
/// `pkg/controller/replicaset/replica_set.go:reportSortingDeletionAgeRatioMetric`).
///
/// DIFFERS: upstream panics if the youngest pod is less than a millisecond old. Such a choice says
/// nothing about ages, so this returns no ratio.
pub fn age_ratios(all: &[Arc<Pod>], chosen: &[Arc<Pod>], now: Timestamp) -> Vec<f64> {
    let age = |pod: &Arc<Pod>| {
        let creation = pod.creation.filter(|_| pod.is_ready)?;
        i64::try_from(creation.age(now).as_millis()).ok()
    };
    let Some(youngest) = all.iter().filter_map(age).min() else {
        return Vec::new();
    };
    let ages = chosen.iter().filter_map(age);
    let ratios = ages.filter_map(|age| age.checked_div(youngest));
    #[expect(
        clippy::cast_precision_loss,
        reason = "no pod is 2^53 times as old as another one"
    )]
    ratios.map(|ratio| ratio as f64).collect()
}

#[cfg(test)]
mod tests;
