//! `make simulate`: as many histories as a time allows, on all processors, in slices that are kept.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use super::report::Totals;
use super::{all_faults, check, print};

/// Histories of one slice.
const SLICE: u64 = 100;

/// Runs histories for about `time`. Goes on after the last slice in the file, and appends to it.
pub(super) fn simulate(time: Duration) {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/simulation/slices.jsonl");
    let next = Mutex::new(Totals::read(&file).end);
    let end = Instant::now() + time;
    let lock = || next.lock().unwrap_or_else(PoisonError::into_inner);
    let n_threads = thread::available_parallelism().map_or(1, usize::from);
    let slices = || {
        while Instant::now() < end {
            let first = {
                let mut next = lock();
                *next += SLICE;
                *next - SLICE
            };
            let mut totals = Totals::of(first, first + SLICE);
            let before = cpu_time();
            for seed in first..first + SLICE {
                totals.add(&check(seed));
            }
            // The slices that run at the same time share it.
            totals.took(cpu_time().saturating_sub(before) / u32::try_from(n_threads).unwrap_or(1));
            let _appending = lock();
            totals.append(&file);
        }
    };
    thread::scope(|scope| {
        for _ in 0..n_threads {
            scope.spawn(slices);
        }
    });
    let totals = Totals::read(&file);
    print(&totals);
    let missing = totals.without(all_faults());
    assert!(
        missing.is_empty(),
        "no history had these faults: {missing:?}"
    );
}

/// CPU time of this process.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    time.expect("the system has this clock").into()
}
