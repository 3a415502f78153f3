//! How many pods of one group there are and in which state, kept up to date as they change, so that a
//! sync that finds nothing to do need not look at the pods. Held by the pods' store under its lock.

use std::fmt;
use std::sync::Arc;

use crate::api::{Labels, Pod};
use crate::stdx::hash::HashMap;

/// Up to so many sets of labels are searched one by one. Nearly every group has one.
const SEARCHED_MAX: usize = 16;

/// A vector or table that is this much larger than its content is shrunk.
const SHRINK_FACTOR: usize = 4;

/// The pods of one group by their labels. Cloning copies a pointer, and a clone never changes.
#[derive(Clone, Default)]
pub struct PodTally(Option<Arc<LabelTallies>>);

/// INVARIANT: all sets of labels are different, and each has a pod.
#[derive(Clone, Default)]
struct LabelTallies {
    tallies: Vec<LabelTally>,
    /// Where in `tallies` each set stands; made when there are more than [`SEARCHED_MAX`], as of orphans
    /// that have labels of their own.
    places: Option<Box<HashMap<Labels, usize>>>,
}

/// The pods of one group that have one set of labels in common.
#[derive(Clone, Debug)]
pub struct LabelTally {
    /// The labels.
    pub labels: Labels,
    /// All of them.
    pub n_pods: u32,
    /// Those that are active ([`Pod::is_active`]).
    pub n_active: u32,
    /// Those that are active and Ready.
    pub n_ready: u32,
    /// Those that are going away and have not finished.
    pub n_terminating: u32,
}

impl PodTally {
    /// One item for each set of labels; no item without a pod.
    pub fn iter(&self) -> impl Iterator<Item = &LabelTally> {
        self.0.iter().flat_map(|tallies| &tallies.tallies)
    }

    /// Pods that are active.
    pub fn n_active(&self) -> usize {
        self.iter().map(|tally| tally.n_active as usize).sum()
    }

    pub(super) fn add(&mut self, pod: &Pod) {
        let tallies = Arc::make_mut(self.0.get_or_insert_default());
        let at = tallies.place_of(&pod.labels);
        let at = at.unwrap_or_else(|| tallies.push(&pod.labels));
        for (number, is_counted) in tallies.tallies[at].numbers(pod) {
            *number += u32::from(is_counted);
        }
    }

    pub(super) fn remove(&mut self, pod: &Pod) {
        const COUNTED: &str = "the pod was counted in with the same labels";
        let tallies = Arc::make_mut(self.0.as_mut().expect(COUNTED));
        let at = tallies.place_of(&pod.labels).expect(COUNTED);
        let tally = &mut tallies.tallies[at];
        for (number, is_counted) in tally.numbers(pod) {
            *number -= u32::from(is_counted);
        }
        if tally.n_pods == 0 {
            let rest = (tally.n_active, tally.n_ready, tally.n_terminating);
            debug_assert_eq!(rest, (0, 0, 0), "none is left");
            tallies.remove(at);
        }
    }
}

impl fmt::Debug for PodTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl LabelTallies {
    fn place_of(&self, labels: &Labels) -> Option<usize> {
        if let Some(places) = &self.places {
            return places.get(labels).copied();
        }
        // Pods of one owner share their labels, so that hardly ever texts are compared.
        let is_same =
            |tally: &LabelTally| tally.labels.is_shared_with(labels) || tally.labels == *labels;
        self.tallies.iter().position(is_same)
    }

    /// Adds a set that is not there; answers its place.
    fn push(&mut self, labels: &Labels) -> usize {
        let at = self.tallies.len();
        if at == SEARCHED_MAX && self.places.is_none() {
            let sets = self.tallies.iter().map(|tally| tally.labels.clone());
            self.places = Some(Box::new(sets.zip(0..).collect()));
        }
        if let Some(places) = &mut self.places {
            places.insert(labels.clone(), at);
        } else {
            // Nearly always there is one set only, and many groups.
            self.tallies.reserve_exact(1);
        }
        self.tallies.push(LabelTally::new(labels));
        at
    }

    fn remove(&mut self, at: usize) {
        let removed = self.tallies.swap_remove(at);
        let Some(places) = &mut self.places else {
            return;
        };
        let n_left = self.tallies.len();
        // Half of what makes an index, so that a group at the limit does not make it again and again.
        if n_left <= SEARCHED_MAX / 2 {
            self.places = None;
            self.tallies.shrink_to_fit();
            return;
        }
        places.remove(&removed.labels);
        if let Some(moved) = self.tallies.get(at) {
            places.insert(moved.labels.clone(), at);
        }
        if self.tallies.capacity() > SHRINK_FACTOR * n_left {
            self.tallies.shrink_to(2 * n_left);
            places.shrink_to(2 * n_left);
        }
    }
}

impl LabelTally {
    fn new(labels: &Labels) -> Self {
        Self {
            labels: labels.clone(),
            n_pods: 0,
            n_active: 0,
            n_ready: 0,
            n_terminating: 0,
        }
    }

    /// Every number, and whether `pod` counts for it.
    fn numbers(&mut self, pod: &Pod) -> [(&mut u32, bool); 4] {
        let is_active = pod.is_active();
        let is_terminating = pod.is_terminating() && !pod.phase.is_terminal();
        [
            (&mut self.n_pods, true),
            (&mut self.n_active, is_active),
            (&mut self.n_ready, is_active && pod.is_ready),
            (&mut self.n_terminating, is_terminating),
        ]
    }
}

#[cfg(test)]
mod tests;
