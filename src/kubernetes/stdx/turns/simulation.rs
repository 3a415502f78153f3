//! The scheduler of a simulation: it hands one turn from thread to thread, by the seed.

mod thread;
mod turn;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fastrand::Rng;
use jiff::SignedDuration;
use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

use self::turn::{Baton, ProcessState, State, Status, TaskState, switch};
use super::Spot;
pub use thread::{
    Ticket, extension, in_process, n_turns, note_panic, process, task, ticket, wait_in_any_case,
    wake_at_end,
};
pub(super) use thread::{clocks, reached, wait, wake};

static SPOTS: AtomicU64 = AtomicU64::new(1);

/// Identifies a [`Spot`]. Only its equality counts, so a history does not depend on it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SpotId(u64);

/// Without the number, because the simulations compare states by their texts.
impl fmt::Debug for SpotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SpotId")
    }
}

impl Default for SpotId {
    fn default() -> Self {
        Self(SPOTS.fetch_add(1, Ordering::Relaxed))
    }
}

/// Identifies a simulated process. Process 0 is the simulation itself.
pub type Process = usize;

/// All threads of one simulation, of which one runs.
#[expect(missing_debug_implementations, reason = "its threads have no text")]
pub struct Scheduler {
    state: Mutex<State>,
    /// The instant at virtual time zero.
    base: Instant,
    /// What the simulation attaches, for [`extension`].
    extension: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
}

impl Scheduler {
    /// Creates a scheduler whose choices follow `seed`.
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                rng: Rng::with_seed(seed),
                now: Duration::ZERO,
                tasks: Vec::new(),
                processes: vec![ProcessState::default()],
                slowness: None,
                crash_rate: None,
                crashed: Vec::new(),
                panics: Vec::new(),
                n_turns: 0,
                reached: BTreeMap::new(),
                last_at: BTreeMap::new(),
            }),
            base: Instant::now(),
            extension: Mutex::default(),
        })
    }

    /// Makes the calling thread the first one of process 0 while `body` runs.
    pub fn run<T>(self: &Arc<Self>, body: impl FnOnce() -> T) -> T {
        let _pinned = Pinned::here();
        let ticket = self.ticket("simulation", 0);
        self.lock().tasks[ticket.task].status = Status::Runs;
        ticket.enter();
        let result = body();
        thread::leave();
        self.lock().tasks[ticket.task].status = Status::Ended;
        result
    }

    /// Attaches the value that [`extension`] returns.
    pub fn attach(&self, extension: Option<Arc<dyn Any + Send + Sync>>) {
        let mut attached = self
            .extension
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *attached = extension;
    }

    /// Adds a process.
    pub fn add_process(&self) -> Process {
        let mut state = self.lock();
        state.processes.push(ProcessState::default());
        state.processes.len() - 1
    }

    /// Kills a process: each of its threads ends at its next turn, which comes before those of all
    /// other threads.
    pub fn kill(&self, process: Process) {
        self.lock().kill(process);
    }

    /// Lets a process crash one in `rate` times that one of its threads reaches a place; `None`:
    /// never.
    pub fn set_crash_rate(&self, rate: Option<u32>) {
        self.lock().crash_rate = rate;
    }

    /// The panics that daemons have caught since the last call.
    pub fn take_panics(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().panics)
    }

    /// The processes that have crashed since the last call.
    pub fn take_crashed(&self) -> Vec<Process> {
        std::mem::take(&mut self.lock().crashed)
    }

    /// Blocks until all threads of killed processes have ended.
    pub fn end_killed(&self) {
        let me = task().expect("this is a simulation");
        loop {
            let mut state = self.lock();
            let is_left = |task: &TaskState| {
                state.processes[task.process].is_killed && !matches!(task.status, Status::Ended)
            };
            if !state.tasks.iter().any(is_left) {
                return;
            }
            state.tasks[me].status = Status::Ready;
            switch(state, me);
        }
    }

    /// Stops a process for this long, as SIGSTOP does. With `suspends` its monotonic clock stands
    /// still meanwhile.
    pub fn freeze(&self, process: Process, duration: Duration, suspends: bool) {
        let mut state = self.lock();
        let until = state.now + duration;
        let process = &mut state.processes[process];
        process.frozen_until = process.frozen_until.max(until);
        if suspends {
            process.suspended += duration;
        }
    }

    /// Sets the time of day of a process forward or back.
    pub fn step_wall_clock(&self, process: Process, by: SignedDuration) {
        self.lock().processes[process].wall_offset += by;
    }

    /// Lets one in `slowness` turns given up last for up to 200 ms; `None`: no thread is slow.
    pub fn set_slowness(&self, slowness: Option<u32>) {
        self.lock().slowness = slowness;
    }

    /// Virtual time since the start.
    pub fn elapsed(&self) -> Duration {
        self.lock().now
    }

    /// The instant of this virtual time.
    pub fn instant(&self, elapsed: Duration) -> Instant {
        self.base + elapsed
    }

    /// How often each place was [`reached`](super::reached).
    pub fn reached(&self) -> BTreeMap<&'static str, u64> {
        self.lock().reached.clone()
    }

    /// The turn at which the current thread was last at `place`; 0 if it never was.
    pub fn turn_at(&self, place: &'static str) -> u64 {
        let task = task().unwrap_or(0);
        self.lock()
            .last_at
            .get(&(task, place))
            .copied()
            .unwrap_or(0)
    }

    /// How many turns threads have got.
    pub fn n_turns(&self) -> u64 {
        self.lock().n_turns
    }

    /// True if the process is stopped.
    pub fn is_frozen(&self, process: Process) -> bool {
        let state = self.lock();
        state.processes[process].frozen_until > state.now
    }

    /// True if the process was stopped within this time.
    pub fn was_frozen(&self, process: Process, within: Duration) -> bool {
        let state = self.lock();
        let until = state.processes[process].frozen_until;
        !until.is_zero() && until + within > state.now
    }

    /// A thread of the process that waits for `spot` alone, with a deadline, and is none of
    /// `others`.
    pub fn waits_only_for(&self, process: Process, spot: &Spot, others: &[&str]) -> Option<String> {
        let state = self.lock();
        let mut of_process = state.tasks.iter().filter(|task| task.process == process);
        let found = of_process.find(|task| match &task.status {
            Status::Waits { spots, deadline } => {
                let is_other = others.contains(&&*task.name);
                !is_other && deadline.is_some() && *spots == [spot.id]
            }
            _ => false,
        });
        found.map(|task| task.name.clone())
    }

    /// The names of the threads of a process that have not ended.
    pub fn threads_of(&self, process: Process) -> Vec<String> {
        let state = self.lock();
        let of_process = state.tasks.iter().filter(|task| task.process == process);
        let running = of_process.filter(|task| !matches!(task.status, Status::Ended));
        running.map(|task| task.name.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ticket(self: &Arc<Self>, name: &str, process: Process) -> Ticket {
        let baton = Arc::new(Baton::default());
        let new = TaskState {
            name: name.to_owned(),
            process,
            status: Status::Ready,
            baton,
        };
        let mut state = self.lock();
        let ended = |task: &TaskState| matches!(task.status, Status::Ended);
        let task = state.tasks.iter().position(ended);
        let task = task.unwrap_or(state.tasks.len());
        if task < state.tasks.len() {
            state.tasks[task] = new;
        } else {
            state.tasks.push(new);
        }
        // A helper of a thread continues where that thread is.
        let parent = thread::task().unwrap_or(task);
        let at = state.last_at.range((parent, "")..);
        let at = at.take_while(|((task, _), _)| *task == parent);
        let at: Vec<_> = at.map(|((_, place), turn)| (*place, *turn)).collect();
        for (place, turn) in at {
            state.last_at.insert((task, place), turn);
        }
        let seed = state.rng.u64(..);
        drop(state);
        Ticket {
            scheduler: Arc::clone(self),
            task,
            process,
            seed,
        }
    }
}

/// Keeps the threads of a simulation on one processor, where they take turns twice as fast.
struct Pinned(CpuSet);

impl Pinned {
    fn here() -> Option<Self> {
        let this_thread = Pid::from_raw(0);
        let before = sched_getaffinity(this_thread).ok()?;
        let mut one = CpuSet::new();
        one.set(sched_getcpu().ok()?).ok()?;
        sched_setaffinity(this_thread, &one).ok()?;
        Some(Self(before))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Without it the thread stays on one processor, which changes nothing but its speed.
        sched_setaffinity(Pid::from_raw(0), &self.0).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests;
