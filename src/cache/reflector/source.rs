//! Where a reflector's lists and watches come from: the API server, or a script in tests.

use std::fmt::{self, Debug};
use std::io::{self, Read};
use std::sync::Arc;

use crate::cache::list_watch::{ListQuery, WatchQuery};
use crate::cache::stats::CacheStats;
use crate::client::{BodyStream, ClientError, ReadCoalescing, Request, StreamClient};

/// Opens lists and watches of one collection.
pub trait Source: Debug + Send {
    /// Requests a list or one page of it. Blocks until the answer begins; the stop signal ends the
    /// wait.
    ///
    /// # Errors
    /// [`ClientError`] if there is no answer or another one than a list.
    fn open_list(&mut self, query: &ListQuery) -> Result<Body, ClientError>;

    /// Opens a watch. Blocks until the answer begins; the stop signal ends the wait.
    ///
    /// # Errors
    /// [`ClientError`] if there is no answer or another one than a watch.
    fn open_watch(&mut self, query: &WatchQuery) -> Result<Body, ClientError>;
}

/// An answer that has begun.
pub struct Body {
    /// `Content-Type` of the answer.
    pub content_type: String,
    /// The answer's body. Its reads block until something has arrived; they end with an error when
    /// the stop signal is given and when nothing has arrived for too long.
    pub reader: Box<dyn Read + Send>,
    /// Lets the body's reads rest while much comes.
    pub coalescing: ReadCoalescing,
}

impl Body {
    /// The same body, each arrival of which is noted in `stats`, that of its head at once.
    pub(super) fn heard_by(self, stats: &Arc<CacheStats>) -> Self {
        stats.heard();
        let (inner, stats) = (self.reader, Arc::clone(stats));
        Self {
            reader: Box::new(Heard { inner, stats }),
            ..self
        }
    }
}

/// Notes when bytes come.
struct Heard {
    inner: Box<dyn Read + Send>,
    stats: Arc<CacheStats>,
}

impl Read for Heard {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n_bytes = self.inner.read(buf)?;
        if n_bytes > 0 {
            self.stats.heard();
        }
        Ok(n_bytes)
    }
}

impl Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body")
            .field("content_type", &self.content_type)
            .finish_non_exhaustive()
    }
}

/// A collection of the API server.
#[derive(Debug)]
pub struct Collection {
    client: StreamClient,
    path: String,
    accept: &'static str,
}

impl Collection {
    /// The collection at `path`, such as `/api/v1/pods`, asked for in the encodings `accept`
    /// ([`ContentType::accept`](crate::cache::encoding::ContentType::accept)).
    pub fn new(client: StreamClient, path: impl Into<String>, accept: &'static str) -> Self {
        Self {
            client,
            path: path.into(),
            accept,
        }
    }

    fn request(&self, parameters: Vec<(&'static str, String)>) -> Request {
        let request = Request::get(&*self.path).accept(self.accept);
        let parameters = parameters.into_iter();
        parameters.fold(request, |request, (name, value)| request.query(name, value))
    }
}

impl Source for Collection {
    fn open_list(&mut self, query: &ListQuery) -> Result<Body, ClientError> {
        let request = self.request(query.parameters());
        Ok(self.client.open_list(&request)?.into())
    }

    fn open_watch(&mut self, query: &WatchQuery) -> Result<Body, ClientError> {
        let request = self.request(query.parameters());
        Ok(self.client.open_watch(&request)?.into())
    }
}

impl From<BodyStream> for Body {
    fn from(body: BodyStream) -> Self {
        Self {
            content_type: body.content_type().to_owned(),
            coalescing: body.coalescing().clone(),
            reader: Box::new(body),
        }
    }
}
