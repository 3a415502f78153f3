//! The counts of a ReplicaSet's pods, and the status made of them. Pure.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::plan::Plan;
use crate::api::conditions::{Condition, REPLICA_FAILURE, remove_condition};
use crate::api::{Pod, ReplicaSet, ReplicaSetStatus, Selector};
use crate::cache::PodTally;
use crate::controller::memory::history::is_alike;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Availability {
    pub n_available: i32,
    /// The shortest [`Pod::available_in`] of all
    /// (kubernetes `pkg/controller/controller_utils.go:FindMinNextPodAvailabilityCheck`).
    pub next_check: Option<Duration>,
}

impl Availability {
    pub fn add(&mut self, pod: &Pod, min_ready_seconds: i32, now: Timestamp) {
        self.n_available += i32::from(pod.is_available(min_ready_seconds, now));
        let check = pod.available_in(min_ready_seconds, now);
        self.next_check = self.next_check.into_iter().chain(check).min();
    }

    pub fn of(pods: &[Arc<Pod>], min_ready_seconds: i32, now: Timestamp) -> Self {
        let mut availability = Self::default();
        for pod in pods {
            availability.add(pod, min_ready_seconds, now);
        }
        availability
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub replicas: i32,
    /// Active pods with all labels of the template.
    pub fully_labeled: i32,
    pub ready: i32,
    /// Active pods that have been Ready for `minReadySeconds`.
    pub available: i32,
    /// Terminating pods; `None` where the status does not count them.
    pub terminating: Option<i32>,
}

impl Counts {
    /// Counts the active pods of `rs` one by one; the caller has counted `available`.
    pub fn of_pods(
        rs: &ReplicaSet,
        active: &[Arc<Pod>],
        available: i32,
        terminating: Option<i32>,
    ) -> Self {
        let mut counts = Self {
            available,
            terminating,
            ..Self::default()
        };
        for pod in active {
            counts.replicas += 1;
            counts.fully_labeled += i32::from(pod.labels.is_superset_of(&rs.template_labels));
            counts.ready += i32::from(pod.is_ready);
        }
        counts
    }

    /// Sums up the cache's tallies, with every Ready pod as available. `None` if some pod must be
    /// adopted or released, which takes the pods themselves.
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
        for (labels, tally) in owned.iter() {
            if selector.keeps(labels) {
                let is_labeled = labels.is_superset_of(&rs.template_labels);
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
        // An orphan becomes a replica only if its patch succeeds, so a tally cannot count it.
        let mut orphans = orphans.iter();
        let is_adopted =
            orphans.any(|(labels, tally)| tally.n_active > 0 && selector.matches(labels));
        (!is_adopted).then_some(counts)
    }

    #[must_use]
    pub fn with_terminating(mut self, is_counted: bool) -> Self {
        self.terminating = self.terminating.filter(|_| is_counted);
        self
    }

    /// True if the number of available pods changes with time alone.
    pub fn depend_on_time(&self, rs: &ReplicaSet) -> bool {
        self.ready > 0 && rs.min_ready_seconds != 0
    }

    /// True if some count is lower than in `rs.status`, or if more pods are terminating.
    pub fn is_loss(&self, rs: &ReplicaSet) -> bool {
        self.against(rs).iter().any(|(old, new, _)| new < old)
    }

    /// True if every changed count has come nearer to its target without reaching it: more pods,
    /// more Ready pods, or fewer terminating pods. Clients do not wait for such intermediate
    /// counts.
    pub fn is_mere_progress(&self, rs: &ReplicaSet) -> bool {
        let is_mere_progress = |(old, new, wanted): &_| new == old || old < new && new < wanted;
        self.against(rs).iter().all(is_mere_progress)
    }

    /// Returns each count as (stored, computed, target). Terminating pods count negative, so that a
    /// higher number is better in each case.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub plan: Plan,
    pub message: String,
    pub at: Timestamp,
}

/// Calculates the status (kubernetes
/// `pkg/controller/replicaset/replica_set_utils.go:calculateStatus`).
pub fn calculate_status(
    rs: &ReplicaSet,
    counts: &Counts,
    failure: Option<&Failure>,
) -> ReplicaSetStatus {
    let mut conditions = rs.status.conditions.clone();
    match failure {
        None => remove_condition(&mut conditions, REPLICA_FAILURE),
        Some(failure) => show_failure(&mut conditions, rs, failure),
    }
    ReplicaSetStatus {
        replicas: counts.replicas,
        fully_labeled_replicas: counts.fully_labeled,
        ready_replicas: counts.ready,
        available_replicas: counts.available,
        terminating_replicas: counts.terminating,
        observed_generation: rs.generation,
        conditions,
        other: rs.status.other.clone(),
        unknown: rs.status.unknown.clone(),
    }
}

/// The difference between a calculated and the stored status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusChange {
    Nothing,
    /// A loss, a condition, a generation, or a count that reached its target: a client may be
    /// waiting for it.
    Urgent,
    Progress,
}

impl StatusChange {
    /// Compares `status` with `rs.status`; `counts` are its counts in comparable form.
    pub fn of(rs: &ReplicaSet, status: &ReplicaSetStatus, counts: Counts) -> Self {
        let stored = &rs.status;
        if stored.conditions != status.conditions
            || stored.observed_generation != status.observed_generation
        {
            Self::Urgent
        } else if Counts::from(&rs.status) == counts {
            Self::Nothing
        } else if counts.is_mere_progress(rs) {
            Self::Progress
        } else {
            Self::Urgent
        }
    }
}

/// Sets the condition of `failure`. A text that differs from the stored one only in names of pods
/// and in numbers is not a change: otherwise every retry would write the status.
///
/// DIFFERS: upstream leaves an existing condition unchanged, even if the error differs
/// (kubernetes/kubernetes#127081).
fn show_failure(conditions: &mut Vec<Condition>, rs: &ReplicaSet, failure: &Failure) {
    let mut condition = replica_failure(failure);
    let known = conditions.iter_mut().find(|it| it.type_ == REPLICA_FAILURE);
    let Some(known) = known else {
        return conditions.push(condition);
    };
    if known.reason == condition.reason {
        let stored = known.message.as_deref().unwrap_or_default();
        if is_alike(&rs.key.name, stored, &failure.message) {
            return;
        }
        condition.last_transition_time = known.last_transition_time;
    }
    *known = condition;
}

pub(super) fn replica_failure(failure: &Failure) -> Condition {
    let reason = match failure.plan {
        Plan::Create(_) => "FailedCreate",
        Plan::Delete(_) | Plan::Nothing => "FailedDelete",
    };
    // The API stores whole seconds.
    let at = Timestamp::from_second(failure.at.as_second()).ok();
    Condition::new(REPLICA_FAILURE, reason, failure.message.clone(), at)
}

#[cfg(test)]
mod tests {
    use super::Counts;
    use crate::controller::testing::replica_set;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Write {
        Loss,
        Now,
        Later,
    }
    use Write::{Later, Loss, Now};

    /// For a ReplicaSet with 10 replicas: existing pods, Ready pods, terminating pods.
    #[track_caller]
    fn check(old: [i32; 3], new: [i32; 3], expected: Write) {
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
        let is = match (new.is_loss(&rs), new.is_mere_progress(&rs)) {
            (true, false) => Loss,
            (false, false) => Now,
            (false, true) => Later,
            (true, true) => panic!("a loss that can wait"),
        };
        assert_eq!(is, expected);
    }

    #[test]
    fn only_progress_towards_the_target_can_wait() {
        check([0, 0, 0], [5, 3, 0], Later);
        check([10, 3, 0], [10, 9, 0], Later);
        check([10, 10, 5], [10, 10, 4], Later);
        check([10, 10, 0], [10, 10, 0], Later);
        // The last step.
        check([5, 3, 0], [10, 3, 0], Now);
        check([10, 9, 0], [10, 10, 0], Now);
        check([10, 10, 4], [10, 10, 0], Now);
        // Away from the target.
        check([9, 9, 0], [12, 9, 0], Now);
        check([12, 9, 0], [13, 9, 0], Now);
        // A lower count is a loss, on the way to the target or not, whatever else improved.
        check([10, 10, 0], [9, 9, 0], Loss);
        check([10, 5, 0], [9, 8, 0], Loss);
        check([10, 10, 0], [10, 9, 0], Loss);
        check([20, 20, 0], [15, 15, 5], Loss);
        check([20, 10, 0], [10, 10, 0], Loss);
        check([10, 10, 0], [10, 10, 1], Loss);
    }
}
