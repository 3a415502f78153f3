//! The status of a Deployment: counts, conditions, and whether a rollout makes progress.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{
    DeploymentCondition, DeploymentStatus, ReplicaSetCondition, ReplicaSetStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::fenceposts::{Fenceposts, total};
use crate::objects::Deployment;

pub(crate) const AVAILABLE: &str = "Available";
pub(crate) const PROGRESSING: &str = "Progressing";
pub(crate) const REPLICA_FAILURE: &str = "ReplicaFailure";

/// Reasons of the condition [`PROGRESSING`], and of events (kubernetes
/// `pkg/controller/deployment/util/deployment_util.go`).
pub(crate) mod reason {
    pub(crate) const REPLICA_SET_UPDATED: &str = "ReplicaSetUpdated";
    pub(crate) const CREATE_FAILED: &str = "ReplicaSetCreateError";
    pub(crate) const CREATED: &str = "NewReplicaSetCreated";
    pub(crate) const FOUND: &str = "FoundNewReplicaSet";
    pub(crate) const COMPLETE: &str = "NewReplicaSetAvailable";
    pub(crate) const TIMED_OUT: &str = "ProgressDeadlineExceeded";
    pub(crate) const PAUSED: &str = "DeploymentPaused";
    pub(crate) const RESUMED: &str = "DeploymentResumed";
}

pub(crate) fn condition<'a>(
    status: &'a DeploymentStatus,
    type_: &str,
) -> Option<&'a DeploymentCondition> {
    let mut conditions = status.conditions.iter().flatten();
    conditions.find(|condition| condition.type_.as_deref() == Some(type_))
}

/// The reason of the condition [`PROGRESSING`].
pub(crate) fn progress_reason(status: &DeploymentStatus) -> Option<&str> {
    condition(status, PROGRESSING)?.reason.as_deref()
}

pub(crate) fn remove_condition(status: &mut DeploymentStatus, type_: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_.as_deref() != Some(type_));
        if conditions.is_empty() {
            status.conditions = None;
        }
    }
}

/// A condition that changed `now`. `status` is `True`, `False` or `Unknown`.
pub(crate) fn new_condition(
    type_: &str,
    status: &str,
    reason: &str,
    message: impl Into<String>,
    now: Timestamp,
) -> DeploymentCondition {
    DeploymentCondition {
        type_: Some(type_.to_owned()),
        status: Some(status.to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(message.into()),
        last_update_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

/// Adds `new`, or replaces the condition of its type. One of the same status and reason stays as it
/// is, and the time of transition changes with the status only.
pub(crate) fn set_condition(status: &mut DeploymentStatus, mut new: DeploymentCondition) {
    let type_ = new.type_.clone().unwrap_or_default();
    if let Some(current) = condition(status, &type_)
        && current.status == new.status
    {
        if current.reason == new.reason {
            return;
        }
        new.last_transition_time
            .clone_from(&current.last_transition_time);
    }
    remove_condition(status, &type_);
    status.conditions.get_or_insert_default().push(new);
}

/// A ReplicaSet as the status sees it.
#[derive(Clone, Copy)]
pub(crate) struct Counted<'a> {
    /// `spec.replicas`, with the changes of this sync.
    pub(crate) replicas: i32,
    pub(crate) status: &'a ReplicaSetStatus,
    pub(crate) is_new: bool,
}

/// The status that follows from the ReplicaSets. Conditions and the collision count are those of
/// `base`; only [`AVAILABLE`] is recomputed.
pub(crate) fn calculate(
    d: &Deployment,
    base: &DeploymentStatus,
    sets: &[Counted<'_>],
    counts_terminating: bool,
    now: Timestamp,
) -> DeploymentStatus {
    let sum = |count: fn(&Counted<'_>) -> i32| total(sets.iter().map(count));
    let available = sum(|set| set.status.available_replicas.unwrap_or_default());
    let wanted = sum(|set| set.replicas);
    // The API omits zeros.
    let some = |count: i32| (count != 0).then_some(count);
    let mut status = DeploymentStatus {
        observed_generation: Some(d.generation),
        replicas: some(sum(|set| set.status.replicas)),
        updated_replicas: some(sum(|set| if set.is_new { set.status.replicas } else { 0 })),
        ready_replicas: some(sum(|set| set.status.ready_replicas.unwrap_or_default())),
        available_replicas: some(available),
        unavailable_replicas: some((wanted - available).max(0)),
        terminating_replicas: counts_terminating.then(|| terminating(sets)).flatten(),
        collision_count: base.collision_count,
        conditions: base.conditions.clone(),
    };
    let min_available = d.replicas - Fenceposts::of(d).max_unavailable;
    let condition = if available >= min_available {
        let message = "Deployment has minimum availability.";
        new_condition(AVAILABLE, "True", "MinimumReplicasAvailable", message, now)
    } else {
        let message = "Deployment does not have minimum availability.";
        new_condition(
            AVAILABLE,
            "False",
            "MinimumReplicasUnavailable",
            message,
            now,
        )
    };
    set_condition(&mut status, condition);
    status
}

/// The terminating pods of all ReplicaSets; `None` if the controller of one does not count them.
fn terminating(sets: &[Counted<'_>]) -> Option<i32> {
    let mut counts = sets.iter().map(|set| {
        let was_synced = set.status.observed_generation.unwrap_or_default() != 0;
        match set.status.terminating_replicas {
            None if !was_synced => Some(0),
            count => count,
        }
    });
    counts.try_fold(0, |sum: i32, count| Some(sum.saturating_add(count?)))
}

/// True if this condition says that another ReplicaSet than `name` was rolled out.
///
/// DIFFERS: upstream keeps such a condition: if the status update after the create of the
/// ReplicaSet is lost, a Recreate rollout without pods counts as complete for ever.
pub(crate) fn is_of_another(progressing: &DeploymentCondition, name: &str) -> bool {
    let message = progressing.message.as_deref().unwrap_or_default();
    progressing.reason.as_deref() == Some(reason::COMPLETE)
        && message.starts_with("ReplicaSet \"")
        && !message.starts_with(&format!("ReplicaSet \"{name}\""))
}

/// True once all pods are updated and available, and no old one is left.
pub(crate) fn is_complete(d: &Deployment, status: &DeploymentStatus) -> bool {
    let counts = [
        status.updated_replicas,
        status.replicas,
        status.available_replicas,
    ];
    counts.iter().all(|it| it.unwrap_or_default() == d.replicas)
        && status.observed_generation.unwrap_or_default() >= d.generation
}

/// True if `new` shows more new pods, fewer old ones, or more that are ready or available.
fn has_progressed(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    let n = |count: Option<i32>| count.unwrap_or_default();
    let n_old = |status: &DeploymentStatus| n(status.replicas) - n(status.updated_replicas);
    n(new.updated_replicas) > n(old.updated_replicas)
        || n_old(new) < n_old(old)
        || n(new.ready_replicas) > n(old.ready_replicas)
        || n(new.available_replicas) > n(old.available_replicas)
}

/// True if no progress was seen for the Deployment's deadline. A rollout that succeeded has no
/// deadline.
fn has_timed_out(d: &Deployment, status: &DeploymentStatus, now: Timestamp) -> bool {
    let Some(condition) = condition(status, PROGRESSING) else {
        return false;
    };
    match condition.reason.as_deref() {
        Some(reason::COMPLETE) => false,
        Some(reason::TIMED_OUT) => true,
        _ => deadline(d, condition).is_some_and(|deadline| deadline < now),
    }
}

/// The time at which a rollout whose last progress is `condition` has failed.
fn deadline(d: &Deployment, condition: &DeploymentCondition) -> Option<Timestamp> {
    let seconds = u64::try_from(d.progress_deadline?).unwrap_or_default();
    let Time(updated) = condition.last_update_time.as_ref()?;
    updated.checked_add(Duration::from_secs(seconds)).ok()
}

/// The time at which the rollout has failed unless it makes progress; `None` if it has succeeded or
/// failed already.
pub(crate) fn deadline_of(d: &Deployment) -> Option<Timestamp> {
    let condition = condition(&d.status, PROGRESSING)?;
    let is_over = [reason::COMPLETE, reason::TIMED_OUT].map(Some);
    if is_over.contains(&condition.reason.as_deref()) {
        return None;
    }
    deadline(d, condition)
}

/// Judges the progress of a rollout in `status`, which was calculated from the ReplicaSets. `base`
/// is the status before. `new_set` is the name of the ReplicaSet that is rolled out.
pub(crate) fn judge_progress(
    d: &Deployment,
    base: &DeploymentStatus,
    status: &mut DeploymentStatus,
    new_set: Option<&str>,
    now: Timestamp,
) {
    if d.progress_deadline.is_none() {
        remove_condition(status, PROGRESSING);
        return;
    }
    // Without a new rollout a resync has no progress to judge.
    let was_complete = progress_reason(base) == Some(reason::COMPLETE);
    if was_complete && status.replicas == status.updated_replicas {
        return;
    }
    let what = match new_set {
        Some(name) => format!("ReplicaSet \"{name}\""),
        None => format!("Deployment \"{}\"", d.key.name),
    };
    let progressing = |value, reason, what| new_condition(PROGRESSING, value, reason, what, now);
    if is_complete(d, status) {
        let message = format!("{what} has successfully progressed.");
        set_condition(status, progressing("True", reason::COMPLETE, message));
    } else if has_progressed(base, status) {
        let message = format!("{what} is progressing.");
        let mut new = progressing("True", reason::REPLICA_SET_UPDATED, message);
        // Each progress moves the time of update, and so the deadline, even with the same reason.
        if let Some(current) =
            condition(base, PROGRESSING).filter(|it| it.status.as_deref() == Some("True"))
        {
            new.last_transition_time
                .clone_from(&current.last_transition_time);
        }
        remove_condition(status, PROGRESSING);
        set_condition(status, new);
    } else if has_timed_out(d, status, now) {
        let message = format!("{what} has timed out progressing.");
        set_condition(status, progressing("False", reason::TIMED_OUT, message));
    }
}

/// When to check a rollout without progress again; `None` if nothing can become overdue. A second
/// is added, since the API's times are whole seconds.
pub(crate) fn recheck_after(d: &Deployment, now: Timestamp) -> Option<Duration> {
    let condition = condition(&d.status, PROGRESSING)?;
    if is_complete(d, &d.status) || condition.reason.as_deref() == Some(reason::TIMED_OUT) {
        return None;
    }
    let remaining = deadline(d, condition)?.duration_since(now);
    Some(Duration::try_from(remaining).unwrap_or_default() + Duration::from_secs(1))
}

/// Copies the failure of a ReplicaSet to create or delete pods, that of the new one first.
pub(crate) fn copy_failure(status: &mut DeploymentStatus, sets: &[Counted<'_>]) {
    fn failure<'a>(set: &Counted<'a>) -> Option<&'a ReplicaSetCondition> {
        let mut conditions = set.status.conditions.iter().flatten();
        conditions.find(|condition| condition.type_.as_deref() == Some(REPLICA_FAILURE))
    }
    let of_new = sets.iter().filter(|set| set.is_new).find_map(failure);
    match of_new.or_else(|| sets.iter().find_map(failure)) {
        Some(failure) => {
            let failure = failure.clone();
            let condition = DeploymentCondition {
                type_: failure.type_,
                status: failure.status,
                reason: failure.reason,
                message: failure.message,
                last_update_time: failure.last_transition_time.clone(),
                last_transition_time: failure.last_transition_time,
            };
            set_condition(status, condition);
        }
        None => remove_condition(status, REPLICA_FAILURE),
    }
}
