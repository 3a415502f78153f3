//! Signals of the process: SIGTERM and SIGINT give the stop signal, SIGHUP runs registered
//! callbacks, and SIGUSR1 logs the threads. `main` calls [`listen`] once, before it starts threads.
//!
//! All threads block SIGHUP and SIGUSR1, and the thread `signal` takes them. A child process
//! inherits the mask, so the code that starts one must reset it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use parking_lot::{Mutex, MutexGuard};

use crate::stdx::stop::{Cause, Stop};
use crate::stdx::thread::{catch_panic, try_spawn};
use crate::stdx::{stderr, thread};
use crate::telemetry::{systemd, threads};

const FAILURE: i32 = 1;

/// A signal that follows the first one sooner counts as the same signal: shells and GNU `timeout`
/// send one to the process and then one to its group.
const SECOND_AFTER: Duration = Duration::from_secs(1);

/// True once [`stop_in_order`] was called.
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

#[derive(Debug, thiserror::Error)]
pub enum SignalError {
    #[error("cannot block SIGHUP and SIGUSR1, or unblock SIGTERM and SIGINT")]
    Block(#[from] nix::Error),
    #[error("cannot handle SIGTERM and SIGINT")]
    Handle(#[from] ctrlc::Error),
    #[error("cannot start thread signal")]
    Thread(#[from] io::Error),
}

/// Callback of SIGHUP, with its name in the log.
type Reload = (
    &'static str,
    Arc<dyn Fn() -> Result<String, String> + Send + Sync>,
);

/// Signals belong to the process, so the callbacks are global.
static RELOADS: Mutex<Vec<Reload>> = Mutex::new(Vec::new());

/// Runs `reload` at each SIGHUP on the thread `signal`, after the callbacks registered before it.
/// It returns what has changed, or why the old value stays in use; one line of the log reports all
/// callbacks. It may block for a bounded time; a signal in the meantime is handled afterwards. A
/// panic in it is logged, and the daemon continues.
pub fn on_reload(
    name: &'static str,
    reload: impl Fn() -> Result<String, String> + Send + Sync + 'static,
) {
    reloads().push((name, Arc::new(reload)));
}

/// Starts handling signals. At first, SIGTERM or SIGINT ends the process at once with `early_code`,
/// since a start can hang on a file that blocks. Once [`stop_in_order`] was called, the first
/// signal gives `stop`, on the thread `ctrl-c` of the crate `ctrlc`, and a signal a second later or
/// more ends the process at once. The thread `signal` takes SIGHUP and SIGUSR1 and ends when `stop`
/// is given.
pub fn listen(stop: &Stop, early_code: i32) -> Result<(), SignalError> {
    // ORDER: block the signals before any other thread starts, since threads inherit the mask. The
    // handler cannot distinguish signals, and must not take SIGHUP for SIGTERM.
    let mut taken = SigSet::empty();
    taken.add(Signal::SIGHUP);
    taken.add(Signal::SIGUSR1);
    taken.thread_block()?;
    // A parent may have blocked them, and the process would never end.
    let mut ending = SigSet::empty();
    ending.add(Signal::SIGTERM);
    ending.add(Signal::SIGINT);
    ending.thread_unblock()?;
    let (stopping, mut first) = (stop.clone(), None);
    ctrlc::set_handler(move || {
        let is_running = IS_RUNNING.load(Ordering::SeqCst);
        match reaction(&mut first, is_running, Instant::now()) {
            Reaction::Stop => {
                // The crate does not say which.
                stopping.stop(Cause::Requested("received SIGTERM or SIGINT".to_owned()));
            }
            Reaction::Ignore => {}
            Reaction::EndStart => {
                stderr::hurry();
                log::info!("exiting on a signal during the start");
                #[expect(clippy::exit, reason = "what the main thread waits for may never come")]
                std::process::exit(early_code);
            }
            Reaction::EndAtOnce => {
                stderr::hurry();
                log::error!("second signal: exiting at once");
                #[expect(clippy::exit, reason = "the operator has asked twice")]
                std::process::exit(FAILURE);
            }
        }
    })?;
    let stopping = stop.clone();
    // Detached: the thread ends once `stop` is given, and owns nothing that needs cleanup.
    drop(try_spawn("signal", stop, move || {
        take(&taken, &stopping);
    })?);
    // Only a signal ends a wait for signals. Every thread blocks SIGUSR1, so it has no other
    // effect.
    stop.on_stop(|| kill(Pid::this(), Signal::SIGUSR1).unwrap_or_default());
    Ok(())
}

/// Makes the next signal give `stop` instead of ending the process.
pub fn stop_in_order() {
    IS_RUNNING.store(true, Ordering::SeqCst);
}

/// Effect of a SIGTERM or SIGINT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reaction {
    Stop,
    Ignore,
    EndStart,
    EndAtOnce,
}

/// Returns the effect of a signal at `now`. `first` is the time of the signal that gave `stop`.
fn reaction(first: &mut Option<Instant>, is_running: bool, now: Instant) -> Reaction {
    match *first {
        None if !is_running => Reaction::EndStart,
        None => {
            *first = Some(now);
            Reaction::Stop
        }
        Some(first) if now.saturating_duration_since(first) < SECOND_AFTER => Reaction::Ignore,
        Some(_) => Reaction::EndAtOnce,
    }
}

/// The body of the thread `signal`: waits for the signals of `taken`. [`listen`] sends one at the
/// stop signal.
fn take(taken: &SigSet, stop: &Stop) {
    loop {
        let signal = {
            let _wait = thread::enter("waits for a signal", "");
            taken.wait()
        };
        if stop.is_stopped() {
            return;
        }
        match signal {
            Ok(Signal::SIGHUP) => reload(),
            Ok(Signal::SIGUSR1) => {
                if let Err(panic) = catch_panic(threads::log_threads) {
                    log::error!(error:% = panic; "cannot log the threads");
                }
            }
            // The set has no other signal, and the wait fails only for an invalid set.
            other => {
                log::error!(
                    error:? = other;
                    "cannot wait for signals any more: SIGHUP and SIGUSR1 have no effect"
                );
                return;
            }
        }
    }
}

fn reload() {
    systemd::reloading();
    // The callbacks may block, so they run without the lock.
    let callbacks = reloads().clone();
    run_reloads(callbacks);
    systemd::reloaded();
}

fn run_reloads(callbacks: Vec<Reload>) {
    let (mut good, mut names, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    for (name, reload) in callbacks {
        match catch_panic(|| reload()).unwrap_or_else(|panic| Err(format!("panicked: {panic}"))) {
            Ok(change) => good.push(format!("{name}: {change}")),
            Err(problem) => {
                names.push(name);
                problems.push(problem);
            }
        }
    }
    let good = if good.is_empty() {
        "re-read nothing".to_owned()
    } else {
        format!("re-read {}", good.join("; "))
    };
    if problems.is_empty() {
        log::info!("SIGHUP: {good}");
    } else {
        let names = names.join(", ");
        log::error!(
            error:% = problems.join("; "), then:% = good;
            "SIGHUP: {names} not re-read, the old values stay in use"
        );
    }
}

fn reloads() -> MutexGuard<'static, Vec<Reload>> {
    RELOADS.lock()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Reaction::{EndAtOnce, EndStart, Ignore, Stop};
    use super::reaction;

    #[test]
    fn a_second_signal_counts_a_second_after_the_first() {
        let (mut first, began) = (None, Instant::now());
        let mut at =
            |ms, is_running| reaction(&mut first, is_running, began + Duration::from_millis(ms));
        assert_eq!(at(0, false), EndStart);
        assert_eq!(at(10, true), Stop);
        assert_eq!(at(10, true), Ignore);
        assert_eq!(at(1009, true), Ignore);
        assert_eq!(at(1010, true), EndAtOnce);
    }
}
