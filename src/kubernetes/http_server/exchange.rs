//! The types that pass between connections and handlers: a fully read request, and a response that
//! the connection writes at once or as a stream of chunks.
//!
//! Connection threads call handlers concurrently.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::api::Status;

/// How long [`ResponseBody::read`] waits for one chunk at a time.
const READ_SLICE: Duration = Duration::from_millis(100);

/// Responds to requests. Handlers wrap one another: the fault layer wraps the API.
pub trait Handler: Send + Sync {
    /// Returns the response to one request. The call may block; it holds up only its own
    /// connection.
    fn handle(&self, request: Request) -> Response;
}

#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The method in upper case, such as `GET`.
    pub method: String,
    /// The path without the query, percent-decoded.
    pub path: String,
    /// Path and query exactly as received, for forwarding.
    pub path_and_query: String,
    /// The query's decoded pairs, in the order received.
    pub query: Vec<(String, String)>,
    /// All headers, with lower-case names.
    pub headers: Vec<(String, String)>,
    /// The body, empty if the request has none. The server cuts a body longer than
    /// [`ServerOptions::body_bytes`](super::ServerOptions) there.
    pub body: Vec<u8>,
    /// The client, as far as the connection identifies it.
    pub peer: Peer,
}

/// The client of a connection. Clones are cheap.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// `None` without a connection, or if the connection is broken.
    pub address: Option<IpAddr>,
    /// The client certificates in DER, the client's own first; empty if the client sent none. TLS
    /// has proven that the client holds the key. The caller checks whether a trusted authority
    /// signed them.
    pub certificates: Arc<Vec<Vec<u8>>>,
}

impl Request {
    pub fn query_value(&self, name: &str) -> &str {
        self.query_values(name).next().unwrap_or_default()
    }

    /// Every value of a query parameter, empty values included.
    pub fn query_values<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        let pairs = self.query.iter().filter(move |(key, _)| key == name);
        pairs.map(|(_, value)| value.as_str())
    }

    pub fn header(&self, name: &str) -> &str {
        let mut pairs = self.headers.iter();
        let pair = pairs.find(|(key, _)| key == name);
        pair.map_or("", |(_, value)| value)
    }

    /// The body's media type without parameters.
    pub fn content_type(&self) -> &str {
        let value = self.header("content-type");
        value.split(';').next().unwrap_or_default().trim()
    }
}

#[derive(Debug)]
pub struct Response {
    pub code: u16,
    pub content_type: String,
    pub headers: Vec<(String, String)>,
    pub body: ResponseBody,
    pub closes: bool,
}

pub enum ResponseBody {
    /// Sent with `Content-Length`.
    Whole(Vec<u8>),
    /// Sent chunk by chunk, each chunk as soon as the stream returns it.
    Stream(Box<dyn ChunkStream>),
    /// Nothing is sent; the server closes the connection.
    Cut,
}

impl Response {
    /// A response whose JSON body is already serialized.
    pub fn json(code: u16, body: Vec<u8>) -> Self {
        Self {
            code,
            content_type: "application/json".to_owned(),
            headers: vec![("cache-control".to_owned(), "no-cache, private".to_owned())],
            body: ResponseBody::Whole(body),
            closes: false,
        }
    }

    pub fn object(code: u16, value: &impl Serialize) -> Self {
        let body = serde_json::to_vec(value).expect("JSON values have text keys");
        Self::json(code, body)
    }

    pub fn text(code: u16, text: &str) -> Self {
        Self {
            code,
            content_type: "text/plain; charset=utf-8".to_owned(),
            headers: Vec::new(),
            body: ResponseBody::Whole(text.as_bytes().to_vec()),
            closes: false,
        }
    }

    pub fn status(status: &Status) -> Self {
        let mut response = Self::object(status.code(), status.object());
        if let Some(delay) = status.retry_after() {
            response = response.with_header("retry-after", &delay.as_secs().to_string());
        }
        response
    }

    pub fn stream(stream: impl ChunkStream + 'static) -> Self {
        let mut response = Self::json(200, Vec::new());
        response.body = ResponseBody::Stream(Box::new(stream));
        response
    }

    /// No response: the server closes the connection.
    pub fn cut() -> Self {
        let mut response = Self::json(0, Vec::new());
        response.body = ResponseBody::Cut;
        response
    }

    #[must_use]
    pub fn with_content_type(mut self, content_type: &str) -> Self {
        content_type.clone_into(&mut self.content_type);
        self
    }

    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(body) => write!(f, "Whole({} bytes)", body.len()),
            Self::Stream(_) => f.write_str("Stream"),
            Self::Cut => f.write_str("Cut"),
        }
    }
}

impl ResponseBody {
    /// The whole body. Reads a stream to its end; returns `None` if the stream breaks.
    pub fn read(self) -> Option<Vec<u8>> {
        let mut stream = match self {
            Self::Cut => return None,
            Self::Whole(body) => return Some(body),
            Self::Stream(stream) => stream,
        };
        let mut body = Vec::new();
        loop {
            match stream.next(READ_SLICE) {
                Next::Chunk(chunk) => body.extend_from_slice(&chunk),
                Next::Idle => {}
                Next::End => return Some(body),
                Next::Cut => return None,
            }
        }
    }
}

/// A body in chunks. The connection pulls the chunks, so a layer can wrap a stream and delay, drop
/// or add chunks without a thread of its own.
pub trait ChunkStream: Send {
    /// Returns the next chunk. Blocks at most for `timeout`, then returns [`Next::Idle`].
    fn next(&mut self, timeout: Duration) -> Next;
}

#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Bytes to send; never empty.
    Chunk(Vec<u8>),
    Idle,
    End,
    /// The connection breaks inside the body.
    Cut,
}
