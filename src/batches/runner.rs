//! Runners of a sync's jobs: the pool in the daemon, the calling thread in tests.

use std::fmt::Debug;

/// Runs jobs in batches.
pub trait BatchRunner: Debug + Send + Sync {
    /// Runs `job` once for each index from 0 on, in batches. `sizes` returns the size of the next
    /// batch; the runner calls it when all jobs of the previous batch have ended. 0 ends the run;
    /// otherwise all batches together have `count` jobs.
    fn run(&self, count: usize, sizes: &mut dyn FnMut() -> usize, job: &(dyn Fn(usize) + Sync));
}

/// Runs leading batches of a single job on the calling thread, which is faster than to call
/// helpers. Returns their number, and the size of the first larger batch, or 0 without one.
pub(super) fn run_single_jobs(
    sizes: &mut dyn FnMut() -> usize,
    job: &(dyn Fn(usize) + Sync),
) -> (usize, usize) {
    let mut done = 0;
    loop {
        let size = sizes();
        if size != 1 {
            return (done, size);
        }
        job(done);
        done += 1;
    }
}

/// Runs one job after the other on the calling thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Serial;

impl BatchRunner for Serial {
    fn run(&self, _count: usize, sizes: &mut dyn FnMut() -> usize, job: &(dyn Fn(usize) + Sync)) {
        let mut done = 0;
        loop {
            let size = sizes();
            if size == 0 {
                return;
            }
            (done..done + size).for_each(job);
            done += size;
        }
    }
}
