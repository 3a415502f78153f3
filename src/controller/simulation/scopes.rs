//! Every history of a small scope: one ReplicaSet, two pods, one request whose response never
//! comes, one relist, and one restart, which may be a kill in the middle of a sync.
//!
//! A step is a sync, an event of a watch, the late arrival of a request, the relist, the restart, a
//! step of a kubelet or of a user, or the next timer. While a response is on its way each watch may
//! deliver an event. A history is replayed from the start for each step, because a controller
//! cannot be copied. When no step is left, the ReplicaSet must have converged.
//!
//! The scope of a whole ReplicaSet has two daemons: where another scope restarts the daemon, here a
//! standby takes over. It has each clause of "What it relies on" in the manual's page on testing:
//!
//! | who | steps |
//! |---|---|
//! | API servers | a request is delayed, or it or its response lost; the watches stop for a while |
//! | users | a pod is deleted or relabelled |
//! | kubelets | pods become Ready, fail, and end after their deletion |
//! | other daemons | the leader is killed, also in the middle of a request |
//!
//! So that it ends, it leaves out what the other scopes and the histories of whole daemons have:
//! watches that deliver one event by one or during a sync (these deliver everything after each
//! step, unless they have stopped), rejected requests, throttled statuses, orphans, and a leader
//! that is paused, which sends no more than a killed one.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use super::World;
use super::requests::Fate;
use super::server::{Late, Line, Server};
use crate::api::{ArcStr, ObjectKey, Pod, PodPhase, ReplicaSet};
use crate::controller::decide::status::Counts;
use crate::stdx::clock::Clock;
use crate::stdx::testing::FakeClock;
use crate::stdx::testing::explore::explore;

const NAME: &str = "one";

/// When all histories begin, so that equal states look equal.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// True in `make simulate`, which explores a larger scope.
static IS_LONG: LazyLock<bool> = LazyLock::new(|| std::env::var_os("SIMULATION_MINUTES").is_some());

/// Chooses what happens within a step: first the given choices, then option 0 each time.
#[derive(Debug)]
pub(super) struct Script {
    choices: Vec<u32>,
    /// The number of options of each choice so far.
    sides: Vec<u32>,
    /// How many of the scope's faults are left.
    left: Left,
    /// Whether a standby takes over instead of a restart.
    has_standby: bool,
    /// Whether the watches of pods and of ReplicaSets have stopped, with a standby.
    has_stalled: [bool; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Left {
    unknown: u32,
    relists: u32,
    /// Restarts of the daemon, or failovers by the standby.
    restarts: u32,
    /// Daemons whose watches may stop.
    stalls: u32,
    /// Timers that may fire while something else could happen first.
    early_timers: u32,
    /// Pods that may turn Ready, which changes the order of deletion.
    readies: u32,
    failures: u32,
    /// Pods that a user may delete or relabel.
    changes: u32,
}

impl Script {
    pub(super) fn has_standby(&self) -> bool {
        self.has_standby
    }

    pub(super) fn stall(&mut self, has_stalled: [bool; 2]) {
        self.has_stalled = has_stalled;
    }

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
    /// The watches of the standby stop, or those of the leader, until they catch up.
    StallStandby,
    Stall,
    CatchUpPods,
    CatchUpReplicaSets,
    Restart,
    TurnReady,
    Fail,
    ChangePod,
    /// The kubelet has stopped the containers of a terminating pod.
    Finish,
    /// Time passes until the next timer of the queue.
    Timer,
}

/// The steps that come before time passes.
const PROGRESS: [Step; 7] = [
    Step::Sync,
    Step::DeliverPod,
    Step::DeliverReplicaSet,
    Step::CatchUpPods,
    Step::CatchUpReplicaSets,
    Step::ArriveLate,
    Step::Finish,
];

/// The steps that need not happen.
const FAULTS: [Step; 7] = [
    Step::RelistPods,
    Step::Restart,
    Step::StallStandby,
    Step::Stall,
    Step::TurnReady,
    Step::Fail,
    Step::ChangePod,
];

fn all_steps() -> impl Iterator<Item = Step> {
    PROGRESS.into_iter().chain(FAULTS).chain([Step::Timer])
}

#[derive(Clone, Copy, Debug)]
struct Scope {
    name: &'static str,
    replicas: i32,
    /// Pods that exist and are cached at the start.
    n_pods: usize,
    has_standby: bool,
    left: Left,
    /// Steps of the longest histories; more than any has, unless it has a standby.
    depth: usize,
}

impl World {
    /// While a response is on its way each watch may deliver its next line.
    pub(super) fn deliver_by_script(&self) {
        if self.script(|script| script.has_standby) {
            return;
        }
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

    fn of_scope(scope: &Scope) -> Arc<Self> {
        let mut server = Server::default();
        server.add_replica_set(NAME, scope.replicas);
        let rs = server.replica_sets[NAME].clone();
        for number in 0..scope.n_pods {
            let added = server.add_pod(&rs, &format!("old-{number}"));
            added.expect("no pod has this name");
        }
        let script = Script {
            choices: Vec::new(),
            sides: Vec::new(),
            left: scope.left,
            has_standby: false,
            has_stalled: [false; 2],
        };
        let world = Self::of(server, FakeClock::starting(*START), script);
        world.start_daemon();
        world.script(|script| script.has_standby = scope.has_standby);
        world
    }

    fn n_active(&self) -> usize {
        let state = self.lock();
        state.server.n_active(&state.server.replica_sets[NAME])
    }

    fn script<R>(&self, with: impl FnOnce(&mut Script) -> R) -> R {
        with(&mut self.lock().script)
    }

    fn left(&self) -> Left {
        self.script(|script| script.left)
    }

    fn spend(&self, spend: impl FnOnce(&mut Left)) {
        self.script(|script| spend(&mut script.left));
    }

    fn is_possible(&self, step: Step) -> bool {
        let daemon = self.daemon();
        let (has_pod, has_replica_set) = self.undelivered();
        let left = self.left();
        let [pods_stall, replica_sets_stall] = self.script(|script| script.has_stalled);
        let has_standby = self.script(|script| script.has_standby);
        let is_there = |is_it: fn(&Pod) -> bool| !self.names_of(is_it).is_empty();
        match step {
            Step::Sync => !daemon.queue.is_empty(),
            Step::DeliverPod => has_pod && !has_standby,
            Step::DeliverReplicaSet => has_replica_set && !has_standby,
            Step::CatchUpPods => pods_stall,
            Step::CatchUpReplicaSets => replica_sets_stall,
            Step::ArriveLate => !self.lock().server.late.is_empty(),
            Step::Finish => is_there(Pod::is_terminating),
            Step::RelistPods => left.relists > 0,
            Step::Restart => left.restarts > 0,
            Step::StallStandby => left.stalls > 0 && left.restarts > 0,
            Step::Stall => left.stalls > 0,
            Step::TurnReady => left.readies > 0 && is_there(is_starting),
            Step::Fail => left.failures > 0 && is_there(Pod::is_active),
            Step::ChangePod => left.changes > 0 && is_there(Pod::is_active),
            Step::Timer => {
                daemon.queue.next_deadline().is_some() && (left.early_timers > 0 || !self.is_busy())
            }
        }
    }

    fn is_busy(&self) -> bool {
        PROGRESS.into_iter().any(|step| self.is_possible(step))
    }

    fn take(&self, step: Step, choices: Vec<u32>) {
        self.take_alone(step, choices);
        let [pods, replica_sets] = self.script(|script| script.has_stalled.map(|it| !it));
        if self.script(|script| script.has_standby) {
            while pods && self.undelivered().0 {
                self.deliver_pod();
            }
            while replica_sets && self.undelivered().1 {
                self.deliver_replica_set();
            }
        }
    }

    fn take_alone(&self, step: Step, choices: Vec<u32>) {
        self.script(|script| {
            script.choices = choices;
            script.sides.clear();
        });
        match step {
            Step::Sync => self.work(),
            Step::DeliverPod => self.deliver_pod(),
            Step::DeliverReplicaSet => self.deliver_replica_set(),
            Step::ArriveLate => self.lock().server.see_late(self.clock.wall()),
            Step::RelistPods => {
                self.spend(|left| left.relists -= 1);
                self.relist_pods();
            }
            Step::Restart => {
                self.spend(|left| left.restarts -= 1);
                self.start_daemon();
            }
            Step::Finish => {
                let pod = self.choose_pod(Pod::is_terminating);
                self.lock().server.finish(&pod);
            }
            Step::StallStandby => {
                self.spend(|left| left.stalls -= 1);
                self.stall_standby();
            }
            Step::Stall => {
                self.spend(|left| left.stalls -= 1);
                self.script(|script| script.has_stalled = [true; 2]);
            }
            Step::CatchUpPods => self.script(|script| script.has_stalled[0] = false),
            Step::CatchUpReplicaSets => self.script(|script| script.has_stalled[1] = false),
            Step::TurnReady => {
                self.spend(|left| left.readies -= 1);
                let pod = self.choose_pod(is_starting);
                self.lock().server.change_pod(&pod, |pod| {
                    pod.node = Some("node".into());
                    pod.phase = PodPhase::Running;
                    pod.is_ready = true;
                });
            }
            Step::Fail => {
                self.spend(|left| left.failures -= 1);
                let pod = self.choose_pod(Pod::is_active);
                let fail = |pod: &mut Pod| pod.phase = PodPhase::Failed;
                self.lock().server.change_pod(&pod, fail);
            }
            Step::ChangePod => {
                self.spend(|left| left.changes -= 1);
                self.change_by_script();
            }
            Step::Timer => {
                let is_busy = self.is_busy();
                if is_busy {
                    self.spend(|left| left.early_timers -= 1);
                }
                self.wait(!is_busy);
            }
        }
    }

    fn names_of(&self, is_it: fn(&Pod) -> bool) -> Vec<ArcStr> {
        let state = self.lock();
        let pods = state.server.pods.values().filter(|pod| is_it(pod));
        pods.map(|pod| pod.key.name.clone()).collect()
    }

    fn choose_pod(&self, is_it: fn(&Pod) -> bool) -> ArcStr {
        let mut names = self.names_of(is_it);
        let n_pods = u32::try_from(names.len()).unwrap_or(1);
        names.swap_remove(self.dice(n_pods) as usize)
    }

    /// A user deletes or relabels a pod.
    fn change_by_script(&self) {
        let name = self.choose_pod(Pod::is_active);
        let is_deleted = self.dice(2) == 0;
        let server = &mut self.lock().server;
        if is_deleted {
            let pod = server.pods[&name].clone();
            let deleted = server.delete_pod(&pod, self.clock.wall());
            deleted.expect("the pod is there");
        } else {
            let labels = [("type", "lost")].into_iter().collect();
            server.change_pod(&name, |pod| pod.labels = labels);
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
        let replica_set_lines = replica_set_lines.iter().map(of_replica_set);
        let late = server.late.iter().map(|late| match late {
            Late::Create(_, name) | Late::CreateOfKilled(_, name) => name.to_string(),
            Late::Delete(pod, sent) => format!("{} {sent}", pod.key.name),
        });
        let standby = state.standby.as_ref().map(|(standby, seen)| {
            let (pods, sets) = (standby.cache.pods.list(), standby.cache.replica_sets.list());
            let pods = pods.iter().map(|pod| of_pod(pod));
            let all = pods.chain(sets.iter().map(|rs| of_replica_set(rs)));
            format!("{:?} {seen:?}", all.collect::<Vec<_>>())
        });
        let objects: [Vec<String>; 8] = [
            server.pods.values().map(of_pod).collect(),
            server.replica_sets.values().map(of_replica_set).collect(),
            server.pod_log[state.pods_seen..]
                .iter()
                .map(|line| match line {
                    Line::Put(pod) => of_pod(pod),
                    Line::Gone(pod) => format!("no {}", of_pod(pod)),
                })
                .collect(),
            replica_set_lines.collect(),
            cached.0.iter().map(|pod| of_pod(pod)).collect(),
            cached.1.iter().map(|rs| of_replica_set(rs)).collect(),
            late.collect(),
            standby.into_iter().collect(),
        ];
        let left = (state.script.left, state.script.has_stalled);
        let memories = format!("{:?}", daemon.controller.memories);
        let mut hasher = DefaultHasher::new();
        (objects, format!("{queue:?} {left:?}"), memories).hash(&mut hasher);
        hasher.finish()
    }
}

/// True until the pod is Ready.
fn is_starting(pod: &Pod) -> bool {
    pod.is_active() && !pod.is_ready
}

fn of_pod(pod: &Pod) -> String {
    let (name, uid, version, owner) = (
        &pod.key.name,
        &pod.uid,
        &pod.resource_version,
        &pod.controller,
    );
    let (ends, is_owned) = (pod.is_terminating(), owner.is_some());
    let (phase, is_ready, labels) = (pod.phase, pod.is_ready, &pod.labels);
    format!("{name} {uid} {version} {phase:?} {is_ready} {labels:?} {ends} {is_owned}")
}

fn of_replica_set(rs: &ReplicaSet) -> String {
    let (status, version) = (&rs.status, &rs.resource_version);
    format!(
        "{version} {:?} {}",
        Counts::from(status),
        status.observed_generation
    )
}

/// A state as the steps that lead to it, and what they lead to.
///
/// PROPERTY P20: In every history of two creates, or of one delete, with one request of unknown
/// outcome, one relist and one restart, P13 holds, no delete leaves fewer pods than `spec.replicas`
/// unless the daemon has restarted, and when no step is left the ReplicaSet has converged. In every
/// history of the first steps of a whole ReplicaSet P13 and P14 hold, it never has more than
/// `spec.replicas` pods, and when no step is left it has converged.
struct Reached {
    scope: Scope,
    path: Vec<(Step, Vec<u32>)>,
    identity: u64,
    possible: Vec<Step>,
    result: Result<(), String>,
    /// The choices that follow those of the last step.
    next: Option<Vec<u32>>,
}

impl Reached {
    fn after(scope: Scope, path: Vec<(Step, Vec<u32>)>) -> Self {
        let world = World::of_scope(&scope);
        for (step, choices) in &path {
            world.take(*step, choices.clone());
        }
        let possible: Vec<_> = all_steps().filter(|it| world.is_possible(*it)).collect();
        let mut wrong = std::mem::take(&mut world.lock().wrong);
        wrong.extend(world.surplus());
        // A daemon that has restarted does not know which deletes its predecessor has sent.
        let n_active = world.n_active();
        let n_wanted = usize::try_from(scope.replicas).unwrap_or(0);
        if world.left().restarts > 0 && n_active < scope.n_pods.min(n_wanted) {
            wrong.push(format!("{n_active} of {n_wanted} pods are left"));
        }
        if scope.has_standby && n_active > n_wanted {
            wrong.push(format!("{n_active} pods instead of {n_wanted}"));
        }
        if possible.iter().all(|step| FAULTS.contains(step)) {
            wrong.extend(world.lock().unsettled().map(|(_, what)| what));
        }
        let reached = Self {
            scope,
            identity: world.identity(),
            possible,
            result: if wrong.is_empty() {
                Ok(())
            } else {
                Err(wrong.join("; "))
            },
            next: world.lock().script.next(),
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
                let after = Self::after(self.scope, path);
                choices = after.next.clone();
                all.push((action, after));
            }
        }
        all
    }
}

#[track_caller]
fn exhaust(scope: Scope) {
    let explored = explore(
        Reached::after(scope, Vec::new()),
        scope.depth,
        |reached| reached.identity,
        Reached::steps,
        |reached| reached.result.clone(),
    );
    // Those with a standby go on for longer than the scope looks.
    let is_whole = explored.states > 1_000 && explored.depth < scope.depth;
    assert!(is_whole || scope.has_standby, "{explored:?}");
    explored.keep(scope.name);
}

/// One request of unknown outcome and one restart.
const FEW: Left = Left {
    unknown: 1,
    relists: 0,
    restarts: 1,
    stalls: 0,
    early_timers: 0,
    readies: 0,
    failures: 0,
    changes: 0,
};

#[test]
fn every_history_of_two_creates_ends_with_two_pods() {
    exhaust(Scope {
        name: "unknown write, two creates",
        replicas: 2,
        n_pods: 0,
        has_standby: false,
        left: Left {
            relists: 1,
            early_timers: u32::from(*IS_LONG),
            ..FEW
        },
        depth: 60,
    });
}

#[test]
fn every_history_of_a_delete_ends_with_one_pod() {
    exhaust(Scope {
        name: "unknown write, a delete",
        replicas: 1,
        n_pods: 2,
        has_standby: false,
        left: Left {
            relists: u32::from(*IS_LONG),
            early_timers: u32::from(*IS_LONG),
            readies: 1,
            ..FEW
        },
        depth: 60,
    });
}

/// A whole ReplicaSet with these faults besides a standby. In `make simulate` all histories of 12
/// steps.
#[track_caller]
fn exhaust_whole(name: &'static str, left: Left) {
    exhaust(Scope {
        name,
        replicas: 2,
        n_pods: 0,
        has_standby: true,
        left: Left { stalls: 1, ..left },
        depth: if *IS_LONG { 12 } else { 5 },
    });
}

#[test]
fn every_history_of_a_replica_set_ends_with_two_pods() {
    let readies = if *IS_LONG { 2 } else { 1 };
    exhaust_whole("a whole ReplicaSet, unknown write", Left { readies, ..FEW });
}

#[test]
fn every_history_of_failing_pods_ends_with_two_pods() {
    let left = Left {
        unknown: 0,
        readies: 1,
        failures: 1,
        changes: 1,
        ..FEW
    };
    exhaust_whole("a whole ReplicaSet, failing and changed pods", left);
}
