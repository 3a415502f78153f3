//! What `scale-down-order` allows a delete, in exact words. Judged only where nothing is in doubt:
//! the sync could have read one state, in which the ReplicaSet's pods tie by every rule.

use std::collections::{BTreeMap, BTreeSet};

use super::cluster::ORDER;
use super::knowledge::Knowledge;
use super::objects::{Kind, Object, controller_of, is_active};
use super::oracles::{Candidate, Check, Rank};

/// The number of a ReplicaSet's pods to delete, and what is known of the nodes.
#[derive(Debug)]
struct ScaleDown<'a> {
    order: &'a str,
    /// How many pods the sync deletes.
    count: usize,
    nodes: BTreeMap<String, OnNode>,
}

/// The pods of one node when the sync began.
#[derive(Debug, Default)]
struct OnNode {
    /// Active pods of the ReplicaSet.
    owned: usize,
    /// Those of them that are deleted, with the one that is judged.
    deleted: usize,
    /// Active pods of other owners, and of none.
    others: usize,
}

impl Check<'_> {
    /// PROPERTY P36: For a ReplicaSet with preferences, where the sync could have read one state
    /// only and the pods tie by every rule, each delete is one that the preferences choose.
    pub(super) fn is_preferred(
        &self,
        known: &Knowledge,
        owner: &str,
        name: &str,
        candidates: &BTreeMap<String, Candidate>,
    ) -> Result<(), String> {
        let replicas: BTreeSet<i64> = self.replicas(&known.view, owner).collect();
        let ranks: BTreeSet<&Rank> = candidates.values().flat_map(|it| &it.ranks).collect();
        // A pod with other labels is released.
        let labels: BTreeSet<&String> = candidates.values().flat_map(|it| &it.labels).collect();
        let n_states = (replicas.len(), ranks.len(), labels.len());
        let is_certain = candidates.values().all(|it| it.is_always_active);
        let (Some(wanted), (1, 1, 1), true) = (replicas.first(), n_states, is_certain) else {
            return Ok(());
        };
        let surplus = candidates.len() - usize::try_from(*wanted).unwrap_or(0);
        let (Some(order), Some(mut nodes)) = (self.order(owner), self.nodes(known, owner)) else {
            return Ok(());
        };
        let mut judged = None;
        for (uid, candidate) in candidates {
            // A pod without a node has no place to prefer.
            let node = candidate.nodes.first().filter(|node| !node.is_empty());
            let Some(node) = node.filter(|_| candidate.nodes.len() == 1) else {
                return Ok(());
            };
            let on_node = nodes.entry(node.clone()).or_default();
            on_node.owned += 1;
            match known.deleted.get(uid) {
                // Whether this sync knew of the rejection is open.
                Some(deletes) if !deletes.may_count(candidate.newest) => return Ok(()),
                // Deletes that an earlier sync requested come before preferences.
                Some(deletes) if !deletes.are_of(self.since) => return Ok(()),
                deletes => on_node.deleted += usize::from(deletes.is_some()),
            }
            if candidate.name == name {
                judged = Some(node.clone());
            }
        }
        let scale_down = ScaleDown {
            order,
            count: surplus.min(self.burst_replicas),
            nodes,
        };
        match judged.and_then(|node| scale_down.wrong(&node)) {
            Some(wrong) => Err(format!("{name}: {wrong}")),
            None => Ok(()),
        }
    }

    /// The preferences of an owner, which no user changes.
    fn order(&self, owner: &str) -> Option<&str> {
        let mut sets = self.server.all(Kind::ReplicaSet);
        let rs = sets.find(|rs| rs.value["metadata"]["uid"] == *owner)?;
        rs.value["metadata"]["annotations"][ORDER].as_str()
    }

    /// The active pods of other owners on each node; `None` if the sync could have read several
    /// states of one.
    fn nodes(&self, known: &Knowledge, owner: &str) -> Option<BTreeMap<String, OnNode>> {
        let mut nodes: BTreeMap<String, OnNode> = BTreeMap::new();
        for name in known.view.names(Kind::Pod) {
            let versions = known.view.since(Kind::Pod, name, self.since);
            let is_others = |pod: &&Object| controller_of(&pod.value) != Some(owner);
            let state = |pod: Option<&Object>| {
                let pod = pod.filter(is_others)?;
                let node = pod.value["spec"]["nodeName"].as_str()?;
                is_active(&pod.value).then(|| node.to_owned())
            };
            let states: BTreeSet<Option<String>> = versions.into_iter().map(state).collect();
            if states.len() > 1 {
                return None;
            }
            if let Some(node) = states.into_iter().flatten().next() {
                nodes.entry(node).or_default().others += 1;
            }
        }
        Some(nodes)
    }
}

impl ScaleDown<'_> {
    /// What is wrong with the delete of a pod of this node.
    fn wrong(&self, node: &str) -> Option<String> {
        let deleted = self.nodes.get(node)?.deleted;
        let most = if self.order.starts_with("spread") {
            self.most_to_spread(node)
        } else {
            self.most_to_consolidate(node)
        };
        (deleted > most).then(|| {
            format!("{deleted} pods of {node} are deleted, {most} are the most by {self:?}")
        })
    }

    /// A pod is deleted only from a node with most pods: before its node may have fewer than
    /// others, they must have come down to as many.
    fn most_to_spread(&self, node: &str) -> usize {
        let owned = |node: &str| self.nodes.get(node).map_or(0, |it| it.owned);
        let fits = |n: &usize| {
            let before = owned(node) - n + 1;
            let others = self.nodes.keys().filter(|other| *other != node);
            let first: usize = others.map(|it| owned(it).saturating_sub(before)).sum();
            n + first <= self.count
        };
        (1..=owned(node)).take_while(fits).last().unwrap_or(0)
    }

    /// Nodes without other pods are emptied, the smallest first, while they fit. Only what then is
    /// missing comes from others, those with fewest pods first.
    fn most_to_consolidate(&self, node: &str) -> usize {
        let Some(own) = self.nodes.get(node) else {
            return 0;
        };
        let mut sizes: Vec<usize> = {
            let whole = self.nodes.values().filter(|it| it.others == 0);
            whole.map(|it| it.owned).filter(|n| *n > 0).collect()
        };
        sizes.sort_unstable();
        let smaller: usize = sizes.iter().filter(|n| **n < own.owned).sum();
        if own.others == 0 && smaller + own.owned <= self.count {
            return own.owned;
        }
        let (mut missing, mut n_whole) = (self.count, BTreeMap::new());
        for size in sizes {
            if size <= missing {
                missing -= size;
                *n_whole.entry(size).or_insert(0) += 1;
            }
        }
        // Of nodes of one size it does not matter which are emptied.
        let mut emptier = 0;
        for other in self.nodes.values() {
            let is_whole = other.others == 0 && n_whole.get(&other.owned).is_some_and(|n| *n > 0);
            if is_whole {
                n_whole.entry(other.owned).and_modify(|n| *n -= 1);
            } else if other.owned + other.others < own.owned + own.others {
                emptier += other.owned;
            }
        }
        own.owned.min(missing.saturating_sub(emptier))
    }
}
