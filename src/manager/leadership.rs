//! What holds the workers back while another daemon leads, and what happens when that changes: the
//! thread `lease`, the fence of the clients that write, and the gate that the workers wait at.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use serde::Deserialize;

use super::clients::lease_client_options;
use crate::api::workload_kind::collection_path;
use crate::api::{ObjectKey, ResourceVersion};
use crate::cache::Cache;
use crate::client::{Client, ClientConfig, ClientError, ClientOptions, Fence, Request};
use crate::controller::ReplicaSetController;
use crate::leader_election::{
    Callbacks, Elector, ElectorParts, LeaderElectionHealth, LeaderElectionOptions, LeaseFence,
    LeaseLock, LeaseReference,
};
use crate::stdx::boot_clock::SystemBootClock;
use crate::stdx::clock::SystemClock;
use crate::stdx::stop::{Cause, Stop};
use crate::stdx::thread::Thread;
use crate::workqueue::WorkQueue;
use crate::writes::event_recorder::{EventRecorder, EventType, ObjectReference};

/// How long the question may take how far the API server has come at a take-over. Without an answer
/// each ReplicaSet is asked for by itself, which costs more but is as safe.
const VERSION_WITHIN: Duration = Duration::from_secs(1);

/// What of an engine takes part in an election.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) controller: Arc<ReplicaSetController>,
    pub(super) cache: Cache,
    pub(super) queue: Arc<WorkQueue<ObjectKey>>,
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
    herald: Arc<Herald>,
}

/// Says on the Lease who leads.
#[derive(Debug)]
struct Herald {
    identity: String,
    /// `None` until it was started; behind its own lock.
    state: Mutex<State>,
    recorder: Arc<dyn EventRecorder>,
}

#[derive(Debug, Default)]
struct State {
    /// The Lease, while we lead.
    lease: Option<LeaseReference>,
    is_lost: bool,
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
        namespace: Option<&str>,
        candidates: Vec<Candidate>,
        stop: &Stop,
    ) -> Result<(), ClientError> {
        let (Some(fence), Some(first)) = (&self.fence, candidates.first()) else {
            return Ok(());
        };
        let client = Client::new(config, &lease_client_options(options), stop)?;
        let herald = Arc::new(Herald {
            identity: options.identity.clone(),
            state: Mutex::default(),
            recorder: Arc::clone(&first.recorder),
        });
        let callbacks = TakeOver {
            herald: Arc::clone(&herald),
            pods_path: collection_path("/api/v1", "pods", namespace),
            client: client.clone(),
            candidates,
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
            herald,
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

    /// True if the lease was lost: then nothing that is under way may be waited for.
    pub(super) fn is_lost(&self) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| running.herald.lock().is_lost)
    }

    /// Says on the Lease that we stop, if we led. To be called when the last write has ended, while
    /// events are still sent.
    pub(super) fn record_stopped_leading(&self) {
        if let Some(running) = &self.running {
            running.herald.stopped_leading();
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

impl Herald {
    fn started_leading(&self, lease: &LeaseReference) {
        self.lock().lease = Some(lease.clone());
        self.say(lease, "became leader");
    }

    fn stopped_leading(&self) {
        let lease = self.lock().lease.take();
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

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a change of leader means for this daemon. Called on the thread `lease`.
struct TakeOver {
    herald: Arc<Herald>,
    pods_path: String,
    client: Client,
    candidates: Vec<Candidate>,
    /// Dropped when the workers may begin.
    gate: Option<Sender<()>>,
    stop: Stop,
}

impl TakeOver {
    /// How far the API server has come with the pods; empty if it does not say.
    fn version(&self) -> ResourceVersion {
        #[derive(Deserialize)]
        struct List {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            resource_version: String,
        }
        // Without a version of its own a list is the server's newest state, not what it remembers.
        let request = Request::get(&self.pods_path).query("limit", "1");
        let answer = self.client.send(&request.timeout(VERSION_WITHIN).once());
        let list = answer.map(|answer| serde_json::from_slice::<List>(&answer.body));
        match list {
            Ok(Ok(list)) => list.metadata.resource_version.as_str().into(),
            Ok(Err(error)) => unknown(&error),
            Err(error) => unknown(&error),
        }
    }
}

fn unknown(error: &dyn std::error::Error) -> ResourceVersion {
    log::warn!(
        "it is not known how new the caches must be, so the API server is asked more: {error}"
    );
    ResourceVersion::default()
}

impl Callbacks for TakeOver {
    fn on_started_leading(&mut self, lease: &LeaseReference) {
        self.herald.started_leading(lease);
        let version = self.version();
        for candidate in &self.candidates {
            candidate.controller.take_over(version.clone());
            for rs in candidate.cache.replica_sets.list() {
                // Those with work to do are raised by the first worker.
                candidate.queue.add_low(rs.key.clone());
            }
        }
        self.gate = None;
    }

    fn on_stopped_leading(&mut self, why: &str) {
        self.herald.lock().is_lost = true;
        for candidate in &self.candidates {
            for client in &candidate.clients {
                client.abort();
            }
        }
        self.stop.stop(Cause::Failed(why.to_owned()));
    }

    fn on_new_leader(&mut self, _identity: &str) {}
}
