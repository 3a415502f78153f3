//! The preferences of `scale-down-order`: which pods of one class are deleted first. Pure.
//!
//! A class is a run of pods that upstream's order considers equal by assignment, phase, readiness
//! and deletion cost. A preference decides only within the class of which some pods are deleted and
//! some stay; pods that it considers equal are ordered as upstream does.
//!
//! | preferences | choice |
//! |---|---|
//! | `spread` | one pod at a time, from the domain with most pods, recounted after each |
//! | `consolidate` | nodes that can be emptied, smallest first; then from nodes with fewest pods |
//! | `spread,consolidate` | `spread` decides how many of each domain, `consolidate` which |
//! | `consolidate,spread` | as `consolidate`; among equal nodes, from the domain with most pods |
//!
//! The cost is O(n log n) for n pods, besides the count of pods per node.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use crate::api::Pod;
use crate::api::policy::{Preference, ScaleDownOrder};
use crate::controller::decide::deletion_order::{
    DeletionContext, DeletionOrder, NodeCounts, RankedPod, first_difference,
};
use crate::stdx::{HashMap, HashSet};

/// The topology of a template without constraints of its own. Kubernetes labels pods with the zone
/// of their node since 1.35; the controller may not read nodes.
const ZONE: &str = "topology.kubernetes.io/zone";

/// The topology in which each node is a domain.
const HOSTNAME: &str = "kubernetes.io/hostname";

#[derive(Clone, Debug)]
pub struct PreferredPod {
    pub ranked: RankedPod,
    /// Why a preference chose it; `None` if upstream's order alone did.
    pub because: Option<Because>,
}

/// Why a preference chose a pod. The counts are without the pods chosen before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Because {
    pub preference: Preference,
    /// Active pods of the ReplicaSet in the pod's domain, if `spread` applied.
    pub in_domain: Option<usize>,
    /// The state of the pod's node, if `consolidate` applied.
    pub on_node: Option<NodePods>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodePods {
    /// The choice empties the node of this many pods.
    Emptied(usize),
    /// The node had this many active pods, of all owners, and some stay.
    Active(usize),
}

/// The domains of `spread`.
#[derive(Clone, Debug)]
pub struct Topology {
    order: ScaleDownOrder,
    /// The label that names the domain; `None` if each node is one.
    pub label: Option<String>,
}

/// The counts without the pods that were chosen already.
#[derive(Debug)]
struct Surroundings<'a> {
    topology: Topology,
    /// The ReplicaSet's active pods.
    domains: HashMap<&'a str, usize>,
    /// Active pods of all owners. Stays empty unless a preference is `consolidate`.
    nodes: NodeCounts,
}

/// A pod of the class, as the preferences see it. Its position in upstream's order is its index.
#[derive(Clone, Copy, Debug)]
struct Candidate<'a> {
    node: &'a str,
    domain: &'a str,
}

/// The index of a candidate, and why it is chosen.
type Chosen = (usize, Because);

/// Candidates that are deleted together, by ascending index: all of one node, or one of any.
#[derive(Clone, Debug)]
struct Lot<'a> {
    pods: Vec<usize>,
    domain: &'a str,
    /// Active pods of all owners on the node.
    n_active: usize,
}

/// Reorders pods in upstream's order so that the first `count` are the ones to delete. `pods` are
/// the active pods of the ReplicaSet, and `gone` those of them that are deleted before any of
/// `sorted`. Without a count, each class is ordered as if it were chosen up to its last pod: the
/// order that `explain` shows while no scale-down is due.
pub fn prefer<'a>(
    sorted: &'a [RankedPod],
    count: Option<usize>,
    (pods, gone): (&'a [Arc<Pod>], &[Arc<Pod>]),
    context: &DeletionContext<'_>,
) -> Vec<PreferredPod> {
    let mut ordered: Vec<PreferredPod> = Vec::with_capacity(sorted.len());
    let mut surroundings: Option<Surroundings<'a>> = None;
    for class in sorted.chunk_by(|a, b| is_one_class(a, b, context.order)) {
        let n_chosen = count.map_or(class.len(), |count| count.saturating_sub(ordered.len()));
        let is_cut = (1..class.len()).contains(&n_chosen);
        let mut chosen = Vec::new();
        if !context.preferences.is_upstreams() && (is_cut || count.is_none()) {
            let surroundings = surroundings.get_or_insert_with(|| {
                let before = gone.iter().chain(ordered.iter().map(|it| &it.ranked.pod));
                Surroundings::of(pods, before, context)
            });
            chosen = surroundings.choose(class, n_chosen);
            for it in class {
                surroundings.remove(&it.pod);
            }
        }
        ordered.extend(reordered(class, &chosen));
    }
    ordered
}

pub fn is_one_class(a: &RankedPod, b: &RankedPod, order: DeletionOrder) -> bool {
    first_difference(a, b, order).is_none_or(|(rule, _)| !rule.precedes_preferences())
}

/// Moves the chosen pods of a class to its front.
fn reordered(class: &[RankedPod], chosen: &[Chosen]) -> impl Iterator<Item = PreferredPod> {
    let mut pods: Vec<Option<RankedPod>> = class.iter().cloned().map(Some).collect();
    let first = chosen.iter().map(|(at, because)| (*at, Some(*because)));
    let others = (0..class.len()).map(|at| (at, None));
    first.chain(others).filter_map(move |(at, because)| {
        let ranked = pods[at].take()?;
        Some(PreferredPod { ranked, because })
    })
}

impl Topology {
    /// The domain label is the topology key of the template's own constraint, else the zone's. Each
    /// node is a domain if no pod has that label.
    pub fn of(pods: &[Arc<Pod>], context: &DeletionContext<'_>) -> Self {
        let (order, rs) = (context.preferences, context.rs);
        let key = || rs.topology_key().unwrap_or_else(|| ZONE.to_owned());
        let label = order.includes(Preference::Spread).then(key);
        let is_carried = |key: &String| pods.iter().any(|pod| pod.labels.get(key).is_some());
        Self {
            order,
            label: label.filter(|key| key != HOSTNAME && is_carried(key)),
        }
    }

    /// Empty for a pod without that label.
    fn domain<'a>(&self, pod: &'a Pod) -> &'a str {
        let domain = match &self.label {
            Some(key) => pod.labels.get(key),
            None => pod.node.as_deref(),
        };
        domain.unwrap_or_default()
    }
}

impl<'a> Surroundings<'a> {
    /// Counts the active pods without `gone`, and for `consolidate` those of all owners.
    fn of<'b>(
        pods: &'a [Arc<Pod>],
        gone: impl Iterator<Item = &'b Arc<Pod>>,
        context: &DeletionContext<'_>,
    ) -> Self {
        let mut surroundings = Self {
            topology: Topology::of(pods, context),
            domains: HashMap::default(),
            nodes: NodeCounts::default(),
        };
        for pod in pods {
            let domain = surroundings.topology.domain(pod);
            *surroundings.domains.entry(domain).or_default() += 1;
        }
        if context.preferences.includes(Preference::Consolidate) {
            surroundings.nodes = context.related_pods.active_pods_per_node();
        }
        for pod in gone {
            surroundings.remove(pod);
        }
        surroundings
    }

    fn remove(&mut self, pod: &Pod) {
        let in_domain = self.domains.get_mut(self.topology.domain(pod));
        let on_node = pod.node.as_ref().and_then(|it| self.nodes.get_mut(it));
        for count in [in_domain, on_node].into_iter().flatten() {
            *count = count.saturating_sub(1);
        }
    }

    /// Chooses `count` pods of a class. Returns none if a pod has no node: no preference applies.
    fn choose(&self, class: &'a [RankedPod], count: usize) -> Vec<Chosen> {
        let candidate = |ranked: &'a RankedPod| {
            Some(Candidate {
                node: ranked.pod.node.as_deref()?,
                domain: self.topology.domain(&ranked.pod),
            })
        };
        let candidates: Option<Vec<_>> = class.iter().map(candidate).collect();
        let candidates = candidates.unwrap_or_default();
        let order = self.topology.order;
        choose(&candidates, count, order, &self.domains, &self.nodes)
    }
}

/// Chooses `count` candidates. `in_domain` are the ReplicaSet's pods in each domain, and `on_node`
/// the active pods on each node, of all owners.
fn choose<'a>(
    candidates: &[Candidate<'a>],
    count: usize,
    order: ScaleDownOrder,
    in_domain: &HashMap<&'a str, usize>,
    on_node: &NodeCounts,
) -> Vec<Chosen> {
    let mut preferences = order.preferences();
    match (preferences.next(), preferences.next()) {
        (Some(Preference::Spread), None) => spread(candidates, count, in_domain),
        (Some(Preference::Spread), Some(_)) => both(candidates, count, in_domain, on_node),
        (Some(Preference::Consolidate), second) => {
            let all: Vec<usize> = (0..candidates.len()).collect();
            let in_domain = second.map(|_| in_domain);
            consolidate(candidates, &all, count, in_domain, on_node)
        }
        (None, _) => Vec::new(),
    }
}

/// `spread`: takes from the domain with most pods, and recounts after each. No other choice leaves
/// a lower maximum or a higher minimum.
fn spread<'a>(
    candidates: &[Candidate<'a>],
    count: usize,
    in_domain: &HashMap<&'a str, usize>,
) -> Vec<Chosen> {
    let lots = candidates.iter().enumerate().map(|(at, candidate)| Lot {
        pods: vec![at],
        domain: candidate.domain,
        n_active: 1,
    });
    let because = |in_domain| Because {
        preference: Preference::Spread,
        in_domain: Some(in_domain),
        on_node: None,
    };
    let taken = take(lots.collect(), count, &mut in_domain.clone());
    taken.into_iter().map(|(at, n)| (at, because(n))).collect()
}

/// Takes lots until there are `count` candidates, each of the domain with most pods, and otherwise
/// with the lowest index. Returns each candidate with the number of pods that its domain had, and
/// subtracts those taken from `in_domain`.
fn take<'a>(
    mut lots: Vec<Lot<'a>>,
    count: usize,
    in_domain: &mut HashMap<&'a str, usize>,
) -> Vec<(usize, usize)> {
    lots.sort_by_key(|lot| lot.pods.first().copied());
    let mut queues: HashMap<&str, VecDeque<Vec<usize>>> = HashMap::default();
    for lot in lots {
        queues.entry(lot.domain).or_default().push_back(lot.pods);
    }
    let head = |domain: &'a str, queue: &VecDeque<Vec<usize>>, in_domain: &HashMap<_, usize>| {
        let n = in_domain.get(domain).copied().unwrap_or_default();
        Some((n, Reverse(*queue.front()?.first()?), domain))
    };
    let heads = queues.iter();
    let heads = heads.filter_map(|(domain, queue)| head(domain, queue, in_domain));
    let mut heads: BinaryHeap<_> = heads.collect();
    let mut taken = Vec::with_capacity(count);
    while taken.len() < count {
        let Some((_, _, domain)) = heads.pop() else {
            break;
        };
        let queue = queues.entry(domain).or_default();
        let n = in_domain.entry(domain).or_default();
        let pods = queue.pop_front().into_iter().flatten();
        for pod in pods.take(count - taken.len()) {
            taken.push((pod, *n));
            *n = n.saturating_sub(1);
        }
        heads.extend(head(domain, queue, in_domain));
    }
    taken
}

/// `consolidate`: chooses `count` of `members`. It empties as many nodes as any choice can, the
/// smallest first, and otherwise takes from the nodes with fewest pods, node by node. Among nodes
/// with equally many pods it takes from the domain with most pods, if `in_domain` is given.
fn consolidate<'a>(
    candidates: &[Candidate<'a>],
    members: &[usize],
    count: usize,
    in_domain: Option<&HashMap<&'a str, usize>>,
    on_node: &NodeCounts,
) -> Vec<Chosen> {
    let has_domains = in_domain.is_some();
    let mut in_domain = in_domain.cloned().unwrap_or_default();
    let mut nodes: HashMap<&str, Lot<'_>> = HashMap::default();
    for at in members {
        let Candidate { node, domain } = candidates[*at];
        let lot = nodes.entry(node).or_insert_with(|| Lot {
            pods: Vec::new(),
            domain: if has_domains { domain } else { "" }, // All in one.
            n_active: on_node.get(node).copied().unwrap_or_default(),
        });
        lot.pods.push(*at);
    }
    let mut chosen: Vec<Chosen> = Vec::with_capacity(count);
    let mut take = |chosen: &mut Vec<Chosen>, lots: &[Lot<'a>], count, on_node| {
        let taken = take(lots.to_vec(), count, &mut in_domain);
        chosen.extend(taken.into_iter().map(|(at, in_domain)| {
            let because = Because {
                preference: Preference::Consolidate,
                in_domain: has_domains.then_some(in_domain),
                on_node: Some(on_node),
            };
            (at, because)
        }));
    };
    // The node's count may be newer than the class, and so lower than the class's own pods.
    let holds_no_other_pod = |lot: &Lot<'_>| lot.n_active <= lot.pods.len();
    let lots = nodes.into_values();
    let (mut whole, mut others): (Vec<_>, Vec<_>) = lots.partition(holds_no_other_pod);
    whole.sort_by_key(|lot| lot.pods.len());
    for equal in whole.chunk_by(|a, b| a.pods.len() == b.pods.len()) {
        let len = equal[0].pods.len();
        let n_fit = equal.len().min((count - chosen.len()) / len);
        take(&mut chosen, equal, n_fit * len, NodePods::Emptied(len));
        let gone: HashSet<usize> = chosen.iter().map(|(at, _)| *at).collect();
        let stays = |lot: &&Lot<'_>| !gone.contains(&lot.pods[0]);
        others.extend(equal.iter().filter(stays).cloned());
    }
    others.sort_by_key(|lot| lot.n_active);
    for equal in others.chunk_by(|a, b| a.n_active == b.n_active) {
        let (missing, on_node) = (count - chosen.len(), NodePods::Active(equal[0].n_active));
        take(&mut chosen, equal, missing, on_node);
    }
    chosen
}

/// `spread,consolidate`: replaces each choice of `spread` by the domain's next choice of
/// `consolidate`.
fn both<'a>(
    candidates: &[Candidate<'a>],
    count: usize,
    in_domain: &HashMap<&'a str, usize>,
    on_node: &NodeCounts,
) -> Vec<Chosen> {
    let spread = self::spread(candidates, count, in_domain);
    // Of each domain, its candidates and how many of them to choose.
    let mut domains: HashMap<&str, (Vec<usize>, usize)> = HashMap::default();
    for (at, candidate) in candidates.iter().enumerate() {
        domains.entry(candidate.domain).or_default().0.push(at);
    }
    for (at, _) in &spread {
        domains.entry(candidates[*at].domain).or_default().1 += 1;
    }
    let choose = |(domain, (members, count)): (_, (Vec<usize>, usize))| {
        let chosen = consolidate(candidates, &members, count, None, on_node);
        (domain, chosen.into_iter())
    };
    let mut by_domain: HashMap<_, _> = domains.into_iter().map(choose).collect();
    let replace = |(at, because): Chosen| {
        let chosen = by_domain.get_mut(candidates[at].domain)?;
        let (instead, Because { on_node, .. }) = chosen.next()?;
        Some((instead, Because { on_node, ..because }))
    };
    spread.into_iter().filter_map(replace).collect()
}

#[cfg(test)]
mod tests;
