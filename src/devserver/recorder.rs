//! What requests came: for tests that ask what the controller said and when.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use super::exchange::{ApiCall, ApiRequest};

/// Most bytes of bodies that are remembered; the oldest requests go when there are more.
const BODY_BYTES_MAX: usize = 256 * 1024 * 1024;

/// One request and what was answered.
#[derive(Debug)]
pub struct Recorded {
    /// The request as it came.
    pub request: ApiRequest,
    /// When it had come whole.
    pub started: Instant,
    answer: OnceLock<(u16, Instant)>,
}

impl Recorded {
    /// The HTTP code of the answer; 0 if the connection was cut, `None` while there is no answer.
    pub fn code(&self) -> Option<u16> {
        self.answer.get().map(|(code, _)| *code)
    }

    /// When the answer was there, before it was sent; `None` while there is none.
    pub fn answered(&self) -> Option<Instant> {
        self.answer.get().map(|(_, at)| *at)
    }

    /// Verb and resource, such as `create pods` or `update replicasets/status`.
    pub fn action(&self) -> String {
        format!("{} {}", self.request.verb(), self.request.resource())
    }

    /// The body as text, empty if there was none.
    pub fn body(&self) -> String {
        String::from_utf8_lossy(&self.request.body).into_owned()
    }

    pub(super) fn set_code(&self, code: u16) {
        // Set once per request, by the thread that answers it.
        self.answer.set((code, Instant::now())).unwrap_or_default();
    }
}

/// Remembers the latest requests. Clones share what they remember.
#[derive(Clone, Debug)]
pub struct Recorder {
    /// How many are kept; older ones are dropped.
    length: usize,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    requests: VecDeque<Arc<Recorded>>,
    /// Of all bodies together.
    n_bytes: usize,
}

impl State {
    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.requests.pop_front() {
            self.n_bytes -= oldest.request.body.len();
        }
    }
}

impl Recorder {
    /// A recorder that keeps the latest `length` requests.
    pub fn new(length: usize) -> Self {
        Self {
            length,
            state: Arc::default(),
        }
    }

    /// All requests that are remembered, in the order in which they came.
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

    /// Forgets all requests so far.
    pub fn clear(&self) {
        *self.lock() = State::default();
    }

    pub(super) fn add(&self, request: ApiRequest) -> Arc<Recorded> {
        let recorded = Arc::new(Recorded {
            request,
            started: Instant::now(),
            answer: OnceLock::new(),
        });
        if self.length > 0 {
            let mut state = self.lock();
            if state.requests.len() >= self.length {
                state.forget_oldest();
            }
            state.n_bytes += recorded.request.body.len();
            state.requests.push_back(Arc::clone(&recorded));
            while state.n_bytes > BODY_BYTES_MAX {
                state.forget_oldest();
            }
        }
        recorded
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
