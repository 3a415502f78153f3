//! The threads `batch-0…n`, which run as long as the daemon.
//!
//! The worker with a batch runs its jobs itself, one after the other, and calls pool threads as
//! helpers. So a ReplicaSet that needs one pod sends its request at once, on its own worker's
//! thread, however many thousands another ReplicaSet creates. A helper is called only onto a free
//! thread, because the batch ends only when each called helper has begun and left.
//!
//! Small and large syncs have separate threads. Whatever the threads of large syncs wait for, be it
//! a slow response or a token of the rate limit, a small sync finds its own threads free.

use std::any::Any;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};

use super::{BatchRunner, Job, Jobs, LARGE};
use crate::stdx::stop::Stop;
use crate::stdx::thread::Thread;

/// How many of `n_threads` are for large syncs. More concurrent requests of large syncs delay small
/// syncs by more than they speed up the large ones (tests/bench/README.md).
fn n_large(n_threads: u16) -> u16 {
    n_threads.div_ceil(2)
}

/// Starts `n_threads`, and returns them with their runner. They end once the runner is dropped.
pub fn start(n_threads: u16, stop: &Stop) -> io::Result<(Arc<dyn BatchRunner>, Vec<Thread>)> {
    #[cfg(test)]
    if crate::stdx::turns::simulation::process().is_some() {
        return Ok((Arc::new(super::simulated::Shuffled), Vec::new()));
    }
    let n_small = n_threads - n_large(n_threads);
    let mut threads = Vec::new();
    let runner = Pools {
        small: start_pool(0..n_small, &mut threads, stop)?,
        large: start_pool(n_small..n_threads, &mut threads, stop)?,
    };
    Ok((Arc::new(runner), threads))
}

/// Starts the threads with these `numbers`.
fn start_pool(numbers: Range<u16>, threads: &mut Vec<Thread>, stop: &Stop) -> io::Result<FairPool> {
    let pool = FairPool(Arc::new(Shared {
        called: numbers.clone().map(|_| Condvar::new()).collect(),
        state: Mutex::new(State {
            idle: (0..numbers.len()).rev().collect(),
            calls: numbers.clone().map(|_| None).collect(),
            ..State::default()
        }),
    }));
    for (index, number) in numbers.enumerate() {
        let shared = Arc::clone(&pool.0);
        let serve = move || shared.serve(index);
        threads.push(Thread::try_spawn(&format!("batch-{number}"), stop, serve)?);
    }
    Ok(pool)
}

#[derive(Debug)]
struct Pools {
    small: FairPool,
    large: FairPool,
}

impl BatchRunner for Pools {
    fn run(&self, jobs: Jobs, batch: Range<usize>, job: &Job) {
        let is_large = jobs.count >= LARGE;
        let pool = if is_large { &self.large } else { &self.small };
        pool.run(jobs, batch, job);
    }
}

/// The threads for one size of sync. Their jobs block on HTTP, so their number is the intended
/// concurrency at the API server. At most half of them help one tenant, because it gets another
/// helper only while more threads are free than help it.
///
/// Without threads, each worker runs its batches itself. The threads end when this is dropped.
#[derive(Debug, Default)]
pub struct FairPool(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Where each thread waits for its call.
    called: Vec<Condvar>,
}

#[derive(Debug, Default)]
struct State {
    /// Threads without a call. The last to become idle is called first, because its memory is in
    /// the processor's caches.
    idle: Vec<usize>,
    /// The call of each thread that it has not taken up.
    calls: Vec<Option<Arc<Batch>>>,
    /// The number of called threads by tenant.
    helpers: HashMap<u64, usize>,
    is_closed: bool,
}

impl State {
    /// Takes a thread for a helper of `tenant`, if one is free for it.
    fn take(&mut self, tenant: u64) -> Option<usize> {
        let n_its = self.helpers.get(&tenant).copied().unwrap_or_default();
        if n_its >= self.idle.len() {
            return None;
        }
        self.helpers.insert(tenant, n_its + 1);
        self.idle.pop()
    }

    fn give_back(&mut self, thread: usize, tenant: u64) {
        self.idle.push(thread);
        self.helpers.entry(tenant).and_modify(|n_its| *n_its -= 1);
        self.helpers.retain(|_, n_its| *n_its > 0);
    }
}

impl Shared {
    /// The body of a thread of the pool.
    fn serve(&self, thread: usize) {
        let mut state = self.state.lock();
        while !state.is_closed {
            let Some(batch) = state.calls[thread].take() else {
                self.called[thread].wait(&mut state);
                continue;
            };
            drop(state);
            let ended = catch_unwind(AssertUnwindSafe(|| {
                while let Some(index) = batch.take() {
                    (batch.job)(index);
                }
            }));
            if let Err(panic) = ended {
                *batch.panic.lock() = Some(panic);
            }
            state = self.state.lock();
            state.give_back(thread, batch.tenant);
            if batch.n_helpers.fetch_sub(1, Ordering::Relaxed) == 1 {
                batch.left.notify_one();
            }
        }
    }

    /// Calls a helper for `batch` if a thread is free for it.
    fn call(&self, batch: &Arc<Batch>) -> bool {
        let mut state = self.state.lock();
        let Some(thread) = state.take(batch.tenant) else {
            return false;
        };
        batch.n_helpers.fetch_add(1, Ordering::Relaxed);
        state.calls[thread] = Some(Arc::clone(batch));
        drop(state);
        self.called[thread].notify_one();
        true
    }
}
/// A batch that runs on more than one thread.
struct Batch {
    job: Job,
    tenant: u64,
    next: AtomicUsize,
    end: usize,
    /// Changed under the pool's lock.
    n_helpers: AtomicUsize,
    /// Where its worker waits for the last helper.
    left: Condvar,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Batch {
    fn take(&self) -> Option<usize> {
        Some(self.next.fetch_add(1, Ordering::Relaxed)).filter(|index| *index < self.end)
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a batch of tenant {}", self.tenant)
    }
}

impl BatchRunner for FairPool {
    fn run(&self, jobs: Jobs, batch: Range<usize>, job: &Job) {
        if batch.len() < 2 || self.0.called.is_empty() {
            return batch.for_each(&**job);
        }
        let batch = Arc::new(Batch {
            job: Arc::clone(job),
            tenant: jobs.tenant,
            next: AtomicUsize::new(batch.start),
            end: batch.end,
            n_helpers: AtomicUsize::new(0),
            left: Condvar::new(),
            panic: Mutex::new(None),
        });
        let ended = catch_unwind(AssertUnwindSafe(|| {
            while let Some(index) = batch.take() {
                (index + 1..batch.end).all(|_| self.0.call(&batch));
                job(index);
            }
        }));
        let mut state = self.0.state.lock();
        while batch.n_helpers.load(Ordering::Relaxed) > 0 {
            batch.left.wait(&mut state);
        }
        drop(state);
        let panic = ended.err().or_else(|| batch.panic.lock().take());
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

impl Drop for FairPool {
    fn drop(&mut self) {
        self.0.state.lock().is_closed = true;
        for called in &self.0.called {
            called.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
