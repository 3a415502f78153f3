//! Why a sync has to be repeated.

use crate::writes::WriteError;

/// A sync that did not come to its end; its key goes back into the queue with back-off.
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
    /// True if it only failed because the daemon is stopping.
    pub fn is_stopped(&self) -> bool {
        matches!(
            self,
            Self::Write(WriteError::Stopped) | Self::Delete(WriteError::Stopped)
        )
    }
}

/// One error for many: none, the one, or all different messages in brackets
/// (apimachinery `pkg/util/errors:NewAggregate`).
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
