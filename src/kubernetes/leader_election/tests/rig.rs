//! An elector with a fake clock, and an in-memory Lease that several electors may share.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::api::Status;
use crate::client::{ClientError, Fence as _, TransportError, TransportErrorKind};
use crate::leader_election::lock::not_read;
use crate::leader_election::{
    Callbacks, Elector, ElectorParts, LeaderElectionOptions, LeaderElectionRecord, LeaseFence,
    LeaseReference, Lock,
};
use crate::stdx::stop::{Cause, Stop};
use crate::stdx::testing::FakeClock;

pub(super) const SECOND: Duration = Duration::from_secs(1);

/// The Lease at the server: a record and its version.
#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) lease: Option<(LeaderElectionRecord, u64)>,
    pub(super) version: u64,
}

impl Server {
    pub(super) fn empty(&mut self) {
        if let Some((mut record, _)) = self.lease.take() {
            record.holder_identity.clear();
            self.store(&record);
        }
    }

    /// Another client writes the Lease.
    pub(super) fn set(&mut self, record: &LeaderElectionRecord) {
        self.store(record);
    }

    fn store(&mut self, record: &LeaderElectionRecord) -> u64 {
        self.version += 1;
        self.lease = Some((record.clone(), self.version));
        self.version
    }
}

/// A change at the server right before it executes a call.
type Change = Box<dyn FnOnce(&mut Server) + Send>;

/// What others do during a call.
type Others = Box<dyn FnOnce() + Send>;

/// The recorded calls of the fake lock and its scripted responses.
#[derive(Default)]
struct Script {
    calls: Vec<&'static str>,
    limits: Vec<Duration>,
    before: Vec<(&'static str, Change)>,
    /// What others do while such a call is on its way to the server.
    meanwhile: Option<(&'static str, Others)>,
    once: Option<(&'static str, ClientError)>,
    lost: Option<&'static str>,
    always: Option<ClientError>,
    latency: Duration,
    /// The version that this elector has read or written last.
    read: Option<u64>,
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Script").finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) struct FakeLock {
    server: Arc<Mutex<Server>>,
    script: Arc<Mutex<Script>>,
    clock: Arc<FakeClock>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl FakeLock {
    fn call(&mut self, name: &'static str, limit: Duration) -> Result<(), ClientError> {
        let mut script = lock(&self.script);
        script.calls.push(name);
        script.limits.push(limit);
        self.clock.advance(script.latency.min(limit));
        if script.latency > limit {
            if name == "get" {
                return Err(lost());
            }
            script.lost = Some(name);
        }
        if let Some((_, meanwhile)) = script.meanwhile.take_if(|(call, _)| *call == name) {
            drop(script);
            meanwhile();
            script = lock(&self.script);
        }
        if let Some(index) = script.before.iter().position(|(call, _)| *call == name) {
            let (_, change) = script.before.remove(index);
            change(&mut lock(&self.server));
        }
        if let Some(error) = &script.always {
            return Err(error.clone());
        }
        match script.once.take_if(|(call, _)| *call == name) {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }

    fn respond(&self, name: &str) -> Result<(), ClientError> {
        let is_lost = lock(&self.script).lost.take_if(|call| *call == name);
        is_lost.map_or(Ok(()), |_| Err(lost()))
    }
}

impl Lock for FakeLock {
    fn get(&mut self, limit: Duration) -> Result<LeaderElectionRecord, ClientError> {
        self.call("get", limit)?;
        let lease = lock(&self.server).lease.clone();
        let (record, version) = lease.ok_or_else(not_found)?;
        lock(&self.script).read = Some(version);
        Ok(record)
    }

    fn create(
        &mut self,
        record: &LeaderElectionRecord,
        limit: Duration,
    ) -> Result<(), ClientError> {
        self.call("create", limit)?;
        let mut server = lock(&self.server);
        if server.lease.is_some() {
            return Err(status_error(409, "AlreadyExists"));
        }
        let version = server.store(record);
        drop(server);
        self.respond("create")?;
        lock(&self.script).read = Some(version);
        Ok(())
    }

    fn update(
        &mut self,
        record: &LeaderElectionRecord,
        limit: Duration,
    ) -> Result<(), ClientError> {
        self.call("update", limit)?;
        let read = lock(&self.script).read;
        let read = read.ok_or_else(not_read)?;
        let mut server = lock(&self.server);
        if server
            .lease
            .as_ref()
            .is_none_or(|(_, version)| *version != read)
        {
            return Err(conflict());
        }
        let version = server.store(record);
        drop(server);
        self.respond("update")?;
        lock(&self.script).read = Some(version);
        Ok(())
    }

    fn reference(&self) -> LeaseReference {
        LeaseReference::default()
    }
}

/// Records the callbacks.
struct Recorder(Arc<Mutex<Vec<String>>>);

impl Callbacks for Recorder {
    fn on_started_leading(&mut self, _lease: &LeaseReference) {
        lock(&self.0).push("started".to_owned());
    }

    fn on_stopped_leading(&mut self, why: &str) {
        lock(&self.0).push(format!("stopped: {why}"));
    }

    fn on_new_leader(&mut self, identity: &str) {
        lock(&self.0).push(format!("leader {identity}"));
    }
}

pub(super) struct Rig {
    pub(super) clock: Arc<FakeClock>,
    pub(super) fence: Arc<LeaseFence>,
    server: Arc<Mutex<Server>>,
    script: Arc<Mutex<Script>>,
    notifications: Arc<Mutex<Vec<String>>>,
    elector: Option<Elector>,
    stop: Stop,
    done: Stop,
}

impl Rig {
    pub(super) fn new(identity: &str) -> Self {
        Self::at(identity, &Arc::default(), &Arc::default())
    }

    /// One of several electors for the same lease, with its own clock.
    pub(super) fn at(identity: &str, server: &Arc<Mutex<Server>>, clock: &Arc<FakeClock>) -> Self {
        let options = LeaderElectionOptions {
            // The elector really sleeps this long, while the fake clock stands still.
            retry_period: Duration::from_millis(1),
            ..LeaderElectionOptions::new(identity.to_owned(), "kube-system", "a")
        };
        let (script, notifications) = (Arc::<Mutex<Script>>::default(), Arc::default());
        let fence = Arc::new(LeaseFence::new(Arc::clone(clock) as _, options.margin()));
        let (stop, done) = (Stop::new(), Stop::new());
        let elector = Elector::new(ElectorParts {
            options,
            lock: Box::new(FakeLock {
                server: Arc::clone(server),
                script: Arc::clone(&script),
                clock: Arc::clone(clock),
            }),
            fence: Arc::clone(&fence),
            callbacks: Box::new(Recorder(Arc::clone(&notifications))),
            clock: Arc::clone(clock) as _,
            random: Box::new(|| 0.0),
            stop: stop.clone(),
            done: done.clone(),
        });
        Self {
            clock: Arc::clone(clock),
            fence,
            server: Arc::clone(server),
            script,
            notifications,
            elector: Some(elector),
            stop,
            done,
        }
    }

    /// Makes one attempt.
    pub(super) fn elect(&mut self) -> bool {
        let elector = self.elector.as_mut().expect("it has not ended");
        let is_ours = elector.try_acquire_or_renew();
        elector.report_transition();
        is_ours
    }

    /// Stops the daemon, then signals that the last write has ended, or may not have.
    pub(super) fn run_to_end(&mut self, writes_ended: bool) {
        let why = "test".to_owned();
        self.stop.stop(Cause::Requested(why.clone()));
        self.done.stop(if writes_ended {
            Cause::Requested(why)
        } else {
            Cause::Failed(why)
        });
        self.elector.take().expect("it has not ended").run();
    }

    /// Runs until the end, which a change passed to `before` must bring about.
    pub(super) fn run(&mut self) {
        self.elector.take().expect("it has not ended").run();
    }

    /// Stops the daemon after its last write has ended.
    pub(super) fn stops(&self) -> impl FnOnce() + Send + use<> {
        let (stop, done) = (self.stop.clone(), self.done.clone());
        move || {
            stop.stop(Cause::Requested("test".to_owned()));
            done.stop(Cause::Requested("test".to_owned()));
        }
    }

    /// Releases the lease like a stopping daemon, then competes again like a restarted one.
    pub(super) fn release(&mut self) {
        let elector = self.elector.as_mut().expect("it has not ended");
        self.fence.close();
        elector.release();
    }

    /// Runs a change at the server right before it executes the next such call.
    pub(super) fn before(
        &self,
        call: &'static str,
        change: impl FnOnce(&mut Server) + Send + 'static,
    ) {
        let mut script = lock(&self.script);
        script.before.push((call, Box::new(change)));
    }

    /// Runs `others` while the next such call is on its way to the server.
    pub(super) fn meanwhile(&self, call: &'static str, others: impl FnOnce() + Send + 'static) {
        lock(&self.script).meanwhile = Some((call, Box::new(others)));
    }

    /// Drops what [`Self::meanwhile`] and [`Self::lose_response_once`] have left over.
    pub(super) fn end_faults(&self) {
        let mut script = lock(&self.script);
        script.meanwhile = None;
        script.lost = None;
        script.latency = Duration::ZERO;
    }

    /// All that decides about later attempts.
    pub(super) fn identity(&self) -> String {
        let script = lock(&self.script);
        let faults = (script.lost, script.latency, &script.read);
        let elector = &self.elector;
        format!("{elector:?} {faults:?} {}", self.fence.is_open())
    }

    /// The timeouts of the requests since the last call.
    pub(super) fn limits(&self) -> Vec<Duration> {
        std::mem::take(&mut lock(&self.script).limits)
    }

    /// The requests since the last call.
    pub(super) fn calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut lock(&self.script).calls)
    }

    pub(super) fn notifications(&self) -> Vec<String> {
        lock(&self.notifications).clone()
    }

    pub(super) fn leader(&self) -> String {
        let elector = self.elector.as_ref().expect("it has not ended");
        elector.election.leader().to_owned()
    }

    pub(super) fn lease(&self) -> Option<LeaderElectionRecord> {
        lock(&self.server).lease.clone().map(|(record, _)| record)
    }

    pub(super) fn set_lease(&self, record: &LeaderElectionRecord) {
        lock(&self.server).store(record);
    }

    pub(super) fn delete_lease(&self) {
        lock(&self.server).lease = None;
    }

    /// A user removes the holder's name from the Lease and keeps the rest.
    pub(super) fn empty_lease(&self) {
        lock(&self.server).empty();
    }

    pub(super) fn refuse_once(&self, call: &'static str, error: ClientError) {
        lock(&self.script).once = Some((call, error));
    }

    /// Makes the renewal fail whose update is on its way.
    pub(super) fn fails(&self) -> impl FnOnce() + Send + use<> {
        let script = Arc::clone(&self.script);
        move || {
            let mut script = lock(&script);
            script.lost = Some("update");
            script.once = Some(("get", unavailable()));
        }
    }

    pub(super) fn lose_response_once(&self, call: &'static str) {
        lock(&self.script).lost = Some(call);
    }

    pub(super) fn refuse_always(&self, error: &ClientError) {
        lock(&self.script).always = Some(error.clone());
    }

    pub(super) fn reconnect(&self) {
        lock(&self.script).always = None;
    }

    pub(super) fn set_latency(&self, latency: Duration) {
        lock(&self.script).latency = latency;
    }
}

/// A Lease of another program with old timestamps.
pub(super) fn held_by(identity: &str) -> LeaderElectionRecord {
    LeaderElectionRecord {
        holder_identity: identity.to_owned(),
        lease_duration_seconds: 15,
        acquire_time: "2025-12-01T00:00:00.000000Z".to_owned(),
        renew_time: "2025-12-31T00:00:00.000000Z".to_owned(),
        lease_transitions: 7,
        preferred_holder: "heir".to_owned(),
        strategy: "OldestEmulationVersion".to_owned(),
    }
}

fn status_error(code: u16, reason: &str) -> ClientError {
    ClientError::Status(Status::new(code, reason, "no"))
}

fn not_found() -> ClientError {
    status_error(404, "NotFound")
}

pub(super) fn conflict() -> ClientError {
    status_error(409, "Conflict")
}

pub(super) fn unavailable() -> ClientError {
    status_error(503, "ServiceUnavailable")
}

fn lost() -> ClientError {
    let error = TransportError {
        kind: TransportErrorKind::TimedOut,
        sent: true,
        message: "no response".to_owned(),
    };
    ClientError::Transport(error)
}
