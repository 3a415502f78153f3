//! One client's connection: requests read and answers written, one after the other, on the
//! connection's own thread.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use percent_encoding::percent_decode_str;
use rustls::ServerConfig;

use super::Limits;
use super::exchange::{
    ChunkStream, Handler, Next, Peer, PeerFacts, Request, Response, ResponseBody,
};
use super::head::{BodyLength, Head, StatusLine};
use super::hosts;
use super::received::{ReadError, Received};
use super::socket::Socket;
use crate::api::Status;

/// The end of a body in chunks.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// How long a stream may be idle before it is asked whether client and server are still there.
const IDLE_CHECK: Duration = Duration::from_millis(200);

pub(super) struct Connection {
    socket: Socket,
    received: Received,
    shared: ConnectionParts,
}

/// What of a request its answer depends on.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    is_head: bool,
    is_http_10: bool,
    /// The connection is of no use after the answer.
    closes: bool,
}

/// What a connection shares with its server.
pub(super) struct ConnectionParts {
    pub(super) handler: Arc<dyn Handler>,
    pub(super) limits: Limits,
    pub(super) accept_hosts: Option<Vec<String>>,
    pub(super) stopping: Arc<AtomicBool>,
    /// False while the handler is at work: nobody but the client is kept waiting if the connection is
    /// closed while this is true.
    pub(super) waits_for_client: Arc<AtomicBool>,
}

impl Connection {
    pub(super) fn new(
        stream: Arc<TcpStream>,
        tls: Option<Arc<ServerConfig>>,
        shared: ConnectionParts,
    ) -> io::Result<Self> {
        Ok(Self {
            socket: Socket::new(stream, tls)?,
            received: Received::default(),
            shared,
        })
    }

    /// Serves until the client closes the connection, it breaks, a limit passes, an answer cuts it, or
    /// its socket is shut by the server.
    pub(super) fn serve(mut self) {
        let result = self.serve_requests();
        if let Err(error) = result
            && !self.shared.stopping.load(Ordering::Relaxed)
        {
            log::debug!(error:%; "connection ends");
        }
        // The server's book holds this socket too, so dropping ours would not close it.
        self.socket.close();
    }

    fn serve_requests(&mut self) -> io::Result<()> {
        self.limit(self.shared.limits.request);
        self.socket.handshake()?;
        let peer = Peer(Some(Arc::new(PeerFacts {
            address: self.socket.tcp().peer_addr()?,
            certificates: self.socket.client_certificates(),
        })));
        // The limit of the first request runs since before the handshake.
        let mut is_limited = true;
        while let Some((request, exchange)) = self.read_request(&peer, is_limited)? {
            let waits = &self.shared.waits_for_client;
            waits.store(false, Ordering::Relaxed);
            let answer = match self.check_hosts(&request) {
                Ok(()) => self.shared.handler.handle(request),
                Err(why) => Response::status(&Status::new(403, "Forbidden", &why)),
            };
            waits.store(true, Ordering::Relaxed);
            self.limit(self.shared.limits.answer);
            if !self.write_answer(exchange, answer)? || exchange.closes {
                break;
            }
            self.limit(self.shared.limits.idle);
            is_limited = false;
        }
        Ok(())
    }

    /// What follows may take this long.
    fn limit(&mut self, limit: Option<Duration>) {
        self.socket
            .set_deadline(limit.map(|limit| Instant::now() + limit));
    }

    /// Blocks for the next request; `None` if the client closes first. Sets the time limit of the
    /// request at its first byte, unless the request `is_limited` already.
    fn read_request(
        &mut self,
        peer: &Peer,
        mut is_limited: bool,
    ) -> io::Result<Option<(Request, Exchange)>> {
        let bytes = loop {
            match self.received.take_head() {
                Ok(Some(bytes)) => break bytes,
                Ok(None) => {}
                Err(refusal) => return Err(self.refuse(refusal)),
            }
            if !self.received.is_empty() && !is_limited {
                is_limited = true;
                self.limit(self.shared.limits.request);
            }
            if self.received.receive(&mut self.socket)? == 0 {
                return Ok(None);
            }
        };
        if !is_limited {
            // The head came whole, so the loop has not seen the request begin.
            self.limit(self.shared.limits.request);
        }
        let head = match Head::parse(&bytes) {
            Ok(head) => head,
            Err(refusal) => return Err(self.refuse(refusal)),
        };
        drop(bytes);
        if head.expects_continue && head.body != BodyLength::Bytes(0) {
            self.socket.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let kept_max = self.shared.limits.body_bytes;
        let body = self
            .received
            .read_body(&mut self.socket, head.body, kept_max);
        let body = match body {
            Ok(body) => body,
            Err(ReadError::Refused(refusal)) => return Err(self.refuse(refusal)),
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
        let Some(names) = &self.shared.accept_hosts else {
            return Ok(());
        };
        let local = self.socket.tcp().local_addr();
        let local = local.map_err(|error| error.to_string())?;
        hosts::check(request, local.ip(), names)
    }

    /// Says no to what cannot be read as a request; the connection is of no use after that.
    fn refuse(&mut self, why: StatusLine) -> io::Error {
        let length = why.len();
        let answer = format!(
            "HTTP/1.1 {why}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: \
             {length}\r\nConnection: close\r\n\r\n{why}"
        );
        // A client that does not listen any more is no worse off.
        self.socket.write_all(answer.as_bytes()).unwrap_or_default();
        io::Error::other(format!("a request is refused: {why}"))
    }

    /// False if the connection cannot be used for another request.
    fn write_answer(&mut self, exchange: Exchange, answer: Response) -> io::Result<bool> {
        let mut head = http::Response::builder()
            .status(answer.code)
            .header("content-type", &answer.content_type);
        for (name, value) in &answer.headers {
            head = head.header(name, value);
        }
        match answer.body {
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

    /// Without chunks the end of the connection is the end of the body.
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
            if self.shared.stopping.load(Ordering::Relaxed) {
                return Ok(false);
            }
        }
    }

    /// Looks whether the client has closed its side, without taking anything off the socket.
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

/// The bytes of the answer's head.
///
/// # Errors
/// If a header holds what would break the grammar.
fn head_bytes(head: http::response::Builder, exchange: Exchange) -> io::Result<Vec<u8>> {
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

fn request_of(head: Head, body: Vec<u8>, peer: Peer) -> Request {
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
