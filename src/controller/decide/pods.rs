//! What the pods of a ReplicaSet are to it: which it adopts, releases and keeps, which are
//! available, and how many there are in each state. Pure.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::api::{Pod, ReplicaSet, ReplicaSetStatus, Selector};
use crate::cache::PodTally;

/// The claim of a ReplicaSet on one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The ReplicaSet controls the pod and keeps it.
    Keep,
    /// The pod has another controller, or the ReplicaSet cannot claim it.
    Ignore,
    /// The pod has no controller and matches the selector.
    Adopt,
    /// The ReplicaSet controls the pod, but the selector no longer matches.
    Release,
}

/// Returns the claim of `rs` on `pod`, judged by the two objects alone (kubernetes
/// `pkg/controller/controller_ref_manager.go:BaseControllerRefManager.ClaimObject`).
pub fn claim_of(rs: &ReplicaSet, selector: &Selector, pod: &Pod) -> Claim {
    let matches = selector.matches(&pod.labels);
    match &pod.controller {
        Some(controller) if controller.uid != rs.uid => Claim::Ignore,
        Some(_) if matches => Claim::Keep,
        // A ReplicaSet under deletion releases nothing: the garbage collector handles its pods.
        Some(_) if rs.is_terminating() => Claim::Ignore,
        Some(_) => Claim::Release,
        None if rs.is_terminating() || !matches || pod.is_terminating() => Claim::Ignore,
        None if pod.key.namespace != rs.key.namespace && !rs.key.namespace.is_empty() => {
            Claim::Ignore
        }
        None => Claim::Adopt,
    }
}

/// True if the pod has been Ready for `min_ready_seconds`, the boundary included (kubernetes
/// `pkg/api/v1/pod/util.go:IsPodAvailable`).
pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    pod.is_ready
        && (min_ready_seconds == 0
            || pod
                .ready_transition
                .is_some_and(|since| since.age(now).as_secs_f64() >= f64::from(min_ready_seconds)))
}

/// Returns the time until a Ready pod becomes available; `None` if it is available, or if time
/// alone does not make it so (kubernetes
/// `pkg/controller/controller_utils.go:nextPodAvailabilityCheck`).
pub fn next_pod_availability_check(
    pod: &Pod,
    min_ready_seconds: i32,
    now: Timestamp,
) -> Option<Duration> {
    if !pod.is_ready || min_ready_seconds == 0 {
        return None;
    }
    let ready_for = pod.ready_transition?.age(now);
    let missing = jiff::SignedDuration::from_secs(min_ready_seconds.into()) - ready_for;
    // No fallible conversion: it would build an error for each available pod.
    missing.is_positive().then(|| missing.unsigned_abs())
}

/// The number of available pods, and the time until the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Availability {
    /// Pods that [are available](is_available).
    pub n_available: i32,
    /// The shortest [`next_pod_availability_check`] of all
    /// (kubernetes `pkg/controller/controller_utils.go:FindMinNextPodAvailabilityCheck`).
    pub next_check: Option<Duration>,
}

impl Availability {
    /// Counts one active pod.
    pub fn add(&mut self, pod: &Pod, min_ready_seconds: i32, now: Timestamp) {
        self.n_available += i32::from(is_available(pod, min_ready_seconds, now));
        let check = next_pod_availability_check(pod, min_ready_seconds, now);
        self.next_check = self.next_check.into_iter().chain(check).min();
    }

    /// Computes the availability of these active pods.
    pub fn of(pods: &[Arc<Pod>], min_ready_seconds: i32, now: Timestamp) -> Self {
        let mut availability = Self::default();
        for pod in pods {
            availability.add(pod, min_ready_seconds, now);
        }
        availability
    }
}

/// Number of pods of a ReplicaSet in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Active pods.
    pub replicas: i32,
    /// Active pods with all labels of the template.
    pub fully_labeled: i32,
    /// Active pods that are Ready.
    pub ready: i32,
    /// Active pods that have been Ready for `minReadySeconds`.
    pub available: i32,
    /// Terminating pods; `None` where the status does not count them.
    pub terminating: Option<i32>,
}

impl Counts {
    /// Counts the active pods of `rs` one by one, of which this many are available.
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
        // An orphan becomes a replica only if its patch succeeds, so a tally cannot count it.
        let is_ours = |labels| selector.matches(labels);
        let is_adopted = orphans
            .iter()
            .any(|tally| tally.n_active > 0 && is_ours(&tally.labels));
        (!is_adopted).then_some(counts)
    }

    /// True if the number of available pods changes with time alone.
    pub fn depend_on_time(&self, rs: &ReplicaSet) -> bool {
        self.ready > 0 && rs.min_ready_seconds != 0
    }

    /// True if some count is lower than in `rs.status`, or if more pods are terminating.
    pub fn show_loss(&self, rs: &ReplicaSet) -> bool {
        self.against(rs).iter().any(|(old, new, _)| new < old)
    }

    /// True if every changed count has come nearer to its target without reaching it: more pods,
    /// more Ready pods, or fewer terminating pods. Such progress may reach clients later without
    /// harm.
    pub fn can_wait(&self, rs: &ReplicaSet) -> bool {
        let can_wait = |(old, new, wanted): &_| new == old || old < new && new < wanted;
        self.against(rs).iter().all(can_wait)
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

    /// For a ReplicaSet with 10 replicas: existing pods, Ready pods, terminating pods.
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
        let is = match (new.show_loss(&rs), new.can_wait(&rs)) {
            (true, false) => Loss,
            (false, false) => Due,
            (false, true) => Patient,
            (true, true) => panic!("a loss that can wait"),
        };
        assert_eq!(is, expected);
    }

    #[test]
    fn only_progress_towards_the_target_can_wait() {
        check([0, 0, 0], [5, 3, 0], Patient);
        check([10, 3, 0], [10, 9, 0], Patient);
        check([10, 10, 5], [10, 10, 4], Patient);
        check([10, 10, 0], [10, 10, 0], Patient);
        // The last step.
        check([5, 3, 0], [10, 3, 0], Due);
        check([10, 9, 0], [10, 10, 0], Due);
        check([10, 10, 4], [10, 10, 0], Due);
        // Away from the target.
        check([9, 9, 0], [12, 9, 0], Due);
        check([12, 9, 0], [13, 9, 0], Due);
        // A lower count is a loss, on the way to the target or not, whatever else improved.
        check([10, 10, 0], [9, 9, 0], Loss);
        check([10, 5, 0], [9, 8, 0], Loss);
        check([10, 10, 0], [10, 9, 0], Loss);
        check([20, 20, 0], [15, 15, 5], Loss);
        check([20, 10, 0], [10, 10, 0], Loss);
        check([10, 10, 0], [10, 10, 1], Loss);
    }
}
