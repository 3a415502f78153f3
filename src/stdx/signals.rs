//! Signals from outside, turned into the stop signal. Called once by `main`, before it starts threads.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, Signal};

use super::stop::{Cause, Stop};

/// What the process ends with when an operator does not want to wait.
const FAILURE: i32 = 1;

/// Why signals cannot be listened for.
#[derive(Debug, thiserror::Error)]
pub enum SignalError {
    /// SIGHUP cannot be blocked.
    #[error("cannot block SIGHUP")]
    Block(#[from] nix::Error),
    /// There is a handler already.
    #[error("cannot handle SIGTERM and SIGINT")]
    Handle(#[from] ctrlc::Error),
}

/// From now on the first SIGTERM or SIGINT gives `stop`, on a thread that `ctrlc` starts and calls
/// `ctrl-c`; the second ends the process at once. SIGHUP does nothing yet.
///
/// # Errors
/// [`SignalError`] if the system refuses, or at a second call.
pub fn listen(stop: &Stop) -> Result<(), SignalError> {
    // ORDER: blocked before any other thread is started, since threads inherit what is blocked. The
    // handler cannot tell signals apart, and SIGHUP must not be mistaken for SIGTERM.
    let mut ignored = SigSet::empty();
    ignored.add(Signal::SIGHUP);
    ignored.thread_block()?;
    let (stop, is_second) = (stop.clone(), AtomicBool::new(false));
    ctrlc::set_handler(move || {
        if is_second.swap(true, Ordering::Relaxed) {
            log::error!("second signal: ending at once");
            #[expect(clippy::exit, reason = "the operator has asked twice")]
            std::process::exit(FAILURE);
        }
        stop.stop(Cause::Requested("a signal asked for it".to_owned()));
    })?;
    Ok(())
}
