//! Decides what to do about the Lease, from what the elector read and when. Pure: no I/O, no clock.
//! Each [`Elector`](super::Elector) owns one, on the thread `lease`.

use std::time::Duration;

use super::options::LeaderElectionOptions;
use super::record::{LeaderElectionRecord, RELEASED_DURATION_SECONDS};

/// The observed state of the election. All times are points on the boot clock.
#[derive(Debug)]
pub struct Election {
    options: LeaderElectionOptions,
    observed: LeaderElectionRecord,
    /// When this process first saw `observed`, by its own clock. The times in the record are
    /// ignored, since another machine's clock wrote them.
    observed_at: Duration,
    /// Until when the last seen holder may consider itself the leader.
    held_until: Duration,
    /// When the write began that acquired or renewed the lease; `None` while this process does not
    /// lead.
    renewed_at: Option<Duration>,
    reported: String,
}

impl Election {
    /// An election that has not seen any Lease.
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

    /// The options of this election.
    pub fn options(&self) -> &LeaderElectionOptions {
        &self.options
    }

    /// True if the last seen Lease names this process.
    pub fn is_leader(&self) -> bool {
        self.observed.holder_identity == self.options.identity
    }

    /// The holder in the last seen Lease; empty for none.
    pub fn leader(&self) -> &str {
        &self.observed.holder_identity
    }

    /// When this process first saw the current record.
    pub fn observed_at(&self) -> Duration {
        self.observed_at
    }

    /// Until when the last seen holder may consider itself the leader.
    pub fn held_until(&self) -> Duration {
        self.held_until
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

    /// The record that a leader writes without a read, while nobody else can hold the Lease. Later
    /// its version proves nothing: an API server restored from a backup uses versions twice
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
    /// between, and goes on with stale caches. Here such a leader has lost the lease.
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

    /// DIFFERS: upstream takes a deleted or emptied Lease at once. Here the elector first waits for
    /// the time that the Lease granted its holder, who may not know yet.
    fn observe(&mut self, record: LeaderElectionRecord, seen_at: Duration) {
        if record == self.observed {
            return;
        }
        // How long the last holder may still act: as its own record grants, not at all after a
        // release, and otherwise as the previous record granted. If that named no holder either, as
        // long as this process would grant.
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

    /// Records that `record` was written. No request with this record was sent before `began`.
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
