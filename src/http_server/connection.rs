//! One client's connection: requests read and answers written, one after the other, on the
//! connection's own thread. The HTTP grammar is ureq-proto's.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::{Request as Head, Response};
use percent_encoding::percent_decode_str;
use rustls::ServerConfig;
use ureq_proto::server::state::{ProvideResponse, RecvBody, SendBody};
use ureq_proto::server::{RecvRequestResult, Reply, SendResponseResult};

use super::Limits;
use super::exchange::{Answer, AnswerBody, ChunkStream, Handler, Next, Peer, PeerFacts, Request};
use super::socket::Socket;

/// Longest head of a request; Go's default is 1 MiB, clients of an API server need far less.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The end of a body in chunks.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Bytes read or written at once.
const BUFFER_BYTES: usize = 32 * 1024;

/// How long a stream may be idle before it is asked whether client and server are still there.
const IDLE_CHECK: Duration = Duration::from_millis(200);

pub(super) struct Connection {
    socket: Socket,
    /// Bytes received and not used yet.
    received: Vec<u8>,
    shared: ConnectionParts,
}

/// What a connection shares with its server.
pub(super) struct ConnectionParts {
    pub(super) handler: Arc<dyn Handler>,
    pub(super) limits: Limits,
    pub(super) stopping: Arc<AtomicBool>,
    /// False while the handler is at work: nobody but the client is kept waiting if the connection is
    /// closed while this is true.
    pub(super) waits_for_client: Arc<AtomicBool>,
}

impl Connection {
    pub(super) fn new(
        stream: TcpStream,
        tls: Option<Arc<ServerConfig>>,
        shared: ConnectionParts,
    ) -> io::Result<Self> {
        Ok(Self {
            socket: Socket::new(stream, tls)?,
            received: Vec::new(),
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
            log::debug!("connection ends: {error}");
        }
        // The server keeps a second handle to this socket, so dropping ours would not close it.
        self.socket.close();
    }

    fn serve_requests(&mut self) -> io::Result<()> {
        self.limit(self.shared.limits.request);
        self.socket.handshake()?;
        let peer = Peer(Some(Arc::new(PeerFacts {
            address: self.socket.tcp().peer_addr()?,
            certificates: self.socket.client_certificates(),
        })));
        while let Some((request, reply)) = self.read_request(&peer)? {
            let waits = &self.shared.waits_for_client;
            waits.store(false, Ordering::Relaxed);
            let answer = self.shared.handler.handle(request);
            waits.store(true, Ordering::Relaxed);
            self.limit(self.shared.limits.answer);
            if !self.write_answer(reply, answer)? {
                break;
            }
            self.limit(self.shared.limits.idle);
        }
        Ok(())
    }

    /// What follows may take this long.
    fn limit(&mut self, limit: Option<Duration>) {
        self.socket
            .set_deadline(limit.map(|limit| Instant::now() + limit));
    }

    /// Blocks for the next request; `None` if the client closes first.
    fn read_request(
        &mut self,
        peer: &Peer,
    ) -> io::Result<Option<(Request, Reply<ProvideResponse>)>> {
        let mut reply = Reply::new().map_err(io::Error::other)?;
        let head = loop {
            let Ok((used, head)) = reply.try_request(&self.received) else {
                return Err(self.refuse_head("400 Bad Request"));
            };
            if let Some(head) = head {
                self.received.drain(..used);
                break head;
            }
            if self.received.len() > HEAD_BYTES_MAX {
                return Err(self.refuse_head("431 Request Header Fields Too Large"));
            }
            let is_first = self.received.is_empty();
            if self.receive()? == 0 {
                return Ok(None);
            }
            if is_first {
                self.limit(self.shared.limits.request);
            }
        };
        let (body, reply) = match reply.proceed().expect("a whole head was read") {
            RecvRequestResult::ProvideResponse(reply) => (Vec::new(), reply),
            RecvRequestResult::RecvBody(reply) => self.read_body(&head, reply)?,
            RecvRequestResult::Send100(reply) => {
                let mut line = [0; 64];
                let (length, reply) = reply.accept(&mut line).map_err(io::Error::other)?;
                self.socket.write_all(&line[..length])?;
                self.read_body(&head, reply)?
            }
        };
        Ok(Some((request_of(&head, body, peer.clone()), reply)))
    }

    /// Says no to what cannot be read as a request; the connection is of no use after that.
    fn refuse_head(&mut self, why: &str) -> io::Error {
        let length = why.len();
        let answer = format!(
            "HTTP/1.1 {why}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: \
             {length}\r\nConnection: close\r\n\r\n{why}"
        );
        // A client that does not listen any more is no worse off.
        self.socket.write_all(answer.as_bytes()).unwrap_or_default();
        io::Error::other(format!("a request is refused: {why}"))
    }

    fn read_body(
        &mut self,
        head: &Head<()>,
        mut reply: Reply<RecvBody>,
    ) -> io::Result<(Vec<u8>, Reply<ProvideResponse>)> {
        let has = |name: &str| head.headers().contains_key(name);
        if !has("content-length") && !has("transfer-encoding") {
            // Such a request has no body, but the grammar waits for chunks of one.
            let mut end = LAST_CHUNK;
            while !reply.is_ended() && !end.is_empty() {
                let read = reply.read(end, &mut [0; 16]);
                let (used, _) = read.map_err(io::Error::other)?;
                end = &end[used.max(1)..];
            }
        }
        let mut body = Vec::new();
        let mut piece = vec![0; BUFFER_BYTES];
        while !reply.is_ended() {
            let (used, length) = reply
                .read(&self.received, &mut piece)
                .map_err(io::Error::other)?;
            self.received.drain(..used);
            let room = self.shared.limits.body_bytes - body.len();
            body.extend_from_slice(&piece[..length.min(room)]);
            if used == 0 && length == 0 && !reply.is_ended() && self.receive()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok((body, reply.proceed().map_err(io::Error::other)?))
    }

    fn receive(&mut self) -> io::Result<usize> {
        let before = self.received.len();
        self.received.resize(before + BUFFER_BYTES, 0);
        let length = match self.socket.read(&mut self.received[before..]) {
            // A client that has gone without TLS' goodbye has gone all the same; what it had begun to
            // say is not whole, and not answered.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            length => length,
        };
        self.received
            .truncate(before + *length.as_ref().unwrap_or(&0));
        length
    }

    /// False if the connection cannot be used for another request.
    fn write_answer(&mut self, reply: Reply<ProvideResponse>, answer: Answer) -> io::Result<bool> {
        let mut head = Response::builder()
            .status(answer.code)
            .header("content-type", &answer.content_type);
        for (name, value) in &answer.headers {
            head = head.header(name, value);
        }
        match answer.body {
            AnswerBody::Cut => Ok(false),
            AnswerBody::Whole(body) => {
                let head = head.header("content-length", body.len());
                let (mut bytes, sending) = begin(reply, head)?;
                if matches!(sending, SendResponseResult::SendBody(_)) {
                    bytes.extend_from_slice(&body);
                }
                self.socket.write_all(&bytes)?;
                match sending {
                    SendResponseResult::SendBody(mut reply) => {
                        reply
                            .consume_direct_write(body.len())
                            .map_err(io::Error::other)?;
                        self.finish(reply)
                    }
                    SendResponseResult::Cleanup(reply) => Ok(!reply.must_close_connection()),
                }
            }
            AnswerBody::Stream(stream) => {
                let (bytes, sending) = begin(reply, head)?;
                self.socket.write_all(&bytes)?;
                match sending {
                    SendResponseResult::SendBody(reply) => self.write_stream(reply, stream),
                    SendResponseResult::Cleanup(reply) => Ok(!reply.must_close_connection()),
                }
            }
        }
    }

    fn write_stream(
        &mut self,
        mut reply: Reply<SendBody>,
        mut stream: Box<dyn ChunkStream>,
    ) -> io::Result<bool> {
        let mut framed = vec![0; BUFFER_BYTES];
        loop {
            match stream.next(IDLE_CHECK) {
                Next::Chunk(chunk) => {
                    let mut rest = chunk.as_slice();
                    while !rest.is_empty() {
                        let (used, length) =
                            reply.write(rest, &mut framed).map_err(io::Error::other)?;
                        self.socket.write_all(&framed[..length])?;
                        rest = &rest[used..];
                    }
                }
                Next::Idle if self.is_client_gone()? => return Ok(false),
                Next::Idle => {}
                Next::End => return self.finish(reply),
                Next::Cut => return Ok(false),
            }
            if self.shared.stopping.load(Ordering::Relaxed) {
                return Ok(false);
            }
        }
    }

    fn finish(&mut self, mut reply: Reply<SendBody>) -> io::Result<bool> {
        let mut end = [0; 16];
        let (_, length) = reply.write(&[], &mut end).map_err(io::Error::other)?;
        self.socket.write_all(&end[..length])?;
        Ok(reply.is_finished() && !reply.proceed().must_close_connection())
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

/// The bytes of the answer's head, and how its body is sent, if one is: a HEAD is answered without.
fn begin(
    reply: Reply<ProvideResponse>,
    head: http::response::Builder,
) -> io::Result<(Vec<u8>, SendResponseResult)> {
    let head = head.body(()).map_err(io::Error::other)?;
    let mut reply = reply.provide(head).map_err(io::Error::other)?;
    let mut bytes = Vec::new();
    let mut piece = vec![0; HEAD_BYTES_MAX];
    while !reply.is_finished() {
        let length = reply.write(&mut piece).map_err(io::Error::other)?;
        bytes.extend_from_slice(&piece[..length]);
    }
    Ok((bytes, reply.proceed()))
}

fn request_of(head: &Head<()>, body: Vec<u8>, peer: Peer) -> Request {
    let uri = head.uri();
    let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let pairs = uri.query().unwrap_or_default().split('&');
    let query = pairs.filter(|pair| !pair.is_empty()).map(|pair| {
        let pair = pair.replace('+', " ");
        let (name, value) = pair.split_once('=').unwrap_or((&pair, ""));
        (decode(name), decode(value))
    });
    let headers = head.headers().iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.as_str().to_owned(), value)
    });
    Request {
        method: head.method().as_str().to_owned(),
        path: decode(uri.path()),
        path_and_query: uri
            .path_and_query()
            .map_or_else(String::new, ToString::to_string),
        query: query.collect(),
        headers: headers.collect(),
        body,
        peer,
    }
}
