//! The rules: the requests they match, the action, and how often they act.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::api::Status;
use crate::exchange::{ApiCall, ApiRequest, Response};

type Predicate = dyn Fn(&ApiRequest) -> bool + Send + Sync;
type MakeResponse = dyn Fn(&ApiRequest) -> Response + Send + Sync;

#[derive(Clone)]
pub struct Matcher(Arc<Predicate>);

impl Matcher {
    /// Matches the requests for which `predicate` holds. The layer calls it without a lock.
    pub fn new(predicate: impl Fn(&ApiRequest) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(predicate))
    }

    pub fn any() -> Self {
        Self::new(|_| true)
    }

    /// Matches a verb and a resource in RBAC terms, such as `create` and `pods`, or `update` and
    /// `replicasets/status`.
    pub fn verb(verb: &str, resource: &str) -> Self {
        let (verb, resource) = (verb.to_owned(), resource.to_owned());
        Self::new(move |request| request.verb() == verb && request.resource() == resource)
    }

    /// Matches a method and a part of the path.
    pub fn path(method: &str, part: &str) -> Self {
        let (method, part) = (method.to_owned(), part.to_owned());
        Self::new(move |request| request.method == method && request.path.contains(&part))
    }

    /// Matches the same requests if `predicate` holds, too.
    #[must_use]
    pub fn and(self, predicate: impl Fn(&ApiRequest) -> bool + Send + Sync + 'static) -> Self {
        Self::new(move |request| self.matches(request) && predicate(request))
    }

    /// Matches the requests of either matcher.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self::new(move |request| self.matches(request) || other.matches(request))
    }

    pub fn matches(&self, request: &ApiRequest) -> bool {
        (self.0)(request)
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Matcher")
    }
}

#[derive(Clone)]
pub enum Action {
    /// Responds with this instead of passing the request on.
    Answer(Arc<MakeResponse>),
    Delay(Duration),
    Hold,
    /// Closes the connection before the request takes effect.
    CutBefore,
    /// Lets the request take effect, then closes the connection without a response.
    CutAfter,
    /// Lets the request take effect, then responds with this.
    AnswerAfter(Arc<MakeResponse>),
    /// Breaks the connection after this many bytes of the response's body. Not for watches.
    CutInside(usize),
    /// Changes the response's body, after reading a stream to its end. Not for watches.
    Rewrite(Arc<dyn Fn(Vec<u8>) -> Vec<u8> + Send + Sync>),
    /// Delays a watch's frames, in order. Applies to running watches, too, and ends with the rule.
    LagWatch(Duration),
    /// Holds a watch's frames until the rule is removed, then sends them in order. Applies to
    /// running watches, too.
    HoldWatch,
}

impl Action {
    /// Responds with an error.
    pub fn reject(status: Status) -> Self {
        Self::Answer(Arc::new(move |_| Response::status(&status)))
    }

    /// Responds with a function of the request.
    pub fn answer(make: impl Fn(&ApiRequest) -> Response + Send + Sync + 'static) -> Self {
        Self::Answer(Arc::new(make))
    }

    /// Lets the request take effect, then responds with an error.
    pub fn reject_after(status: Status) -> Self {
        Self::AnswerAfter(Arc::new(move |_| Response::status(&status)))
    }

    /// Changes the object in the response; leaves a body that is not JSON unchanged.
    pub fn rewrite_json(change: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        Self::Rewrite(Arc::new(move |body| {
            let Ok(mut value) = serde_json::from_slice(&body) else {
                return body;
            };
            change(&mut value);
            value.to_string().into_bytes()
        }))
    }
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Action")
    }
}

/// A fault rule. Several rules for one request all act, in the order added, up to the first that
/// responds or cuts.
#[derive(Clone, Debug)]
pub struct Rule {
    pub(crate) matcher: Matcher,
    pub(crate) action: Action,
    /// The number of matching requests to skip first.
    pub(crate) after: usize,
    /// The number of requests to act on; `None` means all.
    pub(crate) times: Option<usize>,
}

impl Rule {
    /// Applies `action` to every request that matches.
    pub fn new(matcher: Matcher, action: Action) -> Self {
        Self {
            matcher,
            action,
            after: 0,
            times: None,
        }
    }

    /// Limits the number of requests to act on. Has no effect on actions for running watches.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.times = Some(times);
        self
    }

    /// Skips the first matching requests.
    #[must_use]
    pub fn after(mut self, after: usize) -> Self {
        self.after = after;
        self
    }
}
