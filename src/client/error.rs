//! What can go wrong between here and the API server.

use crate::api::Status;

/// A request that did not succeed. A refusal by the API server and a broken connection are never
/// mistaken for one another: only [`ClientError::Status`] is the server's word.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The API server said no.
    #[error("{0}")]
    Status(Status),
    /// No connection, or one that broke.
    #[error("no answer from the API server: {0}")]
    Transport(String),
    /// The daemon is stopping.
    #[error("the daemon is stopping")]
    Stopped,
}

impl ClientError {
    /// True if the request surely never reached the server.
    pub fn is_unsent(&self) -> bool {
        false
    }
}
