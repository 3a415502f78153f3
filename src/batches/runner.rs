//! What runs the jobs of a sync: the pool in the daemon, the calling thread in tests.

use std::fmt::Debug;

/// Runs jobs in batches.
pub trait BatchRunner: Debug + Send + Sync {
    /// Runs `job` once for each index from 0 on, in batches of as many as `sizes` says: a batch runs as
    /// many jobs at a time as it may, and `sizes` is asked for the next when all of them are done. 0 ends
    /// it; otherwise all batches together have `count` jobs.
    fn run(&self, count: usize, sizes: &mut dyn FnMut() -> usize, job: &(dyn Fn(usize) + Sync));
}

/// Does batches of a single job on the calling thread, which is quicker than to call others. Returns how
/// many there were, and the size of the first one that has more jobs: 0 if none has.
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

/// One job after the other on the calling thread.
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
