//! The threads `batch-0…n`, which run as long as the daemon.
//!
//! Small and large syncs have separate threads. Whatever the threads of large syncs wait for, be it
//! a slow response or a token of the rate limit, a small sync finds its own threads free. The
//! number of threads for large syncs also limits how many of their requests queue before a small
//! sync's at the API server.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rayon::{ThreadPoolBuildError, ThreadPoolBuilder};

use super::LARGE;
use super::fair_pool::FairPool;
use super::runner::{BatchRunner, Serial};
use crate::stdx::stop::Stop;
use crate::stdx::thread::{Liveness, Thread, join_all};

/// One in this many threads is for large syncs. More concurrent requests of large syncs delay small
/// syncs by more than they speed up the large ones (tests/bench/README.md).
const LARGE_SHARE: u16 = 4;

/// All threads for batches, and their handles.
#[derive(Debug)]
pub struct BatchPool {
    small: Part,
    large: Part,
}

impl BatchPool {
    /// Starts `n_threads`. A quarter of them, but at least one, is for large syncs.
    ///
    /// # Errors
    /// If the system refuses a thread. The threads started before end.
    pub fn start(n_threads: u16, stop: &Stop) -> Result<Self, ThreadPoolBuildError> {
        let n_small = n_threads - n_threads.div_ceil(LARGE_SHARE);
        Ok(Self {
            small: Part::start(0..n_small, stop)?,
            large: Part::start(n_small..n_threads, stop)?,
        })
    }

    /// Returns the runner for the controller. The threads end once every runner is dropped and the
    /// pool is joined.
    pub fn runner(&self) -> Arc<dyn BatchRunner> {
        Arc::new(Runner {
            small: self.small.runner(),
            large: self.large.runner(),
        })
    }

    /// Returns a liveness check for each thread.
    pub fn liveness(&self) -> impl Iterator<Item = Liveness> {
        let parts = [&self.small, &self.large].into_iter();
        parts.flat_map(|part| part.threads.iter().map(Thread::liveness))
    }

    /// Drops the pool and blocks until its threads have ended, at most until `deadline`. Returns
    /// the names of the threads that still run.
    pub fn join_until(self, deadline: Instant) -> Vec<String> {
        let mut stuck = self.small.join_until(deadline);
        stuck.extend(self.large.join_until(deadline));
        stuck
    }
}

/// The threads for one size of sync.
#[derive(Debug)]
struct Part {
    /// `None` without threads.
    pool: Option<Arc<FairPool>>,
    threads: Vec<Thread>,
}

impl Part {
    /// Starts the threads with these `numbers` through [`Thread`], so that they are named, joined
    /// and watched as all other threads are.
    fn start(numbers: Range<u16>, stop: &Stop) -> Result<Self, ThreadPoolBuildError> {
        let threads = Mutex::new(Vec::new());
        let spawn = |thread: rayon::ThreadBuilder| {
            let name = format!("batch-{}", usize::from(numbers.start) + thread.index());
            let thread = Thread::try_spawn(&name, stop, move || thread.run())?;
            threads
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(thread);
            Ok(())
        };
        // With 0 threads requested, rayon starts one for each processor.
        let pool = if numbers.is_empty() {
            None
        } else {
            let builder = ThreadPoolBuilder::new().num_threads(numbers.len());
            Some(Arc::new(FairPool::new(
                builder.spawn_handler(spawn).build()?,
            )))
        };
        Ok(Self {
            pool,
            threads: threads.into_inner().unwrap_or_else(PoisonError::into_inner),
        })
    }

    /// Returns the runner. Without threads, each worker runs its batches itself.
    fn runner(&self) -> Arc<dyn BatchRunner> {
        #[cfg(test)]
        if crate::stdx::turns::scheduler::process().is_some() {
            return Arc::new(super::simulated::Shuffled);
        }
        match &self.pool {
            Some(pool) => Arc::clone(pool) as _,
            None => Arc::new(Serial),
        }
    }

    fn join_until(self, deadline: Instant) -> Vec<String> {
        drop(self.pool);
        join_all(self.threads, deadline)
    }
}

/// Runs small and large batches on separate threads.
#[derive(Debug)]
struct Runner {
    small: Arc<dyn BatchRunner>,
    large: Arc<dyn BatchRunner>,
}

impl BatchRunner for Runner {
    fn run(&self, count: usize, sizes: &mut dyn FnMut() -> usize, job: &(dyn Fn(usize) + Sync)) {
        let part = if count < LARGE {
            &self.small
        } else {
            &self.large
        };
        part.run(count, sizes, job);
    }
}

#[cfg(test)]
mod tests;
