//! One client's connection: requests read and answers written, one after the other, on the
//! connection's own thread (`dev-conn-*`). The HTTP grammar is ureq-proto's.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{Request, Response};
use percent_encoding::percent_decode_str;
use ureq_proto::server::state::{ProvideResponse, RecvBody, SendBody};
use ureq_proto::server::{RecvRequestResult, Reply, SendResponseResult};

use super::exchange::{Answer, AnswerBody, ApiRequest, ChunkStream, Handler, Next};

/// Longest body that is kept, plus one byte so that the API can tell that there was more
/// (apiserver `pkg/server/config.go:MaxRequestBodyBytes`, 3 MiB).
const BODY_KEPT_BYTES: usize = 3 * 1024 * 1024 + 1;

/// Longest head of a request; Go's default is 1 MiB, clients of an API server need far less.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The end of a body in chunks.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Bytes read or written at once.
const BUFFER_BYTES: usize = 32 * 1024;

/// How long a stream may be idle before it is asked whether client and server are still there.
const IDLE_CHECK: Duration = Duration::from_millis(200);

pub(super) struct Connection {
    socket: TcpStream,
    /// Bytes received and not used yet.
    received: Vec<u8>,
    handler: Arc<dyn Handler>,
    stopping: Arc<AtomicBool>,
}

impl Connection {
    pub(super) fn new(
        socket: TcpStream,
        handler: Arc<dyn Handler>,
        stopping: Arc<AtomicBool>,
    ) -> Self {
        Self {
            socket,
            received: Vec::new(),
            handler,
            stopping,
        }
    }

    /// Serves until the client closes the connection, it breaks, an answer cuts it, or its socket is
    /// shut by the server that stops.
    pub(super) fn serve(mut self) {
        let result = self.serve_requests();
        if let Err(error) = result
            && !self.stopping.load(Ordering::Relaxed)
        {
            log::debug!("connection ends: {error}");
        }
        // The server keeps a second handle to this socket, so dropping ours would not close it.
        // A client that has closed it already is no error.
        self.socket.shutdown(Shutdown::Both).unwrap_or_default();
    }

    fn serve_requests(&mut self) -> io::Result<()> {
        self.socket.set_nodelay(true)?;
        while let Some((request, reply)) = self.read_request()? {
            let answer = self.handler.handle(request);
            if !self.write_answer(reply, answer)? {
                break;
            }
        }
        Ok(())
    }

    /// Blocks for the next request; `None` if the client closes first.
    fn read_request(&mut self) -> io::Result<Option<(ApiRequest, Reply<ProvideResponse>)>> {
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
            if self.receive()? == 0 {
                return Ok(None);
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
        Ok(Some((request_of(&head, body), reply)))
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
        head: &Request<()>,
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
            let room = BODY_KEPT_BYTES - body.len();
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
        let length = self.socket.read(&mut self.received[before..]);
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
                bytes.extend_from_slice(&body);
                self.socket.write_all(&bytes)?;
                let SendResponseResult::SendBody(mut reply) = sending else {
                    return Ok(true);
                };
                reply
                    .consume_direct_write(body.len())
                    .map_err(io::Error::other)?;
                self.finish(reply)
            }
            AnswerBody::Stream(stream) => {
                let (bytes, sending) = begin(reply, head)?;
                self.socket.write_all(&bytes)?;
                match sending {
                    SendResponseResult::SendBody(reply) => self.write_stream(reply, stream),
                    SendResponseResult::Cleanup(_) => Ok(true),
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
            if self.stopping.load(Ordering::Relaxed) {
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
        self.socket.set_nonblocking(true)?;
        let peeked = self.socket.peek(&mut [0]);
        self.socket.set_nonblocking(false)?;
        Ok(match peeked {
            Ok(length) => length == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        })
    }
}

/// The bytes of the answer's head, and how its body is sent.
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

fn request_of(head: &Request<()>, body: Vec<u8>) -> ApiRequest {
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
    ApiRequest {
        method: head.method().as_str().to_owned(),
        path: decode(uri.path()),
        path_and_query: uri
            .path_and_query()
            .map_or_else(String::new, ToString::to_string),
        query: query.collect(),
        headers: headers.collect(),
        body,
    }
}
