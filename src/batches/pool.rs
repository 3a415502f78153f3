//! The threads `batch-0…n`, which run as long as the daemon.
//!
//! The worker with a batch runs its jobs itself, one after the other, and calls pool threads as
//! helpers. So a ReplicaSet that needs one pod sends its request at once, on its own worker's
//! thread, however many thousands another ReplicaSet creates. A helper is called only onto a free
//! thread, because the batch ends only when each called helper has begun and left.
//!
//! Small and large syncs have separate threads. Whatever the threads of large syncs wait for, be it
//! a slow response or a token of the rate limit, a small sync finds its own threads free.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use super::{BatchRunner, Jobs, LARGE};
use crate::stdx::stop::Stop;
use crate::stdx::thread::Thread;

/// How many of `n_threads` are for large syncs. More concurrent requests of large syncs delay small
/// syncs by more than they speed up the large ones (tests/bench/README.md).
fn n_large(n_threads: u16) -> u16 {
    n_threads.div_ceil(2)
}

/// Starts `n_threads`, and returns them with their runner. They end once the runner is dropped.
pub fn start(
    n_threads: u16,
    stop: &Stop,
) -> Result<(Arc<dyn BatchRunner>, Vec<Thread>), ThreadPoolBuildError> {
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

/// Starts the threads with these `numbers` through [`Thread`], so that they are named, joined and
/// watched as all other threads are.
fn start_pool(
    numbers: Range<u16>,
    threads: &mut Vec<Thread>,
    stop: &Stop,
) -> Result<FairPool, ThreadPoolBuildError> {
    // With 0 threads requested, rayon starts one for each processor.
    if numbers.is_empty() {
        return Ok(FairPool::default());
    }
    let builder = ThreadPoolBuilder::new().num_threads(numbers.len());
    let builder = builder.spawn_handler(|thread| {
        let name = format!("batch-{}", usize::from(numbers.start) + thread.index());
        threads.push(Thread::try_spawn(&name, stop, move || thread.run())?);
        Ok(())
    });
    Ok(FairPool::new(builder.build()?))
}

#[derive(Debug)]
struct Pools {
    small: FairPool,
    large: FairPool,
}

impl BatchRunner for Pools {
    fn run(&self, jobs: Jobs, batch: Range<usize>, job: &(dyn Fn(usize) + Sync)) {
        let is_large = jobs.count >= LARGE;
        let pool = if is_large { &self.large } else { &self.small };
        pool.run(jobs, batch, job);
    }
}

/// The threads for one size of sync. Their jobs block on HTTP, so their number is the intended
/// concurrency at the API server. At most half of them help one tenant, because it gets another
/// helper only while more threads are free than help it.
#[derive(Debug, Default)]
pub struct FairPool {
    /// Without a pool, each worker runs its batches itself.
    pool: Option<ThreadPool>,
    helpers: Mutex<HashMap<u64, usize>>,
}

impl FairPool {
    pub fn new(pool: ThreadPool) -> Self {
        Self {
            pool: Some(pool),
            helpers: Mutex::default(),
        }
    }

    /// Returns a helper of `tenant` if a thread is free for it.
    fn helper(&self, tenant: u64) -> Option<Helper<'_>> {
        let n_threads = self.pool.as_ref()?.current_num_threads();
        let mut helpers = self.helpers.lock();
        let n_free = n_threads - helpers.values().sum::<usize>();
        let n_its = helpers.get(&tenant).copied().unwrap_or_default();
        if n_its >= n_free {
            return None;
        }
        helpers.insert(tenant, n_its + 1);
        drop(helpers);
        Some(Helper { pool: self, tenant })
    }
}

impl BatchRunner for FairPool {
    fn run(&self, jobs: Jobs, batch: Range<usize>, job: &(dyn Fn(usize) + Sync)) {
        let Some(pool) = self.pool.as_ref().filter(|_| batch.len() > 1) else {
            return batch.for_each(job);
        };
        let next = AtomicUsize::new(batch.start);
        let take = &|| Some(next.fetch_add(1, Ordering::Relaxed)).filter(|it| *it < batch.end);
        pool.in_place_scope(|scope| {
            while let Some(index) = take() {
                for _ in index + 1..batch.end {
                    let Some(helper) = self.helper(jobs.tenant) else {
                        break;
                    };
                    scope.spawn(move |_| {
                        let _helper = helper;
                        std::iter::from_fn(take).for_each(job);
                    });
                }
                job(index);
            }
        });
    }
}

/// A thread of the pool until dropped, also after a panic.
struct Helper<'a> {
    pool: &'a FairPool,
    tenant: u64,
}

impl Drop for Helper<'_> {
    fn drop(&mut self) {
        let mut helpers = self.pool.helpers.lock();
        helpers.entry(self.tenant).and_modify(|n_its| *n_its -= 1);
        helpers.retain(|_, n_its| *n_its > 0);
    }
}

#[cfg(test)]
mod tests;
