//! Requests and responses as plain data. Pure: `cache`, `writes` and `leader_election` build
//! requests, and `http` turns them into HTTP.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};
use ureq::http::Method;

use crate::api::ObjectKey;
use crate::api::json::{Encoded, JSON};

/// Characters that a path must escape; slashes separate its segments.
const PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Characters that a query must escape: all but RFC 3986's unreserved ones.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Maximum bytes of a response, except for a page of a list. An object in etcd has at most 1.5 MiB.
/// The limit keeps a broken server from filling the memory through many sending threads.
const RESPONSE_BYTES_MAX: u64 = 16 << 20;

/// Maximum bytes of a page of a list, however many objects the request asks for.
const PAGE_BYTES_MAX: u64 = 1 << 30;

/// Maximum bytes per object of a page, the same as in a streamed list.
const OBJECT_BYTES_MAX: u64 = 64 << 20;

#[derive(Clone, Debug)]
pub struct Request {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: Vec<(String, String)>,
    pub(super) accept: Cow<'static, str>,
    pub(super) body: Option<Body>,
    pub(super) timeout: Option<Duration>,
    pub(super) flow: Flow,
    pub(super) retries: Retries,
}

/// Requests of the same flow share a turn at the throttle. The numbers are hashes: namespaces or
/// owners whose hashes collide only share a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flow {
    pub(super) namespace: u64,
    pub(super) owner: u64,
}

/// Which retries of a request a caller waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retries {
    /// All that the server requests.
    All,
    /// One, within [`BRIEF_MAX`].
    OneBrief,
    None,
}

impl Retries {
    /// True for a retry after `delay`, which comes after `earlier` others.
    pub(super) fn permit(self, earlier: u32, delay: Duration) -> bool {
        match self {
            Self::All => true,
            Self::OneBrief => earlier == 0 && delay <= BRIEF_MAX,
            Self::None => false,
        }
    }
}

/// The `Retry-After` of an API server whose queues are full
/// (apiserver `pkg/server/filters/priority-and-fairness.go`).
const BRIEF_MAX: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(super) struct Body {
    pub(super) content_type: Cow<'static, str>,
    pub(super) bytes: Vec<u8>,
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} bytes)", self.content_type, self.bytes.len())
    }
}

/// A complete response with a code from 200 to 299.
#[derive(Clone, Debug)]
pub struct Response {
    pub code: u16,
    pub body: Vec<u8>,
}

impl Request {
    /// A read of `path`, such as `/api/v1/namespaces/default/pods/web-1`. Pass the path unescaped;
    /// the request escapes it.
    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub fn post(path: impl Into<String>) -> Self {
        Self::new(Method::POST, path)
    }

    pub fn put(path: impl Into<String>) -> Self {
        Self::new(Method::PUT, path)
    }

    pub fn patch(path: impl Into<String>) -> Self {
        Self::new(Method::PATCH, path)
    }

    pub fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path)
    }

    #[must_use]
    pub fn query(mut self, name: &str, value: impl Into<String>) -> Self {
        self.query.push((name.to_owned(), value.into()));
        self
    }

    #[must_use]
    pub fn body(
        mut self,
        content_type: impl Into<Cow<'static, str>>,
        bytes: impl Into<Vec<u8>>,
    ) -> Self {
        self.body = Some(Body {
            content_type: content_type.into(),
            bytes: bytes.into(),
        });
        self
    }

    #[must_use]
    pub fn object(self, object: Encoded) -> Self {
        self.body(object.media_type, object.bytes)
    }

    /// The same request with these media types in `Accept`; the default is JSON.
    #[must_use]
    pub fn accept(mut self, media_types: impl Into<Cow<'static, str>>) -> Self {
        self.accept = media_types.into();
        self
    }

    /// The same request with this timeout instead of
    /// [`ClientOptions::request_timeout`](super::ClientOptions::request_timeout). It applies to
    /// connecting, to sending, to the response's first byte and to its body, each.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The same request, sent for this object. The throttle serves the namespaces of waiting
    /// requests in turn, and the objects of each namespace in turn. Requests without an object
    /// share one turn.
    #[must_use]
    pub fn on_behalf_of(mut self, owner: &ObjectKey) -> Self {
        let mut hasher = DefaultHasher::new();
        owner.name.hash(&mut hasher);
        self.flow = Flow {
            namespace: owner.namespace_hash(),
            owner: hasher.finish(),
        };
        self
    }

    /// The same request without retries, even if the server requests one: for callers that cannot
    /// wait.
    #[must_use]
    pub fn once(mut self) -> Self {
        self.retries = Retries::None;
        self
    }

    /// The same request with at most one retry, and that within a second: for callers with a
    /// back-off of their own, whose thread has other work.
    #[must_use]
    pub fn retried_briefly(mut self) -> Self {
        self.retries = Retries::OneBrief;
        self
    }

    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Verb, resource and name as in client-go's errors: `put replicasets.apps web`. Empty for a
    /// path that is none of an API group.
    pub(super) fn in_words(&self) -> String {
        let path: Vec<&str> = self.path.split('/').collect();
        let (group, rest) = match &path[..] {
            ["", "api", _version, rest @ ..] => ("", rest),
            ["", "apis", group, _version, rest @ ..] => (*group, rest),
            _ => return String::new(),
        };
        let (["namespaces", _, resource, name @ ..] | [resource, name @ ..]) = rest else {
            return String::new();
        };
        let mut words = format!("{} {resource}", self.method.as_str().to_ascii_lowercase());
        for (separator, word) in [
            (".", group),
            (" ", name.first().copied().unwrap_or_default()),
        ] {
            if !word.is_empty() {
                words.extend([separator, word]);
            }
        }
        words
    }

    /// Maximum bytes of its response. Requests for a page of a list are recognised by `limit`.
    pub(super) fn response_bytes_max(&self) -> u64 {
        let limit = self.query.iter().find(|(name, _)| name == "limit");
        let n_objects = limit.and_then(|(_, n)| n.parse().ok());
        n_objects.map_or(RESPONSE_BYTES_MAX, |n: u64| {
            n.saturating_mul(OBJECT_BYTES_MAX).min(PAGE_BYTES_MAX)
        })
    }

    pub(super) fn body_bytes(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.bytes.len())
    }

    /// Path and query as in the request line.
    pub fn path_and_query(&self) -> String {
        self.path_and_query_under("")
    }

    pub(super) fn path_and_query_under(&self, prefix: &str) -> String {
        let pair = |(name, value): &(String, String)| name.len() + value.len() + 2;
        let n_bytes = prefix.len() + self.path.len() + self.query.iter().map(pair).sum::<usize>();
        let mut text = String::with_capacity(n_bytes);
        text.push_str(prefix);
        text.extend(utf8_percent_encode(&self.path, PATH));
        for (i, (name, value)) in self.query.iter().enumerate() {
            text.push(if i == 0 { '?' } else { '&' });
            text.extend(utf8_percent_encode(name, QUERY));
            text.push('=');
            text.extend(utf8_percent_encode(value, QUERY));
        }
        text
    }

    fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            query: Vec::new(),
            accept: JSON.into(),
            body: None,
            timeout: None,
            flow: Flow::default(),
            retries: Retries::All,
        }
    }
}

/// `GET /api/v1/pods`, for logs: without query and body.
impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::Request;

    #[track_caller]
    fn check(request: &Request, expected: &str) {
        assert_eq!(request.path_and_query(), expected);
    }

    #[test]
    fn reserved_characters_are_escaped() {
        check(&Request::get("/api/v1/pods"), "/api/v1/pods");
        check(
            &Request::get("/api/v1/pods")
                .query("labelSelector", "app in (a,b),tier!=x&y")
                .query("continue", "eyJ2==/+"),
            "/api/v1/pods?labelSelector=app%20in%20%28a%2Cb%29%2Ctier%21%3Dx%26y&\
             continue=eyJ2%3D%3D%2F%2B",
        );
        check(
            &Request::get("/api/v1/namespaces/a?b/pods/c#d e%"),
            "/api/v1/namespaces/a%3Fb/pods/c%23d%20e%25",
        );
        check(
            &Request::get("/pods").query("resourceVersion", ""),
            "/pods?resourceVersion=",
        );
        check(&Request::get("/größe"), "/gr%C3%B6%C3%9Fe");
    }

    #[test]
    fn errors_name_verb_resource_and_name() {
        for (request, words) in [
            (Request::post("/api/v1/namespaces/a/pods"), "post pods"),
            (Request::get("/api/v1/pods"), "get pods"),
            (
                Request::delete("/api/v1/namespaces/a/pods/b"),
                "delete pods b",
            ),
            (
                Request::put("/apis/apps/v1/namespaces/a/replicasets/web/status"),
                "put replicasets.apps web",
            ),
            (Request::get("/api/v1/namespaces/a"), "get namespaces a"),
            (Request::get("/version"), ""),
        ] {
            assert_eq!(request.in_words(), words);
        }
    }

    #[test]
    fn a_body_never_shows_in_debug_output() {
        let request = Request::post("/api/v1/pods").body("application/json", *b"hunter2");
        assert!(!format!("{request:?} {request}").contains("hunter2"));
    }
}
