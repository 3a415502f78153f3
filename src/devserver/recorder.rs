//! Records requests, so that tests can check what the controller sent and when.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use super::exchange::{ApiCall, ApiRequest};

/// Maximum bytes of recorded bodies; beyond it the recorder drops the oldest requests.
const BODY_BYTES_MAX: usize = 256 * 1024 * 1024;

/// One request and its response code.
#[derive(Debug)]
pub struct Recorded {
    /// The request as received.
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

    pub(super) fn set_code(&self, code: u16) {
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
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    requests: VecDeque<Arc<Recorded>>,
    /// The bytes of all recorded bodies.
    n_bytes: usize,
}

impl State {
    fn drop_oldest(&mut self) {
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

    /// All recorded requests, in the order received.
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

    /// Drops all recorded requests.
    pub fn clear(&self) {
        *self.lock() = State::default();
    }

    pub(super) fn add(&self, request: ApiRequest) -> Arc<Recorded> {
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
