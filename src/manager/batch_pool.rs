//! The threads `batch-0…n`: some that last, and more that come where a sync has many pods to create or
//! delete, and go again.
//!
//! An API server takes many requests more cheaply at once than one after the other, and so thousands of
//! pods are created and deleted quicker by more threads; but most of the time there are none to create,
//! and a thread that has been busy keeps memory. Where there are few pods, the threads that last are for
//! them alone, so that those of somebody who has many are not before them; and while there are such, those
//! who have many send less at once, so that they are not before them in the API server either.

mod crew;
mod others;
mod surge;

use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::crew::Crew;
use self::others::Others;
use self::surge::Surge;
use super::ManagerOptions;
use crate::controller::fair_pool::FairPool;
use crate::controller::slow_start::{BatchRunner, run_single_jobs};
use crate::stdx::stop::Stop;
use crate::stdx::thread::{Liveness, Thread};

/// Threads that last, unless fewer are asked for.
const LASTING_MAX: u16 = 16;

/// So many pods of one sync are for the other threads. A slow start with fewer has no batch that the threads
/// that last could not do at once.
const MANY: usize = 2 * LASTING_MAX as usize;

/// How many pods of those who have many are created or deleted at once while others are there who have few.
/// On two processors an API server is busy with that already; with more, each of its answers takes longer by
/// what stands before it.
const BESIDE_OTHERS: usize = 4;

/// How long others count as being there after they have come.
const OTHERS_STAY: Duration = Duration::from_secs(1);

/// A rate limit up to which the lasting threads are enough, in requests a second: what they send if each
/// waits 80 ms for an answer.
const LASTING_QPS: f32 = 200.0;

/// How long the others stay when nobody calls them.
const STAY: Duration = Duration::from_secs(10);

/// The pool and the handles of its threads.
#[derive(Debug)]
pub(super) struct BatchPool {
    lasting: Crew,
    surge: Arc<Surge>,
    others: Arc<Others>,
}

impl BatchPool {
    /// Starts the threads that last.
    pub(super) fn start(options: &ManagerOptions, stop: &Stop) -> Self {
        let (n_lasting, n_more) = sizes(options);
        let lasting =
            Crew::start(0..n_lasting, stop, || {}).expect("the system starts the first threads");
        Self {
            lasting,
            surge: Arc::new(Surge::new(n_lasting..n_lasting + n_more, STAY, stop)),
            others: Arc::new(Others::new(OTHERS_STAY)),
        }
    }

    /// The pool as the controller sees it. The threads that last end when nobody holds it any more.
    pub(super) fn runner(&self) -> Arc<dyn BatchRunner> {
        Arc::new(Runner {
            lasting: Arc::clone(&self.lasting.pool),
            surge: Arc::clone(&self.surge),
            others: Arc::clone(&self.others),
        })
    }

    /// Whether each of the threads that last still runs.
    pub(super) fn liveness(&self) -> impl Iterator<Item = Liveness> {
        self.lasting.threads.iter().map(Thread::liveness)
    }

    /// Gives up the pool and waits until its threads have ended, at most until `deadline`. Answers the
    /// names of those that have not.
    pub(super) fn join_until(self, deadline: Instant) -> Vec<String> {
        let mut stuck = self.surge.join_until(deadline);
        stuck.extend(self.lasting.join_until(deadline));
        stuck
    }
}

/// How many threads last, as [`sizes`] says.
pub(super) fn n_lasting(options: &ManagerOptions) -> u16 {
    sizes(options).0
}

/// How many threads last, and how many more come for many pods: none where those that last would have to
/// be fewer for it, or where the rate limit leaves nothing for them to do.
fn sizes(options: &ManagerOptions) -> (u16, u16) {
    let parallelism = options.batch_parallelism;
    if parallelism < 2 * LASTING_MAX {
        return (parallelism, 0);
    }
    let is_slow = options.kube_api_qps > 0.0 && options.kube_api_qps < LASTING_QPS;
    let n_more = if is_slow {
        0
    } else {
        parallelism - LASTING_MAX
    };
    (LASTING_MAX, n_more)
}

/// Has few jobs done by the threads that last, and many by the others.
#[derive(Debug)]
struct Runner {
    lasting: Arc<FairPool>,
    surge: Arc<Surge>,
    others: Arc<Others>,
}

impl BatchRunner for Runner {
    fn run(&self, count: usize, sizes: &mut dyn FnMut() -> usize, job: &(dyn Fn(usize) + Sync)) {
        if count < MANY {
            self.others.come();
            return self.lasting.run(count, sizes, job);
        }
        // Of many that are refused the first one tells, and nobody is called for it.
        let (done, mut size) = run_single_jobs(sizes, job);
        if size == 0 {
            return;
        }
        let (count, mut sizes) = (count - done, || match mem::take(&mut size) {
            0 => sizes(),
            first => first,
        });
        let job = |index| job(done + index);
        match self.surge.call() {
            None => self.lasting.run(count, &mut sizes, &job),
            Some(pool) => {
                self.leave_room_in(&pool);
                pool.run(count, &mut sizes, &|index| {
                    self.leave_room_in(&pool);
                    job(index);
                });
            }
        }
    }
}

impl Runner {
    fn leave_room_in(&self, pool: &FairPool) {
        let are_there = self.others.are_there();
        pool.limit_to(if are_there { BESIDE_OTHERS } else { usize::MAX });
    }
}

#[cfg(test)]
mod tests;
