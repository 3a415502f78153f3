//! Decides what to do about the Lease, from what the elector read and when. Pure: no I/O, no clock.
//! Each [`Elector`](super::Elector) owns one, on the thread `lease`.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::LeaderElectionOptions;

/// The observed state of the election. All times are points on the boot clock.
#[derive(Debug)]
pub struct Election {
    options: LeaderElectionOptions,
    observed: LeaderElectionRecord,
    /// When this process first saw `observed`, by its own clock. The times in the record are
    /// ignored, since another machine's clock wrote them.
    pub(super) observed_at: Duration,
    /// Until when the last seen holder may consider itself the leader.
    pub(super) held_until: Duration,
    /// When the write began that acquired or renewed the lease; `None` while this process does not
    /// lead.
    renewed_at: Option<Duration>,
    reported: String,
}

impl Election {
    pub fn new(options: LeaderElectionOptions) -> Self {
        Self {
            options,
            observed: LeaderElectionRecord::default(),
            observed_at: Duration::ZERO,
            held_until: Duration::ZERO,
            renewed_at: None,
            reported: String::new(),
        }
    }

    pub fn is_leader(&self) -> bool {
        self.observed.holder_identity == self.options.identity
    }

    /// The holder in the last seen Lease; empty for none.
    pub fn leader(&self) -> &str {
        &self.observed.holder_identity
    }

    /// The holder, if it changed since the last call.
    pub fn new_leader(&mut self) -> Option<String> {
        if self.reported == self.observed.holder_identity {
            return None;
        }
        self.reported.clone_from(&self.observed.holder_identity);
        Some(self.reported.clone())
    }

    /// Until when this process may write; `None` if it may not.
    pub fn may_write_until(&self) -> Option<Duration> {
        Some(self.renewed_at? + self.options.write_limit())
    }

    /// Time until the next renewal. After a success this is one retry period from when the last
    /// renewal was sent. After a failure it is one retry period, but not beyond the write limit.
    pub fn pause(&self, has_failed: bool, now: Duration) -> Duration {
        let retry_period = self.options.retry_period;
        let (Some(renewed_at), Some(until)) = (self.renewed_at, self.may_write_until()) else {
            return Duration::ZERO;
        };
        if has_failed {
            retry_period.min(until.saturating_sub(now))
        } else {
            (renewed_at + retry_period).saturating_sub(now)
        }
    }

    /// The record that a leader writes without a read, while no other process can hold the Lease.
    /// Later its version proves nothing: an API server restored from a backup uses versions twice
    /// (client-go `leaderelection.go:isLeaseValid`).
    pub fn renewal(&self, now: Duration, wall: &str) -> Option<LeaderElectionRecord> {
        let is_valid = now < self.renewed_at? + self.options.granted();
        is_valid.then(|| self.renewed_record(&self.observed, wall))
    }

    fn first_record(&self, wall: &str) -> LeaderElectionRecord {
        LeaderElectionRecord {
            holder_identity: self.options.identity.clone(),
            lease_duration_seconds: self.options.lease_duration_seconds(),
            acquire_time: wall.to_owned(),
            renew_time: wall.to_owned(),
            ..LeaderElectionRecord::default()
        }
    }

    /// Observes the Lease as it was read (`None` if it does not exist) and returns the record to
    /// write; `None` if this process must not write one. `seen_at` is the time after the response
    /// arrived, so time in flight does not age the record.
    ///
    /// DIFFERS: upstream's renewal also acquires a Lease that another daemon held and released in
    /// between, and continues with stale caches. Here such a leader has lost the lease.
    pub fn on_read(
        &mut self,
        read: Option<LeaderElectionRecord>,
        seen_at: Duration,
        wall: &str,
    ) -> Option<LeaderElectionRecord> {
        let exists = read.is_some();
        self.observe(read.unwrap_or_default(), seen_at);
        // The Lease names this process: a renewal on the slow path, a restart with the same
        // identity, or an earlier create whose response was lost.
        if self.is_leader() {
            return Some(self.renewed_record(&self.observed, wall));
        }
        // This process may have slept through another leader's term, so its caches prove nothing.
        if self.renewed_at.take().is_some() {
            return None;
        }
        // Another daemon holds the Lease, or held it so recently that it may not know of its loss.
        if seen_at < self.held_until {
            return None;
        }
        if !exists {
            return Some(self.first_record(wall));
        }
        Some(LeaderElectionRecord {
            lease_transitions: self.observed.lease_transitions.saturating_add(1),
            preferred_holder: self.observed.preferred_holder.clone(),
            strategy: self.observed.strategy.clone(),
            ..self.first_record(wall)
        })
    }

    /// DIFFERS: upstream takes a deleted or emptied Lease at once. Here an elector that saw the
    /// holder first waits for the time that the Lease granted it, since it may not know yet.
    fn observe(&mut self, record: LeaderElectionRecord, seen_at: Duration) {
        if record == self.observed {
            return;
        }
        // How long the last holder may still act: as its own record grants, not at all after a
        // release, and otherwise as the previous record granted.
        let granted = if !record.holder_identity.is_empty() {
            record.granted()
        } else if record.is_released() {
            Duration::ZERO
        } else if !self.observed.holder_identity.is_empty() {
            self.observed.granted()
        } else {
            self.held_until.saturating_sub(seen_at)
        };
        self.held_until = seen_at + granted;
        self.observed = record;
        self.observed_at = seen_at;
    }

    pub fn on_written(&mut self, record: LeaderElectionRecord, began: Duration, now: Duration) {
        self.observe(record, now);
        self.renewed_at = self.is_leader().then_some(began);
    }

    /// The record that releases the Lease that was just read; `None` if the Lease does not name
    /// this process. Either way this process no longer leads.
    pub fn release(
        &mut self,
        record: &LeaderElectionRecord,
        wall: &str,
    ) -> Option<LeaderElectionRecord> {
        self.renewed_at = None;
        (record.holder_identity == self.options.identity).then(|| LeaderElectionRecord {
            holder_identity: String::new(),
            lease_duration_seconds: RELEASED_DURATION_SECONDS,
            acquire_time: wall.to_owned(),
            renew_time: wall.to_owned(),
            ..record.clone()
        })
    }

    fn renewed_record(&self, old: &LeaderElectionRecord, wall: &str) -> LeaderElectionRecord {
        LeaderElectionRecord {
            lease_duration_seconds: self.options.lease_duration_seconds(),
            renew_time: wall.to_owned(),
            ..old.clone()
        }
    }
}

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
    pub holder_identity: String,
    pub lease_duration_seconds: i32,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub acquire_time: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub renew_time: String,
    pub lease_transitions: i32,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub preferred_holder: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub strategy: String,
}

impl LeaderElectionRecord {
    /// How long the holder may act after a renewal.
    pub(super) fn granted(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.lease_duration_seconds).unwrap_or(0))
    }

    /// True if the last holder released the lease, as opposed to a user who edited the Lease: it
    /// has the form of client-go's release (`tools/leaderelection/leaderelection.go:release`).
    pub(super) fn is_released(&self) -> bool {
        self.holder_identity.is_empty()
            && self.lease_duration_seconds == RELEASED_DURATION_SECONDS
            && !self.renew_time.is_empty()
            && self.renew_time == self.acquire_time
    }

    /// Reads a Lease's spec; a missing spec gives an empty record, and `null` an absent field.
    pub fn from_spec(spec: Option<&Value>) -> serde_json::Result<Self> {
        let mut spec = spec.cloned().unwrap_or_default();
        match &mut spec {
            Value::Null => return Ok(Self::default()),
            Value::Object(fields) => fields.retain(|_, value| !value.is_null()),
            _ => {}
        }
        serde_json::from_value(spec)
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

    /// An unreadable Lease would never be acquired again.
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
