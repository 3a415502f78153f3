//! Calculates `status`. Pure.

use jiff::Timestamp;

use super::pods::Counts;
use super::step::Plan;
use crate::api::conditions::{Condition, REPLICA_FAILURE, remove_condition};
use crate::api::{ReplicaSet, ReplicaSetStatus};
use crate::stdx::escape::escaped;
use crate::writes::pod_body::generate_name;

/// A failed create or delete of a sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The failed plan.
    pub plan: Plan,
    /// The error.
    pub message: String,
    /// The time of day of the failure.
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
pub enum News {
    /// No difference.
    Nothing,
    /// A loss, a condition, a generation, or a count that reached its target: a client may wait for
    /// it.
    Urgent,
    /// Counts that came nearer to their targets, and nothing else.
    Progress,
}

impl News {
    /// Compares `status` with `rs.status`; `counts` are its counts in comparable form.
    pub fn of(rs: &ReplicaSet, status: &ReplicaSetStatus, counts: Counts) -> Self {
        let stored = &rs.status;
        if stored.conditions != status.conditions
            || stored.observed_generation != status.observed_generation
        {
            Self::Urgent
        } else if Counts::from(&rs.status) == counts {
            Self::Nothing
        } else if counts.can_wait(rs) {
            Self::Progress
        } else {
            Self::Urgent
        }
    }
}

/// Sets the condition of `failure`. A text that differs from the stored one only in names of pods
/// and in numbers is no news: otherwise each try might write the status.
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

/// Maximum bytes of a condition's message, as of an event's (kubernetes
/// `pkg/apis/core/validation/events.go:noteLengthLimit`).
const MESSAGE_BYTES_MAX: usize = 1024;

/// `message` in a form fit for a condition: on one line, and at most 1024 bytes.
pub fn bounded(message: &str) -> String {
    let mut message = escaped(message).into_owned();
    if message.len() > MESSAGE_BYTES_MAX {
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX - '…'.len_utf8()));
        message.push('…');
    }
    message
}

/// True if two messages about the ReplicaSet `name` differ at most in words with digits or with the
/// name of one of its pods.
pub fn is_alike(name: &str, one: &str, other: &str) -> bool {
    // The API server cuts the names of pods to 63 bytes.
    let prefix: String = generate_name(name).chars().take(58).collect();
    let is_stable =
        |word: &&str| !word.contains(|c: char| c.is_ascii_digit()) && !word.contains(&*prefix);
    one.split_whitespace()
        .filter(is_stable)
        .eq(other.split_whitespace().filter(is_stable))
}

/// The condition of a failed create or delete.
pub(super) fn replica_failure(failure: &Failure) -> Condition {
    let reason = match failure.plan {
        Plan::Create(_) => "FailedCreate",
        Plan::Delete(_) | Plan::Nothing => "FailedDelete",
    };
    Condition {
        type_: REPLICA_FAILURE.to_owned(),
        status: "True".to_owned(),
        // The API stores whole seconds.
        last_transition_time: Timestamp::from_second(failure.at.as_second()).ok(),
        reason: Some(reason.to_owned()),
        message: Some(failure.message.clone()),
        ..Condition::default()
    }
}
