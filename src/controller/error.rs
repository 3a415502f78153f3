//! Errors of a sync.

use crate::writes::WriteError;

/// An error that ended a sync early. The worker requeues the key with back-off.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// One write failed.
    #[error("{0}")]
    Write(#[from] WriteError),
    /// Several writes failed.
    #[error("[{0}]")]
    Several(String),
    /// Deleting pods failed.
    #[error("unable to delete pods: {0}")]
    Delete(WriteError),
    /// The sync panicked; the panic was logged.
    #[error("the sync panicked: {0}")]
    Panic(String),
}

impl SyncError {
    /// True if the sync failed only because the daemon is stopping.
    pub fn is_stopped(&self) -> bool {
        matches!(
            self,
            Self::Write(WriteError::Stopped) | Self::Delete(WriteError::Stopped)
        )
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
        Some(SyncError::Several(messages.join(", ")))
    } else {
        errors.pop().map(SyncError::Write)
    }
}
