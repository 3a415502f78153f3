//! HTTP client for the Kubernetes API server: configuration, credentials, TLS, throttle, retries,
//! streams, and errors classified by their meaning. `cache`, `writes` and `leader_election` call
//! it. This module owns no thread; all work runs on the caller's thread.
//!
//! A [`Client`] sends requests and reads complete responses; a [`StreamClient`] reads lists and
//! watches as they arrive. [`ClientConfig`] says where the server is, [`ClientOptions`] holds
//! timeouts, limits and the user agent.
//!
//! # Locks
//!
//! | lock | guards | taken by |
//! |---|---|---|
//! | `throttle` | tokens, and which requests wait for them | every sending thread |
//! | `credentials` | the bearer token | every sending thread, `signal` |
//! | `exec_plugin` | its credential; which thread runs it | every sending thread, `signal` |
//! | `live_tls` | files as read last; when they are due | every sending thread, `signal` |
//! | `access` | a replacement of credentials | threads that send with a plugin, `signal` |
//! | `warnings` | the `Warning` texts that were logged | every sending thread |
//! | `metrics` | the series of each method | every sending thread, `watch-*` |
//!
//! Two exceptions to the rule for locks: `live_tls` reads certificate files under its lock, since a
//! thread that opens a connection has to wait for the files anyway. `metrics` looks up the series
//! of a new method under its lock, which takes those of the metrics' families for a moment.

mod access;
mod config;
mod connect;
mod credentials;
mod error;
mod exec_plugin;
mod fence;
mod http;
mod lenient;
mod live_tls;
mod proxy;
mod request;
mod retry;
#[cfg(any(test, feature = "simulation"))]
pub mod simulated;
mod socks;
mod stream;
mod tcp;
mod throttle;
mod tls;

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use http::{Http, ResponseMeter, Timeouts};
use retry::Kind;
use throttle::Throttle;
use ureq::http::Method;

use crate::stdx::build;
use crate::stdx::stop::Stop;

pub use self::fence::Fence;
pub use self::tcp::READ_WAIT_MAX;
pub use config::{ClientConfig, ConfigError, ConfigSource, DirectSource, Environment};
pub use error::{ClientError, TransportError, TransportErrorKind};
pub use request::{Request, Response};
pub use stream::{BodyStream, LIST_TIMEOUT, StreamClient, StreamState};

#[cfg(any(test, feature = "simulation"))]
pub use exec_plugin::read_credential;
#[cfg(any(test, feature = "simulation"))]
pub use retry::delays;

/// Initial capacity for a response, in bytes: of a usual pod.
const RESPONSE_BYTES: usize = 8 << 10;

/// Sends requests and reads complete responses. Any number of threads may use it at once; clones
/// share connections and throttle.
#[derive(Clone)]
pub struct Client {
    http: Http,
    options: Arc<ClientOptions>,
    throttle: Arc<Throttle>,
    stop: Stop,
}

impl Client {
    /// Creates a client for the server in `config`. Opens no connection yet. `stop` ends the
    /// client's waits but not its requests, because the lease is written after it.
    pub fn new(config: &ClientConfig, options: &ClientOptions, stop: &Stop) -> Self {
        Self {
            http: Http::pooled(config, options, stop),
            throttle: Arc::new(Throttle::new(options.qps, options.burst, stop)),
            options: Arc::new(options.clone()),
            stop: stop.clone(),
        }
    }

    /// Returns how many requests this client's own rate limit has to spare now: sent at once, they
    /// delay no others. Never blocks.
    pub fn n_spare_requests(&self) -> usize {
        self.throttle.n_spare()
    }

    /// Sends `request` and reads the complete response. Blocks on the throttle, then on the
    /// response (each part for at most [`ClientOptions::request_timeout`]), and before a retry if
    /// the server requested a delay or the connection of a read broke. The stop signal ends every
    /// wait except the one for the response.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] for a write by a read-only client; [`ClientError::Status`] for any
    /// response but success; [`ClientError::Stopped`] if the daemon stopped while the request
    /// waited to be sent; [`ClientError::Fenced`] if the fence has closed;
    /// [`ClientError::Credentials`] if there are no credentials; [`ClientError::Transport`] if the
    /// connection failed.
    pub fn send(&self, request: &Request) -> Result<Response, ClientError> {
        if self.options.read_only && request.method() != Method::GET {
            let message = format!("{request} was not sent: this client is read-only (--dry-run)");
            return Err(ClientError::Invalid(message));
        }
        let limit = request.timeout.unwrap_or(self.options.request_timeout);
        let timeouts = Timeouts::of_response(limit);
        let kind = Kind::of(request.method());
        let metrics = self.http.metrics(request);
        // The meter spans all attempts: the duration includes throttling and retries.
        let mut measured = ResponseMeter::new(Arc::clone(&metrics));
        let throttle = Some(&*self.throttle);
        retry::run(request, kind, throttle, &metrics, &self.stop, |retries| {
            measured.attempted(request);
            let response = self.http.exchange(request, timeouts, retries, &metrics)?;
            let code = response.status().as_u16();
            let body = response.into_body().into_with_config();
            let mut reader = body.limit(request.response_bytes_max()).reader();
            let mut body = Vec::with_capacity(RESPONSE_BYTES);
            let read = reader.read_to_end(&mut body).map_err(ureq::Error::from);
            read.map_err(|error| self.http.transport_error(error))?;
            measured.received(body.len());
            Ok(Response { code, body })
        })
    }

    /// As [`send`](Self::send), but sends nothing after the stop signal.
    pub fn send_unless_stopped(&self, request: &Request) -> Result<Response, ClientError> {
        if self.stop.is_stopped() {
            return Err(ClientError::Stopped);
        }
        self.send(request)
    }

    /// Creates connections for one thread that lists and watches. The stop signal closes them, so a
    /// blocked read ends at once. Lists wait for this client's throttle. Call it once per thread:
    /// the client keeps every stream client's connections until the stop.
    pub fn stream_client(&self) -> StreamClient {
        StreamClient::new(self)
    }

    /// Closes all connections of this client and its clones, also those in use, and opens no more.
    /// The last resort when the shutdown deadline has passed.
    pub fn abort(&self) {
        self.http.shut_down();
    }

    pub fn config(&self) -> &ClientConfig {
        &self.http.config
    }
}

#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Requests per second; no limit if not above zero. Watches are not limited (kubernetes
    /// `cmd/kube-controller-manager/app/options`: `--kube-api-qps`).
    pub qps: f32,
    /// Requests that may be sent at once after a quiet time (`--kube-api-burst`).
    pub burst: u32,
    /// Maximum idle connections kept open. Set it to the number of threads that send requests at
    /// once; each request above it pays for a new TLS handshake.
    pub connections: usize,
    /// Maximum time until the response begins, and again until it is complete.
    pub request_timeout: Duration,
    /// Maximum silence of a watch. Bookmarks arrive about once a minute, so the connection of a
    /// watch that is silent for this long is dead.
    pub watch_silence_timeout: Duration,
    /// Rejects every request but a read before it is sent, so that nothing can change the cluster.
    /// The dry run relies on this.
    pub read_only: bool,
    /// The `User-Agent` header, for the API server's logs: visible ASCII and spaces.
    pub user_agent: String,
    /// Consulted before a [`Client`] sends anything, reads included: a daemon that
    /// may not write has no use for reads either. [`StreamClient`]s, which
    /// only read, ignore it. `None`: no restriction.
    pub fence: Option<Arc<dyn Fence>>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            qps: 20.0,
            burst: 30,
            connections: 64,
            request_timeout: Duration::from_mins(1),
            watch_silence_timeout: Duration::from_mins(5),
            read_only: false,
            user_agent: user_agent(),
            fence: None,
        }
    }
}

/// `replicaset-controller/<version> (<os>/<arch>) kubernetes/<commit>/replicaset-controller`, with
/// seven characters of the commit and the controller's name at the end (client-go
/// `rest/config.go:DefaultKubernetesUserAgent`, `AddUserAgent`).
fn user_agent() -> String {
    let (version, platform) = (build::VERSION, build::platform());
    let commit = build::short_commit().unwrap_or("unknown");
    format!(
        "replicaset-controller/{version} ({platform}) kubernetes/{commit}/replicaset-controller"
    )
}

#[cfg(test)]
mod tests;
