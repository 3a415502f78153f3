//! The simulated processes: each runs the daemon as `run` does, from its start to its end.

use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::SignedDuration;
use parking_lot::{Mutex, MutexGuard};

use super::plan::{Action, LEADER, Plan};
use super::world::{Event, State, World};
use crate::api::ObjectKey;
use crate::cache::decode::ContentType;
use crate::client::ClientConfig;
use crate::controller::dry_run::DryRun;
use crate::controller::{Options, ReplicaSetController};
use crate::leader_election::LeaderElectionOptions;
use crate::manager::{Manager, ManagerOptions};
use crate::stdx::stop::{Cause, Stop};
use crate::stdx::thread::Thread;
use crate::stdx::turns::simulation::{Process, in_process};
use crate::telemetry::Health;
use crate::workqueue::WorkQueue;

/// What a run of many histories must have had, too.
pub(super) const RESTORED: &str = "daemon that ended because etcd went back";

/// Time until the supervisor starts a daemon again.
const RESTART_AFTER: Duration = Duration::from_millis(800);

/// A process that the scheduler has frozen within this time may miss the deadline for its end.
pub(super) const FREEZE_EXCUSES: Duration = Duration::from_mins(1);

pub(super) type Queue = WorkQueue<ObjectKey>;

/// The parts of a running daemon that the checks read.
pub(super) struct Running {
    pub(super) queue: Arc<Queue>,
    /// Until its stop.
    pub(super) controller: Weak<ReplicaSetController>,
    /// Set for a dry run.
    pub(super) dry_run: Option<Arc<DryRun>>,
}

/// A daemon and its supervisor.
#[derive(Default)]
pub(super) struct Daemon {
    pub(super) identity: String,
    pub(super) process: Option<Process>,
    n_starts: u32,
    pub(super) stop: Stop,
    /// Set while the daemon runs.
    running: Arc<Mutex<Option<Running>>>,
    thread: Option<Thread>,
}

impl Daemon {
    pub(super) fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock()
    }
}

fn options(plan: &Plan, number: usize, identity: &str) -> ManagerOptions {
    let dry_run = plan.is_dry_run(number);
    ManagerOptions {
        dry_run,
        concurrent_replicaset_syncs: plan.n_workers,
        // Rayon's threads cannot take turns; batches run on threads of their own.
        batch_parallelism: 0,
        kube_api_qps: plan.qps,
        controller: Options {
            burst_replicas: plan.burst_replicas,
            status_update_interval: plan.status_update_interval,
            retry_backoff: plan.retry_backoff,
            ..Options::default()
        },
        content_type: ContentType::Json,
        leader_election: (plan.n_daemons > 1 && !dry_run).then(|| {
            LeaderElectionOptions::new(identity.to_owned(), "kube-system", "replicaset-controller")
        }),
        ..ManagerOptions::default()
    }
}

impl State {
    /// The daemon that the Lease names.
    pub(super) fn leader(&self) -> Option<usize> {
        if self.plan.n_daemons == 1 {
            return Some(0);
        }
        let holder = &self.lease.holder;
        let names = |daemon: &Daemon| !holder.is_empty() && daemon.identity == *holder;
        self.daemons.iter().position(names)
    }
}

impl State {
    /// PROPERTY P48: A process ends because etcd went back only if it did since the process began,
    /// and within 40 s once it has read a list that is older than its cache.
    fn judge_restore(&mut self, process: Process, why: &str) {
        if !why.contains("went back") {
            return;
        }
        self.count(RESTORED);
        let known = self.known.get(&process);
        if known.is_none_or(|known| known.undone_versions.is_empty()) {
            let found = format!("process {process} ends, but etcd did not go back: {why}");
            self.wrong.push(found);
        }
    }
}

impl World {
    /// Starts a daemon unless it runs.
    pub(super) fn start(self: &Arc<Self>, number: usize) {
        let process = self.scheduler.add_process();
        let mut state = self.lock();
        if state.daemons[number].process.is_some() {
            return;
        }
        let identity = format!("daemon-{number}_{}", state.daemons[number].n_starts);
        let options = options(&state.plan, number, &identity);
        let daemon = &mut state.daemons[number];
        daemon.identity = identity;
        daemon.n_starts += 1;
        daemon.process = Some(process);
        daemon.stop = Stop::new();
        let (stop, running) = (daemon.stop.clone(), Arc::default());
        daemon.running = Arc::clone(&running);
        let line = format!("process {process} starts as {}", daemon.identity);
        state.note(self.now(), line);
        drop(state);
        let world = Arc::clone(self);
        let stopping = stop.clone();
        let body = move || {
            let ended = run(&options, &running, &stopping);
            world.exited(number, process, &ended);
        };
        let thread = in_process(process, || Thread::spawn("main", &stop, body));
        self.lock().daemons[number].thread = Some(thread);
    }

    fn exited(&self, number: usize, process: Process, ended: &Result<Cause, String>) {
        let now = self.now();
        let mut state = self.lock();
        state.note(now, format_args!("process {process} has ended: {ended:?}"));
        // A paused process misses any deadline.
        if let Err(stuck) = ended
            && !self.scheduler.was_frozen(process, FREEZE_EXCUSES)
        {
            state
                .wrong
                .push(format!("these threads did not end in time: {stuck}"));
        }
        if let Ok(Cause::Failed(why)) = ended {
            state.judge_loss(process, why, now);
            state.judge_restore(process, why);
        }
        state.forget(process);
        state.daemons[number].process = None;
        let restarts = state.restarts;
        if restarts {
            state.schedule(now + RESTART_AFTER, Event::Start(number));
        }
        drop(state);
        self.wake();
    }

    /// Notices that a process is dead, and starts its daemon again.
    pub(super) fn bury(&self, process: Process, now: Duration) {
        let mut state = self.lock();
        let number = state
            .daemons
            .iter()
            .position(|daemon| daemon.process == Some(process));
        if let Some(number) = number {
            state.note(now, format_args!("process {process} is dead"));
            state.daemons[number].process = None;
            state.forget(process);
            state.schedule(now + RESTART_AFTER, Event::Start(number));
        }
    }

    pub(super) fn act_on_daemon(self: &Arc<Self>, action: &Action, now: Duration) {
        let state = self.lock();
        let number_of = |number: usize| {
            if number == LEADER {
                state.leader()
            } else {
                Some(number)
            }
        };
        let of = |number: usize| state.daemons[number_of(number)?].process;
        match *action {
            Action::Kill(number) => {
                if let Some(process) = of(number) {
                    drop(state);
                    self.scheduler.kill(process);
                    self.bury(process, now);
                }
            }
            Action::Freeze(number, duration, suspends) => {
                if let Some(process) = of(number) {
                    self.scheduler.freeze(process, duration, suspends);
                }
            }
            Action::StepClock(number, seconds) => {
                if let Some(process) = of(number) {
                    let by = SignedDuration::from_secs(seconds);
                    self.scheduler.step_wall_clock(process, by);
                }
            }
            Action::Isolate(number, duration) => {
                if let Some(process) = of(number) {
                    drop(state);
                    self.lock().isolate(process, now + duration);
                }
            }
            Action::Terminate(number) => {
                let number = number_of(number);
                let stop = number.map(|number| state.daemons[number].stop.clone());
                drop(state);
                if let Some(stop) = stop {
                    stop.stop(Cause::Requested("SIGTERM".to_owned()));
                }
            }
            Action::SleepThroughATerm(duration) => {
                let process = of(LEADER);
                drop(state);
                if let Some(process) = process {
                    self.scheduler.freeze(process, duration, false);
                    let mut state = self.lock();
                    let successor = Event::Act(Action::Terminate(LEADER));
                    state.schedule(now + duration.mul_f64(0.9), successor);
                }
            }
            _ => {}
        }
    }

    /// Stops all daemons in order, and waits for them.
    ///
    /// PROPERTY P12: Every daemon ends within 40 s of SIGTERM.
    pub(super) fn stop_all(self: &Arc<Self>) {
        let mut state = self.lock();
        state.restarts = false;
        let stops: Vec<Stop> = state
            .daemons
            .iter()
            .map(|daemon| daemon.stop.clone())
            .collect();
        drop(state);
        for stop in stops {
            stop.stop(Cause::Requested("SIGTERM".to_owned()));
        }
        self.run_until(self.now() + Duration::from_secs(40));
        let mut state = self.lock();
        let running = state.daemons.iter().any(|daemon| daemon.process.is_some());
        if running {
            let found = "a daemon did not end after SIGTERM".to_owned();
            state.wrong.push(found);
        } else if !state.is_released() {
            let found = format!("{:?} has ended with the Lease", state.lease.holder);
            state.wrong.push(found);
        }
    }

    /// Ends what still runs, after a failure.
    pub(super) fn kill_all(&self) {
        let processes: Vec<Process> = self
            .lock()
            .daemons
            .iter()
            .filter_map(|daemon| daemon.process)
            .collect();
        for process in processes {
            self.scheduler.kill(process);
        }
        self.scheduler.end_killed();
        let mut state = self.lock();
        for daemon in &mut state.daemons {
            daemon.running = Arc::default();
        }
    }
}

/// The life of one process.
fn run(
    options: &ManagerOptions,
    running: &Mutex<Option<Running>>,
    stop: &Stop,
) -> Result<Cause, String> {
    let config = ClientConfig::plain("http://api.test");
    let health = Health::default();
    let manager = Manager::start(&config, options, &health, stop).expect("a valid configuration");
    let set = |value| *running.lock() = value;
    set(manager.instances().first().map(|it| Running {
        queue: Arc::clone(it.queue()),
        controller: Arc::downgrade(&it.controller),
        dry_run: it.dry_run.clone(),
    }));
    let ended = manager.wait();
    set(None);
    ended
}
