//! The preferences of `scale-down-order`: which pods of one class go first. Pure.
//!
//! A class is a run of pods that upstream's order does not tell apart by assignment, phase,
//! readiness or deletion cost. Classes go in upstream's order. Only in the class of which some pods
//! go and some stay, a preference decides which; what it leaves equal, upstream's order decides. So
//! the choice depends on nothing but its input.
//!
//! | preferences | choice |
//! |---|---|
//! | `spread` | one pod at a time, from the domain with most pods, counted anew each time |
//! | `consolidate` | nodes that can be emptied, smallest first; then from nodes with fewest pods |
//! | `spread,consolidate` | `spread` says how many of each domain, `consolidate` says which |
//! | `consolidate,spread` | as `consolidate`; among equal nodes, from the domain with most pods |
//!
//! The cost is O(n log n) for n pods, besides the count of pods per node.

mod consolidate;
mod places;
mod spread;
mod surroundings;
mod topology;

use std::sync::Arc;

pub use self::consolidate::NodePods;
pub use self::places::Places;
use self::surroundings::Surroundings;
pub use self::topology::Topology;
use super::deletion_context::DeletionContext;
use super::deletion_order::{DeletionOrder, RankedPod, decide};
use crate::api::Pod;
use crate::api::policy::{Preference, ScaleDownOrder};

/// A pod in deletion order.
#[derive(Clone, Debug)]
pub struct PreferredPod {
    /// The pod, and how crowded its node is.
    pub ranked: RankedPod,
    /// Why a preference chose it; `None` if upstream's order alone did.
    pub because: Option<Because>,
}

/// Why a preference chose a pod. All counts are of the moment before this pod was chosen, and
/// without the pods chosen before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Because {
    /// The preference with precedence.
    pub preference: Preference,
    /// Active pods of the ReplicaSet in the pod's domain, if `spread` applied.
    pub in_domain: Option<usize>,
    /// The state of the pod's node, if `consolidate` applied.
    pub on_node: Option<NodePods>,
}

/// A pod of the class, as the preferences see it. Its position in upstream's order is its index.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    node: usize,
    domain: usize,
}

/// A choice: the index of a candidate, and why.
type Chosen = (usize, Because);

/// Reorders pods in upstream's order so that the first `count` are the ones to delete. `pods` are
/// the active pods of the ReplicaSet, and `gone` those of them that go before any of `sorted`.
pub fn prefer(
    sorted: Vec<RankedPod>,
    count: usize,
    (pods, gone): (&[Arc<Pod>], &[Arc<Pod>]),
    context: &DeletionContext<'_>,
) -> Vec<PreferredPod> {
    let class = match count.checked_sub(1).and_then(|last| sorted.get(last)) {
        Some(last) => class_of(&sorted, last, context.order),
        None => 0..0,
    };
    let is_cut = class.contains(&count);
    if !is_cut || context.preferences.order.is_upstreams() {
        return sorted.into_iter().map(PreferredPod::by_upstream).collect();
    }
    let mut surroundings = Surroundings::of(pods, context);
    let before = sorted.iter().take(class.start).map(|it| &it.pod);
    for pod in gone.iter().chain(before) {
        surroundings.remove(pod);
    }
    let chosen = surroundings.choose(&sorted[class.clone()], count - class.start);
    reordered(sorted, class.start, &chosen)
}

/// Reorders all pods as if each class were chosen one pod after the other, up to its last: the
/// order that `explain` shows while no scale-down is due.
pub fn prefer_throughout(
    sorted: Vec<RankedPod>,
    pods: &[Arc<Pod>],
    context: &DeletionContext<'_>,
) -> Vec<PreferredPod> {
    if context.preferences.order.is_upstreams() {
        return sorted.into_iter().map(PreferredPod::by_upstream).collect();
    }
    let mut surroundings = Surroundings::of(pods, context);
    let mut ordered = Vec::with_capacity(sorted.len());
    let is_one_class = |a: &RankedPod, b: &RankedPod| is_one_class(a, b, context.order);
    for class in sorted.chunk_by(is_one_class) {
        let chosen = surroundings.choose(class, class.len());
        for gone in class {
            surroundings.remove(&gone.pod);
        }
        ordered.extend(reordered(class.to_vec(), 0, &chosen));
    }
    ordered
}

/// True if the pods are of one class.
pub fn is_one_class(a: &RankedPod, b: &RankedPod, order: DeletionOrder) -> bool {
    decide(a, b, order).is_none_or(|(rule, _)| !rule.separates_classes())
}

/// The positions of the pods in the class of `member`.
fn class_of(
    sorted: &[RankedPod],
    member: &RankedPod,
    order: DeletionOrder,
) -> std::ops::Range<usize> {
    let is_in = |other: &RankedPod| is_one_class(other, member, order);
    let start = sorted.iter().take_while(|it| !is_in(it)).count();
    let n = sorted[start..].iter().take_while(|it| is_in(it)).count();
    start..start + n
}

/// Moves the chosen pods of the class that begins at `start` to its front.
fn reordered(sorted: Vec<RankedPod>, start: usize, chosen: &[Chosen]) -> Vec<PreferredPod> {
    let mut pods: Vec<Option<RankedPod>> = sorted.into_iter().map(Some).collect();
    let mut ordered: Vec<PreferredPod> = Vec::with_capacity(pods.len());
    let before = pods.iter_mut().take(start).filter_map(Option::take);
    ordered.extend(before.map(PreferredPod::by_upstream));
    for (at, because) in chosen {
        ordered.extend(pods[start + at].take().map(|ranked| PreferredPod {
            ranked,
            because: Some(*because),
        }));
    }
    ordered.extend(pods.into_iter().flatten().map(PreferredPod::by_upstream));
    ordered
}

impl PreferredPod {
    fn by_upstream(ranked: RankedPod) -> Self {
        Self {
            ranked,
            because: None,
        }
    }
}

/// Chooses `count` candidates. `in_domain` are the ReplicaSet's pods in each domain, and `on_node`
/// the active pods on each node, of all owners.
fn choose(
    candidates: &[Candidate],
    count: usize,
    order: ScaleDownOrder,
    in_domain: &[usize],
    on_node: &[usize],
) -> Vec<Chosen> {
    let mut preferences = order.preferences();
    let (first, second) = (preferences.next(), preferences.next());
    let all: Vec<usize> = (0..candidates.len()).collect();
    match (first, second) {
        (Some(Preference::Spread), None) => spread::choose(candidates, count, in_domain),
        (Some(Preference::Spread), Some(_)) => both(candidates, count, in_domain, on_node),
        (Some(Preference::Consolidate), second) => {
            let in_domain = second.map(|_| in_domain);
            consolidate::choose(candidates, &all, count, in_domain, on_node)
        }
        (None, _) => Vec::new(),
    }
}

/// `spread,consolidate`: replaces each choice of `spread` by the domain's next choice of
/// `consolidate`.
fn both(
    candidates: &[Candidate],
    count: usize,
    in_domain: &[usize],
    on_node: &[usize],
) -> Vec<Chosen> {
    let spread = spread::choose(candidates, count, in_domain);
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); in_domain.len()];
    for (at, candidate) in candidates.iter().enumerate() {
        members[candidate.domain].push(at);
    }
    let mut quotas = vec![0; in_domain.len()];
    for (at, _) in &spread {
        quotas[candidates[*at].domain] += 1;
    }
    let choose = |(members, quota): (&Vec<usize>, &usize)| {
        consolidate::choose(candidates, members, *quota, None, on_node).into_iter()
    };
    let mut by_domain: Vec<_> = members.iter().zip(&quotas).map(choose).collect();
    let replaced = spread.into_iter().filter_map(|(at, because)| {
        let (instead, consolidated) = by_domain[candidates[at].domain].next()?;
        let on_node = consolidated.on_node;
        Some((instead, Because { on_node, ..because }))
    });
    replaced.collect()
}

#[cfg(test)]
mod tests;
