//! The figures of a target's iterations, and the file that keeps them.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What the long runs came to, a line for each target.
pub(super) const FILE: &str = "tests/records/fuzz.jsonl";

/// Inputs shorter than this cost their fixed part only, which says nothing about a byte.
const LENGTH_MIN: usize = 256;

/// The figures of some iterations of one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Figures {
    target: String,
    first: u64,
    /// The iteration after the last.
    pub(super) end: u64,
    /// Of drawing, reading and checking; of the first iterations on record, of reading only.
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
        if length >= LENGTH_MIN {
            let per_byte = took.as_secs_f64() * 1e6 / float(length);
            self.slowest_us_per_byte = self.slowest_us_per_byte.max(per_byte);
        }
    }

    pub(super) fn add_cpu_time(&mut self, cpu_time: Duration) {
        self.cpu_seconds += cpu_time.as_secs_f64();
    }

    /// Writes the figures to a file, into the line of the target's iterations before these. A run
    /// that is cut off here leaves the old file or the new one.
    pub(super) fn keep(self, file: &Path) {
        let mut all = read(file);
        let before = all
            .iter()
            .position(|it| it.target == self.target && it.end == self.first);
        match before {
            Some(before) => all[before].extend(&self),
            None => all.push(self),
        }
        let lines = all.iter().map(Self::line);
        let unfinished = file.with_extension("unfinished");
        fs::write(&unfinished, lines.collect::<String>()).expect("room on the disk");
        fs::rename(&unfinished, file).expect("a file for the figures");
    }

    fn extend(&mut self, more: &Self) {
        self.end = more.end;
        self.cpu_seconds += more.cpu_seconds;
        self.n_accepted += more.n_accepted;
        self.n_refused += more.n_refused;
        self.slowest_us_per_byte = self.slowest_us_per_byte.max(more.slowest_us_per_byte);
    }

    fn line(&self) -> String {
        serde_json::to_string(self).expect("numbers") + "\n"
    }

    #[expect(clippy::print_stdout, reason = "the figures are what a run is for")]
    pub(super) fn print(&self) {
        print!("{}", self.line());
    }
}

/// Prints all that is on record.
pub(super) fn print(file: &Path) {
    read(file).iter().for_each(Figures::print);
}

/// The iteration after a target's last on record.
pub(super) fn end(file: &Path, target: &str) -> u64 {
    let all = read(file);
    let of_target = all.iter().filter(|figures| figures.target == target);
    of_target.map(|figures| figures.end).max().unwrap_or(0)
}

/// The CPU time of a target's iterations on record.
pub(super) fn cpu_time(file: &Path, target: &str) -> Duration {
    let all = read(file);
    let of_target = all.iter().filter(|figures| figures.target == target);
    Duration::from_secs_f64(of_target.map(|figures| figures.cpu_seconds).sum())
}

fn read(file: &Path) -> Vec<Figures> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().map(serde_json::from_str);
    lines
        .collect::<Result<_, _>>()
        .expect("a line of figures each")
}

fn float(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Figures, cpu_time, end, read};

    fn slice(target: &str, first: u64, n: u64) -> Figures {
        let mut figures = Figures::new(target, first);
        for _ in 0..n {
            figures.add(true, Duration::from_secs(1), 1000);
            figures.add_cpu_time(Duration::from_secs(2));
        }
        figures
    }

    #[test]
    fn a_run_continues_where_its_last_slice_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("figures.jsonl");
        assert_eq!(end(&file, "a"), 0);
        slice("a", 0, 3).keep(&file);
        slice("b", 0, 1).keep(&file);
        slice("a", 3, 4).keep(&file);
        assert_eq!(read(&file)[0], slice("a", 0, 7));
        assert_eq!((end(&file, "a"), end(&file, "b")), (7, 1));
        assert_eq!(cpu_time(&file, "a"), Duration::from_secs(14));
    }
}
