//! What `status` should say. Pure.

use jiff::Timestamp;

use super::counts::Counts;
use super::plan::Plan;
use crate::api::conditions::{
    Condition, REPLICA_FAILURE, get_condition, remove_condition, set_condition,
};
use crate::api::{ReplicaSet, ReplicaSetStatus};

/// What was tried and failed in a sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was to be done.
    pub plan: Plan,
    /// Why it was not.
    pub message: String,
    /// When that was known, by the time of day.
    pub at: Timestamp,
}

/// What `status` should say
/// (kubernetes `pkg/controller/replicaset/replica_set_utils.go:calculateStatus`).
pub fn calculate_status(
    rs: &ReplicaSet,
    counts: &Counts,
    failure: Option<&Failure>,
) -> ReplicaSetStatus {
    let mut conditions = rs.status.conditions.clone();
    match failure {
        None => remove_condition(&mut conditions, REPLICA_FAILURE),
        // A condition that is there stays as it is, even if another error came since.
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

/// What a status says that the stored one does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Nothing.
    Nothing,
    /// A loss, a condition, or a count that has reached what is wanted: somebody may wait for it.
    Urgent,
    /// That the spec was observed, and neither a loss nor a condition.
    Generation,
    /// Counts that have come nearer to what is wanted, and nothing else.
    Progress,
}

impl News {
    /// What `status` says that `rs.status` does not; `counts` are its numbers as they can be compared.
    pub fn of(rs: &ReplicaSet, status: &ReplicaSetStatus, counts: Counts) -> Self {
        if rs.status.conditions != status.conditions || counts.are_a_loss(rs) {
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

fn replica_failure(failure: &Failure) -> Condition {
    let reason = match failure.plan {
        Plan::Create(_) => "FailedCreate",
        Plan::Delete(_) | Plan::Nothing => "FailedDelete",
    };
    Condition {
        type_: REPLICA_FAILURE.to_owned(),
        status: "True".to_owned(),
        // The API has whole seconds.
        last_transition_time: Timestamp::from_second(failure.at.as_second()).ok(),
        reason: Some(reason.to_owned()),
        message: Some(failure.message.clone()),
        ..Condition::default()
    }
}
