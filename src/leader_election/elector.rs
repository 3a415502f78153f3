//! The body of the thread `lease`: acquires, renews, and releases or loses
//! (client-go `tools/leaderelection/leaderelection.go:LeaderElector`).
//!
//! It waits for requests, each of which has a limit, and between tries for at most 2.2 retry periods;
//! the stop signals end those waits.

use std::sync::Arc;
use std::time::Duration;

use super::election::{Decision, Election};
use super::fence::LeaseFence;
use super::health::LeaderElectionHealth;
use super::lock::{LeaseReference, Lock, LockError};
use super::options::{JITTER_FACTOR, LeaderElectionOptions};
use super::record::LeaderElectionRecord;
use crate::api::Status;
use crate::stdx::boot_clock::BootClock;
use crate::stdx::clock::Clock;
use crate::stdx::stop::{Cause, Stop};
use crate::telemetry::metrics;

/// Between two tries to release.
const RELEASE_PAUSE: Duration = Duration::from_millis(50);

/// No request for the Lease gets less than this.
const REQUEST_TIMEOUT_MIN: Duration = Duration::from_millis(100);

/// Who is told how the election goes. Called on the thread `lease`: what blocks here delays the next
/// renewal.
pub trait Callbacks: Send {
    /// We lead, and the fence is open. Must not block.
    fn on_started_leading(&mut self, lease: &LeaseReference);

    /// We led, and the fence is closed: nothing may be written any more, and the process should end.
    fn on_stopped_leading(&mut self, why: &str);

    /// Somebody else leads, or we do; nobody if empty.
    fn on_new_leader(&mut self, identity: &str);
}

/// What an elector works on and with.
pub struct ElectorParts {
    /// How the election is held. INVARIANT: without
    /// [`problems`](LeaderElectionOptions::problems).
    pub options: LeaderElectionOptions,
    /// What is fought for.
    pub lock: Box<dyn Lock>,
    /// Opened and closed.
    pub fence: Arc<LeaseFence>,
    /// Who is told.
    pub callbacks: Box<dyn Callbacks>,
    /// What everything is measured by.
    pub boot_clock: Arc<dyn BootClock>,
    /// What the Lease's times are taken from, for people.
    pub clock: Arc<dyn Clock>,
    /// Uniform in `0.0..1.0`.
    pub random: Box<dyn FnMut() -> f64 + Send>,
    /// The daemon stops: nothing is acquired any more. What is held is kept until `done`.
    pub stop: Stop,
    /// The last write has ended: requested, the lease is released; failed, it is left to run out.
    pub done: Stop,
}

/// When a write began.
struct Stamp {
    /// On the boot clock, by which we go.
    began: Duration,
    /// As a Lease has it, with six digits of a second.
    wall: String,
}

/// A write of a [`Lock`].
type Write =
    fn(&mut (dyn Lock + 'static), &LeaderElectionRecord, Duration) -> Result<(), LockError>;

/// Takes part in the election.
pub struct Elector {
    election: Election,
    lock: Box<dyn Lock>,
    fence: Arc<LeaseFence>,
    callbacks: Box<dyn Callbacks>,
    boot_clock: Arc<dyn BootClock>,
    clock: Arc<dyn Clock>,
    random: Box<dyn FnMut() -> f64 + Send>,
    stop: Stop,
    done: Stop,
    health: LeaderElectionHealth,
    /// A write was sent that may have made us the holder.
    may_hold: bool,
    last_problem: String,
}

impl Elector {
    /// An elector that has not begun.
    pub fn new(parts: ElectorParts) -> Self {
        let options = &parts.options;
        let boot_clock = Arc::clone(&parts.boot_clock);
        Self {
            health: LeaderElectionHealth::new(&options.name, options.lease_duration, boot_clock),
            election: Election::new(parts.options),
            lock: parts.lock,
            fence: parts.fence,
            callbacks: parts.callbacks,
            boot_clock: parts.boot_clock,
            clock: parts.clock,
            random: parts.random,
            stop: parts.stop,
            done: parts.done,
            may_hold: false,
            last_problem: String::new(),
        }
    }

    /// The health check.
    pub fn health(&self) -> LeaderElectionHealth {
        self.health.clone()
    }

    /// Takes part until the lease is lost, or released after `stop` and then `done` were given.
    pub fn run(mut self) {
        let lease = self.lock.describe();
        log::info!("waiting for the lease {lease}");
        self.set_master_status(false);
        if self.acquire() {
            log::info!("we lead now: the lease {lease} is ours");
            if let Err(why) = self.renew() {
                self.fence.close();
                self.set_master_status(false);
                let why = format!("the lease {lease} is lost: {why}");
                self.callbacks.on_stopped_leading(&why);
                return;
            }
        } else if self.may_hold {
            self.done.wait();
        }
        self.fence.close();
        self.set_master_status(false);
        if self.may_hold && matches!(self.done.cause(), Some(Cause::Requested(_))) {
            self.release();
        }
    }

    /// Tries until the lease is ours; false if the daemon stops first.
    fn acquire(&mut self) -> bool {
        let retry_period = self.election.options().retry_period;
        loop {
            if self.stop.is_stopped() {
                return false;
            }
            let acquired = self.try_acquire_or_renew();
            self.report_transition();
            if acquired {
                self.set_master_status(true);
                if !self.stop.is_stopped() {
                    self.callbacks.on_started_leading(&self.lock.reference());
                }
                return true;
            }
            let jitter = 1.0 + JITTER_FACTOR * (self.random)();
            self.stop.wait_timeout(retry_period.mul_f64(jitter));
        }
    }

    /// Renews until `done`, and never acquires: who has lost the Lease has to begin anew.
    ///
    /// DIFFERS: upstream gives up a renew deadline after it began to try, which is up to a retry
    /// period later. Here the deadline counts from the last renewal, since nothing may be written
    /// after it. A retry period counts from there too, so that requests that take up to half the
    /// deadline each do not cost the lease.
    fn renew(&mut self) -> Result<(), String> {
        let mut has_failed = false;
        loop {
            let now = self.boot_clock.boot_time();
            if self.done.wait_timeout(self.election.pause(has_failed, now)) {
                return Ok(());
            }
            has_failed = !self.try_acquire_or_renew();
            self.report_transition();
            let Some(until) = self.election.may_write_until() else {
                return Err(match self.election.leader() {
                    "" => "it names nobody".to_owned(),
                    leader => format!("it is held by {leader}"),
                });
            };
            if has_failed && self.boot_clock.boot_time() >= until {
                let limit = self.election.options().write_limit();
                let why = &self.last_problem;
                return Err(format!("it could not be renewed for {limit:?}: {why}"));
            }
        }
    }

    /// One try; true if the lease is ours for another while
    /// (client-go `leaderelection.go:tryAcquireOrRenew`).
    pub(super) fn try_acquire_or_renew(&mut self) -> bool {
        let is_ours = self.try_both_paths();
        let (now, election) = (self.boot_clock.boot_time(), &self.election);
        match election.may_write_until() {
            Some(until) => self.fence.open_until(until),
            None => self.fence.close(),
        }
        let observed = if is_ours { now } else { election.observed_at() };
        self.health
            .observed(election.leader(), election.is_leader(), observed);
        is_ours
    }

    fn try_both_paths(&mut self) -> bool {
        // All writes of one try carry one time, and whoever has seen the first of them takes the
        // others for the same renewal: so all count from before the first.
        let mut stamp = self.stamp();
        if let Some(record) = self.election.renewal(&stamp.wall) {
            match self.write(record, &stamp, Lock::update) {
                Ok(()) => return true,
                Err(error) => log::debug!(error:%; "the lease is read before it is written"),
            }
        }
        let leads = self.election.may_write_until().is_some();
        let limit = self.limit();
        let read = match self.lock.get(limit) {
            Ok(record) => Some(record),
            Err(error) if error.is_not_found() => None,
            Err(error) => return self.succeeded("read", Err(error)),
        };
        let (verb, write): (_, Write) = match &read {
            Some(_) => ("update", Lock::update),
            None => ("create", Lock::create),
        };
        let seen_at = self.boot_clock.boot_time();
        if !leads {
            stamp = self.stamp();
        }
        match self.election.on_read(read, seen_at, &stamp.wall) {
            Decision::Held | Decision::Lost => {
                log::debug!("the lease is held by {:?}", self.election.leader());
                self.last_problem.clear();
                false
            }
            Decision::Update(record) => {
                if self.election.is_leader() {
                    let name = &self.election.options().name;
                    metrics::global().leader_election.slowpath_exercised(name);
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
    ) -> Result<(), LockError> {
        let limit = self.limit();
        let written = write(&mut *self.lock, &record, limit);
        self.may_hold |= !written.as_ref().is_err_and(LockError::is_without_effect);
        written?;
        let now = self.boot_clock.boot_time();
        self.election.on_written(record, stamp.began, now);
        Ok(())
    }

    /// How long the next request may take: a leader's not longer than it leads.
    fn limit(&self) -> Duration {
        let limit = self.election.options().request_timeout();
        let Some(until) = self.election.may_write_until() else {
            return limit;
        };
        let left = until.saturating_sub(self.boot_clock.boot_time());
        limit.min(left).max(REQUEST_TIMEOUT_MIN)
    }

    /// Logs a problem, at the default level only if it is another than before.
    fn succeeded(&mut self, verb: &str, result: Result<(), LockError>) -> bool {
        let Err(error) = result else {
            self.last_problem.clear();
            return true;
        };
        let problem = format!("cannot {verb} the lease {}: {error}", self.lock.describe());
        if problem == self.last_problem {
            log::debug!("{problem}");
        } else {
            log::warn!("{problem}");
        }
        self.last_problem = problem;
        false
    }

    /// Gives the lease back, so that the next one need not wait until it has run out. Tries again
    /// where somebody has written the Lease in between, for a renew deadline at most (client-go
    /// `leaderelection.go:release`).
    pub(super) fn release(&mut self) {
        let lease = self.lock.describe();
        let deadline = self.boot_clock.boot_time() + self.election.options().renew_deadline;
        let problem = loop {
            match self.try_release() {
                Ok(true) => return log::info!("the lease {lease} is released"),
                Ok(false) => return log::debug!("the lease {lease} does not name us"),
                Err(LockError::Client(error))
                    if error.status().is_some_and(Status::is_conflict)
                        && self.boot_clock.boot_time() < deadline =>
                {
                    // Both signals were given before: this is only a pause.
                    Stop::new().wait_timeout(RELEASE_PAUSE);
                }
                Err(error) => break error,
            }
        };
        log::warn!(error:% = problem; "cannot release the lease {lease}");
    }

    /// One try; false if the lease is not ours. INVARIANT: what is emptied is the very Lease that
    /// was read and named us, since the update is refused if anybody has written it in between.
    fn try_release(&mut self) -> Result<bool, LockError> {
        let limit = self.election.options().request_timeout();
        let record = self.lock.get(limit)?;
        let Stamp { wall, .. } = self.stamp();
        let Some(released) = self.election.release(&record, &wall) else {
            return Ok(false);
        };
        self.lock.update(&released, limit)?;
        let now = self.boot_clock.boot_time();
        self.election.on_written(released, now, now);
        self.health.observed("", false, now);
        self.report_transition();
        Ok(true)
    }

    fn set_master_status(&self, is_master: bool) {
        let name = &self.election.options().name;
        let metrics = &metrics::global().leader_election;
        metrics.set_master_status(name, is_master);
    }

    pub(super) fn report_transition(&mut self) {
        if let Some(leader) = self.election.new_leader() {
            match &*leader {
                "" => log::debug!("nobody leads"),
                leader => log::info!("leader: {leader}"),
            }
            self.callbacks.on_new_leader(&leader);
        }
    }

    fn stamp(&self) -> Stamp {
        let began = self.boot_clock.boot_time();
        let wall = self.clock.wall();
        let wall = wall.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        Stamp { began, wall }
    }
}

impl std::fmt::Debug for ElectorParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ElectorParts")
            .field("options", &self.options)
            .field("lock", &self.lock)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Elector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Elector")
            .field("election", &self.election)
            .field("may_hold", &self.may_hold)
            .finish_non_exhaustive()
    }
}
