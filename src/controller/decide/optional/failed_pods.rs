//! Failed pods: how long their replacements wait (`failed-pod-backoff`), with the condition that
//! reports it, and which old ones are deleted (`failed-pods-kept`). Pure.
//!
//! A back-off is computed from the Failed and Ready pods alone, so it survives restarts; deleting
//! the Failed pods ends it. Failures within the first delay of each other form one *round*. The
//! rounds of the last *window* ([`FailedPodBackoff::window`]) are weighted by age and cause, and
//! the delay doubles with each. After the delay one *trial* pod is created, and the next delay
//! begins. When a pod becomes Ready, the back-off ends.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::api::conditions::{Condition, REPLICA_FAILURE, get_condition, remove_condition};
use crate::api::policy::FailedPodBackoff;
use crate::api::{CompactTimestamp, Pod, Policy, ReplicaSet, ReplicaSetStatus, Selector};
use crate::controller::decide::status::Failure;

pub const FAILED_POD_BACKOFF: &str = "FailedPodBackoff";

/// Reasons of pods that ran and had to give way to others: by the kubelet's eviction under
/// pressure, by its preemption for a critical pod, by a node's graceful shutdown (kubernetes
/// `pkg/kubelet/eviction/helpers.go:Reason`, `pkg/kubelet/events/event.go:PreemptContainer`,
/// `pkg/kubelet/nodeshutdown/nodeshutdown_manager.go:nodeShutdownReason`). A node under pressure
/// also rejects pods as `Evicted`.
const EVICTIONS: [&str; 3] = ["Evicted", "Preempting", "Terminated"];

/// The weight of a round that consists of evictions. Any other round has weight 1.
const EVICTIONS_WEIGHT: f64 = 0.5;

/// The condition reports a new round after this time, or after the first delay if that is shorter:
/// pods that are rejected together fail one by one.
const SETTLE: Duration = Duration::from_secs(2);

/// The back-off of a ReplicaSet whose pods fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackOff {
    /// Pods that failed within the window, and since a pod of the ReplicaSet last turned Ready.
    pub n_failures: usize,
    pub n_rounds: usize,
    /// The first failure of the last round.
    pub round_began: Timestamp,
    pub last: Arc<Pod>,
    pub wait: Duration,
    /// Time until the next trial may be created; zero if it may now.
    pub remaining: Duration,
    /// Time until the last failure leaves the window.
    pub expires_in: Duration,
    /// How many missing pods may be created now, the trial included.
    pub n_permitted: usize,
    pub n_backed_off: usize,
    /// Time until the condition reports the last round; zero if it does now.
    pub settles_in: Duration,
}

impl BackOff {
    /// The back-off of `rs` with these active pods; `None` if no failure counts, or if all its pods
    /// are Ready.
    pub fn of(
        policy: FailedPodBackoff,
        rs: &ReplicaSet,
        selector: &Selector,
        (owned, active): (&[Arc<Pod>], &[Arc<Pod>]),
        now: Timestamp,
    ) -> Option<Self> {
        let n_wanted = usize::try_from(rs.replicas).unwrap_or(0);
        let ready = || active.iter().filter(|pod| pod.is_ready);
        if ready().count() >= n_wanted {
            return None;
        }
        let window = policy.window();
        let last_ready = ready().filter_map(|pod| pod.ready_transition).max();
        let last_ready = last_ready.map(CompactTimestamp::timestamp);
        let mut failures = failed_pods(owned, selector, now);
        failures.retain(|failed| {
            // The API's times are whole seconds. A failure in the second in which a pod turned
            // Ready counts, so that a node which rejects pods never causes a burst.
            last_ready.is_none_or(|ready| failed.at >= ready)
                && is_near(failed.at, policy.longest, now)
                && age(failed.at, now) < window
        });
        let last = failures.last()?;
        let rounds = rounds_of(&failures, policy.first);
        let weights = rounds.iter().map(|round| weight(round, window, now));
        let wait = wait(policy, weights.sum());
        let created = owned.iter().chain(active).filter_map(|pod| pod.creation);
        let created = created.map(CompactTimestamp::timestamp);
        let created = created.filter(|at| is_near(*at, policy.longest, now)).max();
        // A trial that neither fails nor turns Ready is followed by another one.
        let since = created.map_or(last.at, |created| created.max(last.at));
        let remaining = remaining(since, wait, now);
        // The first pods never wait, however many of them fail.
        let n_first = n_wanted.saturating_sub(active.len() + failures.len());
        let n_missing = n_wanted.saturating_sub(active.len());
        let n_permitted = n_first + usize::from(remaining.is_zero());
        let round_began = rounds.last()?.first()?.at;
        Some(Self {
            n_failures: failures.len(),
            n_rounds: rounds.len(),
            round_began,
            last: Arc::clone(last.pod),
            wait,
            remaining,
            expires_in: self::remaining(last.at, window, now),
            n_permitted,
            n_backed_off: n_missing.saturating_sub(n_permitted),
            settles_in: self::remaining(round_began, SETTLE.min(policy.first), now),
        })
    }

    pub fn history(&self) -> String {
        let pods = match (self.n_failures, self.n_rounds) {
            (1, _) => "1 pod has failed".to_owned(),
            (n_failures, 1) => format!("{n_failures} pods have failed"),
            (n_failures, n_rounds) => format!("{n_failures} pods have failed in {n_rounds} rounds"),
        };
        let node = self.last.node.as_deref().unwrap_or("no node");
        let reason = match &self.last.failure {
            Some(failure) if !failure.reason.is_empty() => &failure.reason,
            _ => "no reason given",
        };
        format!("{pods}, the last one on {node} ({reason})")
    }

    /// Time until the decision changes.
    pub fn changes_in(&self) -> Duration {
        match self.n_backed_off {
            0 => self.expires_in,
            _ if self.remaining.is_zero() => self.wait.max(Duration::from_secs(1)),
            _ => self.remaining,
        }
    }
}

/// Splits failures, the earliest first, into rounds: each contains the failures less than `first`
/// after its own first one.
fn rounds_of<'a, 'b>(failures: &'a [FailedPod<'b>], first: Duration) -> Vec<&'a [FailedPod<'b>]> {
    let mut rounds = Vec::new();
    let mut rest = failures;
    while let Some(begin) = rest.first() {
        let is_of_round = |failed: &&FailedPod<'_>| age(begin.at, failed.at) < first;
        let (round, later) = rest.split_at(rest.iter().take_while(is_of_round).count());
        rounds.push(round);
        rest = later;
    }
    rounds
}

/// 1 (evictions: 0.5) for rounds in the newer half of the window, decreasing linearly to 0 at its
/// end.
fn weight(round: &[FailedPod<'_>], window: Duration, now: Timestamp) -> f64 {
    let is_eviction = |failed: &FailedPod<'_>| {
        let failure = failed.pod.failure.as_ref();
        failure.is_some_and(|it| EVICTIONS.contains(&&*it.reason))
    };
    let by_kind = if round.iter().all(is_eviction) {
        EVICTIONS_WEIGHT
    } else {
        1.0
    };
    let Some(last) = round.last() else { return 0.0 };
    let left = 1.0 - age(last.at, now).as_secs_f64() / window.as_secs_f64();
    by_kind * (2.0 * left).clamp(0.0, 1.0)
}

/// The delay after rounds of this total weight: up to 1, `weight` × FIRST; above, FIRST ×
/// 2^(`weight` − 1), at most LONGEST.
fn wait(policy: FailedPodBackoff, weight: f64) -> Duration {
    let ratio = policy.longest.as_secs_f64() / policy.first.as_secs_f64();
    let factor = if weight < 1.0 {
        weight
    } else {
        (weight - 1.0).exp2()
    };
    policy.first.mul_f64(factor.clamp(0.0, ratio))
}

/// Time since `at`; zero if that lies ahead.
fn age(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(at)).unwrap_or_default()
}

/// False if `at` lies so far ahead that only a wrong clock explains it.
fn is_near(at: Timestamp, ahead_max: Duration, now: Timestamp) -> bool {
    age(now, at) <= ahead_max
}

/// Time until `wait` has passed since `at`.
fn remaining(at: Timestamp, wait: Duration, now: Timestamp) -> Duration {
    (age(now, at) + wait).saturating_sub(age(at, now))
}

/// Adds the condition of `back_off` to the calculated `status` of `rs`. Returns its message if it
/// reports a round that the stored status does not.
///
/// A condition with this reason is replaced when the round changes, and by the failure of a
/// request.
pub fn report_back_off(
    status: &mut ReplicaSetStatus,
    rs: &ReplicaSet,
    back_off: Option<&BackOff>,
    failure: Option<&Failure>,
) -> Option<String> {
    let back_off = back_off.filter(|_| failure.is_none())?;
    let stored = &rs.status.conditions;
    let place = stored.iter().position(|it| it.type_ == REPLICA_FAILURE);
    let known = get_condition(stored, REPLICA_FAILURE);
    let known = known.filter(|it| it.reason.as_deref() == Some(FAILED_POD_BACKOFF));
    let mut put = |condition: Condition| {
        remove_condition(&mut status.conditions, REPLICA_FAILURE);
        let place = place.unwrap_or(usize::MAX).min(status.conditions.len());
        status.conditions.insert(place, condition);
    };
    // The API stores whole seconds.
    let round_began = Timestamp::from_second(back_off.round_began.as_second()).ok();
    let is_settling = !back_off.settles_in.is_zero();
    if let Some(known) = known
        && (known.last_transition_time >= round_began || is_settling)
    {
        put(known.clone());
        return None;
    }
    if is_settling {
        return None;
    }
    let message = message(back_off);
    put(Condition::new(
        REPLICA_FAILURE,
        FAILED_POD_BACKOFF,
        message.clone(),
        round_began,
    ));
    Some(message)
}

/// Describes the back-off without anything that changes during the round.
fn message(back_off: &BackOff) -> String {
    format!(
        "{}. Creating one replacement every {:.0} s until a pod is Ready",
        back_off.history(),
        back_off.wait.as_secs_f64().max(1.0)
    )
}

/// The old Failed pods of a ReplicaSet: those that `failed-pods-kept` does not keep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OldFailedPods {
    pub delete: Vec<Arc<Pod>>,
    /// Time until the next one may be deleted, if one will.
    pub next_in: Option<Duration>,
}

impl OldFailedPods {
    /// Chooses among the pods that a ReplicaSet with this policy owns. Pods with finalizers are
    /// neither counted nor chosen. Pods that the back-off still counts are not chosen.
    pub fn of(policy: &Policy, owned: &[Arc<Pod>], selector: &Selector, now: Timestamp) -> Self {
        let Some(n_kept) = policy.failed_pods_kept else {
            return Self::default();
        };
        let mut failed = failed_pods(owned, selector, now);
        failed.retain(|failed| !failed.pod.has_finalizers);
        let n_kept = usize::try_from(n_kept).unwrap_or(usize::MAX);
        failed.truncate(failed.len().saturating_sub(n_kept));
        let evidence = policy.failed_pod_backoff.map(FailedPodBackoff::window);
        let min_age = policy.failed_pods_min_age.max(evidence.unwrap_or_default());
        let remaining = |at: Timestamp| {
            let min_age = SignedDuration::try_from(min_age).unwrap_or(SignedDuration::MAX);
            let remaining = min_age.saturating_sub(now.duration_since(at));
            remaining.is_positive().then(|| remaining.unsigned_abs())
        };
        let is_due = |at: Timestamp| remaining(at).is_none();
        let n_due = failed.iter().take_while(|it| is_due(it.at)).count();
        let due = failed[..n_due].iter();
        Self {
            next_in: failed.get(n_due).and_then(|next| remaining(next.at)),
            delete: due.map(|it| Arc::clone(it.pod)).collect(),
        }
    }
}

/// A Failed pod that was not being deleted, and when it failed.
///
/// A pod that fails while it is being deleted does not count: its kubelet reports the end of its
/// containers that way, and its replacement exists already.
#[derive(Clone, Copy, Debug)]
struct FailedPod<'a> {
    pod: &'a Arc<Pod>,
    at: Timestamp,
}

/// The Failed pods among `owned` that match the selector, the earliest first.
fn failed_pods<'a>(
    owned: &'a [Arc<Pod>],
    selector: &Selector,
    now: Timestamp,
) -> Vec<FailedPod<'a>> {
    let is_ours = |pod: &&Arc<Pod>| !pod.is_terminating() && selector.keeps(&pod.labels);
    let failed = |pod: &'a Arc<Pod>| {
        let at = failed_at(pod, now)?;
        Some(FailedPod { pod, at })
    };
    let mut failed: Vec<_> = owned.iter().filter(is_ours).filter_map(failed).collect();
    failed.sort_by(|a, b| (a.at, &a.pod.key).cmp(&(b.at, &b.pod.key)));
    failed
}

/// When the pod failed; `None` if it did not, or without any time. The creation, by the API
/// server's clock, replaces a time that the node's clock puts before it or after `now`.
fn failed_at(pod: &Pod, now: Timestamp) -> Option<Timestamp> {
    let failure = pod.failure.as_ref()?;
    let created = pod.creation.map(CompactTimestamp::timestamp);
    let failed = failure.at.map(CompactTimestamp::timestamp);
    match failed.filter(|at| *at <= now) {
        Some(failed) => Some(created.map_or(failed, |created| created.max(failed))),
        None => created,
    }
}

#[cfg(test)]
mod tests;
