//! What to do about the Lease, decided from what was seen of it and when. Pure: no I/O, no clock. One
//! for each [`Elector`](super::Elector), on the thread `lease`.

use std::time::Duration;

use super::options::LeaderElectionOptions;
use super::record::{LeaderElectionRecord, RELEASED_DURATION_SECONDS};

/// What to do with a Lease that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Another holds it, or held it so recently that it may not know yet that it does no more.
    Held,
    /// We led, and it does not name us.
    Lost,
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
    /// Until when the holder that was seen last may act as such.
    held_until: Duration,
    /// When the write began that made or kept us the leader; `None` while we are not.
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
            held_until: Duration::ZERO,
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

    /// How long to wait before the next renewal: until a retry period after the last one was sent,
    /// or, if the last try has failed, for a retry period, but not beyond the end of the
    /// leadership.
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

    /// What a leader writes without reading first: the API server refuses it unless the Lease is as
    /// this leader left it.
    pub fn renewal(&self, wall: &str) -> Option<LeaderElectionRecord> {
        self.renewed_at.map(|_| self.kept(&self.observed, wall))
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

    /// Takes notice of the Lease as it was read, `None` if it is not there, and says what to do
    /// about it. `seen_at` is the time after the answer had come: a record that was on its way for
    /// long is not older than that to us.
    ///
    /// DIFFERS: upstream's renewal acquires a Lease that another has held and released meanwhile,
    /// and acts on by caches from before. Here a leader that the Lease does not name has lost it.
    pub fn on_read(
        &mut self,
        read: Option<LeaderElectionRecord>,
        seen_at: Duration,
        wall: &str,
    ) -> Decision {
        let is_there = read.is_some();
        self.observe(read.unwrap_or_default(), seen_at);
        if self.is_leader() {
            return Decision::Update(self.kept(&self.observed, wall));
        }
        if self.renewed_at.take().is_some() {
            return Decision::Lost;
        }
        if seen_at < self.held_until {
            return Decision::Held;
        }
        if !is_there {
            return Decision::Update(self.first_record(wall));
        }
        Decision::Update(LeaderElectionRecord {
            lease_transitions: self.observed.lease_transitions.saturating_add(1),
            preferred_holder: self.observed.preferred_holder.clone(),
            strategy: self.observed.strategy.clone(),
            ..self.first_record(wall)
        })
    }

    /// DIFFERS: upstream takes a Lease that is deleted, or emptied by hand, at once. Here its
    /// holder, who may not know yet, is given the time that the Lease has granted.
    fn observe(&mut self, record: LeaderElectionRecord, seen_at: Duration) {
        if record == self.observed {
            return;
        }
        let granted = if !record.holder_identity.is_empty() {
            record.granted()
        } else if record.is_released() {
            Duration::ZERO
        } else if !self.observed.holder_identity.is_empty() {
            self.observed.granted()
        } else {
            self.options.granted()
        };
        self.held_until = seen_at + granted;
        self.observed = record;
        self.observed_at = seen_at;
    }

    /// Takes notice that `record` was written: no request with this record was sent before `began`.
    pub fn on_written(&mut self, record: LeaderElectionRecord, began: Duration, now: Duration) {
        self.observe(record, now);
        self.renewed_at = self.is_leader().then_some(began);
    }

    /// What to write to give up a Lease that was just read; `None` if it is not ours. We lead no
    /// more, whether this is written or not.
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

    fn kept(&self, old: &LeaderElectionRecord, wall: &str) -> LeaderElectionRecord {
        LeaderElectionRecord {
            lease_duration_seconds: self.options.lease_duration_seconds(),
            renew_time: wall.to_owned(),
            ..old.clone()
        }
    }
}
