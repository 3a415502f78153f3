//! The source of a reflector's lists and watches: the API server, or a script in tests.

use std::fmt::{self, Debug};
use std::io::Read;

use crate::cache::list_watch::{ListQuery, WatchQuery};
use crate::client::{BodyStream, ClientError, Request, StreamClient, StreamState};

/// Opens lists and watches of one collection.
pub trait Source: Debug + Send {
    /// Requests a list or one page of it. Blocks until the response begins; the stop signal ends
    /// the wait.
    ///
    /// # Errors
    /// [`ClientError`] if there is no response, or not a list.
    fn open_list(&mut self, query: &ListQuery) -> Result<Body, ClientError>;

    /// Opens a watch. Blocks until the response begins; the stop signal ends the wait.
    ///
    /// # Errors
    /// [`ClientError`] if there is no response, or not a watch.
    fn open_watch(&mut self, query: &WatchQuery) -> Result<Body, ClientError>;
}

/// A response that has begun.
pub struct Body {
    /// `Content-Type` of the response.
    pub content_type: String,
    /// The response's body. Reads block until bytes arrive. They fail once the stop signal is
    /// triggered, or when no bytes arrive for too long.
    pub reader: Box<dyn Read + Send>,
    /// How the body's reads wait.
    pub state: StreamState,
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
    /// The collection at `path`, such as `/api/v1/pods`, requested in the encodings `accept`
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
            state: body.state().clone(),
            reader: Box::new(body),
        }
    }
}
