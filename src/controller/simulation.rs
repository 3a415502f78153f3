//! The whole controller against a model of the API server, with a manual clock, on one thread:
//! every history of a small scope ([`scopes`]). Watches lag and break, responses get lost, requests
//! arrive after their client has given up, and daemons are killed in the middle of a request.
//! [`manager`](crate::manager) has random histories of whole daemons.
//!
//! Three properties must hold in every history. The daemon creates a pod only while there really
//! are fewer than `spec.replicas` of the ReplicaSet as the daemon knows it. No sync ends without
//! reporting a loss, and no known loss waits. When no step is left, the ReplicaSet has converged by
//! the daemon's own timers and the watches alone.

mod oracles;
mod requests;
mod scopes;
mod server;
mod watches;

use parking_lot::{Mutex, MutexGuard};
use std::sync::{Arc, LazyLock, Weak};

use self::oracles::{Sent, Waits};
use self::scopes::Script;
use self::server::Server;
use super::ReplicaSetController;
use crate::api::ObjectKey;
use crate::batches::FairPool;
use crate::cache::Cache;
use crate::stdx::clock::Clock;
use crate::stdx::testing::FakeClock;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::controller::ControllerMetrics;
use crate::workqueue::WorkQueue;

/// Required by the controller; no check reads them.
static METRICS: LazyLock<ControllerMetrics> = LazyLock::new(|| {
    let metrics = Metrics::new().controller;
    metrics.of("simulation", "apps", "replicasets")
});

/// One running daemon: its memory, and the positions of its watches.
struct Daemon {
    cache: Cache,
    queue: Arc<WorkQueue<ObjectKey>>,
    controller: Arc<ReplicaSetController>,
}

struct World {
    clock: Arc<FakeClock>,
    batches: Arc<FairPool>,
    metrics: ControllerMetrics,
    state: Mutex<State>,
    this: Weak<World>,
}

struct State {
    /// Chooses what happens to requests and watches.
    script: Script,
    server: Server,
    daemon: Option<Arc<Daemon>>,
    /// Takes the place of a daemon that is killed: a standby, and what its watches have shown.
    standby: Option<(Arc<Daemon>, [usize; 2])>,
    /// Number of events that the daemon has seen.
    pods_seen: usize,
    replica_sets_seen: usize,
    /// The daemon is dead; a panic unwinds its sync.
    is_killed: bool,
    wrong: Vec<String>,
    /// Requests of the current sync.
    sent: Sent,
    /// How long each ReplicaSet that has not converged has waited since the daemon's start.
    waits: Waits,
}

impl World {
    /// A world without a daemon.
    fn of(server: Server, clock: FakeClock, script: Script) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            clock: Arc::new(clock),
            batches: Arc::new(FairPool::default()),
            metrics: METRICS.clone(),
            state: Mutex::new(State {
                script,
                server,
                daemon: None,
                standby: None,
                pods_seen: 0,
                replica_sets_seen: 0,
                is_killed: false,
                wrong: Vec::new(),
                sent: Sent::default(),
                waits: Waits::default(),
            }),
            this: Weak::clone(this),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn dice(&self, sides: u32) -> u32 {
        self.lock().script.choose(sides)
    }

    fn daemon(&self) -> Arc<Daemon> {
        let state = self.lock();
        Arc::clone(state.daemon.as_ref().expect("a daemon runs from the start"))
    }

    fn work(&self) {
        let daemon = self.daemon();
        if let Some(key) = daemon.queue.try_get() {
            daemon.controller.check_tally_counts(&key);
            daemon.controller.check_settled(self.clock.wall());
            let before = self.before_sync(&daemon, &key);
            daemon.controller.process(&key);
            if let Some(before) = before {
                self.check_status_after(&daemon, &before);
            }
        }
        if self.lock().is_killed {
            self.start_daemon();
        }
    }

    /// Lets time pass until the next timer of the queue. Nothing else can happen if `is_quiet`.
    fn wait(&self, is_quiet: bool) {
        let daemon = self.daemon();
        let due = daemon.queue.next_deadline();
        let wait = due.map(|due| due.saturating_duration_since(self.clock.now()));
        let wait = wait.unwrap_or_default();
        if is_quiet {
            self.note_wait(&daemon, wait);
        }
        self.clock.advance(wait);
        daemon.queue.advance(self.clock.now());
    }

    /// Returns the surplus pods due to a kill.
    /// PROPERTY P15: A create of a killed daemon that arrives late while its ReplicaSet has the
    /// same version makes no pod too many.
    fn surplus(&self) -> Vec<String> {
        let surplus = std::mem::take(&mut self.lock().server.surplus);
        let surplus = surplus.iter();
        surplus
            .map(|name| format!("{name} is created a second time under another name"))
            .collect()
    }
}
