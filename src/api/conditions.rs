//! Conditions of a ReplicaSet's status, with upstream's three helpers.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::compact_timestamp::optional;

/// Condition type: creating or deleting pods failed.
pub const REPLICA_FAILURE: &str = "ReplicaFailure";

/// Condition type: protected pods block a scale-down. Upstream has no such condition.
pub const SCALE_DOWN_BLOCKED: &str = "ScaleDownBlocked";

/// One condition. One that is not changed is written as it was received, with all that this build
/// does not know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// The condition type, such as [`REPLICA_FAILURE`].
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// When `status` last changed.
    pub last_transition_time: Option<Timestamp>,
    /// A machine-readable reason in one word.
    pub reason: Option<String>,
    /// A sentence for people.
    pub message: Option<String>,
    /// The condition as it was received; a new one has none.
    pub original: Original,
}

/// A received condition, in its encoding. Equal to any other: what it says is in the fields.
#[derive(Clone, Default)]
pub enum Original {
    /// A new condition.
    #[default]
    None,
    /// In JSON.
    Json(Box<RawValue>),
    /// In protobuf.
    Protobuf(Box<[u8]>),
}

impl PartialEq for Original {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Original {}

impl fmt::Debug for Original {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

/// The fields that are read.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ConditionJson<'a> {
    #[serde(borrow, default, rename = "type")]
    type_: Cow<'a, str>,
    #[serde(borrow, default)]
    status: Cow<'a, str>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "optional"
    )]
    last_transition_time: Option<Timestamp>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    reason: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    message: Option<Cow<'a, str>>,
}

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let original = Box::<RawValue>::deserialize(deserializer)?;
        let read = serde_json::from_str::<ConditionJson<'_>>(original.get());
        let read = read.map_err(D::Error::custom)?;
        Ok(Self {
            type_: read.type_.into_owned(),
            status: read.status.into_owned(),
            last_transition_time: read.last_transition_time,
            reason: read.reason.map(Cow::into_owned),
            message: read.message.map(Cow::into_owned),
            original: Original::Json(original),
        })
    }
}

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Original::Json(original) = &self.original {
            return original.serialize(serializer);
        }
        let written = ConditionJson {
            type_: Cow::Borrowed(&self.type_),
            status: Cow::Borrowed(&self.status),
            last_transition_time: self.last_transition_time,
            reason: self.reason.as_deref().map(Cow::Borrowed),
            message: self.message.as_deref().map(Cow::Borrowed),
        };
        written.serialize(serializer)
    }
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
    fn a_received_condition_is_written_as_it_came() {
        let json = r#"{"type":"N","x":[1, 2],"lastTransitionTime":"9999-12-31T23:59:59Z"}"#;
        let read: Condition = serde_json::from_str(json).expect("a condition");
        assert_eq!(read.last_transition_time, Some(jiff::Timestamp::MAX));
        assert_eq!(serde_json::to_string(&read).ok().as_deref(), Some(json));
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
