//! The body of the thread `lease`: acquires, renews, and releases or loses the Lease (client-go
//! `tools/leaderelection/leaderelection.go:LeaderElector`).
//!
//! The thread blocks in requests, each with a timeout, and sleeps at most 2.2 retry periods between
//! attempts; the stop signals end the sleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

use super::election::{Election, LeaderElectionRecord};
use super::lock::{LeaseReference, Lock};
use super::{JITTER_FACTOR, LeaderElectionOptions};
use crate::api::Status;
use crate::client::{ClientError, Fence};
use crate::stdx::clock::Clock;
use crate::stdx::stop::{Cause, Stop};
use crate::stdx::turns;
use crate::telemetry::metrics;

const RELEASE_PAUSE: Duration = Duration::from_millis(50);

/// Minimum timeout of a request for the Lease.
const REQUEST_TIMEOUT_MIN: Duration = Duration::from_millis(100);

/// Callbacks for changes of leadership. The elector calls them on the thread `lease`: a callback
/// that blocks delays the next renewal.
pub trait Callbacks: Send {
    /// This process leads and the fence is open. Must not block.
    fn on_started_leading(&mut self, lease: &LeaseReference);

    /// This process lost the lease and the fence is closed. The process must not write and should
    /// exit.
    fn on_stopped_leading(&mut self, why: &str);

    /// The Lease has a new holder, possibly this process; `identity` is empty for none.
    fn on_new_leader(&mut self, identity: &str);
}

pub struct ElectorParts {
    /// The options. INVARIANT: the retry period is above zero, the renew deadline above 1.2 times
    /// it, and the lease duration above that and at least a second; the flags are checked for this.
    pub options: LeaderElectionOptions,
    pub lock: Box<dyn Lock>,
    pub fence: Arc<LeaseFence>,
    pub callbacks: Box<dyn Callbacks>,
    /// Its time since boot decides; only people read the time of day in the Lease.
    pub clock: Arc<dyn Clock>,
    /// Returns uniform values in `0.0..1.0`.
    pub random: Box<dyn FnMut() -> f64 + Send>,
    /// The daemon stops: the elector acquires nothing more, but keeps a held lease until `done`.
    pub stop: Stop,
    /// The last write has ended. With `Requested` the elector releases the lease; with `Failed` it
    /// lets the lease expire.
    pub done: Stop,
}

/// The time at which a write began.
struct Stamp {
    /// On the boot clock, which decides.
    began: Duration,
    /// In the format of a Lease, with microseconds.
    wall: String,
}

type Write =
    fn(&mut (dyn Lock + 'static), &LeaderElectionRecord, Duration) -> Result<(), ClientError>;

pub struct Elector {
    pub(super) election: Election,
    parts: ElectorParts,
    health: LeaderElectionHealth,
    /// A write that may have made this process the holder was sent.
    may_hold: bool,
    last_problem: String,
}

impl Elector {
    pub fn new(parts: ElectorParts) -> Self {
        let (options, clock) = (&parts.options, Arc::clone(&parts.clock));
        Self {
            health: LeaderElectionHealth::new(&options.lease.name, options.lease_duration, clock),
            election: Election::new(options.clone()),
            parts,
            may_hold: false,
            last_problem: String::new(),
        }
    }

    pub fn health(&self) -> LeaderElectionHealth {
        self.health.clone()
    }

    /// Runs until the lease is lost, or until `stop` and then `done` are signalled.
    pub fn run(mut self) {
        let lease = self.parts.options.lease.clone();
        let identity = &self.parts.options.identity;
        log::info!(lease:%, identity; "attempting to acquire leader lease {lease} as {identity}");
        self.set_master_status(false);
        if self.acquire() {
            log::info!(lease:%; "successfully acquired lease {lease}");
            if let Err(why) = self.renew() {
                self.parts.fence.close();
                self.set_master_status(false);
                let why = format!("the lease {lease} is lost: {why}");
                self.parts.callbacks.on_stopped_leading(&why);
                return;
            }
        } else if self.may_hold {
            // A write without a response may have acquired the lease. `done` decides about the
            // release.
            self.parts.done.wait();
        }
        self.parts.fence.close();
        self.set_master_status(false);
        if self.may_hold && matches!(self.parts.done.cause(), Some(Cause::Requested(_))) {
            self.release();
        }
    }

    /// Retries until this process holds the lease; returns false if the daemon stops first.
    fn acquire(&mut self) -> bool {
        let retry_period = self.parts.options.retry_period;
        loop {
            if self.parts.stop.is_stopped() {
                return false;
            }
            let acquired = self.try_acquire_or_renew();
            self.report_transition();
            if acquired {
                self.set_master_status(true);
                // A daemon that is already stopping must not start its workers.
                if !self.parts.stop.is_stopped() {
                    self.parts
                        .callbacks
                        .on_started_leading(&self.parts.lock.reference());
                }
                return true;
            }
            let jitter = 1.0 + JITTER_FACTOR * (self.parts.random)();
            self.parts.stop.wait_timeout(retry_period.mul_f64(jitter));
        }
    }

    /// Renews until `done`. Never acquires: a process that lost the Lease must exit.
    ///
    /// DIFFERS: upstream's renew deadline counts from its first attempt, which starts up to a retry
    /// period after the last renewal. Here the deadline counts from when the last renewal was sent,
    /// since no write may follow it. The retry period counts from there too, so that requests of up
    /// to half the deadline do not cost the lease.
    fn renew(&mut self) -> Result<(), String> {
        let mut has_failed = false;
        loop {
            let now = self.parts.clock.boot_time();
            if self
                .parts
                .done
                .wait_timeout(self.election.pause(has_failed, now))
            {
                return Ok(());
            }
            has_failed = !self.try_acquire_or_renew();
            self.report_transition();
            let Some(until) = self.election.may_write_until() else {
                return Err(match self.election.leader() {
                    "" => "it has no holder".to_owned(),
                    leader => format!("it is held by {leader}"),
                });
            };
            // A failed attempt does not cost the lease before the write limit: keep trying.
            if has_failed && self.parts.clock.boot_time() >= until {
                let limit = self.parts.options.write_limit();
                let why = &self.last_problem;
                return Err(format!("it could not be renewed for {limit:?}: {why}"));
            }
        }
    }

    /// Makes one attempt; returns true if this process holds the lease and renewed it (client-go
    /// `leaderelection.go:tryAcquireOrRenew`).
    pub(super) fn try_acquire_or_renew(&mut self) -> bool {
        let is_ours = self.try_fast_then_slow_path();
        let (now, election) = (self.parts.clock.boot_time(), &self.election);
        match election.may_write_until() {
            Some(until) => self.parts.fence.open_until(until),
            None => self.parts.fence.close(),
        }
        let observed = if is_ours { now } else { election.observed_at };
        let renewed_at = election.is_leader().then_some(observed);
        self.health.observed(renewed_at);
        is_ours
    }

    fn try_fast_then_slow_path(&mut self) -> bool {
        // All writes of one attempt carry the same renew time, so an observer of the first write
        // takes the others for the same renewal. Therefore all of them count from before the first.
        let mut stamp = self.stamp();
        // The fast path: a leader updates without a read, as upstream does.
        if let Some(record) = self.election.renewal(stamp.began, &stamp.wall) {
            match self.write(record, &stamp, Lock::update) {
                Ok(()) => return true,
                Err(error) => log::debug!(error:%; "the update failed; reading the lease first"),
            }
        }
        let leads = self.election.may_write_until().is_some();
        let limit = self.limit();
        let read = match self.parts.lock.get(limit) {
            Ok(record) => Some(record),
            Err(error) if error.status().is_some_and(Status::is_not_found) => None,
            Err(error) => return self.succeeded("read", Err(error)),
        };
        let (verb, write): (_, Write) = match &read {
            Some(_) => ("update", Lock::update),
            None => ("create", Lock::create),
        };
        let seen_at = self.parts.clock.boot_time();
        // A candidate has sent no write in this attempt, so its time counts from after the read.
        if !leads {
            stamp = self.stamp();
        }
        match self.election.on_read(read, seen_at, &stamp.wall) {
            None => {
                log::debug!("the lease is held by {:?}", self.election.leader());
                self.last_problem.clear();
                false
            }
            Some(record) => {
                if self.election.is_leader() {
                    let name = &*self.parts.options.lease.name;
                    let slowpath = &metrics::global().leader_election.slowpath;
                    slowpath.with_label_values(&[name]).inc();
                }
                let written = self.write(record, &stamp, write);
                self.succeeded(verb, written)
            }
        }
    }

    fn write(
        &mut self,
        record: LeaderElectionRecord,
        stamp: &Stamp,
        write: Write,
    ) -> Result<(), ClientError> {
        let limit = self.limit();
        let written = write(&mut *self.parts.lock, &record, limit);
        // A write without a conclusive response may have taken effect.
        let error = written.as_ref().err();
        self.may_hold |= error.is_none_or(ClientError::leaves_outcome_open);
        written?;
        let now = self.parts.clock.boot_time();
        self.election.on_written(record, stamp.began, now);
        Ok(())
    }

    /// Timeout of each phase of the next request: to connect, to send, and to respond. A leader has
    /// what is left of its right to write.
    fn limit(&self) -> Duration {
        let limit = self.parts.options.request_timeout();
        let Some(until) = self.election.may_write_until() else {
            return limit;
        };
        let remaining = until.saturating_sub(self.parts.clock.boot_time());
        limit.min(remaining).max(REQUEST_TIMEOUT_MIN)
    }

    /// Logs a failure: as a warning if the message changed, otherwise at debug level.
    fn succeeded(&mut self, verb: &str, result: Result<(), ClientError>) -> bool {
        let Err(error) = result else {
            self.last_problem.clear();
            return true;
        };
        let lease = self.parts.options.lease.clone();
        let problem = format!("cannot {verb} the lease {lease}: {error}");
        if problem == self.last_problem {
            log::debug!("{problem}");
        } else {
            log::warn!("{problem}");
        }
        self.last_problem = problem;
        false
    }

    /// Releases the lease, so that the next leader need not wait for its expiry. Retries on
    /// conflicts for at most one renew deadline (client-go `leaderelection.go:release`).
    pub(super) fn release(&mut self) {
        let lease = self.parts.options.lease.clone();
        let deadline = self.parts.clock.boot_time() + self.parts.options.renew_deadline;
        let problem = loop {
            match self.try_release() {
                Ok(true) => return log::info!(lease:%; "released lease {lease}"),
                Ok(false) => {
                    return log::debug!("not releasing lease {lease}: another process holds it");
                }
                Err(error)
                    if error.status().is_some_and(Status::is_conflict)
                        && self.parts.clock.boot_time() < deadline =>
                {
                    // Both stop signals were given before, so a fresh one serves as a plain pause.
                    Stop::new().wait_timeout(RELEASE_PAUSE);
                }
                Err(error) => break error,
            }
        };
        log::warn!(error:% = problem; "cannot release the lease {lease}");
    }

    /// Makes one attempt; returns false if the Lease does not name this process. INVARIANT: the
    /// update empties only the Lease version just read. The API server rejects it if anybody wrote
    /// in between.
    fn try_release(&mut self) -> Result<bool, ClientError> {
        let limit = self.parts.options.request_timeout();
        let record = self.parts.lock.get(limit)?;
        let Stamp { wall, .. } = self.stamp();
        let Some(released) = self.election.release(&record, &wall) else {
            return Ok(false);
        };
        self.parts.lock.update(&released, limit)?;
        let now = self.parts.clock.boot_time();
        self.election.on_written(released, now, now);
        self.health.observed(None);
        self.report_transition();
        Ok(true)
    }

    fn set_master_status(&self, is_master: bool) {
        let status = &metrics::global().leader_election.master_status;
        let status = status.with_label_values(&[&*self.parts.options.lease.name]);
        status.set(i64::from(is_master));
    }

    pub(super) fn report_transition(&mut self) {
        if let Some(leader) = self.election.new_leader() {
            if leader.is_empty() || self.election.is_leader() {
                log::debug!("leader: {leader:?}");
            } else {
                let lease = self.parts.options.lease.clone();
                let held_for = self.election.held_until;
                let held_for = held_for.saturating_sub(self.parts.clock.boot_time());
                let until = expiry(self.parts.clock.wall(), held_for);
                log::info!(
                    lease:%, holder = leader, until:%;
                    "the lease {lease} is held by {leader}; it expires at {until} unless renewed"
                );
            }
            self.parts.callbacks.on_new_leader(&leader);
        }
    }

    fn stamp(&self) -> Stamp {
        let began = self.parts.clock.boot_time();
        let wall = self.parts.clock.wall();
        let wall = wall.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        Stamp { began, wall }
    }
}

/// The time of day `held_for` after `now`, with the date unless that is within the hour.
fn expiry(now: Timestamp, held_for: Duration) -> String {
    let is_soon = held_for < Duration::from_hours(1);
    let format = if is_soon {
        "%H:%M:%SZ"
    } else {
        "%Y-%m-%dT%H:%M:%SZ"
    };
    (now + held_for).strftime(format).to_string()
}

impl std::fmt::Debug for Elector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Elector")
            .field("election", &self.election)
            .field("may_hold", &self.may_hold)
            .finish_non_exhaustive()
    }
}

/// Grace period after the lease expires before the check fails (kubernetes
/// `cmd/kube-controller-manager/app/controllermanager.go:Run`, `NewLeaderHealthzAdaptor`).
pub const TOLERANCE: Duration = Duration::from_secs(20);

/// The health check `leaderElection`. Clones share their state.
#[derive(Clone, Debug)]
pub struct LeaderElectionHealth(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    name: String,
    lease_duration: Duration,
    clock: Arc<dyn Clock>,
    /// The first and the last of the uninterrupted renewals; `None` if the last seen Lease does not
    /// name this process.
    renewals: Mutex<Option<(Duration, Duration)>>,
}

impl LeaderElectionHealth {
    pub(super) fn new(name: &str, lease_duration: Duration, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Shared {
            name: name.to_owned(),
            lease_duration,
            clock,
            renewals: Mutex::default(),
        }))
    }

    /// Fails if this process holds the lease and has not renewed it for the lease duration plus
    /// [`TOLERANCE`]: the process should have exited by then. A standby is healthy, and so is a
    /// process that has not started the election.
    pub fn check(&self) -> Result<(), String> {
        let Shared { name, clock, .. } = &*self.0;
        let limit = self.0.lease_duration + TOLERANCE;
        let renewals = *self.0.renewals.lock();
        if renewals.is_some_and(|(_, last)| clock.boot_time().saturating_sub(last) > limit) {
            return Err(format!(
                "failed election to renew leadership on lease {name}"
            ));
        }
        Ok(())
    }

    pub fn is_leader(&self) -> bool {
        self.0.renewals.lock().is_some()
    }

    /// How long this process has held the Lease; `None` for a standby.
    pub fn leading_for(&self) -> Option<Duration> {
        let (first, _) = (*self.0.renewals.lock())?;
        Some(self.0.clock.boot_time().saturating_sub(first))
    }

    pub(super) fn observed(&self, renewed_at: Option<Duration>) {
        let mut renewals = self.0.renewals.lock();
        *renewals = renewed_at.map(|last| (renewals.map_or(last, |(first, _)| first), last));
    }
}

/// Open until a time that each renewal moves forward. Initially closed.
#[derive(Debug)]
pub struct LeaseFence {
    clock: Arc<dyn Clock>,
    margin: Duration,
    /// Nanoseconds on the boot clock; 0 if closed. A single atomic, so readers never see half a
    /// change.
    open_until: AtomicU64,
}

impl LeaseFence {
    /// A closed fence. `margin` is the time between its closing and the earliest failover.
    pub fn new(clock: Arc<dyn Clock>, margin: Duration) -> Self {
        Self {
            clock,
            margin,
            open_until: AtomicU64::new(0),
        }
    }

    /// Opens the fence until `boot_time`.
    pub(super) fn open_until(&self, boot_time: Duration) {
        let nanos = u64::try_from(boot_time.as_nanos()).unwrap_or(u64::MAX);
        self.open_until.store(nanos, Ordering::SeqCst);
    }

    pub(super) fn close(&self) {
        self.open_until.store(0, Ordering::SeqCst);
    }
}

impl Fence for LeaseFence {
    fn is_open(&self) -> bool {
        let until = Duration::from_nanos(self.open_until.load(Ordering::SeqCst));
        // ORDER: load the limit before the clock. In the other order, a thread frozen between the
        // two reads would check a stale time and pass an expired fence.
        turns::reached("fence: between the limit and the clock");
        self.clock.boot_time() < until
    }

    fn delivery_limit(&self) -> Duration {
        self.margin
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::{LeaderElectionHealth, expiry};
    use crate::stdx::clock::Clock;
    use crate::stdx::testing::FakeClock;

    #[test]
    fn l_16_only_a_leader_past_its_lease_is_unhealthy() {
        let clock = Arc::new(FakeClock::default());
        let minute = Duration::from_mins(1);
        let clock_of_check = Arc::clone(&clock) as Arc<dyn Clock>;
        let health = LeaderElectionHealth::new("foo", minute, clock_of_check);
        clock.advance(Duration::from_hours(1));
        health.check().expect("before anything was seen");
        let unhealthy = Err("failed election to renew leadership on lease foo".to_owned());
        for (is_leader, age_seconds, expected) in [
            (true, 3600, unhealthy.clone()),
            (false, 3600, Ok(())),
            (true, 0, Ok(())),
            (true, 61, Ok(())),
            (true, 80, Ok(())),
            (true, 81, unhealthy),
        ] {
            health.observed(is_leader.then(|| clock.boot_time()));
            clock.advance(Duration::from_secs(age_seconds));
            assert_eq!(health.check(), expected, "{is_leader} {age_seconds}");
            assert_eq!(health.is_leader(), is_leader);
        }
    }

    #[test]
    fn an_expiry_that_is_far_away_has_its_date() {
        let now = "2026-11-28T04:07:55Z".parse().expect("a time");
        let at = |seconds| expiry(now, Duration::from_secs(seconds));
        assert_eq!([at(15), at(3_599)], ["04:08:10Z", "05:07:54Z"]);
        assert_eq!(at(86_400), "2026-11-29T04:07:55Z");
    }
}
