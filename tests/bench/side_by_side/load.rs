//! Load: requests from many threads in parallel.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::cluster::SENDERS;

/// Calls `work` with every number below `count`, on one thread per connection. Stops at the first
/// error and returns it.
pub(crate) fn in_parallel(
    count: usize,
    work: impl Fn(usize) -> Result<(), String> + Sync,
) -> Result<(), String> {
    let (next, problem) = (AtomicUsize::new(0), Mutex::new(None));
    std::thread::scope(|scope| {
        for _ in 0..SENDERS {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= count {
                        break;
                    }
                    if let Err(found) = work(n) {
                        next.store(count, Ordering::Relaxed);
                        let mut problem = problem.lock().unwrap_or_else(PoisonError::into_inner);
                        problem.get_or_insert(found);
                    }
                }
            });
        }
    });
    match problem.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(problem) => Err(problem),
        None => Ok(()),
    }
}

/// Waits for this time.
pub(crate) fn pause(time: Duration) {
    pause_until(Instant::now() + time);
}

/// Waits until this point in time.
pub(crate) fn pause_until(end: Instant) {
    // A parked thread may wake early.
    loop {
        let remaining = end.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return;
        }
        std::thread::park_timeout(remaining);
    }
}
