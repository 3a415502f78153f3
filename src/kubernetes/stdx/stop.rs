//! The stop signal of the daemon, and a flag that is set once and that threads can wait for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, select};
use parking_lot::Mutex;

use super::turns;
use super::turns::{Spot, Waited};

/// A one-time signal that wakes all waiting threads. Clones share the signal.
#[derive(Clone, Default)]
pub struct Stop(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    given: Latch,
}

#[derive(Default)]
struct State {
    cause: Option<Cause>,
    wakers: Vec<Box<dyn FnOnce() + Send>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// An external request, such as SIGTERM from an operator.
    Requested(String),
    /// A failure; the exit code is 1.
    Failed(String),
}

impl Stop {
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the signal. Only the first cause counts.
    pub fn stop(&self, cause: Cause) {
        let mut state = self.0.state.lock();
        if state.cause.is_some() {
            return;
        }
        state.cause = Some(cause);
        // The wakers run without the lock, since they may query this signal.
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.0.given.set();
        for wake in wakers {
            wake();
        }
    }

    pub fn is_stopped(&self) -> bool {
        self.0.state.lock().cause.is_some()
    }

    /// Returns the cause of the stop; `None` before the stop.
    pub fn cause(&self) -> Option<Cause> {
        self.0.state.lock().cause.clone()
    }

    /// Runs `wake` on the thread that gives the signal, or immediately if it was given before.
    /// `wake` must not block: its purpose is to end a wait, for example by shutting a socket.
    pub fn on_stop(&self, wake: impl FnOnce() + Send + 'static) {
        let mut state = self.0.state.lock();
        if state.cause.is_none() {
            state.wakers.push(Box::new(wake));
            return;
        }
        drop(state);
        wake();
    }

    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.0.given.wait_timeout(timeout)
    }

    pub fn wait(&self) -> Cause {
        self.wait_timeout(Duration::MAX);
        self.cause().expect("a cause comes before the signal")
    }

    /// Where threads of a simulation wait for this signal.
    pub fn spot(&self) -> &Spot {
        &self.0.given.spot
    }

    /// A channel without messages that disconnects on the signal.
    pub fn receiver(&self) -> &Receiver<()> {
        &self.0.given.receiver
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stop")
            .field("cause", &self.cause())
            .finish_non_exhaustive()
    }
}

/// A flag that is never cleared.
#[derive(Debug)]
pub struct Latch {
    /// Present until the flag is set. The channel has no capacity and carries nothing; its
    /// disconnection is the signal.
    sender: Mutex<Option<Sender<()>>>,
    receiver: Receiver<()>,
    spot: Spot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    Set,
    Stopped,
    TimedOut,
}

impl Latch {
    /// Sets the flag; no effect if it is set already.
    pub fn set(&self) {
        let mut sender = self.sender.lock();
        *sender = None;
        drop(sender);
        self.spot.wake();
    }

    pub fn is_set(&self) -> bool {
        self.receiver.try_recv() == Err(TryRecvError::Disconnected)
    }

    /// Blocks until the flag is set, for `timeout` at most; returns whether it is.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        let is_set = || self.is_set().then_some(());
        match turns::wait_timeout(&[&self.spot], timeout, is_set) {
            Waited::Unsimulated => {
                self.receiver.recv_timeout(timeout) != Err(RecvTimeoutError::Timeout)
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Cause, Stop};

    fn requested() -> Cause {
        Cause::Requested("test".to_owned())
    }

    #[test]
    fn the_first_cause_counts_and_all_waiters_wake() {
        let stop = Stop::new();
        assert!(!stop.wait_timeout(Duration::ZERO));
        let (sender, woken) = crossbeam_channel::bounded(2);
        let late = sender.clone();
        stop.on_stop(move || sender.send("early").expect("room for two"));
        stop.stop(requested());
        stop.stop(Cause::Failed("later".to_owned()));
        stop.on_stop(move || late.send("late").expect("room for two"));
        assert_eq!(stop.wait(), requested());
        assert!(stop.wait_timeout(Duration::MAX));
        assert_eq!(woken.iter().collect::<Vec<_>>(), ["early", "late"]);
        assert!(stop.receiver().recv().is_err());
    }
}
