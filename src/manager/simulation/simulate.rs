//! `make simulate`: as many histories as a time allows, on all processors, in slices that are kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use parking_lot::Mutex;

use super::report::Totals;
use super::{all_faults, check, print};

/// Histories of one slice.
const SLICE: u64 = 100;

/// What each run came to, a line each: the manual's figures are made from it.
const RECORD: &str = "tests/records/simulation.jsonl";

/// The slices of this run, or of one that was cut off.
const SLICES: &str = "target/simulation/slices.jsonl";

/// The histories that failed, made smaller, a file each.
const FAILURES: &str = "target/simulation/failures";

/// Runs histories for about `time`. Continues after the last seed on record, and adds a line to the
/// record, with the slices of a run that was cut off. A failure does not end the run, but nothing
/// is recorded as long as its file is there.
pub(super) fn simulate(time: Duration) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let (record, slices) = (folder.join(RECORD), folder.join(SLICES));
    let failures = folder.join(FAILURES);
    fs::create_dir_all(&failures).expect("a folder for failures");
    run_slices(time, &slices, &failures, Totals::read(&record).end);
    let failed = fs::read_dir(&failures).expect("a folder for failures");
    let failed: Vec<PathBuf> = failed.map(|it| it.expect("a file").path()).collect();
    assert!(
        failed.is_empty(),
        "these histories failed; once they pass (SIMULATION_SEEDS), delete their files: {failed:?}"
    );
    Totals::read(&slices).append(&record);
    fs::remove_file(&slices).expect("the slices are on record");
    let totals = Totals::read(&record);
    print(&totals);
    let missing = totals.without(all_faults());
    assert!(
        missing.is_empty(),
        "no history had these faults: {missing:?}"
    );
}

fn run_slices(time: Duration, file: &Path, failures: &Path, first: u64) {
    let next = Mutex::new(Totals::read(file).end.max(first));
    let end = Instant::now() + time;
    let lock = || next.lock();
    let n_threads = thread::available_parallelism().map_or(1, usize::from);
    let slices = || {
        while Instant::now() < end {
            let first = {
                let mut next = lock();
                *next += SLICE;
                *next - SLICE
            };
            let mut totals = Totals::of(first, first + SLICE);
            let (before, began) = (cpu_time(), Instant::now());
            for seed in first..first + SLICE {
                match check(seed) {
                    Ok(outcome) => totals.add(&outcome),
                    Err(failure) => {
                        let file = failures.join(seed.to_string());
                        fs::write(file, failure).expect("room on the disk");
                    }
                }
            }
            // The slices that run at the same time share both.
            let n_threads = u32::try_from(n_threads).unwrap_or(1);
            let took = cpu_time().saturating_sub(before);
            totals.took(took / n_threads, began.elapsed() / n_threads);
            let _appending = lock();
            totals.append(file);
        }
    };
    thread::scope(|scope| {
        for _ in 0..n_threads {
            scope.spawn(slices);
        }
    });
}

/// CPU time of this process.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    time.expect("the system has this clock").into()
}
