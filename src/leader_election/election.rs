//! What to do about the Lease, decided from what was seen of it and when. Pure: no I/O, no clock. One
//! for each [`Elector`](super::Elector), on the thread `lease`.

use std::time::Duration;

use super::options::LeaderElectionOptions;
use super::record::LeaderElectionRecord;

/// What to do with a Lease that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Another holds it.
    Held,
    /// Write this.
    Update(LeaderElectionRecord),
}

/// Everything that is known of the election. Times are points on the boot clock.
#[derive(Debug)]
pub struct Election {
    options: LeaderElectionOptions,
    observed: LeaderElectionRecord,
    /// When `observed` was first seen, by our own clock; what the record says of times is never looked
    /// at, since another machine's clock wrote it.
    observed_at: Duration,
    /// When the try began that made or kept us the holder; `None` while we are not.
    renewed_at: Option<Duration>,
    reported: String,
}

impl Election {
    /// Nothing seen yet.
    pub fn new(options: LeaderElectionOptions) -> Self {
        Self {
            options,
            observed: LeaderElectionRecord::default(),
            observed_at: Duration::ZERO,
            renewed_at: None,
            reported: String::new(),
        }
    }

    /// What the election is held by.
    pub fn options(&self) -> &LeaderElectionOptions {
        &self.options
    }

    /// True if we were the holder when the Lease was last seen.
    pub fn is_leader(&self) -> bool {
        self.observed.holder_identity == self.options.identity
    }

    /// The holder when the Lease was last seen; empty for nobody.
    pub fn leader(&self) -> &str {
        &self.observed.holder_identity
    }

    /// When the last record was first seen.
    pub fn observed_at(&self) -> Duration {
        self.observed_at
    }

    /// The holder, if it is another than at the last call.
    pub fn new_leader(&mut self) -> Option<String> {
        if self.reported == self.observed.holder_identity {
            return None;
        }
        self.reported.clone_from(&self.observed.holder_identity);
        Some(self.reported.clone())
    }

    /// Until when we may write; `None` if we may not.
    pub fn may_write_until(&self) -> Option<Duration> {
        Some(self.renewed_at? + self.options.write_limit())
    }

    /// What a leader writes without reading first, trusting that the Lease is as it left it.
    pub fn renewal(&self, now: Duration, wall: &str) -> Option<LeaderElectionRecord> {
        (self.is_leader() && self.is_valid(now)).then(|| self.kept(&self.observed, wall))
    }

    /// What to create where there is no Lease.
    pub fn first_record(&self, wall: &str) -> LeaderElectionRecord {
        LeaderElectionRecord {
            holder_identity: self.options.identity.clone(),
            lease_duration_seconds: self.options.lease_duration_seconds(),
            acquire_time: wall.to_owned(),
            renew_time: wall.to_owned(),
            ..LeaderElectionRecord::default()
        }
    }

    /// Takes notice of the Lease as it was read, and says what to do about it. `seen_at` is the time
    /// after the answer had come: a record that was on its way for long is not older than that to us.
    pub fn on_read(
        &mut self,
        record: LeaderElectionRecord,
        seen_at: Duration,
        wall: &str,
    ) -> Decision {
        if record != self.observed {
            self.observed = record;
            self.observed_at = seen_at;
        }
        if self.is_leader() {
            return Decision::Update(self.kept(&self.observed, wall));
        }
        self.renewed_at = None;
        if !self.observed.holder_identity.is_empty() && self.is_valid(seen_at) {
            return Decision::Held;
        }
        Decision::Update(LeaderElectionRecord {
            lease_transitions: self.observed.lease_transitions.saturating_add(1),
            preferred_holder: self.observed.preferred_holder.clone(),
            strategy: self.observed.strategy.clone(),
            ..self.first_record(wall)
        })
    }

    /// Takes notice that `record` was written by a try that began at `began`: no request with this record
    /// was sent before.
    pub fn on_written(&mut self, record: LeaderElectionRecord, began: Duration, now: Duration) {
        self.observed = record;
        self.observed_at = now;
        self.renewed_at = self.is_leader().then_some(began);
    }

    /// What to write to give up a Lease that was just read; `None` if it is not ours.
    pub fn release(
        &self,
        record: &LeaderElectionRecord,
        wall: &str,
    ) -> Option<LeaderElectionRecord> {
        (record.holder_identity == self.options.identity).then(|| LeaderElectionRecord {
            holder_identity: String::new(),
            lease_duration_seconds: 1,
            acquire_time: wall.to_owned(),
            renew_time: wall.to_owned(),
            ..record.clone()
        })
    }

    fn kept(&self, old: &LeaderElectionRecord, wall: &str) -> LeaderElectionRecord {
        LeaderElectionRecord {
            lease_duration_seconds: self.options.lease_duration_seconds(),
            renew_time: wall.to_owned(),
            ..old.clone()
        }
    }

    /// True while the holder that was seen may not be replaced.
    fn is_valid(&self, now: Duration) -> bool {
        let seconds = u64::try_from(self.observed.lease_duration_seconds).unwrap_or(0);
        self.observed_at + Duration::from_secs(seconds) > now
    }
}
