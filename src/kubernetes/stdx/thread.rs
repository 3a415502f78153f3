//! The only module that starts threads. All threads have names, and none dies silently.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use super::activity;
use super::latch::Latch;
use super::stop::{Cause, Stop};
use super::turns;

/// Linux keeps this many bytes of a thread's name.
pub const NAME_BYTES_MAX: usize = 15;

static PANICS_TOTAL: AtomicU64 = AtomicU64::new(0);

/// Number of panics caught in this process, in threads and in single syncs.
pub fn panics_total() -> u64 {
    PANICS_TOTAL.load(Ordering::Relaxed)
}

/// Starts a thread called `name`. If `body` panics, counts the panic and gives `stop` with a
/// failure, so that the daemon exits with code 1.
///
/// # Errors
/// If the system refuses another thread, or the name is longer than [`NAME_BYTES_MAX`].
pub fn try_spawn(
    name: &str,
    stop: &Stop,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    if name.len() > NAME_BYTES_MAX {
        let why = format!("thread name {name:?} is too long for the kernel");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let (stop, thread_name) = (stop.clone(), name.to_owned());
    #[cfg(any(test, feature = "simulation"))]
    let ticket = turns::scheduler::ticket(name);
    let run = move || {
        #[cfg(any(test, feature = "simulation"))]
        let _turns = ticket.map(turns::scheduler::Ticket::begin);
        // Lists the thread in `/debug/threads` even while it is idle.
        activity::register();
        if let Err(message) = catch_panic(body) {
            stop.stop(Cause::Failed(format!(
                "thread {thread_name} panicked: {message}"
            )));
        }
    };
    Builder::new().name(name.to_owned()).spawn(run)
}

/// Like [`try_spawn`], for tests; panics on failure.
#[cfg(any(test, feature = "simulation"))]
pub fn spawn(name: &str, stop: &Stop, body: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    try_spawn(name, stop, body).expect("the system starts another thread")
}

/// A thread that can be joined with a deadline.
#[derive(Debug)]
pub struct Thread {
    name: String,
    /// `None` if the system refused the thread.
    handle: Option<JoinHandle<()>>,
    /// Set when the thread's body has ended.
    ended: Arc<Latch>,
}

/// Sets the flag when the thread's body ends, also on a panic.
struct Ending(Arc<Latch>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.set();
    }
}

impl Thread {
    /// Starts a thread that the daemon needs, like [`try_spawn`]. If the system refuses the thread,
    /// gives `stop` with a failure that names it.
    pub fn spawn(name: &str, stop: &Stop, body: impl FnOnce() + Send + 'static) -> Self {
        Self::try_spawn(name, stop, body).unwrap_or_else(|error| {
            stop.stop(Cause::Failed(format!(
                "cannot start thread {name}: {error}"
            )));
            let ended = Arc::new(Latch::default());
            ended.set();
            Self {
                name: name.to_owned(),
                handle: None,
                ended,
            }
        })
    }

    /// Starts a thread and leaves a failure to the caller.
    ///
    /// # Errors
    /// As [`try_spawn`].
    pub fn try_spawn(
        name: &str,
        stop: &Stop,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let ended = Arc::new(Latch::default());
        let ending = Ending(Arc::clone(&ended));
        let run = move || {
            let _ending = ending;
            body();
        };
        Ok(Self {
            name: name.to_owned(),
            handle: Some(try_spawn(name, stop, run)?),
            ended,
        })
    }

    /// The thread's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A handle to check whether the thread runs, without joining it.
    pub fn liveness(&self) -> Liveness {
        Liveness {
            name: self.name.clone(),
            ended: Arc::clone(&self.ended),
        }
    }

    /// Blocks until the thread has ended, at most until `deadline`; returns whether it has.
    pub fn has_ended_by(&self, deadline: Instant) -> bool {
        self.ended.wait_until(deadline)
    }

    /// Blocks until the thread has ended, at most until `deadline`, and joins it.
    ///
    /// # Errors
    /// The thread's name if it still runs at the deadline.
    pub fn join_until(self, deadline: Instant) -> Result<(), String> {
        if !self.has_ended_by(deadline) {
            return Err(self.name);
        }
        // In a simulation the thread needs one more turn to end.
        if turns::clocks().is_some() {
            return Ok(());
        }
        // The body has ended and has caught any panic, so this waits for destructors at most.
        if let Some(handle) = self.handle {
            handle.join().unwrap_or_default();
        }
        Ok(())
    }
}

/// Joins all threads, at most until `deadline`. Returns the names of those that still run.
pub fn join_all(threads: Vec<Thread>, deadline: Instant) -> Vec<String> {
    threads
        .into_iter()
        .filter_map(|thread| thread.join_until(deadline).err())
        .collect()
}

/// Checks whether a [`Thread`] still runs.
#[derive(Clone, Debug)]
pub struct Liveness {
    name: String,
    ended: Arc<Latch>,
}

impl Liveness {
    /// The thread's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True once the thread's body has ended, also on a panic.
    pub fn has_ended(&self) -> bool {
        self.ended.is_set()
    }
}

/// Runs `body`, counts a panic and returns it as an error.
///
/// # Errors
/// The panic's message.
pub fn catch_panic<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|panic| {
        PANICS_TOTAL.fetch_add(1, Ordering::Relaxed);
        let message = message_of(&*panic);
        #[cfg(any(test, feature = "simulation"))]
        turns::scheduler::note_panic(&*panic, &message);
        message
    })
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    if let Some(message) = panic.downcast_ref::<&str>() {
        (*message).to_owned()
    } else if let Some(message) = panic.downcast_ref::<String>() {
        message.clone()
    } else {
        "a panic without a message".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Cause, Stop, Thread, spawn};

    #[test]
    fn a_stuck_thread_is_named_at_the_deadline() {
        let stop = Stop::new();
        let waiting = stop.clone();
        let stuck = Thread::spawn("t-stuck", &stop, move || {
            waiting.wait();
        });
        let deadline = Instant::now() + Duration::from_millis(10);
        let liveness = stuck.liveness();
        assert_eq!(stuck.join_until(deadline), Err("t-stuck".to_owned()));
        assert!(!liveness.has_ended());
        stop.stop(Cause::Requested("test".to_owned()));
        let quick = Thread::spawn("t-quick", &stop, || {});
        assert_eq!(
            quick.join_until(Instant::now() + Duration::from_mins(2)),
            Ok(())
        );
    }

    #[test]
    fn a_panic_stops_the_daemon() {
        let stop = Stop::new();
        let thread = spawn("t-panics", &stop, || panic!("on purpose"));
        thread.join().expect("the panic is caught");
        let expected = "thread t-panics panicked: on purpose".to_owned();
        assert_eq!(stop.cause(), Some(Cause::Failed(expected)));
    }

    #[test]
    fn a_refused_thread_stops_the_daemon_without_a_panic() {
        let stop = Stop::new();
        let thread = Thread::spawn("t-name-too-long-", &stop, || {});
        assert!(thread.liveness().has_ended());
        assert_eq!(thread.join_until(Instant::now()), Ok(()));
        let Some(Cause::Failed(why)) = stop.cause() else {
            panic!("the daemon goes on");
        };
        let begin = "cannot start thread t-name-too-long-: ";
        assert!(why.starts_with(begin), "{why}");
    }
}
