//! A thread of a simulation: how it takes its turns, waits, wakes others, and reports where it
//! blocks.

use std::any::Any;
use std::cell::RefCell;
use std::panic;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::turn::{Status, Task, pass, switch};
use super::{Process, Scheduler, SpotId};
use crate::stdx::turns::{Clocks, Spot, Waited};

/// Time of day at the start of each simulation: 2026-01-01T00:00:00Z.
const START: Timestamp = Timestamp::constant(1_767_225_600, 0);

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

#[derive(Clone)]
struct Current {
    scheduler: Arc<Scheduler>,
    task: Task,
    process: Process,
}

/// The panic that ends a thread of a killed process.
struct Killed;

/// The right of a new thread to take part.
#[expect(missing_debug_implementations, reason = "its threads have no text")]
pub struct Ticket {
    pub(super) scheduler: Arc<Scheduler>,
    pub(super) task: Task,
    pub(super) process: Process,
    /// Seeds the thread's random numbers.
    pub(super) seed: u64,
}

impl Ticket {
    pub(super) fn enter(&self) {
        fastrand::seed(self.seed);
        let current = Current {
            scheduler: Arc::clone(&self.scheduler),
            task: self.task,
            process: self.process,
        };
        CURRENT.with_borrow_mut(|own| *own = Some(current));
    }

    /// Waits for the thread's first turn. The thread takes part until the returned guard is
    /// dropped.
    pub fn begin(self) -> Taking {
        self.enter();
        let baton = Arc::clone(&self.scheduler.lock().tasks[self.task].baton);
        baton.take();
        Taking(self)
    }
}

/// Keeps a thread in the simulation.
#[expect(missing_debug_implementations, reason = "its threads have no text")]
pub struct Taking(Ticket);

impl Drop for Taking {
    fn drop(&mut self) {
        CURRENT.with_borrow_mut(|current| *current = None);
        let Ticket {
            scheduler, task, ..
        } = &self.0;
        let mut state = scheduler.lock();
        state.tasks[*task].status = Status::Ended;
        drop(pass(state, *task));
    }
}

/// A ticket for a thread that the current thread starts; `None` outside of a simulation.
pub fn ticket(name: &str) -> Option<Ticket> {
    let current = current()?;
    Some(current.scheduler.ticket(name, current.process))
}

/// Runs `body` as if it were part of `process`: the threads that it starts belong there.
pub fn in_process<T>(process: Process, body: impl FnOnce() -> T) -> T {
    let set = |process| {
        CURRENT.with_borrow_mut(|current| {
            let current = current.as_mut().expect("this is a simulation");
            std::mem::replace(&mut current.process, process)
        })
    };
    let own = set(process);
    let result = body();
    set(own);
    result
}

/// The process of the current thread; `None` outside of a simulation.
pub fn process() -> Option<Process> {
    Some(current()?.process)
}

/// Identifies the current thread among those of its simulation.
pub fn task() -> Option<usize> {
    Some(current()?.task)
}

/// How many turns the threads of the current simulation have got.
pub fn n_turns() -> u64 {
    current().map_or(0, |current| current.scheduler.n_turns())
}

/// Waits at `spot` until `done`, even while this thread unwinds or its process is killed.
pub fn wait_in_any_case(spot: &Spot, done: impl Fn() -> bool) {
    if let Some(current) = current() {
        while !done() {
            let mut state = current.scheduler.lock();
            state.tasks[current.task].status = if state.processes[current.process].is_killed {
                Status::Ready
            } else {
                Status::Waits {
                    spots: vec![spot.id],
                    deadline: None,
                }
            };
            switch(state, current.task);
        }
    }
}

/// Remembers a panic that the daemon catches, unless it only ends a killed process.
pub fn note_panic(panic: &(dyn Any + Send), message: &str) {
    if let Some(current) = current().filter(|_| !panic.is::<Killed>()) {
        current.scheduler.lock().panics.push(message.to_owned());
    }
}

/// What the current simulation has attached, if it is a `T`.
pub fn extension<T: Any + Send + Sync>() -> Option<Arc<T>> {
    let scheduler = current()?.scheduler;
    let extension = scheduler
        .extension
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    extension.clone()?.downcast().ok()
}

fn current() -> Option<Current> {
    CURRENT.with_borrow(Clone::clone)
}

/// True while the thread unwinds: it must not give its turn away.
fn is_over(current: &Current) -> bool {
    if std::thread::panicking() {
        return true;
    }
    if current.scheduler.lock().processes[current.process].is_killed {
        panic::resume_unwind(Box::new(Killed));
    }
    false
}

pub(in crate::stdx::turns) fn wait<T>(
    spots: &[&Spot],
    deadline: Option<Instant>,
    mut ready: impl FnMut() -> Option<T>,
) -> Waited<T> {
    let Some(current) = current() else {
        return Waited::Unsimulated;
    };
    let spots: Vec<SpotId> = spots.iter().map(|spot| spot.id).collect();
    let scheduler = &current.scheduler;
    loop {
        let unwinds = is_over(&current);
        if let Some(value) = ready() {
            return Waited::Ready(value);
        }
        if unwinds {
            return Waited::TimedOut;
        }
        let mut state = scheduler.lock();
        // A deadline of a process is an instant of its own clock, which suspends delay.
        let suspended = state.processes[current.process].suspended;
        let deadline = deadline.map(|at| at.saturating_duration_since(scheduler.base) + suspended);
        if deadline.is_some_and(|deadline| deadline <= state.now) {
            return Waited::TimedOut;
        }
        let spots = spots.clone();
        state.tasks[current.task].status = Status::Waits { spots, deadline };
        switch(state, current.task);
    }
}

pub(in crate::stdx::turns) fn wake(spot: SpotId) {
    if let Some(current) = current()
        && wake_only(&current, spot)
    {
        yield_turn(&current);
    }
}

/// Wakes the threads that wait at `spot`, and keeps the turn: for the last act of a thread.
pub fn wake_at_end(spot: &Spot) {
    if let Some(current) = current() {
        wake_only(&current, spot.id);
    }
}

/// Returns whether a thread waited there.
fn wake_only(current: &Current, spot: SpotId) -> bool {
    let mut state = current.scheduler.lock();
    let mut wakes = false;
    for task in &mut state.tasks {
        if matches!(&task.status, Status::Waits { spots, .. } if spots.contains(&spot)) {
            task.status = Status::Ready;
            wakes = true;
        }
    }
    wakes
}

pub(in crate::stdx::turns) fn reached(place: &'static str) {
    if let Some(current) = current() {
        let mut state = current.scheduler.lock();
        *state.reached.entry(place).or_default() += 1;
        let turn = state.n_turns;
        state.last_at.insert((current.task, place), turn);
        let crashes = current.process != 0
            && state
                .crash_rate
                .is_some_and(|rate| state.rng.u32(..rate) == 0);
        if crashes {
            state.crash(current.process);
        }
        drop(state);
        yield_turn(&current);
    }
}

/// Gives the turn away in half of the cases, so that what follows may come late.
fn yield_turn(current: &Current) {
    if is_over(current) {
        return;
    }
    let mut state = current.scheduler.lock();
    // The simulation itself is not part of what it simulates.
    if current.process == 0 || state.rng.bool() {
        return;
    }
    let is_slow = state
        .slowness
        .is_some_and(|slowness| state.rng.u32(..slowness) == 0);
    state.tasks[current.task].status = if is_slow {
        *state.reached.entry("slow thread").or_default() += 1;
        let pause = Duration::from_micros(state.rng.u64(100..200_000));
        Status::Waits {
            spots: Vec::new(),
            deadline: Some(state.now + pause),
        }
    } else {
        Status::Ready
    };
    switch(state, current.task);
    is_over(current);
}

pub(in crate::stdx::turns) fn clocks() -> Option<Clocks> {
    let current = current()?;
    let state = current.scheduler.lock();
    let process = &state.processes[current.process];
    Some(Clocks {
        now: current.scheduler.base + state.now.saturating_sub(process.suspended),
        wall: START + state.now + process.wall_offset,
        boot: state.now,
    })
}

/// The current thread no longer takes part.
pub(super) fn leave() {
    CURRENT.with_borrow_mut(|current| *current = None);
}
