//! The condition that reports a back-off, once per step.

use jiff::Timestamp;

use super::back_off::BackOff;
use crate::api::conditions::{Condition, REPLICA_FAILURE, get_condition, remove_condition};
use crate::api::{ReplicaSet, ReplicaSetStatus};
use crate::controller::decide::status::Failure;

/// The reason of the condition and of the event.
pub const FAILED_POD_BACKOFF: &str = "FailedPodBackoff";

/// Adds the condition of `back_off` to the calculated `status` of `rs`. Returns its message if it
/// reports a step that the stored status does not.
///
/// A condition with this reason is replaced when the step changes, and by the failure of a request.
pub fn report_back_off(
    status: &mut ReplicaSetStatus,
    rs: &ReplicaSet,
    back_off: Option<&BackOff>,
    failure: Option<&Failure>,
) -> Option<String> {
    let stored = &rs.status.conditions;
    let place = stored.iter().position(|it| it.type_ == REPLICA_FAILURE);
    let known = get_condition(stored, REPLICA_FAILURE);
    let known = known.filter(|it| it.reason.as_deref() == Some(FAILED_POD_BACKOFF));
    let mut put = |condition: Condition| {
        remove_condition(&mut status.conditions, REPLICA_FAILURE);
        let place = place.unwrap_or(usize::MAX).min(status.conditions.len());
        status.conditions.insert(place, condition);
    };
    if failure.is_some() {
        return None;
    }
    let back_off = back_off?;
    // The API stores whole seconds.
    let step_began = Timestamp::from_second(back_off.step_began.as_second()).ok();
    let is_told = |known: &&Condition| known.last_transition_time >= step_began;
    match known {
        Some(known) if is_told(&known) || !back_off.settles_in.is_zero() => {
            put(known.clone());
            None
        }
        None if !back_off.settles_in.is_zero() => None,
        _ => {
            let message = message(back_off);
            put(Condition {
                type_: REPLICA_FAILURE.to_owned(),
                status: "True".to_owned(),
                last_transition_time: step_began,
                reason: Some(FAILED_POD_BACKOFF.to_owned()),
                message: Some(message.clone()),
                ..Condition::default()
            });
            Some(message)
        }
    }
}

/// Describes the back-off in sentences that hold for the whole step.
fn message(back_off: &BackOff) -> String {
    format!(
        "{}. Of the missing pods one is created every {:.0} s, and all as soon as one is Ready",
        back_off.history(),
        back_off.wait.as_secs_f64().max(1.0)
    )
}
