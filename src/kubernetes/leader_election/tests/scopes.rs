//! Every short history of two shipped electors and one Lease.
//!
//! An attempt of one elector may come between the requests of an attempt of the other. Histories
//! are replayed from the start for each step, because an elector cannot be copied.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::rig::{Rig, Server};
use crate::client::Fence;
use crate::stdx::clock::Clock;
use crate::stdx::testing::FakeClock;
use crate::stdx::testing::explore::explore;

const CALLS: [&str; 3] = ["get", "create", "update"];
const NAMES: [&str; 2] = ["a", "b"];

/// A step of one elector, by its index, or of its surroundings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    /// An attempt: it acquires or renews.
    Try(usize),
    /// An attempt; the response to such a write is lost.
    Lose(usize, &'static str),
    /// An attempt, while each request takes 4 s.
    TrySlowly(usize),
    /// An attempt; the other elector makes one while such a call is on its way.
    TryAcross(usize, &'static str),
    /// An attempt; a user deletes the Lease while such a call is on its way.
    TryDeleted(usize, &'static str),
    /// A daemon whose last write has ended releases the lease and starts again.
    Release(usize),
    /// A daemon stops while a write is under way, and starts again.
    StopWriting(usize),
    /// Milliseconds pass on each of the two machines. To a frozen daemon that is all that happens.
    Pass([u64; 2]),
    Delete,
    Empty,
}

fn actions() -> Vec<Action> {
    use Action::{
        Delete, Empty, Lose, Pass, Release, StopWriting, Try, TryAcross, TryDeleted, TrySlowly,
    };
    let mut all = vec![Delete, Empty];
    // To and beyond each limit, also with clocks of different speed.
    all.extend([[5_000; 2], [8_000, 10_000], [10_000, 8_000]].map(Pass));
    for index in 0..2 {
        all.extend([
            Try(index),
            TrySlowly(index),
            Release(index),
            StopWriting(index),
        ]);
        all.extend(["create", "update"].map(|call| Lose(index, call)));
        all.extend(CALLS.map(|call| TryAcross(index, call)));
        all.extend(["create", "update"].map(|call| TryDeleted(index, call)));
    }
    all
}

struct World {
    server: Arc<Mutex<Server>>,
    clocks: [Arc<FakeClock>; 2],
    rigs: [Arc<Mutex<Rig>>; 2],
    n_starts: [usize; 2],
    /// Ghost state: a write of this machine's last daemon is under way.
    is_writing: [bool; 2],
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl World {
    fn new() -> Self {
        let server = Arc::default();
        let clocks = [Arc::default(), Arc::default()];
        let rig =
            |index: usize| Arc::new(Mutex::new(Rig::at(NAMES[index], &server, &clocks[index])));
        let rigs = [rig(0), rig(1)];
        Self {
            server,
            clocks,
            rigs,
            n_starts: [0; 2],
            is_writing: [false; 2],
        }
    }

    /// True if no elector is unaware of the Lease's holder. With [`Self::may_start`] this excludes
    /// the fifth of the gaps that the page of `leader_election` names.
    fn is_known(&self) -> bool {
        let holder = lock(&self.rigs[0])
            .lease()
            .unwrap_or_default()
            .holder_identity;
        self.rigs.iter().all(|rig| lock(rig).leader() == holder)
    }

    /// True unless the Lease hides from a new daemon that the other one may still write.
    fn may_start(&self, index: usize) -> bool {
        let other = lock(&self.rigs[1 - index]);
        let holder = other.lease().unwrap_or_default().holder_identity;
        let names_it =
            !holder.is_empty() && (self.is_writing[1 - index] || holder == other.leader());
        names_it || (!other.fence.is_open() && !self.is_writing[1 - index])
    }

    /// Returns false if the action cannot happen here.
    fn act(&mut self, action: Action) -> bool {
        match action {
            Action::Try(index) => self.attempt(index),
            Action::Lose(index, call) => {
                lock(&self.rigs[index]).lose_response_once(call);
                self.attempt(index);
            }
            Action::TrySlowly(index) => {
                lock(&self.rigs[index]).set_latency(Duration::from_secs(4));
                self.attempt(index);
            }
            Action::TryAcross(index, call) => {
                let other = Arc::clone(&self.rigs[1 - index]);
                lock(&self.rigs[index]).meanwhile(call, move || {
                    lock(&other).elect();
                });
                self.attempt(index);
            }
            Action::TryDeleted(index, call) => {
                if !self.is_known() {
                    return false;
                }
                let server = Arc::clone(&self.server);
                lock(&self.rigs[index]).meanwhile(call, move || lock(&server).lease = None);
                self.attempt(index);
            }
            Action::Release(index) | Action::StopWriting(index) if !self.may_start(index) => {
                return false;
            }
            Action::Release(index) => self.restart(index, true),
            Action::StopWriting(index) if !lock(&self.rigs[index]).fence.is_open() => return false,
            Action::StopWriting(index) => {
                self.is_writing[index] = true;
                self.restart(index, false);
            }
            Action::Pass(times) => {
                self.is_writing = [false; 2];
                for (clock, ms) in self.clocks.iter().zip(times) {
                    clock.advance(Duration::from_millis(ms));
                }
            }
            Action::Delete | Action::Empty if !self.is_known() => return false,
            Action::Delete => lock(&self.rigs[0]).delete_lease(),
            Action::Empty => lock(&self.rigs[0]).empty_lease(),
        }
        true
    }

    /// Ends a daemon as the manager does. The next one has an identity of its own.
    fn restart(&mut self, index: usize, writes_ended: bool) {
        let mut rig = lock(&self.rigs[index]);
        rig.run_to_end(writes_ended);
        self.n_starts[index] += 1;
        let name = format!("{}-{}", NAMES[index], self.n_starts[index]);
        *rig = Rig::at(&name, &self.server, &self.clocks[index]);
    }

    fn attempt(&mut self, index: usize) {
        let before = self.clocks.each_ref().map(|clock| clock.boot_time());
        let mut rig = lock(&self.rigs[index]);
        rig.elect();
        rig.end_faults();
        drop(rig);
        // The other machine's clock advances too.
        let took = self.clocks[index].boot_time().saturating_sub(before[index]);
        self.clocks[1 - index].advance(took);
        if !took.is_zero() {
            self.is_writing = [false; 2];
        }
    }

    /// PROPERTY P21: In every history of four steps of two daemons and one Lease, not both may
    /// write at a time, and neither may while a write of the other is under way.
    fn check(&self) -> Result<(), String> {
        let may_write = [0, 1].map(|index| lock(&self.rigs[index]).fence.is_open());
        if may_write == [true, true] {
            return Err("both may write".to_owned());
        }
        let breaks_in = |index: usize| self.is_writing[index] && may_write[1 - index];
        if breaks_in(0) || breaks_in(1) {
            return Err("one may write while a write of the other is under way".to_owned());
        }
        Ok(())
    }

    fn identity(&self) -> (String, [Duration; 2]) {
        let rigs = self.rigs.each_ref().map(|rig| lock(rig).identity());
        let ghost = (self.n_starts, self.is_writing);
        let identity = format!("{rigs:?} {:?} {ghost:?}", lock(&self.server));
        (
            identity,
            self.clocks.each_ref().map(|clock| clock.boot_time()),
        )
    }
}

/// A state as the actions that lead to it, and what they lead to.
struct State {
    path: Vec<Action>,
    identity: u64,
    result: Result<(), String>,
}

impl State {
    fn after(path: Vec<Action>) -> Option<Self> {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut world = World::new();
        if !path.iter().all(|action| world.act(*action)) {
            return None;
        }
        let mut hasher = DefaultHasher::new();
        world.identity().hash(&mut hasher);
        Some(Self {
            path,
            identity: hasher.finish(),
            result: world.check(),
        })
    }

    fn steps(&self) -> Vec<(Action, Self)> {
        let after = |action| {
            let path = self.path.iter().copied().chain([action]).collect();
            Some((action, Self::after(path)?))
        };
        actions().into_iter().filter_map(after).collect()
    }
}

/// Checks every history of up to 4 actions that begins with these.
#[track_caller]
fn check_from(scope: &str, path: &[Action]) {
    let explored = explore(
        State::after(path.to_vec()).expect("a possible start"),
        4,
        |state| state.identity,
        State::steps,
        |state| state.result.clone(),
    );
    assert!(explored.states > 10_000, "{explored:?}");
    explored.keep(scope);
}

#[test]
fn no_history_from_the_start_lets_both_write() {
    check_from("election, from the start", &[]);
}

#[test]
fn no_history_of_a_leader_and_a_standby_lets_both_write() {
    check_from(
        "election, from a leader and a standby",
        &[Action::Try(0), Action::Try(1)],
    );
}
