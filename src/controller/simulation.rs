//! Random histories of the whole controller against a model of the API server, with a manual clock,
//! on one thread (or on several, for what only overlapping threads show). Watches lag and break,
//! responses get lost, requests arrive after their client has given up, and daemons are killed in
//! the middle of a request.
//!
//! Three properties must hold in every history. The daemon creates a pod only while there really
//! are fewer than `spec.replicas` of the ReplicaSet as the daemon knows it. No sync ends without
//! reporting a loss, and no known loss waits. When the faults end, every ReplicaSet converges by
//! the daemon's own timers and the watches alone.
//!
//! Also, no ReplicaSet waits longer than 20 s for anything except a back-off. The simulation checks
//! this after the faults end, and in calm periods before: for a while only request failures and
//! kills of the daemon during a request happen, and the watches deliver at once. Outside of these
//! periods the daemon is not responsible for waits, because the random scheduler delays watch
//! events and queue keys for minutes. For the same reason histories with threads are checked at
//! their end only.
//!
//! [`scopes`] runs every history of a small scope instead of random ones.
//!
//! A failure names its seed. `SIMULATION_SEEDS=FIRST..END` runs other seeds than the default ones.

mod oracles;
mod requests;
mod scopes;
mod server;
mod watches;

use fastrand::Rng;
use parking_lot::{Mutex, MutexGuard};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};

use self::oracles::{Sent, Waits};
use self::scopes::Script;
use self::server::Server;
use super::ReplicaSetController;
use crate::api::{ObjectKey, PodPhase, ReplicaSet};
use crate::batches::{BatchRunner, FairPool};
use crate::cache::Cache;
use crate::stdx::clock::Clock;
use crate::stdx::testing::FakeClock;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::controller::ControllerMetrics;
use crate::workqueue::WorkQueue;

const STEPS: usize = 250;

const THREADED_STEPS: usize = 1_000;

/// Virtual time within which every ReplicaSet must converge after the faults end: the longest
/// back-off, and two expiries of an expectation.
const SETTLE_TIME: Duration = Duration::from_mins(30);

/// Required by the controller; no check reads them.
static METRICS: LazyLock<ControllerMetrics> = LazyLock::new(|| {
    let metrics = Metrics::new().controller;
    metrics.of("simulation", "apps", "replicasets")
});

/// The optional faults of one history.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each kind of trouble comes with and without each other"
)]
#[derive(Clone, Copy, Debug)]
struct Trouble {
    /// Pods fail, or another client deletes or relabels them.
    deaths: bool,
    /// Pods without an owner appear.
    orphans: bool,
    /// ReplicaSets are deleted and recreated.
    recreations: bool,
    /// The daemon is killed and restarted, also in the middle of a request.
    kills: bool,
    /// A relist skips events of a watch.
    relists: bool,
    /// There are calm periods, in which only the daemon's timers run.
    calms: bool,
}

/// One running daemon: its memory, and the positions of its watches.
struct Daemon {
    cache: Cache,
    queue: Arc<WorkQueue<ObjectKey>>,
    controller: Arc<ReplicaSetController>,
}

struct World {
    clock: Arc<FakeClock>,
    burst: usize,
    /// Runs the requests of a batch one by one, or on threads.
    batches: Arc<dyn BatchRunner>,
    trouble: Trouble,
    metrics: ControllerMetrics,
    state: Mutex<State>,
    this: Weak<World>,
}

struct State {
    rng: Rng,
    /// Chooses instead of `rng` what happens to requests and watches.
    script: Option<Script>,
    server: Server,
    daemon: Option<Arc<Daemon>>,
    /// Takes the place of a daemon that is killed: a standby, and what its watches have shown.
    standby: Option<(Arc<Daemon>, [usize; 2])>,
    /// Number of events that the daemon has seen.
    pods_seen: usize,
    replica_sets_seen: usize,
    /// True while requests may fail.
    is_troubled: bool,
    /// True if the watches have their own threads, which alone deliver.
    has_threads: bool,
    /// The daemon is dead; a panic unwinds its sync.
    is_killed: bool,
    wrong: Vec<String>,
    /// Requests of the current sync.
    sent: Sent,
    /// How long each ReplicaSet that has not converged has waited in this calm period, or since the
    /// daemon's start in it.
    waits: Waits,
    /// The history in readable form.
    history: Vec<String>,
}

impl State {
    fn dice(&mut self, sides: u32) -> u32 {
        match &mut self.script {
            Some(script) => script.choose(sides),
            None => self.rng.u32(..sides),
        }
    }
}

impl World {
    fn new(seed: u64) -> Arc<Self> {
        let mut rng = Rng::with_seed(seed);
        let trouble = Trouble {
            deaths: rng.bool(),
            orphans: rng.bool(),
            recreations: rng.bool(),
            kills: rng.bool(),
            relists: rng.bool(),
            calms: rng.bool(),
        };
        Self::with(rng, trouble, Arc::new(FairPool::default()))
    }

    fn with(mut rng: Rng, trouble: Trouble, batches: Arc<dyn BatchRunner>) -> Arc<Self> {
        let mut server = Server::default();
        for name in ["one", "two"].iter().take(rng.usize(1..=2)) {
            server.add_replica_set(name, rng.i32(0..8));
        }
        let burst = rng.usize(1..8);
        let world = Self::of(server, FakeClock::default(), burst, rng, trouble, batches);
        world.start_daemon();
        world
    }

    /// A world without a daemon.
    fn of(
        server: Server,
        clock: FakeClock,
        burst: usize,
        rng: Rng,
        trouble: Trouble,
        batches: Arc<dyn BatchRunner>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            clock: Arc::new(clock),
            burst,
            batches,
            trouble,
            metrics: METRICS.clone(),
            state: Mutex::new(State {
                rng,
                script: None,
                server,
                daemon: None,
                standby: None,
                pods_seen: 0,
                replica_sets_seen: 0,
                is_troubled: true,
                has_threads: false,
                is_killed: false,
                wrong: Vec::new(),
                sent: Sent::default(),
                waits: Waits::default(),
                history: Vec::new(),
            }),
            this: Weak::clone(this),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn dice(&self, sides: u32) -> u32 {
        self.lock().dice(sides)
    }

    fn daemon(&self) -> Arc<Daemon> {
        let state = self.lock();
        Arc::clone(state.daemon.as_ref().expect("a daemon runs from the start"))
    }

    /// Takes one random step.
    fn step(&self) {
        match self.dice(24) {
            0..6 => self.work(),
            6..10 => drop(self.deliver_pod()),
            10..12 => drop(self.deliver_replica_set()),
            12 if self.trouble.relists => match self.dice(4) {
                0 => self.relist_replica_sets(),
                1 => self.relist_pods_after_a_gap(),
                _ => {}
            },
            13 if self.trouble.kills && self.dice(5) == 0 => self.start_daemon(),
            14 if self.trouble.calms => {
                let n_timers = self.dice(20);
                self.keep_calm(n_timers, self.clock.now() + SETTLE_TIME);
            }
            _ => self.change_something(),
        }
    }

    /// Takes one step outside the daemon.
    fn change_something(&self) {
        match self.dice(10) {
            0..2 => self.pass_time(),
            2..4 => self.scale(),
            4..7 => self.change_a_pod(),
            7 => self.lock().server.see_late(self.clock.wall()),
            8 if self.trouble.orphans && self.dice(3) == 0 => self.add_orphan(),
            9 if self.trouble.recreations && self.dice(5) == 0 => self.recreate(),
            _ => {}
        }
    }

    fn work(&self) {
        let daemon = self.daemon();
        if let Some(key) = daemon.queue.try_get() {
            if self.lock().has_threads {
                daemon.controller.process(&key);
            } else {
                daemon.controller.check_tally_counts(&key);
                daemon.controller.check_settled(self.clock.wall());
                let before = self.before_sync(&daemon, &key);
                daemon.controller.process(&key);
                if let Some(before) = before {
                    self.check_status_after(&daemon, &before);
                }
            }
        }
        if self.lock().is_killed {
            self.start_daemon();
        }
    }

    fn pass_time(&self) {
        let milliseconds = match self.dice(20) {
            0 => 301_000,
            1..5 => 10_000,
            _ => 100,
        };
        self.clock.advance(Duration::from_millis(milliseconds));
        self.daemon().queue.advance(self.clock.now());
    }

    fn any_replica_set(&self) -> Option<ReplicaSet> {
        let mut state = self.lock();
        let all: Vec<ReplicaSet> = state.server.replica_sets.values().cloned().collect();
        state.rng.choice(all)
    }

    fn scale(&self) {
        if let Some(rs) = self.any_replica_set() {
            let mut state = self.lock();
            // Often to zero: the cache keeps no template of such a ReplicaSet, like of an old
            // revision, which a roll-back scales up again.
            let replicas = state.rng.i32(-4..10).max(0);
            state.server.change_spec(&rs, replicas);
        }
    }

    fn recreate(&self) {
        if let Some(rs) = self.any_replica_set() {
            let mut state = self.lock();
            let replicas = state.rng.i32(0..10);
            state.server.add_replica_set(&rs.key.name, replicas);
        }
    }

    fn add_orphan(&self) {
        if let Some(rs) = self.any_replica_set() {
            let mut state = self.lock();
            let name = format!("orphan-{}", state.rng.u32(..));
            drop(state.server.add_pod(&rs, &name, false));
        }
    }

    fn change_a_pod(&self) {
        let now = self.clock.wall();
        let mut state = self.lock();
        let names: Vec<Arc<str>> = state.server.pods.keys().cloned().collect();
        let Some(name) = state.rng.choice(names) else {
            return;
        };
        let what = state.rng.u32(..8);
        let server = &mut state.server;
        match what {
            0 | 1 => server.change_pod(&name, |pod| {
                pod.node = Some("node".into());
                if !pod.phase.is_terminal() {
                    pod.phase = PodPhase::Running;
                }
            }),
            2 => server.change_pod(&name, |pod| {
                pod.is_ready = true;
                pod.ready_transition = Some(now.into());
            }),
            3 | 4 => server.finish(&name),
            5 if self.trouble.deaths => {
                server.change_pod(&name, |pod| pod.phase = PodPhase::Failed);
            }
            6 if self.trouble.deaths => {
                let pod = server.pods.get(&name).expect("it was chosen").clone();
                server.delete_pod(&pod, now).expect("it is there");
            }
            7 if self.trouble.deaths => {
                let labels = [("type", "lost")].into_iter().collect();
                server.change_pod(&name, |pod| pod.labels = labels);
            }
            _ => {}
        }
    }

    /// Ends all faults and waits until every ReplicaSet has converged.
    fn settle(&self) {
        self.lock().is_troubled = false;
        if self.trouble.relists {
            self.relist_pods_after_a_gap();
        }
        self.keep_calm(u32::MAX, self.clock.now() + SETTLE_TIME);
    }

    /// Runs a calm period of this many daemon timers: only the daemon acts, and the watches deliver
    /// at once; `end` limits the last timer. Requests still fail if they did before.
    fn keep_calm(&self, n_timers: u32, end: Instant) {
        self.lock().waits = Waits::default();
        for _ in 0..n_timers {
            self.become_quiet();
            let daemon = self.daemon();
            let due = daemon.queue.next_deadline().filter(|due| *due <= end);
            let until = due.unwrap_or(end);
            let remaining = until.saturating_duration_since(self.clock.now());
            self.note_wait(&daemon, remaining);
            if due.is_none() {
                return;
            }
            self.clock.advance(remaining);
            daemon.queue.advance(self.clock.now());
        }
    }

    /// Runs everything that needs no time.
    fn become_quiet(&self) {
        loop {
            while self.deliver_pod() || self.deliver_replica_set() {}
            self.lock().server.see_late(self.clock.wall());
            if !self.daemon().queue.is_empty() {
                self.work();
                continue;
            }
            let mut state = self.lock();
            let names: Vec<Arc<str>> = state.server.pods.keys().cloned().collect();
            for name in names {
                state.server.finish(&name);
            }
            let is_quiet = state.server.late.is_empty()
                && state.pods_seen == state.server.pod_log.len()
                && state.replica_sets_seen == state.server.replica_set_log.len();
            if is_quiet {
                return;
            }
        }
    }

    #[track_caller]
    fn assert_right(&self, when: &str, wrong: &[String]) {
        if !wrong.is_empty() {
            let history = self.lock().history.join("\n");
            panic!("{history}\n{:?}\n{when}: {wrong:?}", self.trouble);
        }
    }

    /// Returns the surplus pods due to a kill. A daemon that adopts a pod needs fewer creates than
    /// its predecessor.
    /// PROPERTY P15: In histories without orphans, a create of a killed daemon that arrives late
    /// while its ReplicaSet has the same version makes no pod too many.
    fn surplus(&self) -> Vec<String> {
        let surplus = std::mem::take(&mut self.lock().server.surplus);
        let surplus = surplus.iter().filter(|_| !self.trouble.orphans);
        surplus
            .map(|name| format!("{name} is created a second time under another name"))
            .collect()
    }
}

/// Ends the faults and checks that every ReplicaSet has converged.
#[track_caller]
fn check_settles(world: &World, what: &str) {
    world.settle();
    let mut wrong = std::mem::take(&mut world.lock().wrong);
    wrong.extend(world.lock().unsettled().map(|(_, what)| what));
    world.assert_right(&format!("{what}, settling"), &wrong);
    // The daemon and the world refer to each other; this breaks the cycle.
    world.lock().daemon = None;
}

fn check(seed: u64) {
    let world = World::new(seed);
    for step in 0..STEPS {
        world.step();
        let mut wrong = std::mem::take(&mut world.lock().wrong);
        wrong.extend(world.surplus());
        world.assert_right(&format!("seed {seed}, step {step}"), &wrong);
    }
    check_settles(&world, &format!("seed {seed}"));
}

/// The seeds in `SIMULATION_SEEDS`, or else these.
pub(super) fn seeds(default: Range<u64>) -> Range<u64> {
    let given = std::env::var("SIMULATION_SEEDS").ok();
    let range = given.as_deref().and_then(|range| range.split_once(".."));
    let range = range.and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    range.unwrap_or(default)
}

#[test]
fn no_history_creates_surplus_pods_and_every_one_settles() {
    for seed in seeds(0..300) {
        check(seed);
    }
}

/// The same with the threads of the real daemon, so that watches, syncs and the requests of a batch
/// overlap. A seed does not reproduce such a history.
fn check_threads(seed: u64) {
    let trouble = Trouble {
        deaths: seed.is_multiple_of(2),
        orphans: true,
        recreations: seed.is_multiple_of(3),
        kills: false,
        relists: false,
        calms: false,
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build();
    let batches = Arc::new(FairPool::new(pool.expect("a pool")));
    let world = World::with(Rng::with_seed(seed), trouble, batches);
    world.lock().has_threads = true;
    let is_over = AtomicBool::new(false);
    let repeat = |what: &dyn Fn(&World)| {
        while !is_over.load(Ordering::Relaxed) {
            what(&world);
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| repeat(&World::work));
        }
        scope.spawn(|| {
            repeat(&|world| {
                world.deliver_pod();
            });
        });
        scope.spawn(|| {
            repeat(&|world| {
                world.deliver_replica_set();
            });
        });
        for _ in 0..THREADED_STEPS {
            world.change_something();
            std::thread::yield_now();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    world.lock().has_threads = false;
    check_settles(&world, &format!("threads, seed {seed}"));
}

#[test]
fn no_history_with_threads_creates_surplus_pods() {
    for seed in 0..8 {
        check_threads(seed);
    }
}
