//! A watch with faults: held, delayed, severed, or with injected frames.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::exchange::{ChunkStream, Next};
use super::super::recorder::Recorded;
use super::{Action, Ending, RunningWatch, Shared};

/// How soon a running watch notices a test's commands.
const POLL_PERIOD: Duration = Duration::from_millis(20);

pub(super) struct FaultyStream {
    inner: Box<dyn ChunkStream>,
    shared: Arc<Shared>,
    request: Arc<Recorded>,
    id: u64,
    /// The rules' generation that `lag` and `holds` reflect.
    generation: Option<u64>,
    lag: Duration,
    holds: bool,
    /// Frames of `inner` not sent yet, with their arrival times. The last entry may be the end.
    waiting: VecDeque<(Instant, Next)>,
}

/// The test's commands for this watch since the last poll.
struct Commands {
    injected: Vec<Vec<u8>>,
    ending: Option<Ending>,
    generation: u64,
}

impl FaultyStream {
    pub(super) fn new(
        inner: Box<dyn ChunkStream>,
        shared: Arc<Shared>,
        request: Arc<Recorded>,
    ) -> Self {
        let mut state = shared.lock();
        let id = state.n_added;
        state.n_added += 1;
        let watch = RunningWatch {
            request: Arc::clone(&request),
            injected: Vec::new(),
            ending: None,
        };
        state.watches.insert(id, watch);
        drop(state);
        Self {
            inner,
            shared,
            request,
            id,
            generation: None,
            lag: Duration::ZERO,
            holds: false,
            waiting: VecDeque::new(),
        }
    }

    fn commands(&self) -> Commands {
        let mut state = self.shared.lock();
        let generation = state.generation;
        let watch = state.watches.get_mut(&self.id);
        let (injected, ending) = watch.map_or((Vec::new(), None), |watch| {
            (std::mem::take(&mut watch.injected), watch.ending)
        });
        Commands {
            injected,
            ending,
            generation,
        }
    }

    fn read_rules(&mut self, generation: u64) {
        if self.generation == Some(generation) {
            return;
        }
        self.generation = Some(generation);
        let rules = self.shared.matching(&self.request.request);
        self.holds = rules
            .iter()
            .any(|(_, action)| matches!(action, Action::HoldWatch));
        let lags = rules.iter().filter_map(|(_, action)| match action {
            Action::LagWatch(lag) => Some(*lag),
            _ => None,
        });
        self.lag = lags.max().unwrap_or_default();
    }

    /// The next frame, if it is due.
    fn due(&mut self) -> Option<Next> {
        let (arrived, _) = self.waiting.front()?;
        if self.holds || arrived.elapsed() < self.lag {
            return None;
        }
        self.waiting.pop_front().map(|(_, next)| next)
    }

    fn is_ended(&self) -> bool {
        let last = self.waiting.back();
        last.is_some_and(|(_, next)| matches!(next, Next::End | Next::Cut))
    }

    /// Reads from the inner stream, with a short wait.
    fn fetch(&mut self, timeout: Duration) {
        if self.is_ended() {
            // The inner stream has ended; only time or a test can release the waiting frames.
            std::thread::park_timeout(timeout);
            return;
        }
        match self.inner.next(timeout) {
            Next::Idle => {}
            next => self.waiting.push_back((Instant::now(), next)),
        }
    }
}

impl ChunkStream for FaultyStream {
    fn next(&mut self, timeout: Duration) -> Next {
        let deadline = Instant::now() + timeout;
        loop {
            let commands = self.commands();
            if !commands.injected.is_empty() {
                return Next::Chunk(commands.injected.concat());
            }
            match commands.ending {
                Some(Ending::Close) => return Next::End,
                Some(Ending::Cut) => return Next::Cut,
                None => {}
            }
            self.read_rules(commands.generation);
            if let Some(next) = self.due() {
                return next;
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Next::Idle;
            }
            self.fetch(remaining.min(POLL_PERIOD));
        }
    }
}

impl Drop for FaultyStream {
    fn drop(&mut self) {
        self.shared.lock().watches.remove(&self.id);
    }
}
