//! What a rule is: which requests it means, what it does to them, and how often.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::super::exchange::{ApiCall, ApiRequest, Response};
use crate::api::Status;

type Predicate = dyn Fn(&ApiRequest) -> bool + Send + Sync;
type MakeAnswer = dyn Fn(&ApiRequest) -> Response + Send + Sync;

/// Which requests are meant.
#[derive(Clone)]
pub struct Matcher(Arc<Predicate>);

impl Matcher {
    /// The requests for which `predicate` holds. It is called without any lock held.
    pub fn new(predicate: impl Fn(&ApiRequest) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(predicate))
    }

    /// All requests.
    pub fn any() -> Self {
        Self::new(|_| true)
    }

    /// Verb and resource as RBAC rules have them, such as `create` and `pods`, or `update` and
    /// `replicasets/status`.
    pub fn verb(verb: &str, resource: &str) -> Self {
        let (verb, resource) = (verb.to_owned(), resource.to_owned());
        Self::new(move |request| request.verb() == verb && request.resource() == resource)
    }

    /// A method, and a part of the path.
    pub fn path(method: &str, part: &str) -> Self {
        let (method, part) = (method.to_owned(), part.to_owned());
        Self::new(move |request| request.method == method && request.path.contains(&part))
    }

    /// The same requests, as far as `predicate` holds for them too.
    #[must_use]
    pub fn and(self, predicate: impl Fn(&ApiRequest) -> bool + Send + Sync + 'static) -> Self {
        Self::new(move |request| self.matches(request) && predicate(request))
    }

    /// The requests that either means.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self::new(move |request| self.matches(request) || other.matches(request))
    }

    /// True if `request` is meant.
    pub fn matches(&self, request: &ApiRequest) -> bool {
        (self.0)(request)
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Matcher")
    }
}

/// What is done to a request.
#[derive(Clone)]
pub enum Action {
    /// It is answered by this, and goes no further.
    Answer(Arc<MakeAnswer>),
    /// It goes on after a while.
    Delay(Duration),
    /// It goes on when the rule is removed.
    Hold,
    /// The connection is closed, and nothing is done.
    CutBefore,
    /// What it asks for is done; then the connection is closed without an answer.
    CutAfter,
    /// What it asks for is done; then it is answered by this.
    AnswerAfter(Arc<MakeAnswer>),
    /// The connection breaks after so many bytes of the answer's body. Not for watches.
    CutInside(usize),
    /// The body of the answer is changed. A stream is read to its end for that. Not for watches.
    Rewrite(Arc<dyn Fn(Vec<u8>) -> Vec<u8> + Send + Sync>),
    /// What a watch has to send is sent that much later, in order. Takes effect on running watches
    /// and ends with the rule.
    LagWatch(Duration),
    /// What a watch has to send is kept until the rule is removed, and then sent in order. Takes
    /// effect on running watches.
    HoldWatch,
}

impl Action {
    /// Answers with a refusal.
    pub fn refuse(status: Status) -> Self {
        Self::Answer(Arc::new(move |_| Response::status(&status)))
    }

    /// Answers by a function of the request.
    pub fn answer(make: impl Fn(&ApiRequest) -> Response + Send + Sync + 'static) -> Self {
        Self::Answer(Arc::new(make))
    }

    /// Does what is asked for, and then answers with a refusal.
    pub fn refuse_after(status: Status) -> Self {
        Self::AnswerAfter(Arc::new(move |_| Response::status(&status)))
    }

    /// Changes the object in the answer; an answer that is no JSON stays as it is.
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
        match self {
            Self::Answer(_) => f.write_str("Answer"),
            Self::Delay(delay) => write!(f, "Delay({delay:?})"),
            Self::Hold => f.write_str("Hold"),
            Self::CutBefore => f.write_str("CutBefore"),
            Self::CutAfter => f.write_str("CutAfter"),
            Self::AnswerAfter(_) => f.write_str("AnswerAfter"),
            Self::CutInside(n_bytes) => write!(f, "CutInside({n_bytes})"),
            Self::Rewrite(_) => f.write_str("Rewrite"),
            Self::LagWatch(lag) => write!(f, "LagWatch({lag:?})"),
            Self::HoldWatch => f.write_str("HoldWatch"),
        }
    }
}

/// What is to go wrong. Of several rules about one request each does its part, in the order in which
/// they were added, up to the first that answers or cuts.
#[derive(Clone, Debug)]
pub struct Rule {
    pub(super) matcher: Matcher,
    pub(super) action: Action,
    /// So many matching requests are left alone first.
    pub(super) after: usize,
    /// So many are acted on then; `None` for all.
    pub(super) times: Option<usize>,
}

impl Rule {
    /// Does `action` to every request that `matcher` means.
    pub fn new(matcher: Matcher, action: Action) -> Self {
        Self {
            matcher,
            action,
            after: 0,
            times: None,
        }
    }

    /// Acts on so many requests only. Has no meaning for what is done to running watches.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.times = Some(times);
        self
    }

    /// Leaves the first so many matching requests alone.
    #[must_use]
    pub fn after(mut self, after: usize) -> Self {
        self.after = after;
        self
    }
}
