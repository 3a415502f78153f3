//! The one place where threads are started: they have names, and none dies silently.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};

use super::stop::{Cause, Stop};

/// Linux keeps this many bytes of a thread's name.
pub const NAME_BYTES_MAX: usize = 15;

static PANICS_TOTAL: AtomicU64 = AtomicU64::new(0);

/// Panics caught so far in this process, of threads and of single syncs.
pub fn panics_total() -> u64 {
    PANICS_TOTAL.load(Ordering::Relaxed)
}

/// Starts a thread called `name`. If `body` panics, that is logged and counted, and `stop` is given
/// with a failure, so that the daemon ends with exit code 1 instead of limping on.
///
/// # Panics
/// If the name is longer than [`NAME_BYTES_MAX`] or the system refuses another thread.
pub fn spawn(name: &str, stop: &Stop, body: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    assert!(
        name.len() <= NAME_BYTES_MAX,
        "thread name {name:?} is too long for the kernel"
    );
    let (stop, thread_name) = (stop.clone(), name.to_owned());
    let run = move || {
        if let Err(message) = catch_panic(body) {
            log::error!("thread {thread_name} panicked: {message}; the daemon stops");
            stop.stop(Cause::Failed(format!(
                "thread {thread_name} panicked: {message}"
            )));
        }
    };
    Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .expect("the system starts another thread")
}

/// Runs `body`; a panic is counted and becomes an error with its message.
///
/// # Errors
/// The panic's message.
pub fn catch_panic<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|panic| {
        PANICS_TOTAL.fetch_add(1, Ordering::Relaxed);
        message_of(&*panic)
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
    use super::{Cause, Stop, spawn};

    #[test]
    fn a_panic_stops_the_daemon() {
        let stop = Stop::new();
        let thread = spawn("t-panics", &stop, || panic!("on purpose"));
        thread.join().expect("the panic is caught");
        let expected = "thread t-panics panicked: on purpose".to_owned();
        assert_eq!(stop.cause(), Some(Cause::Failed(expected)));
    }
}
