//! A flag that is set once and that threads can wait for.
//!
//! The watch thread sets it once its first list has been delivered. The syncing threads wait for it
//! before their first sync.

use std::sync::{Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender, TryRecvError};

/// A flag that is never cleared.
#[derive(Debug)]
pub(super) struct Latch {
    /// Present until the flag is set. The channel has no capacity and carries nothing; its
    /// disconnection is the signal.
    sender: Mutex<Option<Sender<()>>>,
    receiver: Receiver<()>,
}

impl Latch {
    /// Sets the flag; no effect if it is set already.
    pub(super) fn set(&self) {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        *sender = None;
    }

    /// True once the flag is set.
    pub(super) fn is_set(&self) -> bool {
        self.receiver.try_recv() == Err(TryRecvError::Disconnected)
    }

    /// A channel that carries nothing and is disconnected once the flag is set, for `select!`.
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
