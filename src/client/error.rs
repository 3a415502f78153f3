//! What can go wrong between here and the API server, told apart by what it means. Made by every
//! file of this room, asked by everyone who sends a request, on the thread that sent it.

use std::io;

use crate::api::Status;

/// A request that did not succeed. A refusal by the API server and a broken connection are never
/// mistaken for one another: only [`ClientError::Status`] is the server's word.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    /// The API server said no.
    #[error("{0}")]
    Status(Status),
    /// No connection, one that broke, or an answer that is not HTTP.
    #[error("{0}")]
    Transport(TransportError),
    /// The answer came whole, but is not what was asked for.
    #[error("the API server's answer cannot be read: {0}")]
    Decode(String),
    /// The request cannot be written down, so it was not sent; trying again would not help.
    #[error("the request cannot be built: {0}")]
    Invalid(String),
    /// There are no credentials to send the request with, so it was not sent; the plugin that is to
    /// give them may give some later.
    #[error("no credentials for the API server: {0}")]
    Credentials(String),
    /// The daemon is stopping; the request was not sent, or the stream that was read is cut.
    #[error("the daemon is stopping")]
    Stopped,
    /// The right to write is gone, or may be (see [`Fence`](super::Fence)); the request was not sent,
    /// or not as a whole, so that the server does not act on it.
    #[error("the request was held back, because the lease that allows it is not held any more")]
    Fenced,
}

/// A connection that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer from the API server: {message}")]
pub struct TransportError {
    /// What kind of failure it was.
    pub kind: TransportErrorKind,
    /// True if the API server may have seen the request, and so may have acted on it.
    pub sent: bool,
    /// What happened, for people.
    pub message: String,
}

/// How a connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportErrorKind {
    /// Nobody listens at that address.
    Refused,
    /// A deadline passed, or a stream was silent for too long.
    TimedOut,
    /// The connection was reset, or closed before the answer was complete.
    Closed,
    /// Anything else, such as an unknown host or a certificate that is not trusted.
    Other,
}

impl ClientError {
    /// Turns what a read of a [`BodyStream`](super::BodyStream) gave back into the error that it
    /// carries.
    pub fn from_read(error: io::Error) -> Self {
        error.downcast::<Self>().unwrap_or_else(|error| {
            Self::Transport(TransportError {
                kind: kind_of(&error),
                sent: true,
                message: error.to_string(),
            })
        })
    }

    /// The API server's refusal, if that is what it is; [`Status`] says what kind of refusal.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Status(status) => Some(status),
            _ => None,
        }
    }

    /// The failed connection, if that is what it is.
    pub fn transport(&self) -> Option<&TransportError> {
        match self {
            Self::Transport(error) => Some(error),
            _ => None,
        }
    }

    /// Nobody listens at the API server's address.
    pub fn is_connection_refused(&self) -> bool {
        self.is_kind(TransportErrorKind::Refused)
    }

    /// A deadline passed on this side. (For the server's own, see [`Status::is_timeout`].)
    pub fn is_timeout(&self) -> bool {
        self.is_kind(TransportErrorKind::TimedOut)
    }

    /// The connection was reset, or closed before the answer was complete.
    pub fn is_closed(&self) -> bool {
        self.is_kind(TransportErrorKind::Closed)
    }

    /// True if the request surely never reached the server.
    pub fn is_unsent(&self) -> bool {
        match self {
            Self::Transport(error) => !error.sent,
            Self::Invalid(_) | Self::Credentials(_) | Self::Stopped | Self::Fenced => true,
            Self::Status(_) | Self::Decode(_) => false,
        }
    }

    /// True if the API server may have done what was asked for all the same.
    pub fn leaves_outcome_open(&self) -> bool {
        match self {
            // A server that gave up or broke down in the middle may have stored the object.
            Self::Status(status) => status.is_timeout() || status.code() >= 500,
            _ => !self.is_unsent(),
        }
    }

    fn is_kind(&self, kind: TransportErrorKind) -> bool {
        self.transport().is_some_and(|error| error.kind == kind)
    }
}

/// The kind that an I/O error stands for.
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
    fn k_09_a_refusal_and_a_broken_connection_are_told_apart() {
        let refusal = ClientError::Status(Status::new(503, "ServiceUnavailable", "busy"));
        assert!(refusal.status().is_some() && refusal.transport().is_none());
        assert!(!refusal.is_unsent() && !refusal.is_closed());
        let broken = ClientError::from_read(io::ErrorKind::ConnectionReset.into());
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

    #[test]
    fn an_error_survives_the_way_through_a_reader() {
        let error = ClientError::Transport(TransportError {
            kind: TransportErrorKind::TimedOut,
            sent: true,
            message: "silent".to_owned(),
        });
        let read = ClientError::from_read(io::Error::other(error));
        assert!(read.is_timeout());
        assert!(matches!(
            ClientError::from_read(io::Error::other(ClientError::Stopped)),
            ClientError::Stopped
        ));
    }
}
