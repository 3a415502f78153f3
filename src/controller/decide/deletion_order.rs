//! The deletion order of surplus pods: upstream's nine criteria (kubernetes
//! `pkg/controller/controller_utils.go:ActivePodsWithRanks`), and the marks of pods before them
//! where the ReplicaSet opts in to protection.
//!
//! The order is **not** a strict weak order: pods with about the same ready time compare by UID,
//! while pods with exactly the same ready time compare by restarts, so cycles exist. The sort must
//! therefore neither panic nor loop for any comparison. This module has its own merge sort, because
//! the standard library's sort may panic.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::Timestamp;

use super::optional::Marks;
use crate::api::{CompactTimestamp, Pod, PodPhase};

/// A pod and how crowded its node is.
#[derive(Clone, Debug)]
pub struct RankedPod {
    /// The pod.
    pub pod: Arc<Pod>,
    /// Number of active related pods on the pod's node.
    pub rank: usize,
}

/// The input of the order besides the pods.
#[derive(Clone, Copy, Debug)]
pub struct DeletionOrder {
    /// The time of day at which ages are measured.
    pub now: Timestamp,
    /// Whether [`Rule::DeletionCost`] applies.
    pub uses_deletion_cost: bool,
    /// What [`Rule::Mark`] compares.
    pub marks: Marks,
}

/// Sorts pods into deletion order.
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
    /// All criteria in their order of precedence.
    pub const ALL: [Self; 10] = [
        Self::Mark,
        Self::Unassigned,
        Self::Phase,
        Self::NotReady,
        Self::DeletionCost,
        Self::CrowdedNode,
        Self::ReadyTime,
        Self::Restarts,
        Self::SidecarRestarts,
        Self::Age,
    ];

    /// The name in machine-readable output, such as `deletion-cost`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mark => "scale-down",
            Self::Unassigned => "unassigned",
            Self::Phase => "phase",
            Self::NotReady => "not-ready",
            Self::DeletionCost => "deletion-cost",
            Self::CrowdedNode => "crowded-node",
            Self::ReadyTime => "ready-time",
            Self::Restarts => "restarts",
            Self::SidecarRestarts => "sidecar-restarts",
            Self::Age => "age",
        }
    }

    /// True for the criteria that separate pods by their state, and by the cost that somebody gave
    /// them. `scale-down-order` overrides the others only.
    pub fn separates_classes(self) -> bool {
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
            // Upstream also reverses this comparison: the higher rank goes first.
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
    decide(a, b, order).map_or(Ordering::Equal, |(_, order)| order)
}

/// Returns the first criterion that differs, and its result; `None` if all are equal.
pub fn decide(a: &RankedPod, b: &RankedPod, order: DeletionOrder) -> Option<(Rule, Ordering)> {
    let decided = Rule::ALL
        .iter()
        .map(|rule| (*rule, rule.compare(a, b, order)));
    decided.into_iter().find(|(_, order)| order.is_ne())
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

/// A merge sort; `is_after(a, b)` is true if `b` has to come before `a`.
fn merge_sort<T>(mut items: Vec<T>, is_after: &dyn Fn(&T, &T) -> bool) -> Vec<T> {
    if items.len() < 2 {
        return items;
    }
    let right = items.split_off(items.len() / 2);
    let len = items.len() + right.len();
    let mut left = merge_sort(items, is_after).into_iter().peekable();
    let mut right = merge_sort(right, is_after).into_iter().peekable();
    let mut merged = Vec::with_capacity(len);
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        let next = if is_after(a, b) {
            right.next()
        } else {
            left.next()
        };
        merged.extend(next);
    }
    merged.extend(left);
    merged.extend(right);
    merged
}

#[cfg(test)]
mod tests;
