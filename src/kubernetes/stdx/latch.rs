//! A flag that is set once and that threads can wait for.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, select};

use super::stop::Stop;
use super::turns::{self, Spot, Waited};

/// A flag that is never cleared.
#[derive(Debug)]
pub struct Latch {
    /// Present until the flag is set. The channel has no capacity and carries nothing; its
    /// disconnection is the signal.
    sender: Mutex<Option<Sender<()>>>,
    receiver: Receiver<()>,
    spot: Spot,
}

/// Why a wait for a [`Latch`] has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The flag is set.
    Set,
    /// The stop signal was given.
    Stopped,
    /// Neither happened in time.
    TimedOut,
}

impl Latch {
    /// Sets the flag; no effect if it is set already.
    pub fn set(&self) {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        *sender = None;
        drop(sender);
        self.spot.wake();
    }

    /// True once the flag is set.
    pub fn is_set(&self) -> bool {
        self.receiver.try_recv() == Err(TryRecvError::Disconnected)
    }

    /// Blocks until the flag is set, at most until `deadline`; returns whether it is.
    pub fn wait_until(&self, deadline: Instant) -> bool {
        let is_set = || self.is_set().then_some(());
        match turns::wait(&[&self.spot], Some(deadline), is_set) {
            Waited::Unsimulated => {
                self.receiver.recv_deadline(deadline) != Err(RecvTimeoutError::Timeout)
            }
            Waited::TimedOut => false,
            Waited::Ready(()) => true,
        }
    }

    /// Blocks until the flag is set or `stop` is given, for `timeout` at most.
    pub fn wait(&self, stop: &Stop, timeout: Duration) -> Woken {
        let woken = || {
            let set = self.is_set().then_some(Woken::Set);
            set.or_else(|| stop.is_stopped().then_some(Woken::Stopped))
        };
        match turns::wait_timeout(&[&self.spot, stop.spot()], timeout, woken) {
            Waited::Unsimulated => select! {
                recv(self.receiver) -> _ => Woken::Set,
                recv(stop.receiver()) -> _ => Woken::Stopped,
                default(timeout) => Woken::TimedOut,
            },
            Waited::TimedOut => Woken::TimedOut,
            Waited::Ready(woken) => woken,
        }
    }
}

impl Default for Latch {
    fn default() -> Self {
        let (sender, receiver) = crossbeam_channel::bounded(0);
        Self {
            sender: Mutex::new(Some(sender)),
            receiver,
            spot: Spot::default(),
        }
    }
}
