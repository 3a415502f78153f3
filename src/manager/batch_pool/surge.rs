//! The threads that are started when somebody calls them, and end when nobody has for a while.
//!
//! Their connections come and go with them, and so does the thread `batch-keeper`, which looks every ten
//! seconds whether they were called since.

use std::error::Error;
use std::mem;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::crew::Crew;
use crate::client::own_connections;
use crate::controller::fair_pool::FairPool;
use crate::stdx::stop::Stop;
use crate::stdx::thread::Thread;

/// Threads that come and go.
#[derive(Debug)]
pub(super) struct Surge {
    numbers: Range<u16>,
    stay: Duration,
    stop: Stop,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// They are not to be called any more.
    closed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    crew: Option<Crew>,
    keeper: Option<Thread>,
    /// Since the keeper looked last.
    was_called: bool,
    /// When the system refused to start them.
    refused: Option<Instant>,
    is_closed: bool,
}

impl Surge {
    /// Threads with these `numbers`, none if there are none, which stay for `stay` at least. Starts none
    /// yet.
    pub(super) fn new(numbers: Range<u16>, stay: Duration, stop: &Stop) -> Self {
        Self {
            numbers,
            stay,
            stop: stop.clone(),
            shared: Arc::default(),
        }
    }

    /// The threads, which stay for as long as the answer is held; started first if they are not there,
    /// which takes a few milliseconds, in which others who call wait too. `None` if there are none to
    /// have.
    pub(super) fn call(&self) -> Option<Arc<FairPool>> {
        if self.numbers.is_empty() {
            return None;
        }
        let mut state = self.shared.lock();
        state.was_called = true;
        if let Some(crew) = &state.crew {
            return Some(Arc::clone(&crew.pool));
        }
        let was_refused = |since: Instant| since.elapsed() < self.stay;
        if state.is_closed || state.refused.is_some_and(was_refused) {
            return None;
        }
        match self.start() {
            Ok((crew, keeper)) => {
                let pool = Arc::clone(&crew.pool);
                (state.crew, state.keeper) = (Some(crew), Some(keeper));
                Some(pool)
            }
            Err(error) => {
                state.refused = Some(Instant::now());
                drop(state);
                log::warn!(
                    "the system refuses {} more threads, so many pods take longer: {error}; is \
                     TasksMax or ulimit -u too low?",
                    self.numbers.len()
                );
                None
            }
        }
    }

    fn start(&self) -> Result<(Crew, Thread), Box<dyn Error>> {
        let crew = Crew::start(self.numbers.clone(), &self.stop, own_connections)?;
        let (shared, stay) = (Arc::clone(&self.shared), self.stay);
        let keeper = Thread::try_spawn("batch-keeper", &self.stop, move || shared.keep(stay))?;
        Ok((crew, keeper))
    }

    #[cfg(test)]
    pub(super) fn is_there(&self) -> bool {
        self.shared.lock().crew.is_some()
    }

    /// Lets none be called any more and waits until those that are there have ended, at most until
    /// `deadline`. Answers the names of those that have not.
    pub(super) fn join_until(&self, deadline: Instant) -> Vec<String> {
        let mut state = self.shared.lock();
        state.is_closed = true;
        let (crew, keeper) = (state.crew.take(), state.keeper.take());
        drop(state);
        self.shared.closed.notify_all();
        let mut stuck = crew.map_or_else(Vec::new, |crew| crew.join_until(deadline));
        stuck.extend(keeper.and_then(|keeper| keeper.join_until(deadline).err()));
        stuck
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the keeper does: ends with the threads.
    fn keep(&self, stay: Duration) {
        let mut state = self.lock();
        loop {
            let waited = self
                .closed
                .wait_timeout_while(state, stay, |state| !state.is_closed);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            let was_called = mem::take(&mut state.was_called);
            let is_idle = |crew: &mut Crew| !was_called && Arc::strong_count(&crew.pool) == 1;
            let idle = state.crew.take_if(is_idle);
            // Without them it was closed.
            if idle.is_some() || state.crew.is_none() {
                return;
            }
        }
    }
}
