//! Errors of a sync.

use std::fmt;
use std::time::Duration;

use crate::writes::WriteError;

/// What a batch of writes does to pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// It creates them.
    Created,
    /// It deletes them.
    Deleted,
}

/// How much of a batch of creates or deletes succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// What it does.
    pub did: Did,
    /// Pods to which it did that.
    pub done: usize,
    /// Pods of the batch.
    pub count: usize,
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let did = match self.did {
            Did::Created => "created",
            Did::Deleted => "deleted",
        };
        write!(f, "{did} {} of {} pods", self.done, self.count)
    }
}

/// An error that ended a sync early. The worker requeues the key with back-off.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// One write failed.
    #[error("{0}")]
    Write(#[from] WriteError),
    /// Several writes failed.
    #[error("[{messages}]")]
    Several {
        /// The distinct messages.
        messages: String,
        /// The longest time after which the API server asks for another try.
        retry_after: Option<Duration>,
    },
    /// Creating or deleting pods failed.
    #[error("{}{error}", if batch.did == Did::Deleted { "unable to delete pods: " } else { "" })]
    Batch {
        /// How much of it succeeded.
        batch: Batch,
        /// The first error.
        error: WriteError,
    },
    /// The ReplicaSet was deleted, or is being deleted, and the cache did not show it yet.
    #[error("{0}")]
    Deleted(String),
    /// The sync panicked; the panic was logged.
    #[error("the sync panicked: {0}")]
    Panic(String),
}

impl SyncError {
    /// The error, if it is a single one of a write.
    fn write_error(&self) -> Option<&WriteError> {
        match self {
            Self::Write(error) | Self::Batch { error, .. } => Some(error),
            Self::Several { .. } | Self::Deleted(_) | Self::Panic(_) => None,
        }
    }

    /// True if the sync failed only because the daemon is stopping.
    pub fn is_stopped(&self) -> bool {
        matches!(self.write_error(), Some(WriteError::Stopped))
    }

    /// Time after which an overloaded API server asks for another try.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Several { retry_after, .. } => *retry_after,
            _ => retry_after(self.write_error()?),
        }
    }

    /// The batch that failed, if that is what failed.
    pub(super) fn batch(&self) -> Option<Batch> {
        match self {
            Self::Batch { batch, .. } => Some(*batch),
            _ => None,
        }
    }

    /// Its level in the log. To lose the race against a deletion is normal: the watch event that
    /// ends it is on its way.
    pub(super) fn level(&self) -> log::Level {
        match self {
            Self::Deleted(_) => log::Level::Debug,
            _ => log::Level::Warn,
        }
    }

    /// The error of a read or write of the ReplicaSet itself.
    pub(super) fn of_replica_set(error: WriteError) -> Self {
        if error.is_not_found() {
            Self::Deleted(error.to_string())
        } else {
            Self::Write(error)
        }
    }
}

/// Merges errors: none, a single one, or all distinct messages in brackets (apimachinery
/// `pkg/util/errors:NewAggregate`).
pub(super) fn aggregate(mut errors: Vec<WriteError>) -> Option<SyncError> {
    let mut messages: Vec<String> = Vec::new();
    for message in errors.iter().map(ToString::to_string) {
        if !messages.contains(&message) {
            messages.push(message);
        }
    }
    if messages.len() > 1 {
        Some(SyncError::Several {
            messages: messages.join(", "),
            retry_after: errors.iter().filter_map(retry_after).max(),
        })
    } else {
        errors.pop().map(SyncError::Write)
    }
}

fn retry_after(error: &WriteError) -> Option<Duration> {
    let after = error.response()?.retry_after()?;
    (!after.is_zero()).then_some(after)
}
