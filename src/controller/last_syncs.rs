//! What is remembered of the latest syncs, for whoever asks why a ReplicaSet does not move. Bounded
//! however many ReplicaSets there are: the newest syncs of all, and the error of each one that fails.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use crate::api::ObjectKey;
pub use crate::telemetry::metrics::controller::SyncEnd;

/// Syncs that are remembered, over all ReplicaSets: about 100 KiB.
const RECENT_MAX: usize = 1024;

/// ReplicaSets whose error is remembered. With more than these failing, a list of some is enough.
const FAILED_MAX: usize = 4096;

/// A message is cut after this many bytes.
const MESSAGE_BYTES_MAX: usize = 1024;

/// One sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastSync {
    /// When it began.
    pub at: Timestamp,
    /// How long it took.
    pub took: Duration,
    /// How it ended.
    pub end: SyncEnd,
}

/// What went wrong last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError {
    /// When.
    pub at: Timestamp,
    /// What.
    pub message: Box<str>,
    /// True if no later sync can put it right.
    is_for_good: bool,
}

/// The latest syncs and errors. Shared by the workers; one lock, held for a map operation.
#[derive(Debug, Default)]
pub struct LastSyncs {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Oldest first.
    recent: VecDeque<(ObjectKey, LastSync)>,
    failed: HashMap<ObjectKey, LastError>,
}

impl LastSyncs {
    /// Notes how a sync of `key` ended. A success takes the error away.
    pub fn note(&self, key: &ObjectKey, sync: LastSync, error: Option<String>) {
        let at = sync.at;
        let is_success = sync.end == SyncEnd::Synced;
        let mut state = self.lock();
        if state.recent.len() == RECENT_MAX {
            state.recent.pop_front();
        }
        state.recent.push_back((key.clone(), sync));
        if let Some(message) = error {
            state.fail(key, message, at, false);
        } else if is_success && state.failed.get(key).is_some_and(|e| !e.is_for_good) {
            state.failed.remove(key);
        }
    }

    /// Notes an error that no sync repeats, since nothing that the daemon can do would help.
    pub fn note_for_good(&self, key: &ObjectKey, message: String, at: Timestamp) {
        self.lock().fail(key, message, at, true);
    }

    /// The latest sync of `key`; `None` if it was too long ago to be remembered.
    pub fn last(&self, key: &ObjectKey) -> Option<LastSync> {
        let state = self.lock();
        let mut newest_first = state.recent.iter().rev();
        let found = newest_first.find(|(synced, _)| synced == key);
        found.map(|(_, sync)| sync.clone())
    }

    /// What went wrong with `key` and has not been put right since.
    pub fn error(&self, key: &ObjectKey) -> Option<LastError> {
        self.lock().failed.get(key).cloned()
    }

    /// Forgets the error of a ReplicaSet that is gone.
    pub fn clear(&self, key: &ObjectKey) {
        self.lock().failed.remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn fail(&mut self, key: &ObjectKey, mut message: String, at: Timestamp, is_for_good: bool) {
        if self.failed.len() >= FAILED_MAX && !self.failed.contains_key(key) {
            return;
        }
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        let error = LastError {
            at,
            message: message.into(),
            is_for_good,
        };
        self.failed.insert(key.clone(), error);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;

    use super::{LastSync, LastSyncs, RECENT_MAX, SyncEnd};
    use crate::api::ObjectKey;

    fn sync(second: i64, end: SyncEnd) -> LastSync {
        LastSync {
            at: Timestamp::constant(second, 0),
            took: Duration::from_millis(3),
            end,
        }
    }

    #[test]
    fn an_error_stays_until_a_sync_succeeds() {
        let (syncs, web) = (LastSyncs::default(), ObjectKey::new("shop", "web"));
        syncs.note(&web, sync(1, SyncEnd::Failed), Some("no".repeat(600)));
        assert_eq!(
            syncs.error(&web).map(|error| error.message.len()),
            Some(1024)
        );
        syncs.note(&web, sync(2, SyncEnd::TooEarly), None);
        assert!(syncs.error(&web).is_some());
        syncs.note(&web, sync(3, SyncEnd::Synced), None);
        assert_eq!(syncs.error(&web), None);
        assert_eq!(syncs.last(&web), Some(sync(3, SyncEnd::Synced)));
        syncs.note_for_good(&web, "gone".to_owned(), Timestamp::UNIX_EPOCH);
        syncs.note(&web, sync(4, SyncEnd::Synced), None);
        assert!(syncs.error(&web).is_some());
    }

    #[test]
    fn only_so_many_syncs_are_remembered() {
        let syncs = LastSyncs::default();
        for n in 0..=RECENT_MAX {
            let key = ObjectKey::new("shop", format!("web-{n}"));
            syncs.note(&key, sync(1, SyncEnd::Synced), None);
        }
        assert_eq!(syncs.last(&ObjectKey::new("shop", "web-0")), None);
        assert!(syncs.last(&ObjectKey::new("shop", "web-1")).is_some());
    }
}
