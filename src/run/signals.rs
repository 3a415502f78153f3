//! Signals from outside: SIGTERM and SIGINT become the stop signal, SIGHUP and SIGUSR1 call whoever
//! has asked for them. [`listen`] is called once by `main`, before it starts threads.
//!
//! SIGHUP and SIGUSR1 are blocked in all threads and taken by the thread `signal`, which runs what
//! [`on_reload`] and [`on_dump`] were given. Child processes inherit what is blocked, so whoever
//! starts one has to give it an empty mask back.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

use crate::stdx::activity;
use crate::stdx::stop::{Cause, Stop};
use crate::stdx::thread::{catch_panic, try_spawn};

/// What the process ends with when an operator does not want to wait.
const FAILURE: i32 = 1;

/// A signal that follows the first one sooner counts as the same signal: `timeout` of GNU and
/// shells send one to a process and then to its group.
const SECOND_AFTER: Duration = Duration::from_secs(1);

/// True once there is something that stops in order.
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

/// Why signals cannot be listened for.
#[derive(Debug, thiserror::Error)]
pub enum SignalError {
    /// Signals cannot be blocked.
    #[error("cannot block SIGHUP and SIGUSR1")]
    Block(#[from] nix::Error),
    /// There is a handler already.
    #[error("cannot handle SIGTERM and SIGINT")]
    Handle(#[from] ctrlc::Error),
    /// There is no thread for them.
    #[error("cannot start thread signal")]
    Thread(#[from] io::Error),
}

/// What SIGHUP runs, by a name for the log.
type Reload = (
    &'static str,
    Arc<dyn Fn() -> Result<String, String> + Send + Sync>,
);

/// What SIGUSR1 runs, by a name for the log.
type Dump = (&'static str, Plain);

type Plain = Arc<dyn Fn() + Send + Sync>;

/// Signals are the process's, so what they run is too.
static CALLBACKS: Mutex<Callbacks> = Mutex::new(Callbacks {
    around_reload: Vec::new(),
    reload: Vec::new(),
    dump: Vec::new(),
});

struct Callbacks {
    around_reload: Vec<(Plain, Plain)>,
    reload: Vec<Reload>,
    dump: Vec<Dump>,
}

/// Runs `reload` at each SIGHUP, on the thread `signal`, in the order in which they were registered,
/// one after the other. It says what has changed, or why the old stays in use: one line of the log
/// tells of all of them. It may block for a bounded time; a signal that comes meanwhile is served
/// after it. A panic in it is logged, and the daemon goes on.
pub fn on_reload(
    name: &'static str,
    reload: impl Fn() -> Result<String, String> + Send + Sync + 'static,
) {
    lock().reload.push((name, Arc::new(reload)));
}

/// Runs `before` when a reload begins and `after` when it has ended, whatever came of it: for those
/// who tell a service manager about it.
pub fn around_reload(
    before: impl Fn() + Send + Sync + 'static,
    after: impl Fn() + Send + Sync + 'static,
) {
    let pair: (Plain, Plain) = (Arc::new(before), Arc::new(after));
    lock().around_reload.push(pair);
}

/// Runs `dump` at each SIGUSR1, as [`on_reload`] does at each SIGHUP.
pub fn on_dump(name: &'static str, dump: impl Fn() + Send + Sync + 'static) {
    lock().dump.push((name, Arc::new(dump)));
}

/// From now on a SIGTERM or SIGINT ends the process at once with `early_code`, since a start can
/// hang in a file that blocks. Once [`stop_in_order`] is called the first signal gives `stop`
/// instead, on a thread that `ctrlc` starts and calls `ctrl-c`, and one that comes a second later
/// or more ends the process at once. SIGHUP and SIGUSR1 are taken by the thread `signal`, which
/// ends when `stop` is given.
///
/// # Errors
/// [`SignalError`] if the system refuses, or at a second call.
pub fn listen(stop: &Stop, early_code: i32) -> Result<(), SignalError> {
    // ORDER: blocked before any other thread is started, since threads inherit what is blocked. The
    // handler cannot tell signals apart, and SIGHUP must not be mistaken for SIGTERM.
    let mut taken = SigSet::empty();
    taken.add(Signal::SIGHUP);
    taken.add(Signal::SIGUSR1);
    taken.thread_block()?;
    let (stopping, mut first) = (stop.clone(), None);
    ctrlc::set_handler(move || {
        let is_running = IS_RUNNING.load(Ordering::SeqCst);
        match reaction(&mut first, is_running, Instant::now()) {
            Reaction::Stop => {
                stopping.stop(Cause::Requested("a signal asked for it".to_owned()));
            }
            Reaction::Ignore => log::debug!("another signal at the same time as the first"),
            Reaction::EndStart => {
                log::info!("a signal ends the start");
                #[expect(clippy::exit, reason = "what the main thread waits for may never come")]
                std::process::exit(early_code);
            }
            Reaction::EndAtOnce => {
                log::error!("second signal: ending at once");
                #[expect(clippy::exit, reason = "the operator has asked twice")]
                std::process::exit(FAILURE);
            }
        }
    })?;
    let stopping = stop.clone();
    // Ends by itself once `stop` is given, and holds nothing that must be given back.
    drop(try_spawn("signal", stop, move || {
        take(&taken, &stopping);
    })?);
    // The one thing that ends a wait for signals is a signal; blocked as it is, it harms nobody.
    stop.on_stop(|| kill(Pid::this(), Signal::SIGUSR1).unwrap_or_default());
    Ok(())
}

/// From here on `stop` is heeded: the first signal gives it.
pub fn stop_in_order() {
    IS_RUNNING.store(true, Ordering::SeqCst);
}

/// What a SIGTERM or SIGINT does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reaction {
    Stop,
    Ignore,
    EndStart,
    EndAtOnce,
}

/// `first` is when the signal came that gave the signal to stop.
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

/// The body of the thread `signal`. Waits for a signal of `taken`; at the stop signal one is sent.
fn take(taken: &SigSet, stop: &Stop) {
    loop {
        let signal = {
            let _wait = activity::enter("waits for a signal", "");
            taken.wait()
        };
        if stop.is_stopped() {
            return;
        }
        match signal {
            Ok(Signal::SIGHUP) => reload(),
            Ok(Signal::SIGUSR1) => dump(),
            // The set has no other signal, and waiting for it fails only if it is not valid.
            other => {
                log::error!(error:? = other; "signals are not listened to any more");
                return;
            }
        }
    }
}

fn reload() {
    let around = lock().around_reload.clone();
    for (before, _) in &around {
        guarded(&**before);
    }
    let callbacks = lock().reload.clone();
    run_reloads(callbacks);
    for (_, after) in &around {
        guarded(&**after);
    }
}

fn guarded(callback: &dyn Fn()) {
    if let Err(message) = catch_panic(callback) {
        log::error!(error:% = message; "SIGHUP: telling of it panicked");
    }
}

fn run_reloads(callbacks: Vec<Reload>) {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for (name, reload) in callbacks {
        match catch_panic(|| reload()).unwrap_or_else(|panic| Err(format!("panicked: {panic}"))) {
            Ok(change) => good.push(format!("{name}: {change}")),
            Err(problem) => bad.push(format!("{name}: {problem}")),
        }
    }
    let good = if good.is_empty() {
        "nothing".to_owned()
    } else {
        good.join("; ")
    };
    if bad.is_empty() {
        log::info!("SIGHUP: re-read {good}");
    } else {
        let bad = bad.join("; ");
        log::error!(
            error:% = bad, then:% = format_args!("re-read {good}");
            "SIGHUP: not re-read, so the old stays in use"
        );
    }
}

fn dump() {
    let callbacks = lock().dump.clone();
    if callbacks.is_empty() {
        log::info!("SIGUSR1: nothing here listens to it");
    }
    for (name, dump) in callbacks {
        if let Err(message) = catch_panic(|| dump()) {
            log::error!(error:% = message; "SIGUSR1: {name} panicked");
        }
    }
}

fn lock() -> std::sync::MutexGuard<'static, Callbacks> {
    CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner)
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
