//! The threads `batch-0…n`, which last as long as the daemon.
//!
//! Small syncs have threads that no large one ever gets, and the other way round. So whatever the
//! threads of large syncs wait for, be it an answer that takes seconds or a token of the rate limit, a
//! small sync finds its threads free; and no more requests of large syncs stand before its own in the
//! API server than large syncs have threads.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rayon::{ThreadPoolBuildError, ThreadPoolBuilder};

use super::LARGE;
use super::fair_pool::FairPool;
use super::runner::{BatchRunner, Serial};
use crate::stdx::stop::Stop;
use crate::stdx::thread::{Liveness, Thread, join_all};

/// One thread in so many is for large syncs. More of their requests at once make a small sync wait
/// longer for an answer than they make large ones faster (tests/bench/README.md).
const LARGE_SHARE: u16 = 4;

/// All threads for batches, and their handles.
#[derive(Debug)]
pub struct BatchPool {
    small: Part,
    large: Part,
}

impl BatchPool {
    /// Starts `n_threads`, of which a quarter, but one at least, is for large syncs.
    ///
    /// # Errors
    /// If the system refuses a thread; those that were started end.
    pub fn start(n_threads: u16, stop: &Stop) -> Result<Self, ThreadPoolBuildError> {
        let n_small = n_threads - n_threads.div_ceil(LARGE_SHARE);
        Ok(Self {
            small: Part::start(0..n_small, stop)?,
            large: Part::start(n_small..n_threads, stop)?,
        })
    }

    /// The pool as the controller sees it. The threads end when no runner is left and the pool is
    /// joined.
    pub fn runner(&self) -> Arc<dyn BatchRunner> {
        Arc::new(Runner {
            small: self.small.runner(),
            large: self.large.runner(),
        })
    }

    /// Whether each of the threads still runs.
    pub fn liveness(&self) -> impl Iterator<Item = Liveness> {
        let parts = [&self.small, &self.large].into_iter();
        parts.flat_map(|part| part.threads.iter().map(Thread::liveness))
    }

    /// Gives up the pool and waits until its threads have ended, at most until `deadline`. Returns the
    /// names of those that have not.
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
    /// Starts the threads with these `numbers`, by this project's own means, so that they are named,
    /// joined and watched as all others are.
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
        // Asked for no threads, rayon would start one for each processor.
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

    /// Without threads, each worker does its batches alone.
    fn runner(&self) -> Arc<dyn BatchRunner> {
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

/// Runs small and large batches on threads of their own.
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
