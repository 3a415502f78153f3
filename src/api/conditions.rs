//! Conditions of a ReplicaSet's status, with upstream's three helpers.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Condition type: creating or deleting pods failed.
pub const REPLICA_FAILURE: &str = "ReplicaFailure";

/// Condition type: protected pods block a scale-down. Upstream has no such condition.
pub const SCALE_DOWN_BLOCKED: &str = "ScaleDownBlocked";

/// One condition. Keeps unknown fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// The condition type, such as [`REPLICA_FAILURE`].
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// When `status` last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Timestamp>,
    /// A machine-readable reason in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Unknown fields of an object decoded from JSON.
    #[serde(flatten)]
    pub other: Map<String, Value>,
    /// Unknown fields of an object decoded from protobuf.
    #[serde(skip)]
    pub unknown: Vec<u8>,
}

/// The condition of this type, if any.
pub fn get_condition<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Appends a condition and removes an earlier one of its type. Does nothing if status and reason
/// are unchanged (kubernetes `pkg/controller/replicaset/replica_set_utils.go:SetCondition`).
pub fn set_condition(conditions: &mut Vec<Condition>, condition: Condition) {
    if let Some(current) = get_condition(conditions, &condition.type_)
        && current.status == condition.status
        && current.reason == condition.reason
    {
        return;
    }
    remove_condition(conditions, &condition.type_);
    conditions.push(condition);
}

/// Removes the condition of this type, if any.
pub fn remove_condition(conditions: &mut Vec<Condition>, type_: &str) {
    conditions.retain(|condition| condition.type_ != type_);
}

#[cfg(test)]
mod tests {
    use super::{Condition, REPLICA_FAILURE, get_condition, remove_condition, set_condition};

    fn condition(type_: &str, reason: &str) -> Condition {
        Condition {
            type_: type_.to_owned(),
            status: "True".to_owned(),
            reason: Some(reason.to_owned()),
            ..Condition::default()
        }
    }

    #[track_caller]
    fn check(before: &[Condition], change: impl Fn(&mut Vec<Condition>), after: &[Condition]) {
        let mut conditions = before.to_vec();
        change(&mut conditions);
        assert_eq!(conditions, after);
    }

    #[test]
    fn f_20_o_03_lookup_set_and_remove() {
        let (failure, other) = (
            condition(REPLICA_FAILURE, "FailedCreate"),
            condition("Other", "x"),
        );
        let renewed = condition(REPLICA_FAILURE, "FailedDelete");
        assert_eq!(
            get_condition(std::slice::from_ref(&failure), REPLICA_FAILURE),
            Some(&failure)
        );
        assert_eq!(get_condition(std::slice::from_ref(&failure), "Other"), None);

        let set = |new: &Condition| {
            let new = new.clone();
            move |conditions: &mut Vec<Condition>| set_condition(conditions, new.clone())
        };
        check(&[], set(&failure), std::slice::from_ref(&failure));
        check(
            std::slice::from_ref(&other),
            set(&failure),
            &[other.clone(), failure.clone()],
        );
        check(std::slice::from_ref(&failure), set(&renewed), &[renewed]);
        let stale = Condition {
            message: Some("newer".to_owned()),
            ..failure.clone()
        };
        check(
            std::slice::from_ref(&failure),
            set(&stale),
            std::slice::from_ref(&failure),
        );

        let remove =
            |conditions: &mut Vec<Condition>| remove_condition(conditions, REPLICA_FAILURE);
        check(&[], remove, &[]);
        check(&[failure], remove, &[]);
        check(
            std::slice::from_ref(&other),
            remove,
            std::slice::from_ref(&other),
        );
    }
}
