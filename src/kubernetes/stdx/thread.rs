//! The only module that starts threads. All threads have names, and a thread that panics stops the
//! daemon.

use std::any::Any;
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::Display;
use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use parking_lot::Mutex;

use super::stop::{Cause, Latch, Stop};
use super::{clock, turns};

/// Linux keeps this many bytes of a thread's name.
pub const NAME_BYTES_MAX: usize = 15;

static PANICS_TOTAL: AtomicU64 = AtomicU64::new(0);

/// Number of panics caught in this process, in threads and in single syncs.
pub fn panics_total() -> u64 {
    PANICS_TOTAL.load(Ordering::Relaxed)
}

/// Starts a thread called `name`. If `body` panics, counts the panic and gives `stop` with a
/// failure, so that the daemon exits with code 1.
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
    let ticket = turns::simulation::ticket(name);
    let run = move || {
        #[cfg(any(test, feature = "simulation"))]
        let _turns = ticket.map(turns::simulation::Ticket::begin);
        // Lists the thread in `/debug/threads` even while it is idle.
        register();
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

#[derive(Debug)]
pub struct Thread {
    liveness: Liveness,
    /// `None` if the system refused the thread.
    handle: Option<JoinHandle<()>>,
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
            let liveness = Liveness::new(name);
            liveness.ended.set();
            Self {
                liveness,
                handle: None,
            }
        })
    }

    /// Starts a thread and leaves a failure to the caller.
    pub fn try_spawn(
        name: &str,
        stop: &Stop,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let liveness = Liveness::new(name);
        let ending = Ending(Arc::clone(&liveness.ended));
        let run = move || {
            let _ending = ending;
            body();
        };
        Ok(Self {
            handle: Some(try_spawn(name, stop, run)?),
            liveness,
        })
    }

    pub fn name(&self) -> &str {
        &self.liveness.name
    }

    /// A handle to check whether the thread runs, without joining it.
    pub fn liveness(&self) -> Liveness {
        self.liveness.clone()
    }

    pub fn has_ended_by(&self, deadline: Instant) -> bool {
        let remaining = deadline.saturating_duration_since(clock::now());
        self.liveness.ended.wait_timeout(remaining)
    }

    /// Blocks until the thread has ended, at most until `deadline`, and joins it.
    ///
    /// # Errors
    /// The thread's name if it still runs at the deadline.
    pub fn join_until(self, deadline: Instant) -> Result<(), String> {
        if !self.has_ended_by(deadline) {
            return Err(self.liveness.name);
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

#[derive(Clone, Debug)]
pub struct Liveness {
    name: String,
    ended: Arc<Latch>,
}

impl Liveness {
    fn new(name: &str) -> Self {
        let (name, ended) = (name.to_owned(), Arc::default());
        Self { name, ended }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// True once the thread's body has ended, also on a panic.
    pub fn has_ended(&self) -> bool {
        self.ended.is_set()
    }
}

/// Runs `body`, counts a panic and returns it as an error.
pub fn catch_panic<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|panic| {
        PANICS_TOTAL.fetch_add(1, Ordering::Relaxed);
        let message = message_of(&*panic);
        #[cfg(any(test, feature = "simulation"))]
        turns::simulation::note_panic(&*panic, &message);
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

// Records what each thread works on and since when, for `/debug/threads` and SIGUSR1. A snapshot
// also lists the work of a stuck thread.
//
// A thread enters an activity and leaves it by dropping the guard. Activities nest, such as a
// throttle's wait in a request in a sync. Each thread has its own slot behind a lock that only
// readers contend for.

/// The slots of all running threads that have registered. Locked when a thread starts or ends, and
/// during a snapshot.
static SLOTS: Mutex<Vec<Arc<Slot>>> = Mutex::new(Vec::new());

thread_local! {
    static OWN: Own = Own::register();
}

/// Removes this thread's slot when the thread ends.
struct Own(Arc<Slot>);

#[derive(Debug)]
struct Slot {
    tid: Option<i32>,
    /// Outermost first.
    works: Mutex<Vec<Work>>,
}

/// An activity of this thread; dropping it ends the activity.
#[must_use = "the activity ends when this is dropped"]
#[derive(Debug)]
pub struct Activity {
    level: usize,
    /// Belongs to the thread that entered it.
    not_send: PhantomData<Cell<*const ()>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// The kind of work or wait, such as `sync` or `request`.
    pub what: &'static str,
    /// The subject, such as `default/web`; may be empty.
    pub detail: String,
    pub since: Instant,
    /// When a watch last received data.
    pub heard: Option<Instant>,
}

/// Enters an activity of this thread that lasts until the returned guard is dropped. Blocks at most
/// while a snapshot copies a few strings.
pub fn enter(what: &'static str, detail: impl Display) -> Activity {
    let work = Work {
        what,
        detail: detail.to_string(),
        since: Instant::now(),
        heard: None,
    };
    let level = OWN.try_with(|own| {
        let mut works = own.0.works.lock();
        works.push(work);
        works.len() - 1
    });
    Activity {
        // A thread that is ending has lost its slot; `usize::MAX` makes the guard's drop a no-op.
        level: level.unwrap_or(usize::MAX),
        not_send: PhantomData,
    }
}

pub fn register() {
    OWN.try_with(|_| {}).unwrap_or_default();
}

/// Records that the current activity received data, such as bytes on a watch.
pub fn heard() {
    let record = |own: &Own| {
        if let Some(innermost) = own.0.works.lock().last_mut() {
            innermost.heard = Some(Instant::now());
        }
    };
    OWN.try_with(record).unwrap_or_default();
}

/// The works of all registered threads by their ids, outermost first; none of an idle thread.
pub fn snapshot() -> HashMap<i32, Vec<Work>> {
    let slots = SLOTS.lock().clone();
    let activity = |slot: Arc<Slot>| {
        let works = slot.works.lock().clone();
        Some((slot.tid?, works))
    };
    slots.into_iter().filter_map(activity).collect()
}

impl Drop for Activity {
    fn drop(&mut self) {
        let leave = |own: &Own| own.0.works.lock().truncate(self.level);
        OWN.try_with(leave).unwrap_or_default();
    }
}

impl Own {
    fn register() -> Self {
        let slot = Arc::new(Slot {
            tid: own_tid(),
            works: Mutex::default(),
        });
        SLOTS.lock().push(Arc::clone(&slot));
        Self(slot)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        SLOTS.lock().retain(|slot| !Arc::ptr_eq(slot, &self.0));
    }
}

/// `/proc/thread-self` links to `PID/task/TID`.
fn own_tid() -> Option<i32> {
    let link = std::fs::read_link("/proc/thread-self").ok()?;
    link.file_name()?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Cause, Stop, Thread, Work, enter, heard, own_tid, snapshot, spawn};

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
    fn a_failed_thread_start_stops_the_daemon_without_a_panic() {
        let stop = Stop::new();
        let thread = Thread::spawn("t-name-too-long-", &stop, || {});
        assert!(thread.liveness().has_ended());
        assert_eq!(thread.join_until(Instant::now()), Ok(()));
        let Some(Cause::Failed(why)) = stop.cause() else {
            panic!("the daemon continues");
        };
        let begin = "cannot start thread t-name-too-long-: ";
        assert!(why.starts_with(begin), "{why}");
    }

    /// The activities of this thread.
    fn own() -> Vec<Work> {
        let tid = own_tid().expect("a kernel that has /proc");
        snapshot().remove(&tid).expect("registered")
    }

    fn texts() -> Vec<String> {
        let works = own().into_iter();
        works.map(|w| format!("{} {}", w.what, w.detail)).collect()
    }

    #[test]
    fn activities_nest_and_end_with_their_guards() {
        let outer = enter("sync", "default/web");
        {
            let _inner = enter("request", "GET /api/v1/pods");
            heard();
            assert_eq!(texts(), ["sync default/web", "request GET /api/v1/pods"]);
            assert!(own()[1].heard.is_some() && own()[0].heard.is_none());
        }
        let again = enter("waits", "");
        assert_eq!(texts(), ["sync default/web", "waits "]);
        assert!(own()[1].heard.is_none());
        // Ending an outer activity also ends the inner ones.
        drop(outer);
        assert!(own().is_empty());
        drop(again);
        assert!(own().is_empty());
    }

    #[test]
    fn a_panic_leaves_no_activity_behind() {
        let result = super::super::thread::catch_panic(|| {
            let _work = enter("sync", "default/web");
            panic!("on purpose");
        });
        assert!(result.is_err() && own().is_empty());
    }

    #[test]
    fn an_ended_thread_is_not_listed() {
        let stop = crate::stdx::stop::Stop::new();
        let (sender, tids) = crossbeam_channel::bounded(1);
        let thread = super::super::thread::spawn("t-ends", &stop, move || {
            let _work = enter("ends", "");
            sender.send(own_tid()).expect("room for one");
        });
        thread.join().expect("it ends");
        let tid = tids
            .recv()
            .expect("the thread sent its id")
            .expect("a number");
        assert!(!snapshot().contains_key(&tid));
    }
}
