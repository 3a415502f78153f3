//! Batches of creates and deletes: how many requests a sync sends before it checks the responses
//! ([`slow_start_batch`]), and the threads that send them ([`pool`]).
//!
//! A job is one request. The jobs of a batch may run at the same time. The next batch of a sync
//! starts after the last job of the previous one has ended.
//!
//! # Locks
//!
//! [`pool`] has one lock, around the number of helpers. Workers and the threads `batch-*` take it.

pub mod pool;
#[cfg(test)]
mod simulated;

use std::fmt::Debug;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

pub use pool::FairPool;

/// A sync that creates or deletes this many pods is a large one. Small syncs do not wait for large
/// ones: some workers and some batch threads never serve large syncs. A slow start with fewer pods
/// has no batch of more than 16.
pub const LARGE: usize = 32;

#[derive(Clone, Copy, Debug)]
pub struct Jobs {
    /// How many, in all batches.
    pub count: usize,
    /// Whose share of the threads runs them, such as a hash of the namespace.
    pub tenant: u64,
}

pub trait BatchRunner: Debug + Send + Sync {
    /// Runs `job` for each index of `batch`, a part of `jobs`. Blocks until the last job has ended.
    /// A panic in a job arrives here then.
    fn run(&self, jobs: Jobs, batch: Range<usize>, job: &(dyn Fn(usize) + Sync));
}

/// Size of the first batch (kubernetes
/// `pkg/controller/controller_utils.go:SlowStartInitialBatchSize`).
pub const SLOW_START_INITIAL_BATCH_SIZE: usize = 1;

/// Runs `job` for each of `jobs` in batches, of which each is twice as large as the one before.
/// Each batch runs to its end, and the first batch with a failure is the last. Returns how many
/// jobs returned true, and the first error (kubernetes
/// `pkg/controller/replicaset/replica_set.go:slowStartBatch`).
pub fn slow_start_batch<E: Send>(
    jobs: Jobs,
    initial_batch_size: usize,
    runner: &dyn BatchRunner,
    job: &(dyn Fn(usize) -> Result<bool, E> + Sync),
) -> (usize, Result<(), E>) {
    let n_done = AtomicUsize::new(0);
    let first_error = Mutex::new(Ok(()));
    let lock = || first_error.lock();
    let job = |index| match job(index) {
        Ok(is_done) => {
            n_done.fetch_add(is_done.into(), Ordering::Relaxed);
        }
        Err(error) => {
            let mut first = lock();
            if first.is_ok() {
                *first = Err(error);
            }
        }
    };
    let (mut next, mut size) = (0, initial_batch_size);
    // As upstream: after a failure, such as an exceeded quota, the jobs that remain would probably
    // fail with the same error.
    while next < jobs.count && lock().is_ok() {
        let end = jobs.count.min(next + size);
        runner.run(jobs, next..end, &job);
        size = 2 * (end - next);
        next = end;
    }
    (n_done.into_inner(), first_error.into_inner())
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use parking_lot::Mutex;

    use super::{BatchRunner, Jobs, slow_start_batch};
    use crate::batches::FairPool;

    /// Runs serially and records the size of each batch.
    #[derive(Debug, Default)]
    struct Sizes(Mutex<Vec<usize>>);

    impl BatchRunner for Sizes {
        fn run(&self, jobs: Jobs, batch: Range<usize>, job: &(dyn Fn(usize) + Sync)) {
            let mut all = self.0.lock();
            all.push(batch.len());
            FairPool::default().run(jobs, batch, job);
        }
    }

    #[track_caller]
    fn check(wanted: usize, succeeding: usize, successes: usize, batches: &[usize]) {
        let (runner, calls) = (Sizes::default(), AtomicUsize::new(0));
        let jobs = Jobs {
            count: wanted,
            tenant: 0,
        };
        let job = |_| match calls.fetch_add(1, Ordering::Relaxed) {
            call if call < succeeding => Ok(true),
            call => Err(call),
        };
        let (done, result) = slow_start_batch(jobs, 1, &runner, &job);
        assert_eq!(done, successes);
        assert_eq!(*runner.0.lock(), batches);
        assert_eq!(calls.into_inner(), batches.iter().sum::<usize>());
        assert_eq!(
            result,
            if wanted > successes {
                Err(succeeding)
            } else {
                Ok(())
            }
        );
    }

    #[test]
    fn g_01_if_all_calls_fail_only_one_is_sent() {
        check(10, 0, 0, &[1]);
    }

    #[test]
    fn g_02_batches_double_until_all_is_done() {
        check(10, 10, 10, &[1, 2, 4, 3]);
        check(0, 0, 0, &[]);
        check(1, 1, 1, &[1]);
    }

    #[test]
    fn g_03_the_batch_with_a_failure_is_finished_and_is_the_last() {
        check(10, 5, 5, &[1, 2, 4]);
    }

    #[test]
    fn g_04_at_most_fifteen_calls_where_ten_succeed() {
        check(100, 10, 10, &[1, 2, 4, 8]);
    }
}
