//! Calculates `status`. Pure.

use jiff::Timestamp;

use super::counts::Counts;
use super::plan::Plan;
use crate::api::conditions::{
    Condition, REPLICA_FAILURE, get_condition, remove_condition, set_condition,
};
use crate::api::{ReplicaSet, ReplicaSetStatus};

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
        // As upstream: an existing condition stays unchanged, even if the error differs.
        Some(_) if get_condition(&conditions, REPLICA_FAILURE).is_some() => {}
        Some(failure) => set_condition(&mut conditions, replica_failure(failure)),
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
    /// A loss, a condition, or a count that reached its target: a client may wait for it.
    Urgent,
    /// A newly observed generation, without a loss or a condition.
    Generation,
    /// Counts that came nearer to their targets, and nothing else.
    Progress,
}

impl News {
    /// Compares `status` with `rs.status`; `counts` are its counts in comparable form.
    pub fn of(rs: &ReplicaSet, status: &ReplicaSetStatus, counts: Counts) -> Self {
        if rs.status.conditions != status.conditions || counts.show_loss(rs) {
            Self::Urgent
        } else if rs.status.observed_generation != status.observed_generation {
            Self::Generation
        } else if Counts::from(&rs.status) == counts {
            Self::Nothing
        } else if counts.can_wait(rs) {
            Self::Progress
        } else {
            Self::Urgent
        }
    }
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
