//! The election fields of a Lease. Pure.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The duration in a released Lease, in seconds (client-go
/// `tools/leaderelection/leaderelection.go:release`).
pub(super) const RELEASED_DURATION_SECONDS: i32 = 1;

/// The fields of a Lease's spec.
///
/// Times stay text, since nothing computes with times from another machine's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaderElectionRecord {
    /// Identity of the holder; empty for none.
    #[serde(deserialize_with = "or_default")]
    pub holder_identity: String,
    /// How long a renewal holds the lease, in seconds.
    #[serde(deserialize_with = "or_default")]
    pub lease_duration_seconds: i32,
    /// When the holder acquired it.
    #[serde(
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub acquire_time: String,
    /// When the holder last renewed it.
    #[serde(
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub renew_time: String,
    /// How often the holder changed.
    #[serde(deserialize_with = "or_default")]
    pub lease_transitions: i32,
    /// The holder that a coordinator prefers.
    #[serde(
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub preferred_holder: String,
    /// The coordinator's strategy.
    #[serde(
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub strategy: String,
}

/// Treats `null` like an absent field.
fn or_default<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Deserialize<'de> + Default,
    D: serde::Deserializer<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl LeaderElectionRecord {
    /// How long the holder may act after a renewal.
    pub(super) fn granted(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.lease_duration_seconds).unwrap_or(0))
    }

    /// True if the last holder released the lease, as opposed to somebody who edited the Lease: it
    /// bears the marks of client-go's release (`tools/leaderelection/leaderelection.go:release`).
    pub(super) fn is_released(&self) -> bool {
        self.holder_identity.is_empty()
            && self.lease_duration_seconds == RELEASED_DURATION_SECONDS
            && !self.renew_time.is_empty()
            && self.renew_time == self.acquire_time
    }

    /// Reads a Lease's spec; a missing spec gives an empty record.
    ///
    /// # Errors
    /// If a field has another type.
    pub fn from_spec(spec: Option<&Value>) -> serde_json::Result<Self> {
        match spec {
            None | Some(Value::Null) => Ok(Self::default()),
            Some(spec) => Self::deserialize(spec),
        }
    }

    /// Writes the fields into a spec and keeps its other fields.
    pub fn write_into(&self, spec: &mut Map<String, Value>) {
        if let Ok(Value::Object(fields)) = serde_json::to_value(self) {
            spec.extend(fields);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::LeaderElectionRecord;

    #[test]
    fn l_11_a_spec_becomes_a_record_and_back_without_loss() {
        let spec = json!({
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-01T00:00:00.000001Z",
            "renewTime": "2026-01-01T00:00:10.123456Z",
            "leaseTransitions": 4,
            "preferredHolder": "b",
            "strategy": "OldestEmulationVersion",
        });
        let record = LeaderElectionRecord::from_spec(Some(&spec)).expect("a record");
        assert_eq!(
            (record.lease_transitions, &*record.strategy),
            (4, "OldestEmulationVersion")
        );
        let mut written = json!({"ofTomorrow": {"a": [1]}});
        record.write_into(written.as_object_mut().expect("a map"));
        let mut expected = spec.clone();
        expected["ofTomorrow"] = json!({"a": [1]});
        assert_eq!(written, expected);
        assert_eq!(
            LeaderElectionRecord::from_spec(Some(&written)).expect("a record"),
            record
        );
    }

    /// A Lease that nobody can read would never be taken over.
    #[test]
    fn the_end_of_the_calendar_is_read() {
        let spec = json!({"holderIdentity": "a", "renewTime": "9999-12-31T23:59:59.999999Z"});
        let record = LeaderElectionRecord::from_spec(Some(&spec)).expect("a record");
        let mut written = json!({});
        record.write_into(written.as_object_mut().expect("a map"));
        assert_eq!(written["renewTime"], spec["renewTime"]);
    }

    #[test]
    fn an_empty_spec_is_an_empty_record() {
        for spec in [
            None,
            Some(Value::Null),
            Some(json!({})),
            Some(json!({"holderIdentity": null})),
        ] {
            let record = LeaderElectionRecord::from_spec(spec.as_ref()).expect("a record");
            assert_eq!(record, LeaderElectionRecord::default());
        }
        assert!(LeaderElectionRecord::from_spec(Some(&json!({"leaseTransitions": "x"}))).is_err());
    }
}
