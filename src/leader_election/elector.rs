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
use crate::stdx::boot_clock::BootClock;
use crate::stdx::clock::Clock;
use crate::stdx::stop::{Cause, Stop};
use crate::telemetry::metrics;

/// Tries to release: one more, if somebody wrote the Lease in between.
const RELEASE_TRIES: usize = 2;

/// No request for the Lease gets less than this.
const REQUEST_TIMEOUT_MIN: Duration = Duration::from_millis(100);

/// Who is told how the election goes. Called on the thread `lease`: what blocks here delays the next
/// renewal.
pub trait Callbacks: Send {
    /// We lead, and the fence is open.
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

    /// Renews until `done`.
    ///
    /// DIFFERS: upstream gives up a renew deadline after it began to try, which is up to a retry period
    /// later. Here the deadline counts from the last renewal, since nothing may be written after it.
    fn renew(&mut self) -> Result<(), String> {
        let retry_period = self.election.options().retry_period;
        let mut pause = retry_period;
        while !self.done.wait_timeout(pause) {
            let renewed = self.try_acquire_or_renew();
            self.report_transition();
            pause = retry_period;
            if !renewed {
                let Some(until) = self.election.may_write_until() else {
                    return Err(format!("it is held by {}", self.election.leader()));
                };
                let left = until.saturating_sub(self.boot_clock.boot_time());
                if left.is_zero() {
                    let limit = self.election.options().write_limit();
                    let why = &self.last_problem;
                    return Err(format!("it could not be renewed for {limit:?}: {why}"));
                }
                pause = retry_period.min(left);
            }
        }
        Ok(())
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
        // What is written counts from here, whichever request brings it: all requests of one try carry
        // one time, and whoever has seen the first of them takes the others for the same renewal.
        let began = self.boot_clock.boot_time();
        let wall = self.wall();
        if let Some(record) = self.election.renewal(began, &wall) {
            match self.write(record, began, Lock::update) {
                Ok(()) => return true,
                Err(error) => log::debug!("the lease is read before it is written: {error}"),
            }
        }
        let limit = self.limit();
        let record = match self.lock.get(limit) {
            Ok(record) => record,
            Err(error) if error.is_not_found() => {
                let record = self.election.first_record(&wall);
                let created = self.write(record, began, Lock::create);
                return self.succeeded("create", created);
            }
            Err(error) => return self.succeeded("read", Err(error)),
        };
        let seen_at = self.boot_clock.boot_time();
        match self.election.on_read(record, seen_at, &wall) {
            Decision::Held => {
                log::debug!("the lease is held by {}", self.election.leader());
                self.last_problem.clear();
                false
            }
            Decision::Update(record) => {
                if self.election.is_leader() {
                    let name = &self.election.options().name;
                    metrics::global().leader_election.slowpath_exercised(name);
                }
                let updated = self.write(record, began, Lock::update);
                self.succeeded("update", updated)
            }
        }
    }

    fn write(
        &mut self,
        record: LeaderElectionRecord,
        began: Duration,
        write: fn(
            &mut (dyn Lock + 'static),
            &LeaderElectionRecord,
            Duration,
        ) -> Result<(), LockError>,
    ) -> Result<(), LockError> {
        let limit = self.limit();
        let written = write(&mut *self.lock, &record, limit);
        self.may_hold |= !written.as_ref().is_err_and(LockError::is_without_effect);
        written?;
        let now = self.boot_clock.boot_time();
        self.election.on_written(record, began, now);
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

    /// Gives the lease back, so that the next one need not wait until it has run out.
    fn release(&mut self) {
        let lease = self.lock.describe();
        for _ in 0..RELEASE_TRIES {
            match self.try_release() {
                Ok(true) => log::info!("the lease {lease} is released"),
                Ok(false) => log::debug!("the lease {lease} is not ours any more"),
                Err(LockError::Client(error)) if error.is_conflict() => continue,
                Err(error) => log::warn!("cannot release the lease {lease}: {error}"),
            }
            return;
        }
        log::warn!("cannot release the lease {lease}: somebody else writes it all the time");
    }

    fn try_release(&mut self) -> Result<bool, LockError> {
        let limit = self.election.options().request_timeout();
        let record = self.lock.get(limit)?;
        let Some(released) = self.election.release(&record, &self.wall()) else {
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

    /// Now, as a Lease has it: with six digits of a second.
    fn wall(&self) -> String {
        let now = self.clock.wall();
        now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
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
