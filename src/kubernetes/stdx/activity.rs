//! Records what each thread works on and since when, for `/debug/threads` and SIGUSR1. A snapshot
//! also lists the work of a stuck thread.
//!
//! A thread enters an activity and leaves it by dropping the guard. Activities nest, such as a
//! throttle's wait in a request in a sync. Each thread has its own slot behind a lock that only
//! readers contend for. Entering writes into retained buffers, so it costs about as much as reading
//! the clock and allocates nothing once the buffers have grown.

use std::cell::Cell;
use std::fmt::{Display, Write};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

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
    /// The kernel's thread id; `None` if `/proc` does not provide it.
    tid: Option<i32>,
    levels: Mutex<Levels>,
}

#[derive(Debug, Default)]
struct Levels {
    /// INVARIANT: the first `depth` levels are active; the others only retain their buffers.
    all: Vec<Level>,
    depth: usize,
}

#[derive(Debug)]
struct Level {
    what: &'static str,
    detail: String,
    since: Instant,
    heard: Option<Instant>,
}

/// An activity of this thread; dropping it ends the activity.
#[must_use = "the activity ends when this is dropped"]
#[derive(Debug)]
pub struct Activity {
    level: usize,
    /// Belongs to the thread that entered it.
    not_send: PhantomData<Cell<*const ()>>,
}

/// A snapshot of one thread's activities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadActivity {
    /// The kernel's thread id.
    pub tid: i32,
    /// Outermost first; empty if the thread is idle.
    pub works: Vec<Work>,
}

/// One of a thread's nested activities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// The kind of work or wait, such as `sync` or `request`.
    pub what: &'static str,
    /// The subject, such as `default/web`; may be empty.
    pub detail: String,
    /// Start time.
    pub since: Instant,
    /// When a watch last received data.
    pub heard: Option<Instant>,
}

/// Enters an activity of this thread that lasts until the returned guard is dropped. Blocks at most
/// while a snapshot copies a few strings.
pub fn enter(what: &'static str, detail: impl Display) -> Activity {
    let level = OWN.try_with(|own| own.0.lock().enter(what, detail));
    Activity {
        // A thread that is ending has lost its slot; `usize::MAX` makes the guard's drop a no-op.
        level: level.unwrap_or(usize::MAX),
        not_send: PhantomData,
    }
}

/// Registers this thread as idle.
pub fn register() {
    OWN.try_with(|_| {}).unwrap_or_default();
}

/// Records that the current activity received data, such as bytes on a watch.
pub fn heard() {
    let record = |own: &Own| {
        let mut levels = own.0.lock();
        if let Some(top) = levels.depth.checked_sub(1) {
            levels.all[top].heard = Some(Instant::now());
        }
    };
    OWN.try_with(record).unwrap_or_default();
}

/// The current activities of every registered thread, in no particular order.
pub fn snapshot() -> Vec<ThreadActivity> {
    let slots: Vec<Arc<Slot>> = all().clone();
    let activity = |slot: Arc<Slot>| {
        let tid = slot.tid?;
        let levels = slot.lock();
        let entered = levels.all.iter().take(levels.depth);
        let works = entered.map(|level| Work {
            what: level.what,
            detail: level.detail.clone(),
            since: level.since,
            heard: level.heard,
        });
        let works = works.collect();
        Some(ThreadActivity { tid, works })
    };
    slots.into_iter().filter_map(activity).collect()
}

impl Drop for Activity {
    fn drop(&mut self) {
        let leave = |own: &Own| {
            let mut levels = own.0.lock();
            levels.depth = levels.depth.min(self.level);
        };
        OWN.try_with(leave).unwrap_or_default();
    }
}

impl Levels {
    fn enter(&mut self, what: &'static str, detail: impl Display) -> usize {
        let (level, since) = (self.depth, Instant::now());
        if level == self.all.len() {
            self.all.push(Level {
                what,
                detail: String::new(),
                since,
                heard: None,
            });
        }
        let entered = &mut self.all[level];
        entered.what = what;
        entered.detail.clear();
        // Writing to a string cannot fail.
        write!(entered.detail, "{detail}").unwrap_or_default();
        entered.since = since;
        entered.heard = None;
        self.depth += 1;
        level
    }
}

impl Own {
    fn register() -> Self {
        let slot = Arc::new(Slot {
            tid: own_tid(),
            levels: Mutex::default(),
        });
        all().push(Arc::clone(&slot));
        Self(slot)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        all().retain(|slot| !Arc::ptr_eq(slot, &self.0));
    }
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Levels> {
        self.levels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn all() -> MutexGuard<'static, Vec<Arc<Slot>>> {
    SLOTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `/proc/thread-self` links to `PID/task/TID`.
fn own_tid() -> Option<i32> {
    let link = std::fs::read_link("/proc/thread-self").ok()?;
    link.file_name()?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{ThreadActivity, enter, heard, own_tid, snapshot};

    /// The activities of this thread.
    fn own() -> ThreadActivity {
        let tid = own_tid().expect("a kernel that has /proc");
        let mut threads = snapshot().into_iter();
        threads.find(|t| t.tid == tid).expect("registered")
    }

    fn texts() -> Vec<String> {
        let works = own().works.into_iter();
        works.map(|w| format!("{} {}", w.what, w.detail)).collect()
    }

    #[test]
    fn activities_nest_and_end_with_their_guards() {
        let outer = enter("sync", "default/web");
        {
            let _inner = enter("request", "GET /api/v1/pods");
            heard();
            assert_eq!(texts(), ["sync default/web", "request GET /api/v1/pods"]);
            assert!(own().works[1].heard.is_some() && own().works[0].heard.is_none());
        }
        let again = enter("waits", "");
        assert_eq!(texts(), ["sync default/web", "waits "]);
        assert!(own().works[1].heard.is_none());
        // Ending an outer activity also ends the inner ones.
        drop(outer);
        assert!(own().works.is_empty());
        drop(again);
        assert!(own().works.is_empty());
    }

    #[test]
    fn a_panic_leaves_no_activity_behind() {
        let result = super::super::thread::catch_panic(|| {
            let _work = enter("sync", "default/web");
            panic!("on purpose");
        });
        assert!(result.is_err() && own().works.is_empty());
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
        assert!(snapshot().iter().all(|thread| thread.tid != tid));
    }
}
