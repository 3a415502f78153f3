//! One HTTP exchange: sends a request, reads the response's head, classifies failures. The send
//! loops in `client` and `stream` call it on the sending thread.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ureq::http::header::{
    ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER, WARNING,
};
use ureq::http::uri::{PathAndQuery, Uri};
use ureq::http::{Method, StatusCode};
use ureq::{Agent, Body, Error, Timeout, http};

use super::ClientOptions;
use super::config::ClientConfig;
use super::connect::{LazyResolver, Unsent, connector};
use super::credentials::CREDENTIAL_BYTES_MAX;
use super::error::{ClientError, TransportError, TransportErrorKind, kind_of};
use super::fence::HeldBack;
use super::request::Request;
use super::retry::whole_seconds;
use super::stream::StreamState;
use crate::api::Status;
use crate::stdx::stop::Stop;
use crate::telemetry::metrics;
use crate::telemetry::metrics::rest_client::VerbMetrics;

/// Timeout for opening a connection, TLS included. Upstream allows 30 s for TCP and 10 s for TLS.
/// DIFFERS: 10 s for both, since the stop signal can end every wait but a hanging connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum age of an idle connection. Load balancers drop idle connections silently, and a write
/// into one of those has an unknown outcome.
const IDLE_AGE_MAX: Duration = Duration::from_secs(15);

/// Output buffer of each connection, in bytes. It must hold the longest header, a token.
const OUTPUT_BUFFER: usize = CREDENTIAL_BYTES_MAX + (1 << 10);

/// Input buffer of a connection for small requests, in bytes. It must hold a response's head with
/// up to 4096 characters of warnings (kubernetes
/// `endpoints/filters/warning.go:truncateAtTotalRunes`).
const SMALL_BUFFER: usize = 16 << 10;

/// Input buffer of a connection for lists and watches, in bytes.
const STREAM_BUFFER: usize = 64 << 10;

const ERROR_BYTES_MAX: u64 = 1 << 20;

/// Capacity for the headers of a request without impersonation.
const HEADERS: usize = 6;

/// Timeout of each phase of an exchange; `None`: no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timeouts {
    /// From the request's last byte to the response's head. Limits connecting and sending, too.
    pub(super) head: Duration,
    pub(super) body: Option<Duration>,
    pub(super) read: Option<Duration>,
}

impl Timeouts {
    /// The timeouts of a response that is read completely: `limit` for its head and again for its
    /// body.
    pub(super) fn of_response(limit: Duration) -> Self {
        Self {
            head: limit,
            body: Some(limit),
            read: None,
        }
    }
}

/// Sets the timeouts of an agent or of a request. Only those of single phases: with an overall one,
/// or one for name resolution, ureq starts a thread per request to resolve the server's name.
macro_rules! with_timeouts {
    ($builder:expr, $timeouts:expr) => {
        $builder
            .timeout_connect(Some(CONNECT_TIMEOUT.min($timeouts.head)))
            .timeout_send_request(Some($timeouts.head))
            .timeout_send_body(Some($timeouts.head))
            .timeout_recv_response(Some($timeouts.head))
            .timeout_recv_body($timeouts.body)
            .timeout_per_read($timeouts.read)
    };
}

/// A set of connections to the API server and everything that their requests share. Clones share
/// the connections.
#[derive(Clone, Debug)]
pub(super) struct Http {
    agent: Agent,
    /// The agent's own. A request with others takes a copy of all settings.
    timeouts: Timeouts,
    pub(super) config: Arc<ClientConfig>,
    /// By method.
    metrics: Arc<Mutex<HashMap<Method, Arc<VerbMetrics>>>>,
    warnings: Arc<Warnings>,
    /// Shortens the wait for a credential plugin.
    stop: Stop,
}

impl Http {
    /// Creates connections for complete responses, shared by many threads.
    pub(super) fn pooled(config: &ClientConfig, options: &ClientOptions, stop: &Stop) -> Self {
        Self {
            agent: agent(config, options, None),
            timeouts: Timeouts::of_response(options.request_timeout),
            // The clone shares the credentials, so a reload reaches every client.
            config: Arc::new(config.clone()),
            metrics: Arc::default(),
            warnings: Arc::default(),
            stop: stop.clone(),
        }
    }

    /// Creates connections for one thread that lists and watches; `stream` says how their reads
    /// wait.
    pub(super) fn streaming(&self, options: &ClientOptions, stream: &StreamState) -> Self {
        Self {
            agent: agent(&self.config, options, Some(stream)),
            ..self.clone()
        }
    }

    /// Closes all connections, also those in use by other threads, and opens no more.
    pub(super) fn shut_down(&self) {
        self.agent.clone().shutdown();
    }

    /// Finds the series in the families once, since each look-up hashes the labels.
    pub(super) fn metrics(&self, request: &Request) -> Arc<VerbMetrics> {
        let of = |verb: &Method| {
            let host = self.config.authority();
            Arc::new(metrics::global().rest_client.of(verb.as_str(), host))
        };
        let mut metrics = self.metrics.lock();
        let verb = request.method();
        Arc::clone(metrics.entry(verb.clone()).or_insert_with_key(of))
    }

    /// Sends `request` once; `retries` counts the retries so far. Blocks until the response's head
    /// arrives or a timeout passes, and before that possibly on a credential plugin.
    pub(super) fn exchange(
        &self,
        request: &Request,
        timeouts: Timeouts,
        retries: u32,
        metrics: &VerbMetrics,
    ) -> Result<http::Response<Body>, ClientError> {
        let access = &self.config.access;
        access.check_files();
        let mut headers = HeaderMap::with_capacity(HEADERS);
        let used = access.authorize(&mut headers, &self.stop);
        let used = used.map_err(ClientError::Credentials)?;
        let began = Instant::now();
        let bytes = request.body.as_ref().map(|body| body.bytes.as_slice());
        let response = match bytes {
            Some(bytes) => self.run(request, headers, bytes, timeouts),
            None => self.run(request, headers, (), timeouts),
        };
        let code = response
            .as_ref()
            .ok()
            .map(|response| response.status().as_u16());
        metrics.attempted(code);
        if retries > 0 {
            metrics.retried(code);
        }
        // Code 0 means that there was no response.
        let code = code.unwrap_or(0);
        log::trace!("{request}: code {code} after {:.3?}", began.elapsed());
        let response = response?;
        self.warnings.log(response.headers());
        if response.status() == StatusCode::UNAUTHORIZED {
            // The file or the plugin may have a newer token; the next request fetches it.
            access.note_rejected(&used, &self.config.server);
        } else {
            access.rejections.ended();
        }
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.status_error(request, response))
    }

    fn run(
        &self,
        request: &Request,
        headers: HeaderMap,
        body: impl ureq::AsSendBody,
        timeouts: Timeouts,
    ) -> Result<http::Response<Body>, ClientError> {
        let mut head = self.head(request, headers, body)?;
        if timeouts != self.timeouts {
            head = with_timeouts!(self.agent.configure_request(head), timeouts).build();
        }
        let response = self.agent.run(head);
        response.map_err(|error| self.transport_error(error))
    }

    fn head<B>(
        &self,
        request: &Request,
        mut headers: HeaderMap,
        body: B,
    ) -> Result<http::Request<B>, ClientError> {
        let invalid = |error: &dyn std::error::Error| ClientError::Invalid(error.to_string());
        let path = request.path_and_query_under(&self.config.prefix);
        let path = PathAndQuery::try_from(path).map_err(|error| invalid(&error))?;
        let mut parts = self.config.server.clone().into_parts();
        parts.path_and_query = Some(path);
        let accept = HeaderValue::from_str(&request.accept);
        headers.insert(ACCEPT, accept.map_err(|error| invalid(&error))?);
        if let Some(body) = &request.body {
            let content_type = HeaderValue::from_str(&body.content_type);
            headers.insert(CONTENT_TYPE, content_type.map_err(|error| invalid(&error))?);
        }
        let mut head = http::Request::new(body);
        *head.method_mut() = request.method.clone();
        *head.uri_mut() = Uri::from_parts(parts).map_err(|error| invalid(&error))?;
        *head.headers_mut() = headers;
        Ok(head)
    }

    fn status_error(&self, request: &Request, response: http::Response<Body>) -> ClientError {
        let code = response.status().as_u16();
        let header = |name| response.headers().get(name)?.to_str().ok();
        if response.status().is_redirection() {
            let message = format!(
                "{} redirects to {:?}, which is not followed",
                self.config.server,
                header(LOCATION).unwrap_or_default()
            );
            return ClientError::Status(Status::new(code, "", message));
        }
        let seconds = header(RETRY_AFTER).and_then(whole_seconds);
        let body = response.into_body().into_with_config();
        let status = match body.limit(ERROR_BYTES_MAX).read_to_vec() {
            Ok(body) => Status::from_body(code, &body).to_request(&request.in_words()),
            // The code is the server's decision even if the explanation in the body is lost.
            Err(error) => {
                let problem = self.transport_error(error);
                Status::new(code, "", format!("HTTP code {code}, and then: {problem}"))
            }
        };
        ClientError::Status(status.or_retry_after(seconds))
    }

    /// Classifies a failure by whether the request was sent and by how the connection failed.
    pub(super) fn transport_error(&self, error: Error) -> ClientError {
        let (kind, sent, message) = match error {
            Error::Other(inner) => match inner.downcast::<Unsent>() {
                Ok(unsent) => (unsent.kind, false, unsent.message),
                Err(other) if other.is::<HeldBack>() => return ClientError::Fenced,
                Err(other) => (TransportErrorKind::Other, true, other.to_string()),
            },
            Error::Timeout(timeout) => (TransportErrorKind::TimedOut, true, describe(timeout)),
            // An agent that was shut down returns this error; a socket's own error has an OS code.
            Error::Io(error)
                if error.kind() == std::io::ErrorKind::NotConnected
                    && error.raw_os_error().is_none() =>
            {
                (TransportErrorKind::Other, false, error.to_string())
            }
            Error::Io(error) => (kind_of(&error), true, error.to_string()),
            Error::Http(error) => return ClientError::Invalid(error.to_string()),
            Error::BadUri(error) => return ClientError::Invalid(error),
            error => (TransportErrorKind::Other, true, error.to_string()),
        };
        ClientError::Transport(TransportError {
            kind,
            sent,
            message: format!("{}: {message}", self.config.authority()),
        })
    }
}

fn agent(config: &ClientConfig, options: &ClientOptions, stream: Option<&StreamState>) -> Agent {
    let (fence, idle, input) = match stream {
        None => (options.fence.as_ref(), options.connections, SMALL_BUFFER),
        Some(_) => (None, 1, STREAM_BUFFER),
    };
    let timeouts = Timeouts::of_response(options.request_timeout);
    let settings = with_timeouts!(ureq::config::Config::builder(), timeouts)
        // The body of an error response explains the error; ureq would drop it.
        .http_status_as_error(false)
        // ureq returns redirects unfollowed; `status_error` reports their location.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(config.proxy.clone())
        .no_delay(true)
        .user_agent(&options.user_agent)
        .max_idle_connections(idle)
        .max_idle_connections_per_host(idle)
        .max_idle_age(IDLE_AGE_MAX)
        .input_buffer_size(input)
        .output_buffer_size(OUTPUT_BUFFER)
        .build();
    let connector = connector(config.access.tls.clone(), config.hints, fence, stream);
    let resolver = LazyResolver::new(config.server.clone());
    Agent::with_parts(settings, connector, resolver)
}

fn describe(timeout: Timeout) -> String {
    match timeout {
        Timeout::PerRead => "the connection was silent for too long",
        Timeout::SendRequest | Timeout::SendBody => "the request could not be sent in time",
        Timeout::RecvResponse => "the response did not begin in time",
        Timeout::RecvBody => "the response was not complete in time",
        _ => "a deadline passed",
    }
    .to_owned()
}

/// Measures one request, from the call until this is dropped, which is when the response was read.
#[derive(Debug)]
pub(super) struct ResponseMeter {
    metrics: Arc<VerbMetrics>,
    began: Instant,
    /// `None`: no response, or not a successful one.
    n_bytes: Option<usize>,
}

impl ResponseMeter {
    pub(super) fn new(metrics: Arc<VerbMetrics>) -> Self {
        Self {
            metrics,
            began: Instant::now(),
            n_bytes: None,
        }
    }

    /// Records one attempt to send the request, the first or a retry.
    pub(super) fn attempted(&self, request: &Request) {
        let size = bytes(request.body_bytes());
        self.metrics.request_size.observe(size);
    }

    pub(super) fn received(&mut self, n_bytes: usize) {
        self.n_bytes = Some(self.n_bytes.unwrap_or(0) + n_bytes);
    }
}

impl Drop for ResponseMeter {
    fn drop(&mut self) {
        let took = self.began.elapsed().as_secs_f64();
        self.metrics.request_duration.observe(took);
        if let Some(n_bytes) = self.n_bytes {
            self.metrics.response_size.observe(bytes(n_bytes));
        }
    }
}

fn bytes(n_bytes: usize) -> f64 {
    metrics::whole(u64::try_from(n_bytes).unwrap_or(u64::MAX))
}

/// Maximum texts remembered. Above it no further text is logged, so that a text with a name in it
/// cannot fill log and memory.
const TEXTS_MAX: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Warnings {
    state: Mutex<HashSet<String>>,
}

impl Warnings {
    /// Logs the warnings in a response's headers that were not logged before.
    pub(super) fn log(&self, headers: &HeaderMap) {
        for value in headers.get_all(WARNING) {
            let Ok(value) = value.to_str() else { continue };
            for text in texts(value) {
                if self.is_new(text) {
                    log::warn!("the API server warns: {}", unescaped(text));
                }
            }
        }
    }

    fn is_new(&self, text: &str) -> bool {
        let mut seen = self.state.lock();
        !seen.contains(text) && seen.len() < TEXTS_MAX && seen.insert(text.to_owned())
    }
}

/// The escaped texts in one header's value: `299 - "text"`, several joined by commas. Codes other
/// than 299 come from caches in between and do not concern the cluster.
fn texts(value: &str) -> impl Iterator<Item = &str> {
    let mut rest = value;
    let quoted = std::iter::from_fn(move || {
        let (head, tail) = rest.split_once('"')?;
        let mut is_escaped = false;
        let end = tail.find(|char| {
            let ends = char == '"' && !is_escaped;
            is_escaped = char == '\\' && !is_escaped;
            ends
        });
        let (text, after) = tail.split_at(end.unwrap_or(tail.len()));
        rest = after.get(1..).unwrap_or_default();
        Some((head.trim_start_matches([',', ' ']), text))
    });
    quoted
        .filter(|(head, text)| head.split(' ').next() == Some("299") && !text.is_empty())
        .map(|(_, text)| text)
}

fn unescaped(text: &str) -> String {
    let mut chars = text.chars();
    let next = || match chars.next()? {
        '\\' => chars.next(),
        char => Some(char),
    };
    std::iter::from_fn(next).collect()
}

#[cfg(test)]
mod tests {
    use super::{TEXTS_MAX, Warnings, texts, unescaped};

    #[test]
    fn warnings_are_parsed_from_the_header() {
        let texts = |value| texts(value).map(unescaped).collect::<Vec<String>>();
        assert_eq!(texts("299 - \"a \\\"b\\\" c\""), ["a \"b\" c"]);
        assert_eq!(
            texts("299 - \"one, two\", 299 - \"three\""),
            ["one, two", "three"]
        );
        assert_eq!(
            texts("299 - \"dated\" \"Sat, 25 Aug 2012 23:34:45 GMT\", 299 - \"b\""),
            ["dated", "b"]
        );
        assert_eq!(texts("110 proxy \"stale\""), [""; 0]);
        assert_eq!(texts("nonsense"), [""; 0]);
    }

    #[test]
    fn each_text_is_new_once_up_to_a_limit() {
        let warnings = Warnings::default();
        assert!(warnings.is_new("a") && !warnings.is_new("a"));
        let n_new = (0..1000).filter(|i| warnings.is_new(&i.to_string()));
        assert_eq!(n_new.count(), TEXTS_MAX - 1);
    }
}
