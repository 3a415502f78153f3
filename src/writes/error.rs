//! What can come of a write, told apart by what it means for the cluster. Reads past the caches fail in
//! the same words (`live`).

use crate::api::Status;
use crate::client::ClientError;

/// A write, or a read past the caches, that did not succeed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteError {
    /// The API server said no: nothing was changed.
    #[error("{0}")]
    Refused(Status),
    /// No answer, or one that leaves open whether the write took effect.
    #[error("{0}")]
    Unknown(String),
    /// Found out here, before any request was sent.
    #[error("{0}")]
    Local(String),
    /// The daemon is stopping, or may not write any more, or not now; no request was sent.
    #[error("not sent: the daemon is stopping, or may not write now")]
    Stopped,
}

impl WriteError {
    /// The API server's refusal, if that is what it is.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Refused(status) => Some(status),
            _ => None,
        }
    }

    /// True if the object is not there.
    pub fn is_not_found(&self) -> bool {
        self.status().is_some_and(Status::is_not_found)
    }

    /// True if an object of that name is there already.
    pub fn is_already_exists(&self) -> bool {
        self.status().is_some_and(Status::is_already_exists)
    }

    /// True if the object, or a precondition, has another version or UID.
    pub fn is_conflict(&self) -> bool {
        self.status().is_some_and(Status::is_conflict)
    }

    /// True if the object as it would become is not valid.
    pub fn is_invalid(&self) -> bool {
        self.status().is_some_and(Status::is_invalid)
    }

    /// True if the namespace is going away.
    pub fn is_namespace_terminating(&self) -> bool {
        self.status().is_some_and(Status::is_namespace_terminating)
    }

    /// True if the write may have taken effect all the same.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }
}

impl From<ClientError> for WriteError {
    fn from(error: ClientError) -> Self {
        match error {
            error if error.leaves_outcome_open() => {
                Self::Unknown(crate::stdx::report::report(&error))
            }
            ClientError::Status(status) => Self::Refused(status),
            ClientError::Stopped | ClientError::Fenced => Self::Stopped,
            error => Self::Local(crate::stdx::report::report(&error)),
        }
    }
}
