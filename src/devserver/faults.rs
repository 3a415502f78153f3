//! A layer round any [`Handler`] that records what comes by and breaks it as a test asks.
//!
//! Rules come and go while requests are served. What a rule does to requests is done on the thread
//! of the connection; what it does to watches is done by the stream that wraps them.

mod rule;
mod stream;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::exchange::{ApiCall, ApiRequest, ChunkStream, Handler, Next, Response, ResponseBody};
use super::recorder::{Recorded, Recorder};
use crate::stdx::stop::Stop;

pub use rule::{Action, Matcher, Rule};
use stream::FaultyStream;

/// How often a request that is held looks whether the daemon stops.
const HOLD_CHECK: Duration = Duration::from_millis(25);

/// The layer. Clones are the same layer.
#[derive(Clone)]
pub struct Faults {
    inner: Arc<dyn Handler>,
    recorder: Recorder,
    stop: Stop,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Given when a rule is hit or removed.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    n_added: u64,
    rules: BTreeMap<u64, ActiveRule>,
    /// Counts changes of `rules`, so that streams notice them cheaply.
    generation: u64,
    watches: BTreeMap<u64, RunningWatch>,
}

struct ActiveRule {
    rule: Rule,
    n_matched: usize,
    n_hits: usize,
}

struct RunningWatch {
    request: Arc<Recorded>,
    /// Frames to send before anything else.
    injected: Vec<Vec<u8>>,
    ending: Option<Ending>,
}

/// How a watch is ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// As the server ends one whose time is up.
    Close,
    /// The connection breaks.
    Cut,
}

impl Faults {
    /// A layer round `inner` that breaks nothing yet. Whatever it holds back goes on when `stop` is
    /// given.
    pub fn new(inner: Arc<dyn Handler>, recorder: Recorder, stop: &Stop) -> Self {
        Self {
            inner,
            recorder,
            stop: stop.clone(),
            shared: Arc::default(),
        }
    }

    /// What came by.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Puts a rule into force, after those that are there. It stays until it is removed, also when
    /// the handle is dropped.
    pub fn add(&self, rule: Rule) -> RuleHandle {
        let mut state = self.shared.lock();
        let id = state.n_added;
        state.n_added += 1;
        state.generation += 1;
        let rule = ActiveRule {
            rule,
            n_matched: 0,
            n_hits: 0,
        };
        state.rules.insert(id, rule);
        drop(state);
        RuleHandle {
            id,
            shared: Arc::clone(&self.shared),
        }
    }

    /// Removes all rules, and so lets go on whatever they hold.
    pub fn clear(&self) {
        let mut state = self.shared.lock();
        state.rules.clear();
        state.generation += 1;
        drop(state);
        self.shared.changed.notify_all();
    }

    /// How many watches run that `matcher` means.
    pub fn n_watches(&self, matcher: &Matcher) -> usize {
        self.watches(matcher).len()
    }

    /// Ends the running watches that `matcher` means, within a moment; says how many.
    pub fn sever_watches(&self, matcher: &Matcher, ending: Ending) -> usize {
        self.change_watches(matcher, |watch| watch.ending = Some(ending))
    }

    /// Sends `frame` (a line that ends with a line feed) into the running watches that `matcher`
    /// means, ahead of whatever else they have to send; says how many.
    pub fn send_to_watches(&self, matcher: &Matcher, frame: &[u8]) -> usize {
        self.change_watches(matcher, |watch| watch.injected.push(frame.to_vec()))
    }

    fn watches(&self, matcher: &Matcher) -> Vec<u64> {
        let watches = self.shared.lock();
        let watches: Vec<(u64, Arc<Recorded>)> = watches
            .watches
            .iter()
            .map(|(id, watch)| (*id, Arc::clone(&watch.request)))
            .collect();
        let meant = watches
            .into_iter()
            .filter(|(_, recorded)| matcher.matches(&recorded.request));
        meant.map(|(id, _)| id).collect()
    }

    fn change_watches(&self, matcher: &Matcher, change: impl Fn(&mut RunningWatch)) -> usize {
        let meant = self.watches(matcher);
        let mut state = self.shared.lock();
        let mut n_changed = 0;
        for id in meant {
            if let Some(watch) = state.watches.get_mut(&id) {
                change(watch);
                n_changed += 1;
            }
        }
        n_changed
    }

    fn answer(&self, recorded: &Arc<Recorded>) -> Response {
        let request = &recorded.request;
        let mut after = Vec::new();
        for (id, action) in self.shared.matching(request) {
            if !self.shared.claim(id) {
                continue;
            }
            match action {
                Action::Answer(make) => return make(request),
                Action::CutBefore => return Response::cut(),
                Action::Delay(delay) => {
                    if self.stop.wait_timeout(delay) {
                        return Response::cut();
                    }
                }
                Action::Hold => {
                    if !self.hold(id) {
                        return Response::cut();
                    }
                }
                action => after.push(action),
            }
        }
        let mut answer = self.inner.handle(request.clone());
        for action in after {
            answer = match action {
                Action::CutAfter => Response::cut(),
                Action::AnswerAfter(make) => make(request),
                Action::Rewrite(rewrite) if !request.is_watch() => rewritten(answer, &*rewrite),
                Action::CutInside(n_bytes) if !request.is_watch() => cut_inside(answer, n_bytes),
                _ => answer,
            };
        }
        answer
    }

    /// Blocks until the rule is removed; false if the daemon stops before.
    fn hold(&self, id: u64) -> bool {
        let mut state = self.shared.lock();
        while state.rules.contains_key(&id) {
            let waited = self.shared.changed.wait_timeout(state, HOLD_CHECK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if self.stop.is_stopped() {
                return false;
            }
        }
        true
    }

    fn wrap(&self, recorded: &Arc<Recorded>, mut answer: Response) -> Response {
        if let ResponseBody::Stream(stream) = answer.body {
            let stream: Box<dyn ChunkStream> = if recorded.request.is_watch() {
                let (shared, recorded) = (Arc::clone(&self.shared), Arc::clone(recorded));
                Box::new(FaultyStream::new(stream, shared, recorded))
            } else {
                stream
            };
            answer.body = ResponseBody::Stream(stream);
        }
        answer
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults").finish_non_exhaustive()
    }
}

impl Handler for Faults {
    fn handle(&self, request: ApiRequest) -> Response {
        let recorded = self.recorder.add(request);
        let answer = self.answer(&recorded);
        recorded.set_code(answer.code);
        self.wrap(&recorded, answer)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rules about this request, in the order in which they were added.
    fn matching(&self, request: &ApiRequest) -> Vec<(u64, Action)> {
        let state = self.lock();
        let rules: Vec<(u64, Matcher, Action)> = state
            .rules
            .iter()
            .map(|(id, active)| (*id, active.rule.matcher.clone(), active.rule.action.clone()))
            .collect();
        drop(state);
        let meant = rules
            .into_iter()
            .filter(|(_, matcher, _)| matcher.matches(request));
        meant.map(|(id, _, action)| (id, action)).collect()
    }

    /// Counts that a rule matched; true if it is to act on this request.
    fn claim(&self, id: u64) -> bool {
        let mut state = self.lock();
        let Some(active) = state.rules.get_mut(&id) else {
            return false;
        };
        active.n_matched += 1;
        let is_due = active.n_matched > active.rule.after;
        let acts = is_due && active.rule.times.is_none_or(|times| active.n_hits < times);
        if acts {
            active.n_hits += 1;
        }
        drop(state);
        if acts {
            self.changed.notify_all();
        }
        acts
    }
}

/// A rule in force.
#[derive(Clone)]
pub struct RuleHandle {
    id: u64,
    shared: Arc<Shared>,
}

impl RuleHandle {
    /// How many requests it has acted on; 0 once it is removed.
    pub fn hits(&self) -> usize {
        let state = self.shared.lock();
        state.rules.get(&self.id).map_or(0, |active| active.n_hits)
    }

    /// Blocks until the rule has acted on `n_hits` requests, or is removed, or `timeout` has passed;
    /// true in the first case.
    pub fn wait_for_hits(&self, n_hits: usize, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut state = self.shared.lock();
        while let Some(active) = state.rules.get(&self.id) {
            let left = deadline.saturating_duration_since(Instant::now());
            if active.n_hits >= n_hits || left.is_zero() {
                return active.n_hits >= n_hits;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    /// Puts the rule out of force, and lets go on whatever it holds. Twice does nothing.
    pub fn remove(&self) {
        let mut state = self.shared.lock();
        state.rules.remove(&self.id);
        state.generation += 1;
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl fmt::Debug for RuleHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleHandle")
            .field("id", &self.id)
            .field("hits", &self.hits())
            .finish_non_exhaustive()
    }
}

/// The answer with its body changed by `rewrite`.
fn rewritten(mut answer: Response, rewrite: &dyn Fn(Vec<u8>) -> Vec<u8>) -> Response {
    if let Some(body) = take_body(&mut answer) {
        answer.body = ResponseBody::Whole(rewrite(body));
    }
    answer
}

/// The answer with the beginning of its body, after which the connection breaks.
fn cut_inside(mut answer: Response, n_bytes: usize) -> Response {
    if let Some(mut body) = take_body(&mut answer) {
        body.truncate(n_bytes);
        answer.body = ResponseBody::Stream(Box::new(Torn(Some(body))));
    }
    answer
}

/// Reads the body to its end and leaves [`ResponseBody::Cut`] in its place; `None` if it breaks.
fn take_body(answer: &mut Response) -> Option<Vec<u8>> {
    std::mem::replace(&mut answer.body, ResponseBody::Cut).read()
}

/// A body that breaks off.
struct Torn(Option<Vec<u8>>);

impl ChunkStream for Torn {
    fn next(&mut self, _: Duration) -> Next {
        match self.0.take() {
            Some(body) if !body.is_empty() => Next::Chunk(body),
            _ => Next::Cut,
        }
    }
}
