//! What holds the workers back while another daemon leads, and what happens when that changes: the
//! thread `lease`, the fence of the clients that write, and the gate that the workers wait at.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};

use super::clients::lease_client_options;
use crate::api::ObjectKey;
use crate::client::{Client, ClientConfig, ClientError, ClientOptions, Fence};
use crate::controller::ReplicaSetController;
use crate::leader_election::{
    Callbacks, Elector, ElectorParts, LeaderElectionHealth, LeaderElectionOptions, LeaseFence,
    LeaseLock, LeaseReference,
};
use crate::stdx::boot_clock::SystemBootClock;
use crate::stdx::clock::SystemClock;
use crate::stdx::stop::{Cause, Stop};
use crate::stdx::thread::Thread;
use crate::writes::event_recorder::{EventRecorder, EventType, ObjectReference};

/// What of an instance takes part in an election.
#[derive(Debug)]
pub(super) struct ElectedInstance {
    pub(super) controller: Arc<ReplicaSetController>,
    /// All that write.
    pub(super) clients: [Client; 2],
    pub(super) recorder: Arc<dyn EventRecorder>,
}

/// Whether this daemon leads, and the thread that sees to it. Without an election it always does.
#[derive(Debug)]
pub(super) struct Leadership {
    fence: Option<Arc<LeaseFence>>,
    /// Disconnected when the workers may begin.
    leads: Receiver<()>,
    /// Taken by the thread `lease`, or dropped at once if nobody contests.
    gate: Option<Sender<()>>,
    /// Given when the last write has ended.
    done: Stop,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    lease: Thread,
    health: LeaderElectionHealth,
    leader_events: Arc<LeaderEvents>,
}

/// Says on the Lease who leads.
#[derive(Debug)]
struct LeaderEvents {
    identity: String,
    /// While we lead; behind its own lock.
    lease: Mutex<Option<LeaseReference>>,
    recorder: Arc<dyn EventRecorder>,
}

impl Leadership {
    /// Leads at once without `options`, and else not before [`start`](Self::start).
    pub(super) fn new(options: Option<&LeaderElectionOptions>) -> Self {
        let (gate, leads) = crossbeam_channel::bounded(0);
        let fence = |options: &LeaderElectionOptions| {
            Arc::new(LeaseFence::new(Arc::new(SystemBootClock), options.margin()))
        };
        Self {
            fence: options.map(fence),
            leads,
            gate: options.is_some().then_some(gate),
            done: Stop::new(),
            running: None,
        }
    }

    /// Starts the thread `lease`.
    ///
    /// # Errors
    /// If the configuration does not make a client.
    pub(super) fn start(
        &mut self,
        config: &ClientConfig,
        options: &LeaderElectionOptions,
        instances: Vec<ElectedInstance>,
        stop: &Stop,
    ) -> Result<(), ClientError> {
        let (Some(fence), Some(first)) = (&self.fence, instances.first()) else {
            return Ok(());
        };
        let client = Client::new(config, &lease_client_options(options), stop)?;
        let leader_events = Arc::new(LeaderEvents {
            identity: options.identity.clone(),
            lease: Mutex::default(),
            recorder: Arc::clone(&first.recorder),
        });
        let callbacks = LeaderCallbacks {
            leader_events: Arc::clone(&leader_events),
            instances,
            gate: self.gate.take(),
            stop: stop.clone(),
        };
        let elector = Elector::new(ElectorParts {
            lock: Box::new(LeaseLock::new(client, options)),
            options: options.clone(),
            fence: Arc::clone(fence),
            callbacks: Box::new(callbacks),
            boot_clock: Arc::new(SystemBootClock),
            clock: Arc::new(SystemClock),
            random: Box::new(fastrand::f64),
            stop: stop.clone(),
            done: self.done.clone(),
        });
        self.running = Some(Running {
            health: elector.health(),
            lease: Thread::spawn("lease", stop, move || elector.run()),
            leader_events,
        });
        Ok(())
    }

    /// `options` with the fence, if there is one.
    pub(super) fn fenced(&self, options: ClientOptions) -> ClientOptions {
        let fence = self.fence.as_ref();
        ClientOptions {
            fence: fence.map(|fence| Arc::clone(fence) as Arc<dyn Fence>),
            ..options
        }
    }

    /// True if others may lead.
    pub(super) fn is_contested(&self) -> bool {
        self.fence.is_some()
    }

    /// Disconnected when the workers may begin.
    pub(super) fn leads(&self) -> &Receiver<()> {
        &self.leads
    }

    /// The health check, once started.
    pub(super) fn health(&self) -> Option<&LeaderElectionHealth> {
        self.running.as_ref().map(|running| &running.health)
    }

    /// Says on the Lease that we stop, if we led. To be called when the last write has ended, while
    /// events are still sent.
    pub(super) fn record_stopped_leading(&self) {
        if let Some(running) = &self.running {
            running.leader_events.stopped_leading();
        }
    }

    /// Ends the thread `lease`, which releases the lease if `writes_ended`. Waits until `deadline` at
    /// most, and names the thread if it has not ended then.
    pub(super) fn end(self, writes_ended: bool, deadline: Instant) -> Option<String> {
        let why = "the last write has ended".to_owned();
        self.done.stop(if writes_ended {
            Cause::Requested(why)
        } else {
            Cause::Failed("a write may be under way".to_owned())
        });
        self.running?.lease.join_until(deadline).err()
    }
}

impl LeaderEvents {
    fn started_leading(&self, lease: &LeaseReference) {
        *self.lock() = Some(lease.clone());
        self.say(lease, "became leader");
    }

    fn stopped_leading(&self) {
        let lease = self.lock().take();
        if let Some(lease) = lease {
            self.say(&lease, "stopped leading");
        }
    }

    /// As upstream does (client-go `tools/leaderelection/resourcelock/leaselock.go:RecordEvent`).
    fn say(&self, lease: &LeaseReference, what: &str) {
        let object = ObjectReference {
            api_version: "coordination.k8s.io/v1",
            kind: "Lease",
            key: ObjectKey::new(&*lease.namespace, &*lease.name),
            uid: lease.uid.as_str().into(),
            resource_version: lease.resource_version.as_str().into(),
            field_path: "",
        };
        let message = format!("{} {what}", self.identity);
        self.recorder
            .event(&object, EventType::Normal, "LeaderElection", message);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<LeaseReference>> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a change of leader means for this daemon. Called on the thread `lease`.
struct LeaderCallbacks {
    leader_events: Arc<LeaderEvents>,
    instances: Vec<ElectedInstance>,
    /// Dropped when the workers may begin.
    gate: Option<Sender<()>>,
    stop: Stop,
}

impl Callbacks for LeaderCallbacks {
    fn on_started_leading(&mut self, lease: &LeaseReference) {
        self.leader_events.started_leading(lease);
        for elected in &self.instances {
            elected.controller.take_over();
        }
        // The first worker enqueues everybody.
        self.gate = None;
    }

    fn on_stopped_leading(&mut self, why: &str) {
        // Nothing that is under way may be waited for.
        for elected in &self.instances {
            for client in &elected.clients {
                client.abort();
            }
        }
        self.stop.stop(Cause::Failed(why.to_owned()));
    }

    fn on_new_leader(&mut self, _identity: &str) {}
}
