//! Lists and watches: answers that are read while they arrive. One [`StreamClient`] belongs to one
//! reflector's thread; only `shut_down`, on the thread that gives the stop signal, comes from
//! outside.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

use ureq::BodyReader;
use ureq::http::header::CONTENT_TYPE;

use super::error::{ClientError, kind_of};
use super::http::{Http, Timeouts};
use super::meter::AnswerMeter;
use super::options::ClientOptions;
use super::read_coalescing::ReadCoalescing;
use super::request::Request;
use super::retry::{self, Kind};
use super::throttle::Throttle;
use crate::stdx::activity;
use crate::stdx::stop::Stop;

/// Connections of its own for the one thread that lists and watches one resource, so that the stop
/// signal can cut what that thread waits for.
#[derive(Debug)]
pub struct StreamClient {
    http: Http,
    coalescing: ReadCoalescing,
    throttle: Arc<Throttle>,
    options: Arc<ClientOptions>,
    stop: Stop,
}

impl StreamClient {
    pub(super) fn new(
        http: Http,
        coalescing: ReadCoalescing,
        throttle: Arc<Throttle>,
        options: Arc<ClientOptions>,
        stop: Stop,
    ) -> Self {
        let at_stop = http.clone();
        stop.on_stop(move || at_stop.shut_down());
        Self {
            http,
            coalescing,
            throttle,
            options,
            stop,
        }
    }

    /// Opens a list: throttled, repeated like any read, limited by
    /// [`ClientOptions::request_timeout`] for its beginning and for each silence, and by
    /// [`ClientOptions::list_timeout`] in all. Waits until the answer's head is here.
    ///
    /// # Errors
    /// [`ClientError::Status`] if the server refuses, [`ClientError::Stopped`] if the daemon stops,
    /// and what else may befall a request.
    pub fn open_list(&self, request: &Request) -> Result<BodyStream, ClientError> {
        let silence = request.timeout.unwrap_or(self.options.request_timeout);
        let timeouts = Timeouts {
            head: silence,
            body: Some(self.options.list_timeout),
            read: Some(silence),
        };
        self.open(request, Kind::Read, timeouts)
    }

    /// Opens a watch: not throttled, without a limit but that of silence
    /// ([`ClientOptions::watch_silence_timeout`]). Waits until the answer's head is here. A
    /// connection that breaks before that is tried once more, in case it was a stale one.
    ///
    /// # Errors
    /// As [`open_list`](Self::open_list).
    pub fn open_watch(&self, request: &Request) -> Result<BodyStream, ClientError> {
        let timeouts = Timeouts {
            head: request.timeout.unwrap_or(self.options.request_timeout),
            body: None,
            read: Some(self.options.watch_silence_timeout),
        };
        self.open(request, Kind::Watch, timeouts)
    }

    fn open(
        &self,
        request: &Request,
        kind: Kind,
        timeouts: Timeouts,
    ) -> Result<BodyStream, ClientError> {
        self.coalescing.forbid();
        let throttle = (kind != Kind::Watch).then_some(&*self.throttle);
        let meter = self.http.meter();
        // As upstream has it, a watch has neither size nor duration.
        let measured = (kind != Kind::Watch).then(|| AnswerMeter::new(meter, request));
        let answer = retry::run(request, kind, throttle, meter, &self.stop, |retries| {
            if let Some(measured) = &measured {
                measured.attempted(request);
            }
            self.http.exchange(request, timeouts, retries)
        });
        let answer = match answer {
            Ok(answer) => answer,
            Err(_) if self.stop.is_stopped() => return Err(ClientError::Stopped),
            Err(error) => return Err(error),
        };
        let content_type = answer.headers().get(CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        Ok(BodyStream {
            content_type: content_type.unwrap_or_default().to_owned(),
            what: request.to_string(),
            reader: answer
                .into_body()
                .into_with_config()
                .limit(u64::MAX)
                .reader(),
            http: self.http.clone(),
            coalescing: self.coalescing.clone(),
            stop: self.stop.clone(),
            broken: None,
            measured,
        })
    }
}

/// The body of an answer as it arrives. A read waits until bytes are here, the answer has ended,
/// the silence has been too long, or the daemon stops. Its errors carry a [`ClientError`]; see
/// [`ClientError::from_read`]. Dropping it before its end closes the connection.
pub struct BodyStream {
    content_type: String,
    what: String,
    reader: BodyReader<'static>,
    http: Http,
    coalescing: ReadCoalescing,
    stop: Stop,
    /// Once broken always broken: underneath, a read after the first error looks like a clean end.
    broken: Option<ClientError>,
    measured: Option<AnswerMeter>,
}

impl BodyStream {
    /// The media type of the answer, with its parameters; empty if there is none.
    pub fn content_type(&self) -> &str {
        &self.content_type
    }

    /// The switch that lets reads rest while much comes; off until then.
    pub fn coalescing(&self) -> &ReadCoalescing {
        &self.coalescing
    }

    fn failure(&self, error: io::Error) -> ClientError {
        if self.stop.is_stopped() {
            return ClientError::Stopped;
        }
        let kind = kind_of(&error);
        let error = self.http.transport_error(ureq::Error::from(error));
        log::debug!(error:%; "{} broke ({kind:?})", self.what);
        error
    }
}

impl Read for BodyStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if let Some(error) = &self.broken {
            return Err(io::Error::other(error.clone()));
        }
        let read = self.reader.read(buf);
        // A quiet daemon sends no requests, but bookmarks come.
        self.http.check_files();
        match read {
            // Some ways of ending a body look alike whether the server or the stop signal did it.
            Ok(0) if !buf.is_empty() && self.stop.is_stopped() => {
                self.broken = Some(ClientError::Stopped);
            }
            Ok(n) => {
                activity::heard();
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
            .field("what", &self.what)
            .field("content_type", &self.content_type)
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}
