//! Errors between this daemon and the API server, classified by their meaning. Every file of this
//! module creates them, on the sending thread.

use std::io;

use crate::api::Status;

/// A request that did not succeed. Only [`ClientError::Status`] is the API server's decision; a
/// broken connection is never reported as one.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{0}")]
    Status(Status),
    #[error("{0}")]
    Transport(TransportError),
    /// The response is complete, but is not what the request asked for.
    #[error("the API server's response cannot be read: {0}")]
    Decode(String),
    /// The request is malformed, so it was not sent; a retry would fail again.
    #[error("the request cannot be built: {0}")]
    Invalid(String),
    /// There are no credentials, so the request was not sent. The plugin may issue some later, so a
    /// retry may succeed.
    #[error("no credentials for the API server: {0}")]
    Credentials(String),
    #[error("the daemon is stopping")]
    Stopped,
    /// The right to write is lost or may be (see [`Fence`](super::Fence)). The request was not sent
    /// completely, so the server does not act on it.
    #[error("the request was not sent: this process no longer holds the lease")]
    Fenced,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no response from the API server: {message}")]
pub struct TransportError {
    pub kind: TransportErrorKind,
    /// True if the API server may have received the request, and so may have executed it.
    pub sent: bool,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportErrorKind {
    Refused,
    /// A deadline passed, or a stream was silent for too long.
    TimedOut,
    /// The connection was reset, or closed before the response was complete.
    Closed,
    /// Anything else, such as an unknown host or an untrusted certificate.
    Other,
}

impl From<serde_json::Error> for ClientError {
    /// The error of decoding a response.
    fn from(error: serde_json::Error) -> Self {
        Self::Decode(error.to_string())
    }
}

impl ClientError {
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Status(status) => Some(status),
            _ => None,
        }
    }

    pub fn transport(&self) -> Option<&TransportError> {
        match self {
            Self::Transport(error) => Some(error),
            _ => None,
        }
    }

    pub fn is_connection_refused(&self) -> bool {
        self.is_kind(TransportErrorKind::Refused)
    }

    /// True if a deadline passed on this side. (For the server's own, see [`Status::is_timeout`].)
    pub fn is_timeout(&self) -> bool {
        self.is_kind(TransportErrorKind::TimedOut)
    }

    /// True if the connection was reset, or closed before the response was complete.
    pub fn is_closed(&self) -> bool {
        self.is_kind(TransportErrorKind::Closed)
    }

    /// True if the request certainly never reached the server.
    pub fn is_unsent(&self) -> bool {
        match self {
            Self::Transport(error) => !error.sent,
            Self::Invalid(_) | Self::Credentials(_) | Self::Stopped | Self::Fenced => true,
            Self::Status(_) | Self::Decode(_) => false,
        }
    }

    /// True if the API server may have performed the request although it failed.
    pub fn leaves_outcome_open(&self) -> bool {
        match self {
            // A server that timed out or failed during the request may have stored the object.
            Self::Status(status) => status.is_timeout() || status.code() >= 500,
            _ => !self.is_unsent(),
        }
    }

    fn is_kind(&self, kind: TransportErrorKind) -> bool {
        self.transport().is_some_and(|error| error.kind == kind)
    }
}

pub(super) fn kind_of(error: &io::Error) -> TransportErrorKind {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => TransportErrorKind::Refused,
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => TransportErrorKind::TimedOut,
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe => TransportErrorKind::Closed,
        _ => TransportErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{ClientError, TransportError, TransportErrorKind, kind_of};
    use crate::api::Status;

    #[test]
    fn k_09_a_status_error_is_not_a_transport_error() {
        let rejected = ClientError::Status(Status::new(503, "ServiceUnavailable", "busy"));
        assert!(rejected.status().is_some() && rejected.transport().is_none());
        assert!(!rejected.is_unsent() && !rejected.is_closed());
        let broken = ClientError::Transport(TransportError {
            kind: TransportErrorKind::Closed,
            sent: true,
            message: String::new(),
        });
        assert!(broken.status().is_none() && broken.is_closed() && !broken.is_unsent());
        assert!(ClientError::Invalid(String::new()).is_unsent());
    }

    #[test]
    fn j_10_only_a_refused_connection_counts_as_refused() {
        use TransportErrorKind::{Closed, Other, Refused, TimedOut};
        let cases = [
            (io::ErrorKind::ConnectionRefused, Refused),
            (io::ErrorKind::ConnectionReset, Closed),
            (io::ErrorKind::ConnectionAborted, Closed),
            (io::ErrorKind::UnexpectedEof, Closed),
            (io::ErrorKind::BrokenPipe, Closed),
            (io::ErrorKind::TimedOut, TimedOut),
            (io::ErrorKind::WouldBlock, TimedOut),
            (io::ErrorKind::HostUnreachable, Other),
            (io::ErrorKind::InvalidData, Other),
        ];
        for (kind, expected) in cases {
            assert_eq!(kind_of(&kind.into()), expected, "{kind:?}");
        }
    }
}
