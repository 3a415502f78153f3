//! Pod counts of one group by state and labels, updated with each pod event, so that a no-op sync
//! need not visit the pods. The lock of the pods' store guards them.

use std::fmt;
use std::sync::Arc;

use crate::api::{Labels, Pod, PodPhase};
use crate::stdx::hash::HashMap;

/// Up to this number of label sets the tally searches them linearly. Nearly every group has one.
const LINEAR_SEARCH_MAX: usize = 16;

/// A vector or table is shrunk once its capacity exceeds its content by this factor.
const SHRINK_FACTOR: usize = 4;

/// The pods of one group by their labels. Cloning copies a pointer, and a clone never changes.
#[derive(Clone, Default)]
pub struct PodTally(Option<Arc<LabelTallies>>);

/// INVARIANT: all label sets are different, and each has a pod.
#[derive(Clone, Default)]
struct LabelTallies {
    tallies: Vec<LabelTally>,
    /// The index of each set in `tallies`; present above [`LINEAR_SEARCH_MAX`] sets, as for orphans
    /// with their own labels.
    indices: Option<Box<HashMap<Labels, usize>>>,
}

/// The pods of one group that share one label set.
#[derive(Clone, Debug)]
pub struct LabelTally {
    /// The labels.
    pub labels: Labels,
    /// All pods.
    pub n_pods: u32,
    /// Active pods ([`Pod::is_active`]).
    pub n_active: u32,
    /// Active and Ready pods.
    pub n_ready: u32,
    /// Terminating pods that have not finished.
    pub n_terminating: u32,
    /// Failed pods that are not terminating.
    pub n_failed: u32,
}

impl PodTally {
    /// One item per label set; no item without a pod.
    pub fn iter(&self) -> impl Iterator<Item = &LabelTally> {
        self.0.iter().flat_map(|tallies| &tallies.tallies)
    }

    /// Number of active pods.
    pub fn n_active(&self) -> usize {
        self.iter().map(|tally| tally.n_active as usize).sum()
    }

    /// Number of Failed pods that are not terminating.
    pub fn n_failed(&self) -> usize {
        self.iter().map(|tally| tally.n_failed as usize).sum()
    }

    pub(super) fn add(&mut self, pod: &Pod) {
        let tallies = Arc::make_mut(self.0.get_or_insert_default());
        let index = tallies.index_of(&pod.labels);
        let index = index.unwrap_or_else(|| tallies.push(&pod.labels));
        for (number, is_counted) in tallies.tallies[index].numbers(pod) {
            *number += u32::from(is_counted);
        }
    }

    pub(super) fn remove(&mut self, pod: &Pod) {
        const COUNTED: &str = "the pod was counted with the same labels";
        let tallies = Arc::make_mut(self.0.as_mut().expect(COUNTED));
        let index = tallies.index_of(&pod.labels).expect(COUNTED);
        let tally = &mut tallies.tallies[index];
        for (number, is_counted) in tally.numbers(pod) {
            *number -= u32::from(is_counted);
        }
        if tally.n_pods == 0 {
            let counts = (
                tally.n_active,
                tally.n_ready,
                tally.n_terminating,
                tally.n_failed,
            );
            debug_assert_eq!(counts, (0, 0, 0, 0), "the counts match");
            tallies.remove(index);
        }
    }
}

impl fmt::Debug for PodTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl LabelTallies {
    fn index_of(&self, labels: &Labels) -> Option<usize> {
        if let Some(indices) = &self.indices {
            return indices.get(labels).copied();
        }
        // Pods of one owner share their labels, so texts are hardly ever compared.
        let is_same =
            |tally: &LabelTally| tally.labels.is_shared_with(labels) || tally.labels == *labels;
        self.tallies.iter().position(is_same)
    }

    /// Adds a set that is not present and returns its index.
    fn push(&mut self, labels: &Labels) -> usize {
        let index = self.tallies.len();
        if index == LINEAR_SEARCH_MAX && self.indices.is_none() {
            let sets = self.tallies.iter().map(|tally| tally.labels.clone());
            self.indices = Some(Box::new(sets.zip(0..).collect()));
        }
        if let Some(indices) = &mut self.indices {
            indices.insert(labels.clone(), index);
        } else {
            // Most groups have only one set, and there are many groups.
            self.tallies.reserve_exact(1);
        }
        self.tallies.push(LabelTally::new(labels));
        index
    }

    fn remove(&mut self, index: usize) {
        let removed = self.tallies.swap_remove(index);
        let Some(indices) = &mut self.indices else {
            return;
        };
        let n_remaining = self.tallies.len();
        // Half the size that builds the index, so that a group near the limit does not rebuild it
        // repeatedly.
        if n_remaining <= LINEAR_SEARCH_MAX / 2 {
            self.indices = None;
            self.tallies.shrink_to_fit();
            return;
        }
        indices.remove(&removed.labels);
        if let Some(moved) = self.tallies.get(index) {
            indices.insert(moved.labels.clone(), index);
        }
        if self.tallies.capacity() > SHRINK_FACTOR * n_remaining {
            self.tallies.shrink_to(2 * n_remaining);
            indices.shrink_to(2 * n_remaining);
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
            n_failed: 0,
        }
    }

    /// Returns every count, and whether `pod` counts for it.
    fn numbers(&mut self, pod: &Pod) -> [(&mut u32, bool); 5] {
        let is_active = pod.is_active();
        let is_terminating = pod.is_terminating() && !pod.phase.is_terminal();
        [
            (&mut self.n_pods, true),
            (&mut self.n_active, is_active),
            (&mut self.n_ready, is_active && pod.is_ready),
            (&mut self.n_terminating, is_terminating),
            (
                &mut self.n_failed,
                pod.phase == PodPhase::Failed && !pod.is_terminating(),
            ),
        ]
    }
}

#[cfg(test)]
mod tests;
