//! All writes to the cluster but events: pods, and the status of ReplicaSets.
//!
//! The controller uses the traits [`PodControl`] and [`ReplicaSetControl`], so that a test can
//! drive it on one thread with recording fakes. The real implementations send requests through
//! [`crate::client`].

pub mod pod_body;
pub mod pod_control;

use std::time::Duration;

use crate::api::Status;
use crate::client::ClientError;

pub use crate::event_recorder::{EventRecorder, EventType, ObjectReference};
pub use pod_control::{
    PodControl, RealPodControl, RealReplicaSetControl, ReplicaSetControl, WrittenPod,
};

#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteError {
    /// The API server rejected the write; nothing changed.
    #[error("{0}")]
    Rejected(Status),
    /// No response, or one that leaves the outcome open.
    #[error("{message}")]
    Unknown {
        message: String,
        /// The response, if it was a status of the API server.
        status: Option<Status>,
    },
    /// A local error before any request was sent.
    #[error("{0}")]
    Local(String),
    /// The daemon is stopping or may not write at present; no request was sent.
    #[error("not sent: the daemon is stopping, or may not write now")]
    Stopped,
}

impl WriteError {
    pub fn unknown(message: impl Into<String>) -> Self {
        Self::Unknown {
            message: message.into(),
            status: None,
        }
    }

    /// The API server's status, even if it leaves the outcome open.
    pub fn response(&self) -> Option<&Status> {
        match self {
            Self::Rejected(status) => Some(status),
            Self::Unknown { status, .. } => status.as_ref(),
            Self::Local(_) | Self::Stopped => None,
        }
    }

    /// Time after which the API server asks for another try.
    pub fn retry_after(&self) -> Option<Duration> {
        self.response()?.requested_wait()
    }

    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Rejected(status) => Some(status),
            _ => None,
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.status().is_some_and(Status::is_not_found)
    }

    pub fn is_already_exists(&self) -> bool {
        self.status().is_some_and(Status::is_already_exists)
    }

    pub fn is_conflict(&self) -> bool {
        self.status().is_some_and(Status::is_conflict)
    }

    pub fn is_invalid(&self) -> bool {
        self.status().is_some_and(Status::is_invalid)
    }

    pub fn is_namespace_terminating(&self) -> bool {
        self.status().is_some_and(Status::is_namespace_terminating)
    }

    pub fn is_stopped(&self) -> bool {
        matches!(self, Self::Stopped)
    }

    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }
}

impl From<ClientError> for WriteError {
    fn from(error: ClientError) -> Self {
        match error {
            error if error.leaves_outcome_open() => Self::Unknown {
                message: crate::stdx::escape::report(&error),
                status: error.status().cloned(),
            },
            ClientError::Status(status) => Self::Rejected(status),
            ClientError::Stopped | ClientError::Fenced => Self::Stopped,
            error => Self::Local(crate::stdx::escape::report(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::WriteError;
    use crate::api::Status;
    use crate::client::ClientError;

    #[test]
    fn only_what_may_have_had_an_effect_is_unknown() {
        let of = |code, reason| {
            let status = Status::new(code, reason, "");
            WriteError::from(ClientError::Status(status))
        };
        for (code, reason) in [(403, "Forbidden"), (409, "Conflict"), (429, "")] {
            let rejected = of(code, reason);
            assert!(
                rejected.status().is_some() && !rejected.is_unknown(),
                "{code}"
            );
        }
        for (code, reason) in [(500, "InternalError"), (504, "Timeout")] {
            let unknown = of(code, reason);
            assert!(unknown.is_unknown() && unknown.status().is_none(), "{code}");
            assert!(unknown.response().is_some(), "{code}");
        }
        for unsent in [ClientError::Stopped, ClientError::Fenced] {
            assert!(matches!(WriteError::from(unsent), WriteError::Stopped));
        }
        let local = WriteError::from(ClientError::Invalid("no body".to_owned()));
        assert!(matches!(local, WriteError::Local(_)));
    }
}
