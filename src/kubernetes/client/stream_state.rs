//! How the reads of one thread's lists and watches wait: a switch that the reader turns once the
//! list is complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// A list, or the list at the beginning of a watch.
const LIST: u8 = 0;
/// Single events follow.
const WATCH: u8 = 1;
/// As [`WATCH`], and reads may wait.
const COALESCED_WATCH: u8 = 2;

/// What the open response is. It begins as a list whenever a list or a watch is opened: its bytes
/// should arrive as fast as possible, and silence means that the server has stopped to send it.
#[derive(Clone, Debug)]
pub struct StreamState {
    state: Arc<AtomicU8>,
    list_silence: Duration,
}

impl StreamState {
    /// `list_silence` limits the silence of a list.
    pub fn new(list_silence: Duration) -> Self {
        Self {
            state: Arc::default(),
            list_silence,
        }
    }

    /// The list is complete: the watch's own limit applies to silence from here on. If `coalesces`,
    /// a busy connection delays reads by up to 10 ms.
    pub fn begin_watch(&self, coalesces: bool) {
        let state = if coalesces { COALESCED_WATCH } else { WATCH };
        self.state.store(state, Ordering::Relaxed);
    }

    /// Returns whether reads may wait.
    pub fn coalesces(&self) -> bool {
        self.state.load(Ordering::Relaxed) == COALESCED_WATCH
    }

    pub(super) fn begin_list(&self) {
        self.state.store(LIST, Ordering::Relaxed);
    }

    /// Returns the limit of the next read, whose own limit is `limit`.
    pub(super) fn read_limit(&self, limit: Option<Duration>) -> Option<Duration> {
        if self.state.load(Ordering::Relaxed) == LIST {
            Some(limit.map_or(self.list_silence, |limit| limit.min(self.list_silence)))
        } else {
            limit
        }
    }
}
