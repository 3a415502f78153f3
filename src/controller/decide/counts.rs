//! The numbers in a status, and what they say about the pods to come.
//!
//! Pure. Counted either from a list of pods or from the cache's tallies, which is the same number at
//! the price of a look at each set of labels.

use std::sync::Arc;

use jiff::Timestamp;

use super::availability::is_available;
use crate::api::{Pod, ReplicaSet, ReplicaSetStatus, Selector};
use crate::cache::PodTally;

/// How many pods of a ReplicaSet are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Active pods.
    pub replicas: i32,
    /// Active pods with all labels of the template.
    pub fully_labeled: i32,
    /// Active pods that are Ready.
    pub ready: i32,
    /// Active pods that have been Ready long enough.
    pub available: i32,
    /// Pods that are going away; `None` where that is not reported.
    pub terminating: Option<i32>,
}

impl Counts {
    /// Counts the active pods of `rs` one by one.
    pub fn of_pods(
        rs: &ReplicaSet,
        active: &[Arc<Pod>],
        terminating: Option<i32>,
        now: Timestamp,
    ) -> Self {
        let mut counts = Self {
            terminating,
            ..Self::default()
        };
        for pod in active {
            counts.replicas += 1;
            counts.fully_labeled += i32::from(pod.labels.is_superset_of(&rs.template_labels));
            counts.ready += i32::from(pod.is_ready);
            counts.available += i32::from(is_available(pod, rs.min_ready_seconds, now));
        }
        counts
    }

    /// Adds up what the cache has counted, with every Ready pod as an available one. `None` if that is
    /// not enough: some pod is to be adopted or released.
    pub fn of_tallies(
        rs: &ReplicaSet,
        selector: &Selector,
        owned: &PodTally,
        orphans: &PodTally,
    ) -> Option<Self> {
        let mut counts = Self {
            terminating: Some(0),
            ..Self::default()
        };
        for tally in owned.iter() {
            if selector.matches(&tally.labels) {
                let is_labeled = tally.labels.is_superset_of(&rs.template_labels);
                let terminating = counts.terminating.as_mut()?;
                *terminating += number(tally.n_terminating);
                counts.replicas += number(tally.n_active);
                counts.fully_labeled += if is_labeled {
                    number(tally.n_active)
                } else {
                    0
                };
                counts.ready += number(tally.n_ready);
            } else if tally.n_active > 0 {
                return None;
            }
        }
        counts.available = counts.ready;
        let is_ours = |labels| selector.matches(labels);
        let is_adopted = orphans
            .iter()
            .any(|tally| tally.n_active > 0 && is_ours(&tally.labels));
        (!is_adopted).then_some(counts)
    }

    /// True if how many of these pods of `rs` are available depends on the time.
    pub fn depend_on_time(&self, rs: &ReplicaSet) -> bool {
        self.ready > 0 && rs.min_ready_seconds != 0
    }

    /// True if there is less of something than `rs.status` says, or more pods that are going away.
    pub fn are_a_loss(&self, rs: &ReplicaSet) -> bool {
        self.against(rs).iter().any(|(old, new, _)| new < old)
    }

    /// True if every number that is not the one of `rs.status` has come nearer to the one that is
    /// wanted, and has not reached it: `rs` has more of its pods, or Ready ones, or fewer that are
    /// going away. Nothing goes wrong if nobody knows of that for a while.
    pub fn can_wait(&self, rs: &ReplicaSet) -> bool {
        let can_wait = |(old, new, wanted): &_| new == old || old < new && new < wanted;
        self.against(rs).iter().all(can_wait)
    }

    /// Each number: as `rs.status` has it, as it is, as it is wanted. Pods that are going away
    /// count negative, so that for all of them more is better.
    fn against(&self, rs: &ReplicaSet) -> [(i32, i32, i32); 5] {
        let (old, wanted) = (Self::from(&rs.status), rs.replicas.max(0));
        let terminating = |counts: &Self| -counts.terminating.unwrap_or(0);
        [
            (old.replicas, self.replicas, wanted),
            (old.fully_labeled, self.fully_labeled, wanted),
            (old.ready, self.ready, wanted),
            (old.available, self.available, wanted),
            (terminating(&old), terminating(self), 0),
        ]
    }
}

impl From<&ReplicaSetStatus> for Counts {
    fn from(status: &ReplicaSetStatus) -> Self {
        Self {
            replicas: status.replicas,
            fully_labeled: status.fully_labeled_replicas,
            ready: status.ready_replicas,
            available: status.available_replicas,
            terminating: status.terminating_replicas,
        }
    }
}

fn number(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::Counts;
    use crate::controller::testing::replica_set;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Is {
        Loss,
        Due,
        Patient,
    }
    use Is::{Due, Loss, Patient};

    /// Of a ReplicaSet that wants 10: replicas, Ready ones, terminating ones.
    #[track_caller]
    fn check(old: [i32; 3], new: [i32; 3], expected: Is) {
        let mut rs = replica_set("web", 10);
        let counts = |[replicas, ready, terminating]: [i32; 3]| Counts {
            replicas,
            fully_labeled: replicas,
            ready,
            available: ready,
            terminating: Some(terminating),
        };
        let (old, new) = (counts(old), counts(new));
        rs.status.replicas = old.replicas;
        rs.status.fully_labeled_replicas = old.fully_labeled;
        rs.status.ready_replicas = old.ready;
        rs.status.available_replicas = old.available;
        rs.status.terminating_replicas = old.terminating;
        let is = match (new.are_a_loss(&rs), new.can_wait(&rs)) {
            (true, false) => Loss,
            (false, false) => Due,
            (false, true) => Patient,
            (true, true) => panic!("a loss that can wait"),
        };
        assert_eq!(is, expected);
    }

    #[test]
    fn only_what_gets_better_on_its_way_to_what_is_wanted_can_wait() {
        check([0, 0, 0], [5, 3, 0], Patient);
        check([10, 3, 0], [10, 9, 0], Patient);
        check([10, 10, 5], [10, 10, 4], Patient);
        check([10, 10, 0], [10, 10, 0], Patient);
        // The last step.
        check([5, 3, 0], [10, 3, 0], Due);
        check([10, 9, 0], [10, 10, 0], Due);
        check([10, 10, 4], [10, 10, 0], Due);
        // Away from what is wanted.
        check([9, 9, 0], [12, 9, 0], Due);
        check([12, 9, 0], [13, 9, 0], Due);
        // Less, wanted or not, whatever else got better.
        check([10, 10, 0], [9, 9, 0], Loss);
        check([10, 5, 0], [9, 8, 0], Loss);
        check([10, 10, 0], [10, 9, 0], Loss);
        check([20, 20, 0], [15, 15, 5], Loss);
        check([20, 10, 0], [10, 10, 0], Loss);
        check([10, 10, 0], [10, 10, 1], Loss);
    }
}
