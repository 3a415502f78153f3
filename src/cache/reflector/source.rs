//! Where a reflector's lists and watches come from: the API server, or a script in tests.

use std::fmt::{self, Debug};
use std::io::Read;

use crate::api::Status;
use crate::cache::list_watch::{ListQuery, WatchQuery};

/// Opens lists and watches of one collection.
pub trait Source: Debug + Send {
    /// Requests a list or one page of it. Blocks until the answer begins; the stop signal ends the
    /// wait.
    ///
    /// # Errors
    /// [`SourceError`] if there is no answer or another one than a list.
    fn open_list(&mut self, query: &ListQuery) -> Result<Body, SourceError>;

    /// Opens a watch. Blocks until the answer begins; the stop signal ends the wait.
    ///
    /// # Errors
    /// [`SourceError`] if there is no answer or another one than a watch.
    fn open_watch(&mut self, query: &WatchQuery) -> Result<Body, SourceError>;
}

/// An answer that has begun.
pub struct Body {
    /// `Content-Type` of the answer.
    pub content_type: String,
    /// The answer's body. Its reads block until something has arrived; they end with an error when
    /// the stop signal is given and when nothing has arrived for too long.
    pub reader: Box<dyn Read + Send>,
}

impl Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body")
            .field("content_type", &self.content_type)
            .finish_non_exhaustive()
    }
}

/// Why a list or a watch was not opened.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Nobody listens at the server's address.
    #[error("{0}")]
    ConnectionRefused(String),
    /// The server said no.
    #[error("{0}")]
    Status(Status),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}
