//! A rayon pool whose threads are started, named and joined like all others.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rayon::{ThreadPoolBuildError, ThreadPoolBuilder};

use crate::controller::fair_pool::FairPool;
use crate::stdx::stop::Stop;
use crate::stdx::thread::{Thread, join_all};

/// The pool and the handles of its threads.
#[derive(Debug)]
pub(super) struct Crew {
    pub(super) pool: Arc<FairPool>,
    pub(super) threads: Vec<Thread>,
}

impl Crew {
    /// Starts the threads with these `numbers`, each of which does `first` before anything else.
    ///
    /// # Errors
    /// That the system refuses a thread; those that were started end.
    pub(super) fn start(
        numbers: Range<u16>,
        stop: &Stop,
        first: fn(),
    ) -> Result<Self, ThreadPoolBuildError> {
        let threads = Mutex::new(Vec::new());
        let spawn = |thread: rayon::ThreadBuilder| {
            let name = format!("batch-{}", usize::from(numbers.start) + thread.index());
            let body = move || {
                first();
                thread.run();
            };
            let thread = Thread::try_spawn(&name, stop, body)?;
            threads
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(thread);
            Ok(())
        };
        let pool = ThreadPoolBuilder::new()
            .num_threads(numbers.len())
            .spawn_handler(spawn)
            .build()?;
        Ok(Self {
            pool: Arc::new(FairPool::new(pool)),
            threads: threads.into_inner().unwrap_or_else(PoisonError::into_inner),
        })
    }

    /// Gives up the pool and waits until its threads have ended, at most until `deadline`, which they do
    /// when nobody else holds it. Answers the names of those that have not.
    pub(super) fn join_until(self, deadline: Instant) -> Vec<String> {
        drop(self.pool);
        join_all(self.threads, deadline)
    }
}
