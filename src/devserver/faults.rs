//! A layer around any [`Handler`] that records requests and injects faults. A watch with faults is
//! held, delayed, severed, or gets injected frames.
//!
//! Tests add and remove rules while the server runs, and read what the controller sent and when.
//! Connection threads apply the rules for requests; the stream around a watch applies the rules for
//! watches.

mod rule;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::exchange::{ApiCall, ApiRequest, ChunkStream, Handler, Next, Response, ResponseBody};
use crate::stdx::stop::Stop;

pub use rule::{Action, Matcher, Rule};

/// How often a held request checks for the daemon's stop.
const HOLD_CHECK: Duration = Duration::from_millis(25);

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

    pub fn n_watches(&self, matcher: &Matcher) -> usize {
        self.change_watches(matcher, |_| {})
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

    fn change_watches(&self, matcher: &Matcher, change: impl Fn(&mut RunningWatch)) -> usize {
        let state = self.shared.lock();
        let watches = state.watches.iter();
        let watches: Vec<(u64, Arc<Recorded>)> = watches
            .map(|(id, watch)| (*id, Arc::clone(&watch.request)))
            .collect();
        // A matcher is called without a lock.
        drop(state);
        let is_matching = |watch: &(u64, Arc<Recorded>)| matcher.matches(&watch.1.request);
        let matching: Vec<_> = watches.into_iter().filter(is_matching).collect();
        let mut state = self.shared.lock();
        let mut n_changed = 0;
        for (id, _) in matching {
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
        response.body = match response.body {
            ResponseBody::Stream(stream) if recorded.request.is_watch() => {
                let (shared, recorded) = (Arc::clone(&self.shared), Arc::clone(recorded));
                ResponseBody::Stream(Box::new(FaultyStream::new(stream, shared, recorded)))
            }
            body => body,
        };
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

/// How soon a running watch notices a test's commands.
const POLL_PERIOD: Duration = Duration::from_millis(20);

struct FaultyStream {
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

impl FaultyStream {
    fn new(inner: Box<dyn ChunkStream>, shared: Arc<Shared>, request: Arc<Recorded>) -> Self {
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

    /// The frames and the end that a test has asked for since the last poll, and the rules'
    /// generation.
    fn commands(&self) -> (Vec<Vec<u8>>, Option<Ending>, u64) {
        let mut state = self.shared.lock();
        let generation = state.generation;
        let watch = state.watches.get_mut(&self.id);
        let (injected, ending) = watch.map_or((Vec::new(), None), |watch| {
            (std::mem::take(&mut watch.injected), watch.ending)
        });
        (injected, ending, generation)
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
            let (injected, ending, generation) = self.commands();
            if !injected.is_empty() {
                return Next::Chunk(injected.concat());
            }
            match ending {
                Some(Ending::Close) => return Next::End,
                Some(Ending::Cut) => return Next::Cut,
                None => {}
            }
            self.read_rules(generation);
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

/// Maximum bytes of recorded bodies; beyond it the recorder drops the oldest requests.
const BODY_BYTES_MAX: usize = 256 * 1024 * 1024;

#[derive(Debug)]
pub struct Recorded {
    pub request: ApiRequest,
    /// When the server had read the whole request.
    pub started: Instant,
    response: OnceLock<(u16, Instant)>,
}

impl Recorded {
    /// The HTTP code of the response; 0 if the connection was cut, `None` before the response.
    pub fn code(&self) -> Option<u16> {
        self.response.get().map(|(code, _)| *code)
    }

    /// When the response was ready to send; `None` before that.
    pub fn answered(&self) -> Option<Instant> {
        self.response.get().map(|(_, at)| *at)
    }

    /// Verb and resource, such as `create pods` or `update replicasets/status`.
    pub fn action(&self) -> String {
        format!("{} {}", self.request.verb(), self.request.resource())
    }

    /// The body as text, empty if the request has none.
    pub fn body(&self) -> String {
        String::from_utf8_lossy(&self.request.body).into_owned()
    }

    pub(crate) fn set_code(&self, code: u16) {
        // Set once per request, by the thread that serves it.
        self.response
            .set((code, Instant::now()))
            .unwrap_or_default();
    }
}

/// Keeps the latest requests. Clones share the record.
#[derive(Clone, Debug)]
pub struct Recorder {
    /// The number of requests kept; the recorder drops older ones.
    length: usize,
    state: Arc<Mutex<Record>>,
}

#[derive(Debug, Default)]
struct Record {
    requests: VecDeque<Arc<Recorded>>,
    /// The bytes of all recorded bodies.
    n_bytes: usize,
}

impl Record {
    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.requests.pop_front() {
            self.n_bytes -= oldest.request.body.len();
        }
    }
}

impl Recorder {
    pub fn new(length: usize) -> Self {
        Self {
            length,
            state: Arc::default(),
        }
    }

    pub fn requests(&self) -> Vec<Arc<Recorded>> {
        self.lock().requests.iter().cloned().collect()
    }

    /// The requests with this verb and resource, as in `find("create", "pods")`.
    pub fn find(&self, verb: &str, resource: &str) -> Vec<Arc<Recorded>> {
        let mut requests = self.requests();
        requests.retain(|recorded| {
            recorded.request.verb() == verb && recorded.request.resource() == resource
        });
        requests
    }

    pub fn clear(&self) {
        *self.lock() = Record::default();
    }

    pub(crate) fn add(&self, request: ApiRequest) -> Arc<Recorded> {
        let recorded = Arc::new(Recorded {
            request,
            started: Instant::now(),
            response: OnceLock::new(),
        });
        if self.length > 0 {
            let mut state = self.lock();
            if state.requests.len() >= self.length {
                state.drop_oldest();
            }
            state.n_bytes += recorded.request.body.len();
            state.requests.push_back(Arc::clone(&recorded));
            while state.n_bytes > BODY_BYTES_MAX {
                state.drop_oldest();
            }
        }
        recorded
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
