//! `consolidate`: empties as many nodes as it can, and otherwise takes from the nodes with fewest
//! pods, node by node.
//!
//! All nodes that can be emptied count alike, so the smallest first, while they fit whole, are as
//! many as any choice of as many candidates empties.

use super::spread::{Lot, take};
use super::{Because, Candidate, Chosen};
use crate::api::policy::Preference;
use crate::stdx::hash::{HashMap, HashSet};

/// The node of a chosen pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodePods {
    /// The choice empties the node of this many pods.
    Emptied(usize),
    /// The node had this many active pods, of all owners, and some stay.
    Active(usize),
}

/// The candidates of one node.
#[derive(Clone, Debug)]
struct Node {
    pods: Vec<usize>,
    domain: usize,
    /// Active pods of all owners.
    n_active: usize,
}

/// What is chosen so far.
#[derive(Debug)]
struct Choice {
    chosen: Vec<Chosen>,
    is_chosen: HashSet<usize>,
    /// Active pods of the ReplicaSet in each domain; `None` if domains do not matter.
    in_domain: Option<Vec<usize>>,
}

/// Chooses `count` of those candidates whose indexes are in `members`. Among nodes with equally
/// many pods it takes from the domain with most pods, if `in_domain` is given.
pub(super) fn choose(
    candidates: &[Candidate],
    members: &[usize],
    count: usize,
    in_domain: Option<&[usize]>,
    on_node: &[usize],
) -> Vec<Chosen> {
    let mut choice = Choice {
        chosen: Vec::with_capacity(count),
        is_chosen: HashSet::default(),
        in_domain: in_domain.map(<[usize]>::to_vec),
    };
    let nodes = by_node(candidates, members, on_node);
    let (mut whole, mut others): (Vec<Node>, Vec<Node>) =
        nodes.into_iter().partition(Node::holds_no_other_pod);
    whole.sort_by_key(Node::len);
    for equal in whole.chunk_by(|a, b| a.len() == b.len()) {
        let len = equal[0].len();
        let n_fit = equal.len().min((count - choice.chosen.len()) / len);
        choice.take(equal, n_fit * len, NodePods::Emptied(len));
        let stays = |node: &&Node| !choice.is_chosen.contains(&node.pods[0]);
        others.extend(equal.iter().filter(stays).cloned());
    }
    others.sort_by_key(|node| node.n_active);
    for equal in others.chunk_by(|a, b| a.n_active == b.n_active) {
        let missing = count - choice.chosen.len();
        choice.take(equal, missing, NodePods::Active(equal[0].n_active));
    }
    choice.chosen
}

/// Groups the candidates by node, in the order of their first ones.
fn by_node(candidates: &[Candidate], members: &[usize], on_node: &[usize]) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    let mut at_node: HashMap<usize, usize> = HashMap::default();
    for at in members {
        let Candidate { node, domain } = candidates[*at];
        let number = *at_node.entry(node).or_insert_with(|| {
            nodes.push(Node {
                pods: Vec::new(),
                domain,
                n_active: on_node[node],
            });
            nodes.len() - 1
        });
        nodes[number].pods.push(*at);
    }
    nodes
}

impl Node {
    fn len(&self) -> usize {
        self.pods.len()
    }

    /// True if all active pods of the node are candidates. The count may be from a moment later, so
    /// it can be lower.
    fn holds_no_other_pod(&self) -> bool {
        self.n_active <= self.len()
    }
}

impl Choice {
    /// Chooses `count` candidates of these nodes, node by node.
    fn take(&mut self, nodes: &[Node], count: usize, on_node: NodePods) {
        if count == 0 {
            return;
        }
        let lot = |node: &Node| Lot {
            pods: node.pods.clone(),
            // Without domains, all nodes are in one.
            domain: self.in_domain.as_ref().map_or(0, |_| node.domain),
        };
        let lots = nodes.iter().map(lot).collect();
        let mut one = [0];
        let in_domain = self.in_domain.as_deref_mut().unwrap_or(&mut one);
        let taken = take(lots, count, in_domain);
        for (at, n) in taken {
            let because = Because {
                preference: Preference::Consolidate,
                in_domain: self.in_domain.as_ref().map(|_| n),
                on_node: Some(on_node),
            };
            self.is_chosen.insert(at);
            self.chosen.push((at, because));
        }
    }
}
