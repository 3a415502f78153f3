//! The threads `batch-0…n`: a private rayon pool whose threads are started, named and joined like all
//! others.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rayon::ThreadPoolBuilder;

use crate::controller::fair_pool::FairPool;
use crate::controller::slow_start::BatchRunner;
use crate::stdx::stop::Stop;
use crate::stdx::thread::{Liveness, Thread};

/// The pool and the handles of its threads.
#[derive(Debug)]
pub(super) struct BatchPool {
    pool: Arc<FairPool>,
    threads: Vec<Thread>,
}

impl BatchPool {
    /// Starts `size` threads.
    pub(super) fn start(size: u16, stop: &Stop) -> Self {
        let threads = Mutex::new(Vec::new());
        let spawn = |thread: rayon::ThreadBuilder| {
            let name = format!("batch-{}", thread.index());
            let thread = Thread::spawn(&name, stop, || thread.run());
            threads
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(thread);
            Ok(())
        };
        let pool = ThreadPoolBuilder::new()
            .num_threads(size.into())
            .spawn_handler(spawn)
            .build();
        Self {
            pool: Arc::new(FairPool::new(pool.expect("the handler never fails"))),
            threads: threads.into_inner().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// The pool as the controller sees it. The threads end when nobody holds it any more.
    pub(super) fn runner(&self) -> Arc<dyn BatchRunner> {
        Arc::clone(&self.pool) as Arc<_>
    }

    /// Whether each of its threads still runs.
    pub(super) fn liveness(&self) -> impl Iterator<Item = Liveness> {
        self.threads.iter().map(Thread::liveness)
    }

    /// Gives up the pool and waits until its threads have ended, at most until `deadline`. Answers the
    /// names of those that have not.
    pub(super) fn join_until(self, deadline: Instant) -> Vec<String> {
        drop(self.pool);
        self.threads
            .into_iter()
            .filter_map(|thread| thread.join_until(deadline).err())
            .collect()
    }
}
