//! Errors of a sync.

use std::fmt;
use std::time::Duration;

use crate::writes::WriteError;

/// How much of a batch of creates or deletes succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// `created` or `deleted`.
    pub what: &'static str,
    /// Pods that were.
    pub done: usize,
    /// Pods that were to be.
    pub count: usize,
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, done, count } = self;
        write!(f, "{what} {done} of {count} pods")
    }
}

/// An error that ended a sync early. The worker requeues the key with back-off.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// One write failed.
    #[error("{0}")]
    Write(#[from] WriteError),
    /// Creating pods failed.
    #[error("{error}")]
    Create {
        /// How many were created.
        batch: Batch,
        /// The first error.
        error: WriteError,
    },
    /// Several writes failed.
    #[error("[{messages}]")]
    Several {
        /// The distinct messages.
        messages: String,
        /// The longest time after which the API server asks for another try.
        retry_after: Option<Duration>,
    },
    /// Deleting pods failed.
    #[error("unable to delete pods: {error}")]
    Delete {
        /// How many were deleted.
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
    /// True if the sync failed only because the daemon is stopping.
    pub fn is_stopped(&self) -> bool {
        matches!(
            self,
            Self::Write(WriteError::Stopped)
                | Self::Create {
                    error: WriteError::Stopped,
                    ..
                }
                | Self::Delete {
                    error: WriteError::Stopped,
                    ..
                }
        )
    }

    /// Time after which an overloaded API server asks for another try.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Write(error) | Self::Create { error, .. } | Self::Delete { error, .. } => {
                retry_after(error)
            }
            Self::Several { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The batch that failed, if that is what failed.
    pub(super) fn batch(&self) -> Option<&Batch> {
        match self {
            Self::Create { batch, .. } | Self::Delete { batch, .. } => Some(batch),
            _ => None,
        }
    }

    /// The level of its line in the log. A sync that loses the race against a deletion is normal:
    /// the watch event that ends it is on its way.
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
