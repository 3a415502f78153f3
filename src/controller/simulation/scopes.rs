//! Every history of a small scope: one ReplicaSet, two pods, one request whose response never
//! comes, one relist, and one restart, which may be a kill in the middle of a sync.
//!
//! A step is a sync, an event of a watch, the late arrival of a request, the relist, the restart, a
//! pod that turns Ready, or the next timer. While a response is on its way each watch may deliver
//! an event. A history is replayed from the start for each step, because a controller cannot be
//! copied. When no step is left, the ReplicaSet must have converged.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use fastrand::Rng;

use super::requests::Fate;
use super::server::{Late, Line, Server};
use super::{Trouble, World};
use crate::api::{ObjectKey, Pod, ReplicaSet};
use crate::batches::FairPool;
use crate::stdx::clock::{Clock, FakeClock};
use crate::stdx::explore::explore;

const NAME: &str = "one";

/// When all histories begin, so that equal states look equal.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// True in `make simulate`, which explores a larger scope.
static IS_LONG: LazyLock<bool> = LazyLock::new(|| std::env::var_os("SIMULATION_MINUTES").is_some());

/// More steps than any history has.
const DEPTH_MAX: usize = 60;

/// Chooses what happens within a step: first the given choices, then option 0 each time.
#[derive(Debug)]
pub(super) struct Script {
    choices: Vec<u32>,
    /// The number of options of each choice so far.
    sides: Vec<u32>,
    /// How many of the scope's faults are left.
    left: Left,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Left {
    unknown: u32,
    relists: u32,
    restarts: u32,
    /// Timers that may fire while something else could happen first.
    early_timers: u32,
    /// Pods that may turn Ready, which changes the order of deletion.
    readies: u32,
}

impl Script {
    pub(super) fn choose(&mut self, sides: u32) -> u32 {
        let choice = self.choices.get(self.sides.len()).copied();
        self.sides.push(sides);
        choice.unwrap_or(0)
    }

    pub(super) fn draw_fate(&mut self, may_be_late: bool) -> (Fate, bool) {
        let mut fates = vec![(Fate::Responded, false)];
        for is_killed in [false, true] {
            if self.left.unknown == 0 || (is_killed && self.left.restarts == 0) {
                continue;
            }
            fates.extend([
                (Fate::ResponseLost, is_killed),
                (Fate::RequestLost, is_killed),
            ]);
            fates.extend(may_be_late.then_some((Fate::Late, is_killed)));
        }
        let choice = self.choose(u32::try_from(fates.len()).unwrap_or(1));
        let (fate, is_killed) = fates[choice as usize];
        self.left.unknown -= u32::from(fate != Fate::Responded);
        self.left.restarts -= u32::from(is_killed);
        (fate, is_killed)
    }

    /// The choices after these, in the order of counting; `None` after the last.
    fn next(&self) -> Option<Vec<u32>> {
        let mut choices = self.choices.clone();
        choices.resize(self.sides.len(), 0);
        while let Some(choice) = choices.pop() {
            if choice + 1 < self.sides[choices.len()] {
                choices.push(choice + 1);
                return Some(choices);
            }
        }
        None
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Sync,
    DeliverPod,
    DeliverReplicaSet,
    ArriveLate,
    RelistPods,
    Restart,
    TurnReady,
    /// Time passes until the next timer of the queue.
    Timer,
}

const STEPS: [Step; 8] = [
    Step::Sync,
    Step::DeliverPod,
    Step::DeliverReplicaSet,
    Step::ArriveLate,
    Step::RelistPods,
    Step::Restart,
    Step::TurnReady,
    Step::Timer,
];

impl World {
    /// While a response is on its way each watch may deliver its next line.
    pub(super) fn deliver_by_script(&self) {
        let (has_pod, has_replica_set) = self.undelivered();
        if has_pod && self.dice(2) == 1 {
            self.deliver_pod();
        }
        if has_replica_set && self.dice(2) == 1 {
            self.deliver_replica_set();
        }
    }

    /// True for each watch that has lines to deliver.
    fn undelivered(&self) -> (bool, bool) {
        let state = self.lock();
        (
            state.pods_seen < state.server.pod_log.len(),
            state.replica_sets_seen < state.server.replica_set_log.len(),
        )
    }

    /// A world with `replicas` in the spec, and with `n_pods` pods that exist and are cached.
    fn of_scope(replicas: i32, n_pods: usize) -> Arc<Self> {
        let mut server = Server::default();
        server.add_replica_set(NAME, replicas);
        let rs = server.replica_sets[NAME].clone();
        for number in 0..n_pods {
            let added = server.add_pod(&rs, &format!("old-{number}"), true);
            added.expect("no pod has this name");
        }
        let trouble = Trouble {
            deaths: false,
            orphans: false,
            recreations: false,
            kills: true,
            relists: true,
            calms: false,
        };
        let clock = FakeClock::starting(*START);
        let world = Self::of(
            server,
            clock,
            10,
            Rng::with_seed(0),
            trouble,
            Arc::new(FairPool::default()),
        );
        world.lock().script = Some(Script {
            choices: Vec::new(),
            sides: Vec::new(),
            left: Left {
                unknown: 1,
                relists: u32::from(*IS_LONG || n_pods == 0),
                restarts: 1,
                early_timers: u32::from(*IS_LONG),
                readies: u32::from(n_pods > 0),
            },
        });
        world.start_daemon();
        world
    }

    fn n_active(&self) -> usize {
        let state = self.lock();
        state.server.n_active(&state.server.replica_sets[NAME])
    }

    fn left(&self) -> Left {
        self.lock().script.as_ref().expect("a scope has one").left
    }

    fn spend(&self, spend: impl FnOnce(&mut Left)) {
        spend(&mut self.lock().script.as_mut().expect("a scope has one").left);
    }

    fn is_possible(&self, step: Step) -> bool {
        let daemon = self.daemon();
        let (has_pod, has_replica_set) = self.undelivered();
        let has_late = !self.lock().server.late.is_empty();
        let is_busy = !daemon.queue.is_empty() || has_pod || has_replica_set || has_late;
        match step {
            Step::Sync => !daemon.queue.is_empty(),
            Step::DeliverPod => has_pod,
            Step::DeliverReplicaSet => has_replica_set,
            Step::ArriveLate => has_late,
            Step::RelistPods => self.left().relists > 0,
            Step::Restart => self.left().restarts > 0,
            Step::TurnReady => self.left().readies > 0 && !self.lock().server.pods.is_empty(),
            Step::Timer => {
                daemon.queue.next_deadline().is_some() && (!is_busy || self.left().early_timers > 0)
            }
        }
    }

    fn take(&self, step: Step, choices: Vec<u32>) {
        if let Some(script) = &mut self.lock().script {
            script.choices = choices;
            script.sides.clear();
        }
        match step {
            Step::Sync => self.work(),
            Step::DeliverPod => drop(self.deliver_pod()),
            Step::DeliverReplicaSet => drop(self.deliver_replica_set()),
            Step::ArriveLate => self.lock().server.see_late(self.clock.wall()),
            Step::RelistPods => {
                self.spend(|left| left.relists -= 1);
                self.relist_pods();
            }
            Step::Restart => {
                self.spend(|left| left.restarts -= 1);
                self.start_daemon();
            }
            Step::TurnReady => {
                self.spend(|left| left.readies -= 1);
                let mut state = self.lock();
                let names: Vec<_> = state.server.pods.keys().cloned().collect();
                let n_pods = u32::try_from(names.len()).unwrap_or(1);
                let chosen = &names[state.dice(n_pods) as usize];
                state.server.change_pod(chosen, |pod| pod.is_ready = true);
            }
            Step::Timer => {
                if STEPS[..4].iter().any(|step| self.is_possible(*step)) {
                    self.spend(|left| left.early_timers -= 1);
                }
                let due = self.daemon().queue.next_deadline();
                let wait = due.map(|due| due.saturating_duration_since(self.clock.now()));
                self.clock.advance(wait.unwrap_or_default());
                self.daemon().queue.advance(self.clock.now());
            }
        }
    }

    /// All that decides about later steps.
    fn identity(&self) -> u64 {
        let daemon = self.daemon();
        let key = ObjectKey::new("default", NAME);
        let due = daemon.queue.next_deadline();
        let queue = (
            daemon.queue.state_of(&key),
            due.map(|due| due - self.clock.now()),
        );
        let state = self.lock();
        let (server, cache) = (&state.server, &daemon.cache);
        let cached = (cache.pods.list(), cache.replica_sets.list());
        let replica_set_lines = &server.replica_set_log[state.replica_sets_seen..];
        let replica_set_lines = replica_set_lines.iter().map(|line| match line {
            Line::Put(rs) | Line::Gone(rs) => of_replica_set(rs),
        });
        let late = server.late.iter().map(|late| match late {
            Late::Create(_, name) | Late::CreateOfKilled(_, name) => name.to_string(),
            Late::Delete(pod, sent) => format!("{} {sent}", pod.key.name),
        });
        let objects: [Vec<String>; 7] = [
            server.pods.values().map(of_pod).collect(),
            server.replica_sets.values().map(of_replica_set).collect(),
            server.pod_log[state.pods_seen..]
                .iter()
                .map(Line::to_string)
                .collect(),
            replica_set_lines.collect(),
            cached.0.iter().map(|pod| of_pod(pod)).collect(),
            cached.1.iter().map(|rs| of_replica_set(rs)).collect(),
            late.collect(),
        ];
        let left = state.script.as_ref().map(|script| script.left);
        let memories = format!("{:?}", daemon.controller.memories);
        let mut hasher = DefaultHasher::new();
        (objects, format!("{queue:?} {left:?}"), memories).hash(&mut hasher);
        hasher.finish()
    }
}

fn of_pod(pod: &Pod) -> String {
    format!("{} {} {}", pod.key.name, pod.uid, pod.resource_version)
}

fn of_replica_set(rs: &ReplicaSet) -> String {
    let (status, version) = (&rs.status, &rs.resource_version);
    format!(
        "{version} {} {}",
        status.replicas, status.observed_generation
    )
}

/// A state as the steps that lead to it, and what they lead to.
///
/// PROPERTY P20: In every history of two creates, or of one delete, with one request of unknown
/// outcome, one relist and one restart, P13 holds, no delete leaves fewer pods than `spec.replicas`
/// unless the daemon has restarted, and when no step is left the ReplicaSet has converged.
struct Reached {
    start: (i32, usize),
    path: Vec<(Step, Vec<u32>)>,
    identity: u64,
    possible: Vec<Step>,
    result: Result<(), String>,
    /// The choices that follow those of the last step.
    next: Option<Vec<u32>>,
}

impl Reached {
    fn after(start: (i32, usize), path: Vec<(Step, Vec<u32>)>) -> Self {
        let world = World::of_scope(start.0, start.1);
        for (step, choices) in &path {
            world.take(*step, choices.clone());
        }
        let possible: Vec<_> = STEPS
            .into_iter()
            .filter(|it| world.is_possible(*it))
            .collect();
        let mut wrong = std::mem::take(&mut world.lock().wrong);
        wrong.extend(world.surplus());
        // A daemon that has restarted does not know which deletes its predecessor has sent.
        let n_active = world.n_active();
        let n_wanted = usize::try_from(start.0).unwrap_or(0);
        if world.left().restarts > 0 && n_active < start.1.min(n_wanted) {
            wrong.push(format!("{n_active} of {n_wanted} pods are left"));
        }
        let faults = [Step::RelistPods, Step::Restart, Step::TurnReady];
        if possible.iter().all(|step| faults.contains(step)) {
            wrong.extend(world.lock().unsettled().map(|(_, what)| what));
        }
        let reached = Self {
            start,
            identity: world.identity(),
            possible,
            result: if wrong.is_empty() {
                Ok(())
            } else {
                Err(wrong.join("; "))
            },
            next: world.lock().script.as_ref().and_then(Script::next),
            path,
        };
        // The daemon and the world refer to each other.
        world.lock().daemon = None;
        reached
    }

    fn steps(&self) -> Vec<((Step, Vec<u32>), Self)> {
        let mut all = Vec::new();
        for step in &self.possible {
            let mut choices = Some(Vec::new());
            while let Some(chosen) = choices {
                let action = (*step, chosen);
                let path = self.path.iter().cloned().chain([action.clone()]).collect();
                let after = Self::after(self.start, path);
                choices = after.next.clone();
                all.push((action, after));
            }
        }
        all
    }
}

#[track_caller]
fn exhaust(scope: &str, replicas: i32, n_pods: usize) {
    let explored = explore(
        Reached::after((replicas, n_pods), Vec::new()),
        DEPTH_MAX,
        |reached| reached.identity,
        Reached::steps,
        |reached| reached.result.clone(),
    );
    let is_whole = explored.states > 1_000 && explored.depth < DEPTH_MAX;
    assert!(is_whole, "{explored:?}");
    explored.keep(scope);
}

#[test]
fn every_history_of_two_creates_ends_with_two_pods() {
    exhaust("unknown write, two creates", 2, 0);
}

#[test]
fn every_history_of_a_delete_ends_with_one_pod() {
    exhaust("unknown write, a delete", 1, 2);
}
