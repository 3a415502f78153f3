//! What passes between the connections and whoever answers: a request read whole, an answer that is
//! written at once or as a stream of chunks.
//!
//! Handlers are called on the threads of the connections, many at a time.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::api::Status;

/// How long [`ResponseBody::read`] waits for a piece at a time.
const READ_SLICE: Duration = Duration::from_millis(100);

/// Whoever answers requests. Layers wrap one another, such as the faults round the API.
pub trait Handler: Send + Sync {
    /// Answers one request. It may block; that holds up only the connection that it came by.
    fn handle(&self, request: Request) -> Response;
}

/// One request, read to its end.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// In capital letters, such as `GET`.
    pub method: String,
    /// The path without the query, percent-decoded.
    pub path: String,
    /// Path and query as they came, for passing on.
    pub path_and_query: String,
    /// The query's pairs, decoded, in the order in which they came.
    pub query: Vec<(String, String)>,
    /// All headers, their names in small letters.
    pub headers: Vec<(String, String)>,
    /// The body; empty if there was none. A body above [`Limits::body_bytes`](super::Limits) is cut
    /// there.
    pub body: Vec<u8>,
    /// Who sent it, as far as the connection tells.
    pub peer: Peer,
}

/// The client's end of a connection. Clones are cheap.
#[derive(Clone, Default)]
pub struct Peer(pub(super) Option<Arc<PeerFacts>>);

/// What a connection tells of its client.
pub(super) struct PeerFacts {
    pub(super) address: SocketAddr,
    pub(super) certificates: Vec<Vec<u8>>,
}

impl Peer {
    /// Its address; `None` for a request that came by no connection.
    pub fn address(&self) -> Option<SocketAddr> {
        self.0.as_ref().map(|facts| facts.address)
    }

    /// The certificates that it has proven to hold the key of, its own first, in DER; none if it has
    /// shown none. Whether anybody vouches for them is not checked here.
    pub fn certificates(&self) -> &[Vec<u8>] {
        self.0.as_ref().map_or(&[], |facts| &facts.certificates)
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("address", &self.address())
            .field("n_certificates", &self.certificates().len())
            .finish()
    }
}

impl Request {
    /// The first value of a query parameter, empty if it is not there.
    pub fn query_value(&self, name: &str) -> &str {
        self.query_values(name).next().unwrap_or_default()
    }

    /// Every value of a query parameter, empty ones too.
    pub fn query_values<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        let pairs = self.query.iter().filter(move |(key, _)| key == name);
        pairs.map(|(_, value)| value.as_str())
    }

    /// The first value of a header, empty if it is not there.
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

/// The answer to one request.
#[derive(Debug)]
pub struct Response {
    /// The HTTP code.
    pub code: u16,
    /// The body's media type.
    pub content_type: String,
    /// Further headers.
    pub headers: Vec<(String, String)>,
    /// What follows the headers.
    pub body: ResponseBody,
}

/// The body of an [`Response`].
pub enum ResponseBody {
    /// Sent with its length.
    Whole(Vec<u8>),
    /// Sent chunk by chunk as the chunks come, each at once.
    Stream(Box<dyn ChunkStream>),
    /// Nothing at all is sent: the connection is closed.
    Cut,
}

impl Response {
    /// An answer with a JSON body that is there already as text.
    pub fn json(code: u16, body: Vec<u8>) -> Self {
        Self {
            code,
            content_type: "application/json".to_owned(),
            headers: vec![("cache-control".to_owned(), "no-cache, private".to_owned())],
            body: ResponseBody::Whole(body),
        }
    }

    /// An answer with `value` as its JSON body.
    pub fn object(code: u16, value: &impl Serialize) -> Self {
        let body = serde_json::to_vec(value).expect("JSON values have text keys");
        Self::json(code, body)
    }

    /// An answer of plain text.
    pub fn text(code: u16, text: &str) -> Self {
        Self {
            code,
            content_type: "text/plain; charset=utf-8".to_owned(),
            headers: Vec::new(),
            body: ResponseBody::Whole(text.as_bytes().to_vec()),
        }
    }

    /// A refusal, with the header `Retry-After` if the status says when to come back.
    pub fn status(status: &Status) -> Self {
        let mut answer = Self::object(status.code(), status.object());
        if let Some(delay) = status.retry_after() {
            answer = answer.with_header("retry-after", &delay.as_secs().to_string());
        }
        answer
    }

    /// A JSON answer that comes as a stream.
    pub fn stream(stream: impl ChunkStream + 'static) -> Self {
        let mut answer = Self::json(200, Vec::new());
        answer.body = ResponseBody::Stream(Box::new(stream));
        answer
    }

    /// No answer: the connection is closed.
    pub fn cut() -> Self {
        let mut answer = Self::json(0, Vec::new());
        answer.body = ResponseBody::Cut;
        answer
    }

    /// The same answer with its body called by this media type.
    #[must_use]
    pub fn with_content_type(mut self, content_type: &str) -> Self {
        content_type.clone_into(&mut self.content_type);
        self
    }

    /// The same answer with one more header.
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
    /// The whole body, a stream read to its end; `None` if it breaks.
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

/// A body that comes piece by piece. The connection pulls, so that a layer can wrap a stream and
/// hold back, drop or add pieces without a thread of its own.
pub trait ChunkStream: Send {
    /// The next piece. Blocks until there is one, at most for `timeout`, which then is [`Next::Idle`].
    fn next(&mut self, timeout: Duration) -> Next;
}

/// What a [`ChunkStream`] has.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Bytes to send now; not empty.
    Chunk(Vec<u8>),
    /// Nothing for now.
    Idle,
    /// The body ends as it should.
    End,
    /// The connection breaks in the middle of the body.
    Cut,
}

/// A stream of pieces that another thread sends.
///
/// The channel's bound is its maker's choice; a sender that finds it full waits for the connection
/// to take something, and one that finds it closed knows that the client is gone.
#[derive(Debug)]
pub struct ChannelStream(pub crossbeam_channel::Receiver<Vec<u8>>);

impl ChunkStream for ChannelStream {
    fn next(&mut self, timeout: Duration) -> Next {
        match self.0.recv_timeout(timeout) {
            Ok(chunk) => Next::Chunk(chunk),
            Err(crossbeam_channel::RecvTimeoutError::Timeout) => Next::Idle,
            Err(crossbeam_channel::RecvTimeoutError::Disconnected) => Next::End,
        }
    }
}
