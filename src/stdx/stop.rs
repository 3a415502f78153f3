//! The one signal that ends the daemon, and what it wakes.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};

/// A signal that is given once and wakes everyone who waits for it. Clones are the same signal.
#[derive(Clone)]
pub struct Stop(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    stopped: Condvar,
    /// Disconnected when the signal is given, for use in `select!`.
    receiver: Receiver<()>,
}

struct State {
    cause: Option<Cause>,
    sender: Option<Sender<()>>,
    wakers: Vec<Box<dyn FnOnce() + Send>>,
}

/// Why the daemon stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Somebody asked for it, such as an operator by SIGTERM.
    Requested(String),
    /// It cannot go on; the exit code is 1.
    Failed(String),
}

impl Stop {
    /// A signal not given yet.
    pub fn new() -> Self {
        let (sender, receiver) = crossbeam_channel::bounded(0);
        Self(Arc::new(Shared {
            state: Mutex::new(State {
                cause: None,
                sender: Some(sender),
                wakers: Vec::new(),
            }),
            stopped: Condvar::new(),
            receiver,
        }))
    }

    /// Gives the signal. Only the first cause counts.
    pub fn stop(&self, cause: Cause) {
        let mut state = self.lock();
        if state.cause.is_some() {
            return;
        }
        state.cause = Some(cause);
        state.sender = None;
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.0.stopped.notify_all();
        for wake in wakers {
            wake();
        }
    }

    /// True once the signal was given.
    pub fn is_stopped(&self) -> bool {
        self.lock().cause.is_some()
    }

    /// Why the signal was given; `None` while it was not.
    pub fn cause(&self) -> Option<Cause> {
        self.lock().cause.clone()
    }

    /// Runs `wake` when the signal is given, on the thread that gives it; at once if it was already.
    /// It must not block: it is there to end a wait, such as by shutting a socket.
    pub fn on_stop(&self, wake: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        if state.cause.is_none() {
            state.wakers.push(Box::new(wake));
            return;
        }
        drop(state);
        wake();
    }

    /// Blocks until the signal is given or `timeout` has passed; true if it was given.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        let deadline = Instant::now().checked_add(timeout);
        let mut state = self.lock();
        while state.cause.is_none() {
            let left = match deadline {
                Some(deadline) => deadline.saturating_duration_since(Instant::now()),
                None => timeout,
            };
            if left.is_zero() {
                return false;
            }
            let waited = self.0.stopped.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Blocks until the signal is given, and says why.
    pub fn wait(&self) -> Cause {
        let mut state = self.lock();
        loop {
            if let Some(cause) = &state.cause {
                return cause.clone();
            }
            state = self
                .0
                .stopped
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A channel that carries nothing and is disconnected when the signal is given.
    pub fn receiver(&self) -> &Receiver<()> {
        &self.0.receiver
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stop")
            .field("cause", &self.cause())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Cause, Stop};

    fn asked() -> Cause {
        Cause::Requested("test".to_owned())
    }

    #[test]
    fn the_first_cause_counts_and_everyone_wakes() {
        let stop = Stop::new();
        assert!(!stop.wait_timeout(Duration::ZERO));
        let (sender, woken) = crossbeam_channel::bounded(2);
        let late = sender.clone();
        stop.on_stop(move || sender.send("early").expect("room for two"));
        stop.stop(asked());
        stop.stop(Cause::Failed("later".to_owned()));
        stop.on_stop(move || late.send("late").expect("room for two"));
        assert_eq!(stop.wait(), asked());
        assert!(stop.wait_timeout(Duration::MAX));
        assert_eq!(woken.iter().collect::<Vec<_>>(), ["early", "late"]);
        assert!(stop.receiver().recv().is_err());
    }
}
