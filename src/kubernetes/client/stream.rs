//! Lists and watches: response bodies that are read while they arrive. One [`StreamClient`] belongs
//! to one reflector's thread. Only `shut_down` runs on another thread, the one that triggers the
//! stop.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use std::{fmt, io};

use ureq::BodyReader;
use ureq::http::header::CONTENT_TYPE;

use super::error::{ClientError, kind_of};
use super::http::{Http, ResponseMeter, Timeouts};
use super::request::Request;
use super::retry::Kind;
use super::{Client, retry};
use crate::stdx::stop::Stop;
use crate::stdx::thread;

pub const LIST_TIMEOUT: Duration = Duration::from_mins(10);

/// Lists and watches one resource for one thread. It has its own connections, so that the stop
/// signal can close those that this thread is blocked on.
pub struct StreamClient {
    http: Http,
    state: StreamState,
    client: Client,
}

impl StreamClient {
    pub(super) fn new(client: &Client) -> Self {
        let state = StreamState::new(client.options.request_timeout);
        let http = client.http.streaming(&client.options, &state);
        // A blocked read cannot poll the stop signal; only shutting down its socket wakes it.
        let at_stop = http.clone();
        client.stop.on_stop(move || at_stop.shut_down());
        Self {
            http,
            state,
            client: client.clone(),
        }
    }

    /// Opens a list. The list waits for the throttle and is retried like any read.
    /// [`request_timeout`](super::ClientOptions::request_timeout) limits the wait for the first
    /// byte and each silence; [`LIST_TIMEOUT`] limits the whole list. Blocks until the response's
    /// head has arrived.
    pub fn open_list(&self, request: &Request) -> Result<BodyStream, ClientError> {
        let silence = self.client.options.request_timeout;
        let timeouts = Timeouts {
            head: silence,
            body: Some(LIST_TIMEOUT),
            read: Some(silence),
        };
        self.open(request, Kind::Read, timeouts)
    }

    /// Opens a watch. A watch does not wait for the throttle. Only silence ends it: that of
    /// [`request_timeout`](super::ClientOptions::request_timeout), and of
    /// [`watch_silence_timeout`](super::ClientOptions::watch_silence_timeout) from
    /// [`StreamState::begin_watch`] on. Blocks until the response's head has arrived. A connection
    /// that breaks before that is retried once, in case it was a stale idle one.
    pub fn open_watch(&self, request: &Request) -> Result<BodyStream, ClientError> {
        let timeouts = Timeouts {
            head: self.client.options.request_timeout,
            body: None,
            read: Some(self.client.options.watch_silence_timeout),
        };
        self.open(request, Kind::Watch, timeouts)
    }

    fn open(
        &self,
        request: &Request,
        kind: Kind,
        timeouts: Timeouts,
    ) -> Result<BodyStream, ClientError> {
        self.state.begin_list();
        let throttle = (kind != Kind::Watch).then_some(&*self.client.throttle);
        let metrics = self.http.metrics(request);
        // As upstream, watches count neither in the size nor in the duration metrics.
        let measured = (kind != Kind::Watch).then(|| ResponseMeter::new(Arc::clone(&metrics)));
        let response = retry::run(
            request,
            kind,
            throttle,
            &metrics,
            &self.client.stop,
            |retries| {
                if let Some(measured) = &measured {
                    measured.attempted(request);
                }
                self.http.exchange(request, timeouts, retries, &metrics)
            },
        );
        let response = match response {
            Ok(response) => response,
            // The closed socket looks like a transport error.
            Err(_) if self.client.stop.is_stopped() => return Err(ClientError::Stopped),
            Err(error) => return Err(error),
        };
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        Ok(BodyStream {
            content_type: content_type.unwrap_or_default().to_owned(),
            request: request.to_string(),
            reader: response
                .into_body()
                .into_with_config()
                .limit(u64::MAX)
                .reader(),
            http: self.http.clone(),
            state: self.state.clone(),
            stop: self.client.stop.clone(),
            broken: None,
            measured,
        })
    }
}

/// A response body that is read as it arrives. A read blocks until bytes arrive, the response ends,
/// the silence timeout passes, or the daemon stops. Its errors carry a [`ClientError`]. Dropping
/// the stream before its end closes the connection.
pub struct BodyStream {
    content_type: String,
    request: String,
    reader: BodyReader<'static>,
    http: Http,
    state: StreamState,
    stop: Stop,
    /// The first error. Later reads return it again, because ureq reports a clean end after an
    /// error.
    broken: Option<ClientError>,
    measured: Option<ResponseMeter>,
}

impl BodyStream {
    /// The media type of the response with its parameters; empty if there is none.
    pub fn content_type(&self) -> &str {
        &self.content_type
    }

    /// How the reads wait: as those of a list until the caller says that the watch begins.
    pub fn state(&self) -> &StreamState {
        &self.state
    }

    fn failure(&self, error: io::Error) -> ClientError {
        if self.stop.is_stopped() {
            return ClientError::Stopped;
        }
        let kind = kind_of(&error);
        let error = self.http.transport_error(ureq::Error::from(error));
        log::debug!(error:%; "{} broke ({kind:?})", self.request);
        error
    }
}

impl Read for BodyStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if let Some(error) = &self.broken {
            return Err(io::Error::other(error.clone()));
        }
        let read = self.reader.read(buf);
        // A quiet daemon sends no requests that would check the files, but bookmarks still arrive.
        self.http.config.access.check_files();
        match read {
            // Some bodies end the same way whether the server ended them or the stop signal did.
            Ok(0) if !buf.is_empty() && self.stop.is_stopped() => {
                self.broken = Some(ClientError::Stopped);
            }
            Ok(n) => {
                thread::heard();
                if let Some(measured) = &mut self.measured {
                    measured.received(n);
                }
                return Ok(n);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Err(error) => self.broken = Some(self.failure(error)),
        }
        self.read(buf)
    }
}

impl fmt::Debug for BodyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyStream")
            .field("request", &self.request)
            .field("content_type", &self.content_type)
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}

/// A list, or the list at the beginning of a watch.
const LIST: u8 = 0;
/// Single events follow.
const WATCH: u8 = 1;
/// As [`WATCH`], and reads may wait.
const COALESCED_WATCH: u8 = 2;

/// What the open response is. It begins as a list whenever a list or a watch is opened: its bytes
/// should arrive as fast as possible, and silence means that the server has stopped to send it.
#[derive(Clone, Debug)]
pub struct StreamState {
    state: Arc<AtomicU8>,
    list_silence: Duration,
}

impl StreamState {
    /// `list_silence` limits the silence of a list.
    pub fn new(list_silence: Duration) -> Self {
        Self {
            state: Arc::default(),
            list_silence,
        }
    }

    /// The list is complete: the watch's own limit applies to silence from here on. If `coalesces`,
    /// a busy connection delays reads by up to 10 ms.
    pub fn begin_watch(&self, coalesces: bool) {
        let state = if coalesces { COALESCED_WATCH } else { WATCH };
        self.state.store(state, Ordering::Relaxed);
    }

    /// Returns whether reads may wait.
    pub fn coalesces(&self) -> bool {
        self.state.load(Ordering::Relaxed) == COALESCED_WATCH
    }

    pub(super) fn begin_list(&self) {
        self.state.store(LIST, Ordering::Relaxed);
    }

    /// Returns the limit of the next read, whose own limit is `limit`.
    pub(super) fn read_limit(&self, limit: Option<Duration>) -> Option<Duration> {
        if self.state.load(Ordering::Relaxed) == LIST {
            Some(limit.map_or(self.list_silence, |limit| limit.min(self.list_silence)))
        } else {
            limit
        }
    }
}
