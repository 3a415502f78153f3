//! The threads `batch-0…n`: some that last, and more that come where a sync has many pods to create or
//! delete, and go again.
//!
//! An API server takes many requests more cheaply at once than one after the other, and so
//! thousands of pods are created and deleted quicker by more threads; but most of the time there
//! are none to create, and a thread that has been busy keeps memory. Few pods and many never share
//! threads, so that a slow answer to those who have many holds up nobody else; and while there are
//! some with few, those who have many send less at once, so that they are not before them in the
//! API server either.

mod crew;
mod others;
mod surge;

use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rayon::ThreadPoolBuildError;

use self::crew::Crew;
use self::others::Others;
use self::surge::Surge;
use super::ManagerOptions;
use crate::controller::decide::plan::LARGE;
use crate::controller::fair_pool::FairPool;
use crate::controller::slow_start::{BatchRunner, Serial, run_single_jobs};
use crate::stdx::stop::Stop;
use crate::stdx::thread::{Liveness, Thread};

/// Threads that last, unless fewer are asked for. All of them run small syncs where the surge runs
/// large ones; elsewhere half of them do.
const LASTING_MAX: u16 = 16;

/// How many pods of those who have many are created or deleted at once while others are there who have few.
/// On two processors an API server is busy with that already; with more, each of its answers takes longer by
/// what stands before it.
const BESIDE_OTHERS: usize = 4;

/// How long others count as being there after they have come.
const OTHERS_STAY: Duration = Duration::from_secs(1);

/// A rate limit up to which the lasting threads are enough, in requests a second: what half of them
/// send if each waits 80 ms for an answer.
const LASTING_QPS: f32 = 100.0;

/// How long the others stay when nobody calls them.
const STAY: Duration = Duration::from_secs(10);

/// The pools and the handles of their threads.
#[derive(Debug)]
pub(super) struct BatchPool {
    few: Option<Crew>,
    /// `None` where `surge` has threads.
    many: Option<Crew>,
    surge: Arc<Surge>,
    others: Arc<Others>,
}

impl BatchPool {
    /// Starts the threads that last.
    ///
    /// # Errors
    /// That the system refuses one of them.
    pub(super) fn start(
        options: &ManagerOptions,
        stop: &Stop,
    ) -> Result<Self, ThreadPoolBuildError> {
        Self::of_sizes(sizes(options), STAY, OTHERS_STAY, stop)
    }

    fn of_sizes(
        sizes: Sizes,
        stay: Duration,
        others_stay: Duration,
        stop: &Stop,
    ) -> Result<Self, ThreadPoolBuildError> {
        let (n_lasting, n_all) = (sizes.few + sizes.many, sizes.few + sizes.many + sizes.more);
        let start = |numbers: Range<u16>| {
            let crew = (!numbers.is_empty()).then(|| Crew::start(numbers, stop, || {}));
            crew.transpose()
        };
        Ok(Self {
            few: start(0..sizes.few)?,
            many: start(sizes.few..n_lasting)?,
            surge: Arc::new(Surge::new(n_lasting..n_all, stay, stop)),
            others: Arc::new(Others::new(others_stay)),
        })
    }

    /// The pools as the controller sees them. The threads that last end when nobody holds them any
    /// more.
    pub(super) fn runner(&self) -> Arc<dyn BatchRunner> {
        Arc::new(Runner {
            few: runner_of(self.few.as_ref()),
            many: runner_of(self.many.as_ref()),
            surge: Arc::clone(&self.surge),
            others: Arc::clone(&self.others),
        })
    }

    /// Whether each of the threads that last still runs.
    pub(super) fn liveness(&self) -> impl Iterator<Item = Liveness> {
        let crews = [&self.few, &self.many].into_iter().flatten();
        crews.flat_map(|crew| crew.threads.iter().map(Thread::liveness))
    }

    /// Gives up the pools and waits until their threads have ended, at most until `deadline`.
    /// Answers the names of those that have not.
    pub(super) fn join_until(self, deadline: Instant) -> Vec<String> {
        let mut stuck = self.surge.join_until(deadline);
        for crew in [self.few, self.many].into_iter().flatten() {
            stuck.extend(crew.join_until(deadline));
        }
        stuck
    }
}

/// Without threads, each worker does its batches alone.
fn runner_of(crew: Option<&Crew>) -> Arc<dyn BatchRunner> {
    match crew {
        Some(crew) => Arc::clone(&crew.pool) as _,
        None => Arc::new(Serial),
    }
}

/// How many threads last.
pub(super) fn n_lasting(options: &ManagerOptions) -> u16 {
    let sizes = sizes(options);
    sizes.few + sizes.many
}

/// How many threads there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    /// For few pods; they last.
    few: u16,
    /// For many pods; they last.
    many: u16,
    /// For many pods; they come and go.
    more: u16,
}

/// There is no surge if the threads that last would have to be fewer for it, or if the rate limit
/// leaves nothing for it to do.
fn sizes(options: &ManagerOptions) -> Sizes {
    let parallelism = options.batch_parallelism;
    let is_slow = options.kube_api_qps > 0.0 && options.kube_api_qps < LASTING_QPS;
    if parallelism >= 2 * LASTING_MAX && !is_slow {
        return Sizes {
            few: LASTING_MAX,
            many: 0,
            more: parallelism - LASTING_MAX,
        };
    }
    let n_lasting = if parallelism < 2 * LASTING_MAX {
        parallelism
    } else {
        LASTING_MAX
    };
    let few = n_lasting / 2;
    Sizes {
        few,
        many: n_lasting - few,
        more: 0,
    }
}

/// Runs small and large batches on threads of their own.
#[derive(Debug)]
struct Runner {
    few: Arc<dyn BatchRunner>,
    many: Arc<dyn BatchRunner>,
    surge: Arc<Surge>,
    others: Arc<Others>,
}

impl BatchRunner for Runner {
    fn run(&self, count: usize, sizes: &mut dyn FnMut() -> usize, job: &(dyn Fn(usize) + Sync)) {
        if count < LARGE {
            self.others.come();
            return self.few.run(count, sizes, job);
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
            None => self.many.run(count, &mut sizes, &job),
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
