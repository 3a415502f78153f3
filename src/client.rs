//! Bytes to and from a Kubernetes API server: where it is, who we are, TLS, throttle, retries,
//! streams, and errors told apart by what they mean. Called by `cache`, `writes` and
//! `leader_election`; owns no thread, so everything here happens on the caller's.
//!
//! A [`Client`] sends requests and takes whole answers; a [`StreamClient`] reads lists and watches
//! as they arrive. [`ClientConfig`] says where the server is, [`ClientOptions`] how to treat it.
//!
//! # Locks
//!
//! | lock | guards | taken by |
//! |---|---|---|
//! | `throttle` | tokens, and which requests wait for them | every sending thread |
//! | `credentials` | the bearer token | every sending thread, `signal` |
//! | `exec_plugin` | its credential; which thread runs it | every sending thread, `signal` |
//! | `live_tls` | files as read last; which watches to cut | every sending thread, `signal` |
//! | `warnings` | the `Warning` texts that were logged | every sending thread |
//!
//! One exception to the rule against I/O under a lock: `live_tls` reads certificate files under its
//! lock. A thread that opens a connection has to wait for the files anyway.

mod access;
mod config;
mod connect;
mod credentials;
mod error;
mod exec_plugin;
mod fence;
mod http;
mod live_tls;
mod meter;
mod options;
mod pem;
mod proxy;
mod read_coalescing;
mod request;
mod retry;
mod secret_header;
mod stream;
mod tcp;
mod throttle;
mod tls;
mod warnings;

#[cfg(test)]
mod tests;

use std::io::{self, Read};
use std::sync::Arc;

pub use config::{ClientConfig, ConfigError, ConfigSource, DirectSource, Environment, LookedAt};
pub use error::{ClientError, TransportError, TransportErrorKind};
pub use fence::Fence;
pub use options::ClientOptions;
pub use read_coalescing::{REST_MAX, ReadCoalescing};
pub use request::{Method, Request, Response};
pub use stream::{BodyStream, StreamClient};

use crate::stdx::stop::Stop;
use http::{Http, Timeouts};
use meter::AnswerMeter;
use retry::Kind;
use throttle::Throttle;

/// Room is made for so much of an answer before it has come.
const READ_AT_ONCE_MAX: u64 = 1 << 20;

/// The same where the answer does not say how long it is, as the API server's do not from 2 KiB on: a
/// pod's, most of the time.
const UNKNOWN_LENGTH: u64 = 7 << 10;

/// Sends requests and takes whole answers, for any number of threads at once. Clones share
/// connections and throttle.
#[derive(Clone, Debug)]
pub struct Client {
    http: Http,
    config: Arc<ClientConfig>,
    options: Arc<ClientOptions>,
    throttle: Arc<Throttle>,
    stop: Stop,
}

impl Client {
    /// A client of the server in `config`. Opens no connection yet. Its waits end when `stop` is
    /// given; its requests do not, since the last events and the lease are written after that.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] if the user agent is not fit for HTTP.
    pub fn new(
        config: &ClientConfig,
        options: &ClientOptions,
        stop: &Stop,
    ) -> Result<Self, ClientError> {
        if ureq::http::HeaderValue::from_str(&options.user_agent).is_err() {
            let message = format!("user agent {:?} is not fit for HTTP", options.user_agent);
            return Err(ClientError::Invalid(message));
        }
        Ok(Self {
            http: Http::pooled(config, options, stop),
            config: Arc::new(config.clone()),
            throttle: Arc::new(Throttle::new(options.qps, options.burst, stop)),
            options: Arc::new(options.clone()),
            stop: stop.clone(),
        })
    }

    /// Sends `request` and takes the whole answer. Waits for the throttle, for the answer (each
    /// part of it at most [`ClientOptions::request_timeout`]) and, where the server asked for it or
    /// a read's connection broke, before sending again; the stop signal ends all but the wait for
    /// an answer.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] for a write of a client that only reads; [`ClientError::Status`] for any
    /// answer but success; [`ClientError::Stopped`] if the daemon stopped while the request waited to be
    /// sent; [`ClientError::Fenced`] if it may not be sent any more; else how the connection failed.
    pub fn send(&self, request: &Request) -> Result<Response, ClientError> {
        if self.options.read_only && request.method() != Method::Get {
            let message = format!("{request} is held back: this client only reads");
            return Err(ClientError::Invalid(message));
        }
        let limit = request.timeout.unwrap_or(self.options.request_timeout);
        let timeouts = Timeouts::of_answer(limit);
        let kind = Kind::of(request.method());
        let meter = self.http.meter();
        let mut measured = AnswerMeter::new(meter, request);
        let throttle = Some(&*self.throttle);
        retry::run(request, kind, throttle, meter, &self.stop, |retries| {
            measured.attempted(request);
            let answer = self.http.exchange(request, timeouts, retries)?;
            let code = answer.status().as_u16();
            let body = read_whole(answer.into_body(), request.answer_bytes_max());
            let body = body.map_err(|error| self.http.transport_error(error.into()))?;
            measured.received(body.len());
            Ok(Response { code, body })
        })
    }

    /// Connections for one thread that lists and watches; when the stop signal is given they are
    /// cut, so that a blocked read ends at once. Lists wait at this client's throttle. To be called
    /// once per thread: what is cut at the end is remembered until then.
    pub fn stream_client(&self) -> StreamClient {
        let coalescing = ReadCoalescing::default();
        StreamClient::new(
            self.http
                .streaming(&self.config, &self.options, &coalescing),
            coalescing,
            Arc::clone(&self.throttle),
            Arc::clone(&self.options),
            self.stop.clone(),
        )
    }

    /// Cuts all of this client's connections, also those in use, and lets none be made any more:
    /// the last resort when the time to stop is over. Its clones share that fate.
    pub fn abort(&self) {
        self.http.shut_down();
    }

    /// Where the server is and who we are.
    pub fn config(&self) -> &ClientConfig {
        &self.config
    }
}

/// Reads an answer of at most so many bytes in as few steps as can be: most are here already when
/// their head is.
fn read_whole(body: ureq::Body, bytes_max: u64) -> io::Result<Vec<u8>> {
    let length = body.content_length().unwrap_or(UNKNOWN_LENGTH);
    let n_bytes = length.min(READ_AT_ONCE_MAX);
    // With room to spare, since the end is found by a read that brings nothing.
    let n_bytes = usize::try_from(n_bytes).unwrap_or(0) + 1024;
    let mut bytes = Vec::with_capacity(n_bytes);
    let body = body.into_with_config().limit(bytes_max);
    body.reader().read_to_end(&mut bytes)?;
    Ok(bytes)
}
