//! The figures of a target's iterations, and the file that keeps them.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What each long run came to, a line for each target.
pub(super) const FILE: &str = "tests/records/fuzz.jsonl";

/// Inputs shorter than this cost their fixed part only, which says nothing about a byte.
const LENGTH_MIN: usize = 256;

/// The figures of some iterations of one target.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Figures {
    target: String,
    first: u64,
    /// The iteration after the last.
    pub(super) end: u64,
    cpu_seconds: f64,
    n_accepted: u64,
    n_refused: u64,
    /// CPU time of the slowest input of at least 256 bytes, by its length.
    slowest_us_per_byte: f64,
}

impl Figures {
    pub(super) fn new(target: &str, first: u64) -> Self {
        Self {
            target: target.to_owned(),
            first,
            end: first,
            cpu_seconds: 0.0,
            n_accepted: 0,
            n_refused: 0,
            slowest_us_per_byte: 0.0,
        }
    }

    pub(super) fn add(&mut self, accepted: bool, took: Duration, length: usize) {
        self.end += 1;
        self.n_accepted += u64::from(accepted);
        self.n_refused += u64::from(!accepted);
        self.cpu_seconds += took.as_secs_f64();
        if length >= LENGTH_MIN {
            let per_byte = took.as_secs_f64() * 1e6 / float(length);
            self.slowest_us_per_byte = self.slowest_us_per_byte.max(per_byte);
        }
    }

    /// Appends the figures to a file, as one line of JSON.
    pub(super) fn append(&self, file: &Path) {
        let file = OpenOptions::new().create(true).append(true).open(file);
        let line = serde_json::to_string(self).expect("numbers");
        writeln!(file.expect("a file for the figures"), "{line}").expect("room on the disk");
    }

    #[expect(clippy::print_stdout, reason = "the figures are what a run is for")]
    pub(super) fn print(&self) {
        let line = serde_json::to_string(self).expect("numbers") + "\n";
        print!("{line}");
    }
}

/// The iteration after a target's last on record.
pub(super) fn end(file: &Path, target: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().map(|line| {
        let figures: Figures = serde_json::from_str(line).expect("a line of figures");
        figures
    });
    let of_target = lines.filter(|figures| figures.target == target);
    of_target.map(|figures| figures.end).max().unwrap_or(0)
}

pub(super) fn ratio(of: usize, to: usize) -> f64 {
    float(of) / float(to)
}

fn float(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}
