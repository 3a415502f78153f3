//! The threads of a simulation, and whose turn it is.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use jiff::SignedDuration;

use super::{Process, SpotId};

/// After this many waits in real time, a thread that still has the turn is reported: it blocks in a
/// place that the scheduler does not know. A wait during which the machine is suspended counts
/// once.
const WAITS_MAX: u32 = 600;
const WAIT: Duration = Duration::from_secs(1);

pub(super) type Task = usize;

/// What the scheduler knows.
pub(super) struct State {
    pub(super) rng: Rng,
    pub(super) now: Duration,
    pub(super) tasks: Vec<TaskState>,
    pub(super) processes: Vec<ProcessState>,
    /// One in this many turns given up in `wake` and `reached` lasts for a while.
    pub(super) slowness: Option<u32>,
    /// One in this many times that a thread reaches a place, its process crashes there.
    pub(super) crash_rate: Option<u32>,
    /// Processes that have crashed, for the simulation to notice.
    pub(super) crashed: Vec<Process>,
    /// Panics that a process has caught.
    pub(super) panics: Vec<String>,
    pub(super) n_turns: u64,
    pub(super) reached: BTreeMap<&'static str, u64>,
    /// The turn at which a thread was last at a place.
    pub(super) last_at: BTreeMap<(Task, &'static str), u64>,
}

/// One thread.
pub(super) struct TaskState {
    pub(super) name: String,
    pub(super) process: Process,
    pub(super) status: Status,
    pub(super) baton: Arc<Baton>,
}

#[derive(Debug)]
/// What a thread does.
pub(super) enum Status {
    Runs,
    Ready,
    Waits {
        spots: Vec<SpotId>,
        deadline: Option<Duration>,
    },
    Ended,
}

#[derive(Default)]
/// Notifies a thread that it has the turn.
pub(super) struct Baton {
    has_turn: Mutex<bool>,
    passed: Condvar,
}

/// What the simulation does to a process.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessState {
    pub(super) is_killed: bool,
    pub(super) frozen_until: Duration,
    pub(super) wall_offset: SignedDuration,
    /// Time that the machine was suspended: the monotonic clock stood still.
    pub(super) suspended: Duration,
}

/// Gives the turn of `me`, whose status is set, to the next thread, and takes it back.
pub(super) fn switch(state: MutexGuard<'_, State>, me: Task) {
    if let Some(own) = pass(state, me) {
        own.take();
    }
}

/// Passes the turn. Returns the baton to wait for, unless `me` continues.
pub(super) fn pass(mut state: MutexGuard<'_, State>, me: Task) -> Option<Arc<Baton>> {
    let next = state.next();
    state.n_turns += 1;
    state.tasks[next].status = Status::Runs;
    if next == me {
        return None;
    }
    let (baton, own) = (
        Arc::clone(&state.tasks[next].baton),
        Arc::clone(&state.tasks[me].baton),
    );
    drop(state);
    baton.give();
    Some(own)
}

impl State {
    /// Kills a process: each of its threads ends at its next turn.
    pub(super) fn kill(&mut self, process: Process) {
        self.processes[process].is_killed = true;
        self.processes[process].frozen_until = Duration::ZERO;
        for task in &mut self.tasks {
            if task.process == process && matches!(task.status, Status::Waits { .. }) {
                task.status = Status::Ready;
            }
        }
    }

    /// Kills a process at the place where its thread is.
    pub(super) fn crash(&mut self, process: Process) {
        self.kill(process);
        self.crashed.push(process);
    }

    /// Chooses the thread that runs next; lets time pass if none can.
    fn next(&mut self) -> Task {
        loop {
            let is_killed = |task: &Task| self.processes[self.tasks[*task].process].is_killed;
            let ready: Vec<Task> = (0..self.tasks.len())
                .filter(|task| self.is_ready(*task))
                .collect();
            let killed = ready.iter().copied().filter(is_killed);
            if let Some(task) = self.rng.choice(killed.collect::<Vec<_>>()) {
                return task;
            }
            if let Some(task) = self.rng.choice(ready) {
                return task;
            }
            let next = (0..self.tasks.len()).filter_map(|task| self.next_time(task));
            let Some(next) = next.min() else {
                let names: Vec<_> = self.tasks.iter().map(|task| &task.name).collect();
                panic!("all threads wait for each other: {names:?}");
            };
            self.now = self.now.max(next);
            let now = self.now;
            for task in &mut self.tasks {
                if let Status::Waits { deadline, .. } = &task.status
                    && deadline.is_some_and(|deadline| deadline <= now)
                {
                    task.status = Status::Ready;
                }
            }
        }
    }

    fn is_ready(&self, task: Task) -> bool {
        let task = &self.tasks[task];
        matches!(task.status, Status::Ready)
            && self.processes[task.process].frozen_until <= self.now
    }

    /// When this thread can run, if it needs nothing but time.
    fn next_time(&self, task: Task) -> Option<Duration> {
        let task = &self.tasks[task];
        let at = match &task.status {
            Status::Ready => self.now,
            Status::Waits { deadline, .. } => (*deadline)?,
            Status::Runs | Status::Ended => return None,
        };
        Some(at.max(self.processes[task.process].frozen_until))
    }
}

impl Baton {
    fn give(&self) {
        *self.has_turn.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.passed.notify_one();
    }

    /// Waits for the turn.
    pub(super) fn take(&self) {
        let mut n_waits = 0;
        let mut has_turn = self.has_turn.lock().unwrap_or_else(PoisonError::into_inner);
        while !*has_turn {
            let waited = self.passed.wait_timeout(has_turn, WAIT);
            has_turn = waited.unwrap_or_else(PoisonError::into_inner).0;
            n_waits += 1;
            assert!(
                *has_turn || n_waits < WAITS_MAX,
                "the thread that has the turn blocks outside of the simulation"
            );
        }
        *has_turn = false;
    }
}
