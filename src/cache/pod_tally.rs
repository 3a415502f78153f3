//! How many pods of one group there are and in which state, kept up to date as they change, so that a
//! sync that finds nothing to do need not look at the pods. Held by the pods' store under its lock.

use std::sync::Arc;

use crate::api::{Labels, Pod};

/// The pods of one group by their labels. Cloning copies a pointer, and a clone never changes.
#[derive(Clone, Debug, Default)]
pub struct PodTally(Arc<Vec<LabelTally>>);

/// The pods of one group that have one set of labels in common.
#[derive(Clone, Debug)]
pub struct LabelTally {
    /// The labels. Sets that are equal but not shared are counted apart.
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
        self.0.iter()
    }

    /// Pods that are active.
    pub fn n_active(&self) -> usize {
        self.0.iter().map(|tally| tally.n_active as usize).sum()
    }

    pub(super) fn add(&mut self, pod: &Pod) {
        let tallies = Arc::make_mut(&mut self.0);
        let at = position(tallies, pod).unwrap_or_else(|| {
            // Nearly always there is one set only, and many groups.
            tallies.reserve_exact(1);
            tallies.push(LabelTally::new(&pod.labels));
            tallies.len() - 1
        });
        let tally = &mut tallies[at];
        for (number, is_counted) in tally.numbers(pod) {
            *number += u32::from(is_counted);
        }
    }

    pub(super) fn remove(&mut self, pod: &Pod) {
        let tallies = Arc::make_mut(&mut self.0);
        let at = position(tallies, pod).expect("the pod was counted in with the same labels");
        let tally = &mut tallies[at];
        for (number, is_counted) in tally.numbers(pod) {
            *number -= u32::from(is_counted);
        }
        if tally.n_pods == 0 {
            let rest = (tally.n_active, tally.n_ready, tally.n_terminating);
            debug_assert_eq!(rest, (0, 0, 0), "none is left");
            tallies.swap_remove(at);
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

/// By address: pods of one owner share their labels, and a search by value would compare texts.
fn position(tallies: &[LabelTally], pod: &Pod) -> Option<usize> {
    let is_same = |tally: &LabelTally| tally.labels.is_shared_with(&pod.labels);
    tallies.iter().position(is_same)
}
