//! Leadership of this daemon: the thread `lease`, the fence of the writing clients, and the gate
//! that holds the workers back while another daemon leads.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::lease_client_options;
use crate::client::{Client, ClientConfig, ClientOptions, Fence};
use crate::controller::ReplicaSetController;
use crate::event_recorder::{EventRecorder, EventType, ObjectReference};
use crate::leader_election::{
    Callbacks, Elector, ElectorParts, LeaderElectionHealth, LeaderElectionOptions, LeaseFence,
    LeaseLock, LeaseReference,
};
use crate::stdx::clock::SystemClock;
use crate::stdx::stop::{Cause, Latch, Stop};
use crate::stdx::thread::Thread;
use crate::stdx::turns;

/// What follows the leader election.
pub(super) struct Elected {
    /// The controllers to notify of the failover.
    pub(super) controllers: Vec<Arc<ReplicaSetController>>,
    /// The clients that write.
    pub(super) clients: Vec<Client>,
    /// Records the events on the Lease.
    pub(super) recorder: Arc<EventRecorder>,
}

/// Whether this daemon leads, and the thread `lease`. Without leader election it always leads.
#[derive(Debug)]
pub(super) struct Leadership {
    fence: Option<Arc<LeaseFence>>,
    /// Set when the workers may start: by the thread `lease`, or at once without leader election.
    leads: Arc<Latch>,
    /// Stopped once the last write has ended.
    done: Stop,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    lease: Thread,
    health: LeaderElectionHealth,
    leader_events: Arc<LeaderEvents>,
}

/// Records on the Lease that this daemon became leader or stopped leading.
#[derive(Debug)]
struct LeaderEvents {
    identity: String,
    /// Set while this daemon leads. Has its own lock.
    lease: Mutex<Option<LeaseReference>>,
    recorder: Arc<EventRecorder>,
}

impl Leadership {
    /// Leads at once without `options`, otherwise not before [`start`](Self::start).
    pub(super) fn new(options: Option<&LeaderElectionOptions>) -> Self {
        let leads = Arc::new(Latch::default());
        if options.is_none() {
            leads.set();
        }
        let fence = |options: &LeaderElectionOptions| {
            Arc::new(LeaseFence::new(Arc::new(SystemClock), options.margin()))
        };
        Self {
            fence: options.map(fence),
            leads,
            done: Stop::new(),
            running: None,
        }
    }

    pub(super) fn start(
        &mut self,
        config: &ClientConfig,
        options: &LeaderElectionOptions,
        elected: Elected,
        stop: &Stop,
    ) {
        let Some(fence) = &self.fence else { return };
        let client = Client::new(config, &lease_client_options(options), stop);
        let leader_events = Arc::new(LeaderEvents {
            identity: options.identity.clone(),
            lease: Mutex::default(),
            recorder: Arc::clone(&elected.recorder),
        });
        let callbacks = LeaderCallbacks {
            leader_events: Arc::clone(&leader_events),
            elected,
            leads: Arc::clone(&self.leads),
            stop: stop.clone(),
        };
        let elector = Elector::new(ElectorParts {
            lock: Box::new(LeaseLock::new(client, options)),
            options: options.clone(),
            fence: Arc::clone(fence),
            callbacks: Box::new(callbacks),
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
    }

    /// Adds the fence to `options`, if there is one.
    pub(super) fn fenced(&self, options: ClientOptions) -> ClientOptions {
        let fence = self.fence.as_ref();
        ClientOptions {
            fence: fence.map(|fence| Arc::clone(fence) as Arc<dyn Fence>),
            ..options
        }
    }

    /// True with leader election: another daemon may lead.
    pub(super) fn is_contested(&self) -> bool {
        self.fence.is_some()
    }

    pub(super) fn leads(&self) -> &Arc<Latch> {
        &self.leads
    }

    pub(super) fn health(&self) -> Option<&LeaderElectionHealth> {
        self.running.as_ref().map(|running| &running.health)
    }

    /// Records on the Lease that this daemon stops leading, if it led. Call once the last write has
    /// ended, while the event threads still run.
    pub(super) fn record_stopped_leading(&self) {
        if let Some(running) = &self.running {
            running.leader_events.stopped_leading();
        }
    }

    /// Ends the thread `lease`, which releases the lease if `writes_ended`. Blocks until `deadline`
    /// at most; returns the name of the thread if it still runs then.
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
        *self.lease.lock() = Some(lease.clone());
        self.record_event(lease, "became leader");
    }

    fn stopped_leading(&self) {
        let lease = self.lease.lock().take();
        if let Some(lease) = lease {
            self.record_event(&lease, "stopped leading");
        }
    }

    /// As upstream does (client-go `tools/leaderelection/resourcelock/leaselock.go:RecordEvent`).
    fn record_event(&self, lease: &LeaseReference, what: &str) {
        let object = ObjectReference {
            api_version: "coordination.k8s.io/v1",
            kind: "Lease",
            key: lease.key.clone(),
            uid: lease.uid.clone(),
            resource_version: lease.resource_version.clone(),
            field_path: "",
        };
        let message = format!("{} {what}", self.identity);
        self.recorder
            .event(&object, EventType::Normal, "LeaderElection", &message);
    }
}

/// Applies a change of leader to this daemon. Called on the thread `lease`.
struct LeaderCallbacks {
    leader_events: Arc<LeaderEvents>,
    elected: Elected,
    leads: Arc<Latch>,
    stop: Stop,
}

impl Callbacks for LeaderCallbacks {
    fn on_started_leading(&mut self, lease: &LeaseReference) {
        self.leader_events.started_leading(lease);
        for controller in &self.elected.controllers {
            controller.failover();
        }
        // ORDER: set the flag last. The first worker enqueues every ReplicaSet, and by then the
        // controllers must collect keys.
        turns::reached("leadership: before the workers start");
        self.leads.set();
    }

    fn on_stopped_leading(&mut self, why: &str) {
        // Another daemon may lead any moment, so do not wait for requests in flight.
        for client in &self.elected.clients {
            client.abort();
        }
        self.stop.stop(Cause::Failed(why.to_owned()));
    }

    fn on_new_leader(&mut self, _identity: &str) {}
}
