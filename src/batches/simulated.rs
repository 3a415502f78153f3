//! The runner of a simulation: rayon's threads cannot take turns, so each batch has threads of its
//! own, which take its jobs in an order that the seed decides.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

use super::{BatchRunner, Jobs};
use crate::stdx::turns::Spot;
use crate::stdx::turns::simulation::{Ticket, ticket, wait_in_any_case, wake_at_end};

/// Maximum threads of a batch, its worker's thread included.
const THREADS_MAX: usize = 4;

/// Runs each batch on a few threads of the simulation.
#[derive(Debug)]
pub(super) struct Shuffled;

impl BatchRunner for Shuffled {
    fn run(&self, _jobs: Jobs, batch: Range<usize>, job: &(dyn Fn(usize) + Sync)) {
        let mut jobs: Vec<usize> = batch.collect();
        fastrand::shuffle(&mut jobs);
        run_batch(jobs, job);
    }
}

fn run_batch(jobs: Vec<usize>, job: &(dyn Fn(usize) + Sync)) {
    let n_helpers = jobs.len().min(THREADS_MAX) - 1;
    let n_running = AtomicUsize::new(n_helpers);
    let (jobs, ended_one) = (Mutex::new(jobs), Spot::default());
    let take = || jobs.lock().pop();
    let work = || {
        while let Some(index) = take() {
            job(index);
        }
    };
    let tickets: Vec<Ticket> = (0..n_helpers).filter_map(|_| ticket("batch")).collect();
    thread::scope(|scope| {
        for ticket in tickets {
            let (work, n_running, ended_one) = (&work, &n_running, &ended_one);
            scope.spawn(move || {
                let _turns = ticket.begin();
                // A killed process unwinds; the worker does so by itself.
                let ended = catch_unwind(AssertUnwindSafe(work));
                drop(ended);
                n_running.fetch_sub(1, Ordering::Relaxed);
                wake_at_end(ended_one);
            });
        }
        let ended = catch_unwind(AssertUnwindSafe(work));
        wait_in_any_case(&ended_one, || n_running.load(Ordering::Relaxed) == 0);
        if let Err(panic) = ended {
            resume_unwind(panic);
        }
    });
}
