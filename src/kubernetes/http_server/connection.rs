//! One client's connection. Its own thread reads requests and writes responses, one after the
//! other.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use percent_encoding::percent_decode_str;

use super::Limits;
use super::exchange::{ChunkStream, Next, Peer, Request, Response, ResponseBody};
use super::head::{BodyLength, Head, StatusLine};
use super::received::{ReadError, Received};
use super::server::Shared;
use super::socket::Socket;
use crate::api::Status;

/// The chunk that ends a chunked body.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// How long a stream may stay idle before the connection checks for client and server.
const IDLE_CHECK: Duration = Duration::from_millis(200);

pub(super) struct Connection {
    socket: Socket,
    received: Received,
    server: Arc<Shared>,
    /// False while the handler runs. While it is true, the server may displace the connection: no
    /// handler's work is lost.
    waits_for_client: Arc<AtomicBool>,
}

/// The properties of a request that its response depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    pub(super) is_head: bool,
    pub(super) is_http_10: bool,
    pub(super) closes: bool,
}

impl Connection {
    pub(super) fn new(
        stream: Arc<TcpStream>,
        server: Arc<Shared>,
        waits_for_client: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let tls = server.options.tls.as_ref().map(|source| source());
        Ok(Self {
            socket: Socket::new(stream, tls)?,
            received: Received::default(),
            server,
            waits_for_client,
        })
    }

    /// Serves until the client closes the connection, the connection breaks, a limit passes, a
    /// response cuts it, or the server shuts the socket.
    pub(super) fn serve(mut self) {
        let result = self.serve_requests();
        if let Err(error) = result
            && !self.server.is_stopping()
        {
            log::debug!(error:%; "connection ends");
        }
        // The server's table holds this socket too, so a drop would not close it.
        self.socket.close();
    }

    fn serve_requests(&mut self) -> io::Result<()> {
        self.limit(|limits| limits.request);
        self.socket.handshake()?;
        let address = self.socket.tcp().peer_addr().ok();
        let peer = Peer {
            address: address.map(|address| address.ip().to_canonical()),
            certificates: Arc::new(self.socket.client_certificates()),
        };
        // The first request's limit includes the handshake, so it already runs.
        let mut is_limited = true;
        while let Some((request, mut exchange)) = self.read_request(&peer, is_limited)? {
            let waits = &self.waits_for_client;
            waits.store(false, Ordering::Relaxed);
            // The handler must not see a request that a foreign web page forged.
            let response = match self.check_hosts(&request) {
                Ok(()) => self.server.handler.handle(request),
                Err(message) => Response::status(&Status::new(403, "Forbidden", &message)),
            };
            waits.store(true, Ordering::Relaxed);
            exchange.closes |= response.closes;
            self.limit(|limits| limits.answer);
            if !self.write_response(exchange, response)? || exchange.closes {
                break;
            }
            self.limit(|limits| limits.idle);
            is_limited = false;
        }
        Ok(())
    }

    /// Limits the next operation to this duration of the limits, if there are any.
    fn limit(&mut self, duration: fn(&Limits) -> Duration) {
        if let Some(limits) = &self.server.options.limits {
            self.socket.set_deadline(Instant::now() + duration(limits));
        }
    }

    /// Blocks for the next request. Returns `None` if the client closes the connection first.
    /// Starts the request's limit at its first byte, unless the request `is_limited` already.
    fn read_request(
        &mut self,
        peer: &Peer,
        mut is_limited: bool,
    ) -> io::Result<Option<(Request, Exchange)>> {
        let bytes = loop {
            match self.received.take_head() {
                Ok(Some(bytes)) => break bytes,
                Ok(None) => {}
                Err(status) => return Err(self.reject(status)),
            }
            if !self.received.is_empty() && !is_limited {
                is_limited = true;
                self.limit(|limits| limits.request);
            }
            if self.received.receive(&mut self.socket)? == 0 {
                return Ok(None);
            }
        };
        if !is_limited {
            // The whole head arrived at once, so the loop did not start the limit.
            self.limit(|limits| limits.request);
        }
        let head = match Head::parse(&bytes) {
            Ok(head) => head,
            Err(status) => return Err(self.reject(status)),
        };
        drop(bytes);
        if head.expects_continue && head.body != BodyLength::Bytes(0) {
            self.socket.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let kept_max = self.server.options.body_bytes;
        let body = self
            .received
            .read_body(&mut self.socket, head.body, kept_max);
        let body = match body {
            Ok(body) => body,
            Err(ReadError::Rejected(status)) => return Err(self.reject(status)),
            Err(ReadError::Io(error)) => return Err(error),
        };
        let exchange = Exchange {
            is_head: head.method == "HEAD",
            is_http_10: head.is_http_10,
            closes: head.closes || !body.is_read_to_its_end,
        };
        Ok(Some((request_of(head, body.kept, peer.clone()), exchange)))
    }

    fn check_hosts(&self, request: &Request) -> Result<(), String> {
        let Some(names) = &self.server.options.accept_hosts else {
            return Ok(());
        };
        let local = self.socket.tcp().local_addr();
        let local = local.map_err(|error| error.to_string())?;
        super::check_hosts(request, local.ip(), names)
    }

    /// Rejects bytes that are not a valid request; the connection ends after that.
    fn reject(&mut self, status: StatusLine) -> io::Error {
        let length = status.len();
        let response = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: \
             {length}\r\nConnection: close\r\n\r\n{status}"
        );
        // The client may have stopped reading already, so an error here does not matter.
        self.socket
            .write_all(response.as_bytes())
            .unwrap_or_default();
        io::Error::other(format!("rejected a request: {status}"))
    }

    /// Returns false if the connection cannot serve another request.
    fn write_response(&mut self, exchange: Exchange, response: Response) -> io::Result<bool> {
        let mut head = start(&response);
        match response.body {
            ResponseBody::Cut => Ok(false),
            ResponseBody::Whole(body) => {
                let mut bytes = head_bytes(head.header("content-length", body.len()), exchange)?;
                if !exchange.is_head {
                    bytes.extend_from_slice(&body);
                }
                self.socket.write_all(&bytes)?;
                Ok(true)
            }
            ResponseBody::Stream(stream) => {
                let is_chunked = !exchange.is_http_10;
                if is_chunked {
                    head = head.header("transfer-encoding", "chunked");
                }
                self.socket.write_all(&head_bytes(head, exchange)?)?;
                if exchange.is_head {
                    return Ok(true);
                }
                self.write_stream(stream, is_chunked)
            }
        }
    }

    /// Without chunks, the end of the connection marks the end of the body.
    fn write_stream(
        &mut self,
        mut stream: Box<dyn ChunkStream>,
        is_chunked: bool,
    ) -> io::Result<bool> {
        loop {
            match stream.next(IDLE_CHECK) {
                Next::Chunk(chunk) if is_chunked => {
                    let mut framed = format!("{:x}\r\n", chunk.len()).into_bytes();
                    framed.extend_from_slice(&chunk);
                    framed.extend_from_slice(b"\r\n");
                    self.socket.write_all(&framed)?;
                }
                Next::Chunk(chunk) => self.socket.write_all(&chunk)?,
                Next::Idle if self.is_client_gone()? => return Ok(false),
                Next::Idle => {}
                Next::End if is_chunked => {
                    self.socket.write_all(LAST_CHUNK)?;
                    return Ok(true);
                }
                Next::End | Next::Cut => return Ok(false),
            }
            if self.server.is_stopping() {
                return Ok(false);
            }
        }
    }

    /// True if the client has closed its side. `peek` leaves the next request's bytes in the
    /// socket.
    fn is_client_gone(&self) -> io::Result<bool> {
        let stream = self.socket.tcp();
        stream.set_nonblocking(true)?;
        let peeked = stream.peek(&mut [0]);
        stream.set_nonblocking(false)?;
        Ok(match peeked {
            Ok(length) => length == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        })
    }
}

/// The head of the response, before the headers that its body needs.
pub(super) fn start(response: &Response) -> http::response::Builder {
    let head = http::Response::builder()
        .status(response.code)
        .header("content-type", &response.content_type);
    let headers = response.headers.iter();
    headers.fold(head, |head, (name, value)| head.header(name, value))
}

pub(super) fn head_bytes(head: http::response::Builder, exchange: Exchange) -> io::Result<Vec<u8>> {
    let head = head.body(()).map_err(io::Error::other)?;
    let status = head.status();
    let reason = status.canonical_reason().unwrap_or("Unknown");
    let mut bytes = format!("HTTP/1.1 {} {reason}\r\n", status.as_u16()).into_bytes();
    for (name, value) in head.headers() {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            bytes.extend_from_slice(part);
        }
    }
    if exchange.closes {
        bytes.extend_from_slice(b"connection: close\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    Ok(bytes)
}

pub(super) fn request_of(head: Head, body: Vec<u8>, peer: Peer) -> Request {
    let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let (path, query) = head.target.split_once('?').unwrap_or((&head.target, ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let query = pairs.map(|pair| {
        let pair = pair.replace('+', " ");
        let (name, value) = pair.split_once('=').unwrap_or((&pair, ""));
        (decode(name), decode(value))
    });
    Request {
        path: decode(path),
        query: query.collect(),
        method: head.method,
        path_and_query: head.target,
        headers: head.headers,
        body,
        peer,
    }
}
