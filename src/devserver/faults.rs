//! A layer around any [`Handler`] that records requests and injects faults.
//!
//! Tests add and remove rules while the server runs. Connection threads apply the rules for
//! requests; the stream around a watch applies the rules for watches.

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

/// How often a held request checks for the daemon's stop.
const HOLD_CHECK: Duration = Duration::from_millis(25);

/// The fault layer. Clones share it.
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
    /// Notified when a rule acts or is removed.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    n_added: u64,
    rules: BTreeMap<u64, ActiveRule>,
    /// Counts changes of `rules`, so that streams detect them cheaply.
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
    /// Frames to send next.
    injected: Vec<Vec<u8>>,
    ending: Option<Ending>,
}

/// How to end a running watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The watch ends as after its timeout.
    Close,
    /// The connection breaks.
    Cut,
}

impl Faults {
    /// Creates a layer around `inner` without rules. The signal `stop` ends all held requests.
    pub fn new(inner: Arc<dyn Handler>, recorder: Recorder, stop: &Stop) -> Self {
        Self {
            inner,
            recorder,
            stop: stop.clone(),
            shared: Arc::default(),
        }
    }

    /// The record of all requests.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Adds a rule after the existing ones. It stays until its removal, even if the handle is
    /// dropped.
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

    /// Removes all rules, which releases all held requests.
    pub fn clear(&self) {
        let mut state = self.shared.lock();
        state.rules.clear();
        state.generation += 1;
        drop(state);
        self.shared.changed.notify_all();
    }

    /// The number of running watches that match.
    pub fn n_watches(&self, matcher: &Matcher) -> usize {
        self.watches(matcher).len()
    }

    /// Ends the matching running watches within milliseconds; returns their number.
    pub fn sever_watches(&self, matcher: &Matcher, ending: Ending) -> usize {
        self.change_watches(matcher, |watch| watch.ending = Some(ending))
    }

    /// Sends `frame` (a line with its line feed) into the matching running watches, ahead of their
    /// next frames; returns their number.
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
        let matching = watches
            .into_iter()
            .filter(|(_, recorded)| matcher.matches(&recorded.request));
        matching.map(|(id, _)| id).collect()
    }

    fn change_watches(&self, matcher: &Matcher, change: impl Fn(&mut RunningWatch)) -> usize {
        let matching = self.watches(matcher);
        let mut state = self.shared.lock();
        let mut n_changed = 0;
        for id in matching {
            if let Some(watch) = state.watches.get_mut(&id) {
                change(watch);
                n_changed += 1;
            }
        }
        n_changed
    }

    fn respond(&self, recorded: &Arc<Recorded>) -> Response {
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
                // The other actions change the response or replace it.
                action => after.push(action),
            }
        }
        let mut response = self.inner.handle(request.clone());
        for action in after {
            response = match action {
                Action::CutAfter => Response::cut(),
                Action::AnswerAfter(make) => make(request),
                Action::Rewrite(rewrite) if !request.is_watch() => rewritten(response, &*rewrite),
                Action::CutInside(n_bytes) if !request.is_watch() => cut_inside(response, n_bytes),
                _ => response,
            };
        }
        response
    }

    /// Blocks until the rule is removed; returns false if the daemon stops first.
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

    fn wrap(&self, recorded: &Arc<Recorded>, mut response: Response) -> Response {
        if let ResponseBody::Stream(stream) = response.body {
            let stream: Box<dyn ChunkStream> = if recorded.request.is_watch() {
                let (shared, recorded) = (Arc::clone(&self.shared), Arc::clone(recorded));
                Box::new(FaultyStream::new(stream, shared, recorded))
            } else {
                stream
            };
            response.body = ResponseBody::Stream(stream);
        }
        response
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
        let response = self.respond(&recorded);
        recorded.set_code(response.code);
        self.wrap(&recorded, response)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rules for this request, in the order added.
    fn matching(&self, request: &ApiRequest) -> Vec<(u64, Action)> {
        let state = self.lock();
        let rules: Vec<(u64, Matcher, Action)> = state
            .rules
            .iter()
            .map(|(id, active)| (*id, active.rule.matcher.clone(), active.rule.action.clone()))
            .collect();
        drop(state);
        let matching = rules
            .into_iter()
            .filter(|(_, matcher, _)| matcher.matches(request));
        matching.map(|(id, _, action)| (id, action)).collect()
    }

    /// Counts a match; returns true if the rule must act on this request.
    fn claim(&self, id: u64) -> bool {
        let mut state = self.lock();
        let Some(active) = state.rules.get_mut(&id) else {
            return false;
        };
        active.n_matched += 1;
        let is_due = active.n_matched > active.rule.after;
        let must_act = is_due && active.rule.times.is_none_or(|times| active.n_hits < times);
        if must_act {
            active.n_hits += 1;
        }
        drop(state);
        if must_act {
            self.changed.notify_all();
        }
        must_act
    }
}

/// A handle to an active rule.
#[derive(Clone)]
pub struct RuleHandle {
    id: u64,
    shared: Arc<Shared>,
}

impl RuleHandle {
    /// The number of requests the rule has acted on; 0 after its removal.
    pub fn hits(&self) -> usize {
        let state = self.shared.lock();
        state.rules.get(&self.id).map_or(0, |active| active.n_hits)
    }

    /// Blocks until the rule has acted on `n_hits` requests, is removed, or `timeout` has passed;
    /// returns true in the first case.
    pub fn wait_for_hits(&self, n_hits: usize, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut state = self.shared.lock();
        while let Some(active) = state.rules.get(&self.id) {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if active.n_hits >= n_hits || remaining.is_zero() {
                return active.n_hits >= n_hits;
            }
            let waited = self.shared.changed.wait_timeout(state, remaining);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    /// Removes the rule, which releases its held requests. A second call does nothing.
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

/// The response with its body changed by `rewrite`.
fn rewritten(mut response: Response, rewrite: &dyn Fn(Vec<u8>) -> Vec<u8>) -> Response {
    if let Some(body) = take_body(&mut response) {
        response.body = ResponseBody::Whole(rewrite(body));
    }
    response
}

/// The response with a truncated body, after which the connection breaks.
fn cut_inside(mut response: Response, n_bytes: usize) -> Response {
    if let Some(mut body) = take_body(&mut response) {
        body.truncate(n_bytes);
        response.body = ResponseBody::Stream(Box::new(Torn(Some(body))));
    }
    response
}

/// Reads the whole body and leaves [`ResponseBody::Cut`] in its place; `None` if it breaks.
fn take_body(response: &mut Response) -> Option<Vec<u8>> {
    std::mem::replace(&mut response.body, ResponseBody::Cut).read()
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
