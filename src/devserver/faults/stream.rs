//! A watch with faults: held back, late, severed, or told more than the server says.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::exchange::{ChunkStream, Next};
use super::super::recorder::Recorded;
use super::{Action, Ending, RunningWatch, Shared};

/// How soon a running watch notices what a test asks of it.
const NOTICE: Duration = Duration::from_millis(20);

pub(super) struct FaultyStream {
    inner: Box<dyn ChunkStream>,
    shared: Arc<Shared>,
    request: Arc<Recorded>,
    id: u64,
    /// The generation of rules that `lag` and `holds` are from.
    generation: Option<u64>,
    lag: Duration,
    holds: bool,
    /// What came from `inner` and is not sent yet, with when it came. The last entry may be its end.
    waiting: VecDeque<(Instant, Next)>,
}

/// What was asked of this watch since it last looked.
struct Asked {
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

    fn asked(&self) -> Asked {
        let mut state = self.shared.lock();
        let generation = state.generation;
        let watch = state.watches.get_mut(&self.id);
        let (injected, ending) = watch.map_or((Vec::new(), None), |watch| {
            (std::mem::take(&mut watch.injected), watch.ending)
        });
        Asked {
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

    /// What may be sent now.
    fn due(&mut self) -> Option<Next> {
        let (came, _) = self.waiting.front()?;
        if self.holds || came.elapsed() < self.lag {
            return None;
        }
        self.waiting.pop_front().map(|(_, next)| next)
    }

    fn is_ended(&self) -> bool {
        let last = self.waiting.back();
        last.is_some_and(|(_, next)| matches!(next, Next::End | Next::Cut))
    }

    /// Takes what the inner stream has, waiting for it a moment.
    fn fetch(&mut self, timeout: Duration) {
        if self.is_ended() {
            // Only time or a test moves on what is waiting, and there is nothing else to block on.
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
            let asked = self.asked();
            if !asked.injected.is_empty() {
                return Next::Chunk(asked.injected.concat());
            }
            match asked.ending {
                Some(Ending::Close) => return Next::End,
                Some(Ending::Cut) => return Next::Cut,
                None => {}
            }
            self.read_rules(asked.generation);
            if let Some(next) = self.due() {
                return next;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Next::Idle;
            }
            self.fetch(left.min(NOTICE));
        }
    }
}

impl Drop for FaultyStream {
    fn drop(&mut self) {
        self.shared.lock().watches.remove(&self.id);
    }
}
