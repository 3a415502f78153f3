//! Signals from outside: SIGTERM and SIGINT become the stop signal, SIGHUP and SIGUSR1 call whoever
//! has asked for them. [`listen`] is called once by `main`, before it starts threads.
//!
//! SIGHUP and SIGUSR1 are blocked in all threads and taken by the thread `signal`, which runs what
//! [`on_reload`] and [`on_dump`] were given. Child processes inherit what is blocked, so whoever
//! starts one has to give it an empty mask back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

use super::activity;
use super::stop::{Cause, Stop};
use super::thread::{catch_panic, spawn};

/// What the process ends with when an operator does not want to wait.
const FAILURE: i32 = 1;

/// Why signals cannot be listened for.
#[derive(Debug, thiserror::Error)]
pub enum SignalError {
    /// Signals cannot be blocked.
    #[error("cannot block SIGHUP and SIGUSR1")]
    Block(#[from] nix::Error),
    /// There is a handler already.
    #[error("cannot handle SIGTERM and SIGINT")]
    Handle(#[from] ctrlc::Error),
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

/// From now on the first SIGTERM or SIGINT gives `stop`, on a thread that `ctrlc` starts and calls
/// `ctrl-c`; the second ends the process at once. SIGHUP and SIGUSR1 are taken by the thread
/// `signal`, which ends when `stop` is given.
///
/// # Errors
/// [`SignalError`] if the system refuses, or at a second call.
pub fn listen(stop: &Stop) -> Result<(), SignalError> {
    // ORDER: blocked before any other thread is started, since threads inherit what is blocked. The
    // handler cannot tell signals apart, and SIGHUP must not be mistaken for SIGTERM.
    let mut taken = SigSet::empty();
    taken.add(Signal::SIGHUP);
    taken.add(Signal::SIGUSR1);
    taken.thread_block()?;
    let (stopping, is_second) = (stop.clone(), AtomicBool::new(false));
    ctrlc::set_handler(move || {
        if is_second.swap(true, Ordering::Relaxed) {
            log::error!("second signal: ending at once");
            #[expect(clippy::exit, reason = "the operator has asked twice")]
            std::process::exit(FAILURE);
        }
        stopping.stop(Cause::Requested("a signal asked for it".to_owned()));
    })?;
    let stopping = stop.clone();
    // Ends by itself once `stop` is given, and holds nothing that must be given back.
    drop(spawn("signal", stop, move || take(&taken, &stopping)));
    // The one thing that ends a wait for signals is a signal; blocked as it is, it harms nobody.
    stop.on_stop(|| kill(Pid::this(), Signal::SIGUSR1).unwrap_or_default());
    Ok(())
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
                log::error!("signals are not listened to any more: {other:?}");
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
        log::error!("SIGHUP: telling of it panicked: {message}");
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
        log::error!("SIGHUP: not re-read, so the old stays in use: {bad}; re-read {good}");
    }
}

fn dump() {
    let callbacks = lock().dump.clone();
    if callbacks.is_empty() {
        log::info!("SIGUSR1: nothing here listens to it");
    }
    for (name, dump) in callbacks {
        if let Err(message) = catch_panic(|| dump()) {
            log::error!("SIGUSR1: {name} panicked: {message}");
        }
    }
}

fn lock() -> std::sync::MutexGuard<'static, Callbacks> {
    CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner)
}
