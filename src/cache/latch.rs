//! A flag that is raised once and can be waited for.
//!
//! Raised by the watch thread when its first list has been delivered; waited for by the manager
//! before it starts the syncing threads.

use std::sync::{Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender, TryRecvError};

/// A flag that never goes down again.
#[derive(Debug)]
pub(super) struct Latch {
    /// Held while the flag is down. The channel has no room and carries nothing: its end tells.
    sender: Mutex<Option<Sender<()>>>,
    receiver: Receiver<()>,
}

impl Latch {
    /// Raises the flag; nothing happens if it is up already.
    pub(super) fn raise(&self) {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        *sender = None;
    }

    /// True once the flag is up.
    pub(super) fn is_raised(&self) -> bool {
        self.receiver.try_recv() == Err(TryRecvError::Disconnected)
    }

    /// A channel that carries nothing and is disconnected when the flag goes up, for `select!`.
    pub(super) fn receiver(&self) -> &Receiver<()> {
        &self.receiver
    }
}

impl Default for Latch {
    fn default() -> Self {
        let (sender, receiver) = crossbeam_channel::bounded(0);
        Self {
            sender: Mutex::new(Some(sender)),
            receiver,
        }
    }
}
