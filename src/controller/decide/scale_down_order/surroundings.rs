//! The counts that the preferences read: the ReplicaSet's pods by domain, and all pods by node.

use std::sync::Arc;

use super::{Candidate, Chosen, DeletionContext, Places, RankedPod, choose};
use crate::api::Pod;
use crate::api::policy::Preference;
use crate::stdx::hash::HashMap;

/// The counts of one choice, without the pods that were chosen already.
#[derive(Debug)]
pub(super) struct Surroundings {
    places: Places,
    /// Active pods of the ReplicaSet.
    domains: Tally,
    /// Active pods of all owners. Stays empty unless a preference is `consolidate`.
    nodes: Tally,
}

/// Numbers names, and counts what has them. No name is the empty name.
#[derive(Debug, Default)]
struct Tally {
    numbers: HashMap<Arc<str>, usize>,
    counts: Vec<usize>,
}

impl Surroundings {
    /// Counts the active pods of a ReplicaSet, and for `consolidate` all pods.
    pub(super) fn of(pods: &[Arc<Pod>], context: &DeletionContext<'_>) -> Self {
        let places = Places::of(pods, context.preferences);
        let mut domains = Tally::default();
        for pod in pods {
            *domains.count_of(places.domain(pod)) += 1;
        }
        let mut nodes = Tally::default();
        if places.order.includes(Preference::Consolidate) {
            for (node, n_active) in context.related_pods.active_pods_per_node() {
                *nodes.count_of(Some(&node)) = n_active;
            }
        }
        Self {
            places,
            domains,
            nodes,
        }
    }

    /// Counts a pod as gone.
    pub(super) fn remove(&mut self, pod: &Pod) {
        let domain = self.places.domain(pod);
        let node = pod.node.as_deref();
        for count in [self.domains.count_of(domain), self.nodes.count_of(node)] {
            *count = count.saturating_sub(1);
        }
    }

    /// Chooses `count` pods of a class. Returns none if the preferences have no say, because the
    /// pods have no node.
    pub(super) fn choose(&mut self, class: &[RankedPod], count: usize) -> Vec<Chosen> {
        if class.iter().any(|it| it.pod.node.is_none()) {
            return Vec::new();
        }
        let mut candidate = |ranked: &RankedPod| {
            let pod = &*ranked.pod;
            Candidate {
                node: self.nodes.number_of(pod.node.as_deref()),
                domain: self.domains.number_of(self.places.domain(pod)),
            }
        };
        let candidates: Vec<Candidate> = class.iter().map(&mut candidate).collect();
        let counts = (&self.domains.counts, &self.nodes.counts);
        choose(&candidates, count, self.places.order, counts.0, counts.1)
    }
}

impl Tally {
    fn number_of(&mut self, name: Option<&str>) -> usize {
        let name = name.unwrap_or_default();
        if let Some(known) = self.numbers.get(name) {
            return *known;
        }
        self.counts.push(0);
        let number = self.counts.len() - 1;
        self.numbers.insert(name.into(), number);
        number
    }

    fn count_of(&mut self, name: Option<&str>) -> &mut usize {
        let number = self.number_of(name);
        &mut self.counts[number]
    }
}
