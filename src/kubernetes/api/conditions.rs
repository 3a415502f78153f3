//! Conditions of a ReplicaSet's status, with upstream's three helpers.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use serde::de::{self, SeqAccess, Visitor};
use serde::ser::{self, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::compact_timestamp::optional;

pub const REPLICA_FAILURE: &str = "ReplicaFailure";

/// Condition type: protected pods block a scale-down. Upstream has no such condition.
pub const SCALE_DOWN_BLOCKED: &str = "ScaleDownBlocked";

/// Other conditions than the controller's are decoded up to this number, and passed on as they came
/// beyond it: each takes some 200 bytes.
const DECODED_MAX: usize = 16;

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
    pub reason: Option<String>,
    pub message: Option<String>,
    /// The condition as it was received; a new one has none.
    pub original: Original,
}

impl Condition {
    /// A condition with status `True`.
    pub fn new(type_: &str, reason: &str, message: String, since: Option<Timestamp>) -> Self {
        Self {
            type_: type_.to_owned(),
            status: "True".to_owned(),
            last_transition_time: since,
            reason: Some(reason.to_owned()),
            message: Some(message),
            original: Original::None,
        }
    }
}

/// A received condition, in its encoding. Equal to any other: what it says is in the fields.
#[derive(Clone, Default)]
pub enum Original {
    #[default]
    None,
    Json(Box<RawValue>),
    Protobuf(Box<[u8]>),
    FurtherJson(String),
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
        let read = read.map_err(de::Error::custom)?;
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

/// True if the next received condition, of this type, is to be decoded.
pub(super) fn is_decoded(conditions: &[Condition], type_: &str) -> bool {
    let is_own = [REPLICA_FAILURE, SCALE_DOWN_BLOCKED].contains(&type_);
    conditions.len() < DECODED_MAX || is_own && get_condition(conditions, type_).is_none()
}

/// Reads a list of conditions. The last one may stand for further ones.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Condition>, D::Error> {
    struct List;
    impl<'de> Visitor<'de> for List {
        type Value = Vec<Condition>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of conditions")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let (mut conditions, mut further, mut n) = (Vec::new(), String::new(), 0);
            while let Some(condition) = list.next_element::<Condition>()? {
                match &condition.original {
                    Original::Json(original) if !is_decoded(&conditions, &condition.type_) => {
                        further.push_str(original.get());
                        n += 1;
                    }
                    _ => conditions.push(condition),
                }
            }
            if n > 0 {
                further.shrink_to_fit();
                conditions.push(Condition {
                    type_: format!("({n} more)"),
                    original: Original::FurtherJson(further),
                    ..Condition::default()
                });
            }
            Ok(conditions)
        }
    }
    deserializer.deserialize_any(List)
}

/// Writes what [`deserialize`] has read.
pub(super) fn serialize<S: Serializer>(
    conditions: &[Condition],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut list = serializer.serialize_seq(None)?;
    for condition in conditions {
        let Original::FurtherJson(further) = &condition.original else {
            list.serialize_element(condition)?;
            continue;
        };
        for condition in serde_json::Deserializer::from_str(further).into_iter::<&RawValue>() {
            list.serialize_element(condition.map_err(ser::Error::custom)?)?;
        }
    }
    list.end()
}

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

pub fn remove_condition(conditions: &mut Vec<Condition>, type_: &str) {
    conditions.retain(|condition| condition.type_ != type_);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Condition, REPLICA_FAILURE, get_condition, remove_condition, set_condition};
    use crate::api::ReplicaSetStatus;

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
    fn any_number_of_received_conditions_are_written_as_they_came() {
        let condition = |i: usize| match i {
            30 => json!({"type": REPLICA_FAILURE, "status": "True", "reason": "FailedCreate"}),
            _ => json!({"type": format!("T{i}"), "status": "", "unknown": [{"a": "]}"}]}),
        };
        let sent: Vec<Value> = (0..40).map(condition).collect();
        let json = json!({"replicas": 1, "conditions": sent}).to_string();
        let read: ReplicaSetStatus = serde_json::from_str(&json).expect("a status");
        assert!(get_condition(&read.conditions, REPLICA_FAILURE).is_some());
        assert!(read.conditions.len() < 20, "{}", read.conditions.len());
        let mut written: Value = serde_json::to_value(&read).expect("JSON");
        let written = written["conditions"].as_array_mut().expect("a list");
        // A condition of the controller itself moves to the front of the undecoded ones.
        written.sort_by_key(|it| sent.iter().position(|sent| sent == it));
        assert_eq!(*written, sent);
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
