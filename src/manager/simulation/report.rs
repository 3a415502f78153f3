//! The figures of many histories: added up, written to a file slice by slice, and printed.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Outcome;

/// The events that a history must reach, as the report names them.
const STEPS_MIN: u64 = 200;
const FAULTS_MIN: u64 = 5;
const SECONDS_MIN: u64 = 600;

/// The figures of the histories of some seeds.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Totals {
    /// First seed.
    pub(super) first: u64,
    /// The seed after the last.
    pub(super) end: u64,
    n_histories: u64,
    /// Histories with enough steps, faults and virtual time.
    n_full: u64,
    cpu_seconds: f64,
    /// Each slice counts by its share of the processors. Runs of before have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wall_seconds: Option<f64>,
    virtual_hours: f64,
    n_turns: u64,
    n_late_writes: u64,
    /// Pods that a create stored after the answer to its repetition, and after their deletion.
    #[serde(default)]
    n_late_copies: u64,
    /// Histories by steps, in powers of two.
    by_steps: BTreeMap<u64, u64>,
    /// Histories by number of faults, in powers of two.
    by_faults: BTreeMap<u64, u64>,
    faults: BTreeMap<String, u64>,
    reached: BTreeMap<String, u64>,
}

impl Totals {
    pub(super) fn of(first: u64, end: u64) -> Self {
        Self {
            first,
            end,
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, outcome: &Outcome) {
        let n_faults = outcome.faults.values().sum::<u64>();
        let seconds = outcome.virtual_time.as_secs();
        let is_full =
            outcome.n_steps >= STEPS_MIN && n_faults >= FAULTS_MIN && seconds >= SECONDS_MIN;
        self.n_histories += 1;
        self.n_full += u64::from(is_full);
        self.virtual_hours += outcome.virtual_time.as_secs_f64() / 3_600.0;
        self.n_turns += outcome.n_turns;
        self.n_late_writes += outcome.n_late_writes;
        self.n_late_copies += outcome.n_late_copies;
        *self.by_steps.entry(power(outcome.n_steps)).or_default() += 1;
        *self.by_faults.entry(power(n_faults)).or_default() += 1;
        for (kind, n) in &outcome.faults {
            *self.faults.entry((*kind).to_owned()).or_default() += n;
        }
        for (place, n) in &outcome.reached {
            *self.reached.entry((*place).to_owned()).or_default() += n;
        }
    }

    /// Adds the time that the histories took.
    pub(super) fn took(&mut self, cpu_time: Duration, wall_time: Duration) {
        self.cpu_seconds += cpu_time.as_secs_f64();
        *self.wall_seconds.get_or_insert_default() += wall_time.as_secs_f64();
    }

    /// Adds the figures of other seeds.
    pub(super) fn merge(&mut self, other: &Self) {
        self.first = if self.n_histories == 0 {
            other.first
        } else {
            self.first.min(other.first)
        };
        self.end = self.end.max(other.end);
        self.n_histories += other.n_histories;
        self.n_full += other.n_full;
        self.cpu_seconds += other.cpu_seconds;
        if let Some(seconds) = other.wall_seconds {
            *self.wall_seconds.get_or_insert_default() += seconds;
        }
        self.virtual_hours += other.virtual_hours;
        self.n_turns += other.n_turns;
        self.n_late_writes += other.n_late_writes;
        self.n_late_copies += other.n_late_copies;
        sum(&mut self.by_steps, &other.by_steps);
        sum(&mut self.by_faults, &other.by_faults);
        sum(&mut self.faults, &other.faults);
        sum(&mut self.reached, &other.reached);
    }

    /// The kinds of faults, and what else, among `kinds` that no history had.
    pub(super) fn without(&self, kinds: impl IntoIterator<Item = &'static str>) -> Vec<&str> {
        let all = kinds.into_iter();
        let has = |kind: &str| self.faults.contains_key(kind) || self.reached.contains_key(kind);
        all.filter(|kind| !has(kind)).collect()
    }

    /// Appends the figures to a file, as one line of JSON.
    pub(super) fn append(&self, file: &Path) {
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder).expect("a folder for the figures");
        }
        let file = OpenOptions::new().create(true).append(true).open(file);
        let line = serde_json::to_string(self).expect("numbers");
        writeln!(file.expect("a file for the figures"), "{line}").expect("room on the disk");
    }

    /// The sum of a file's lines.
    pub(super) fn read(file: &Path) -> Self {
        let text = fs::read_to_string(file).unwrap_or_default();
        let mut sum = Self::default();
        for line in text.lines() {
            sum.merge(&serde_json::from_str(line).expect("a line of figures"));
        }
        sum
    }
}

fn sum<K: Clone + Ord>(into: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
    for (key, n) in from {
        *into.entry(key.clone()).or_default() += n;
    }
}

fn power(n: u64) -> u64 {
    n.checked_ilog2().map_or(0, |log| 1 << log)
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} histories (seeds {} to {}), {} with at least {STEPS_MIN} steps, {FAULTS_MIN} \
             faults and {} virtual minutes",
            self.n_histories,
            self.first,
            self.end,
            self.n_full,
            SECONDS_MIN / 60
        )?;
        writeln!(
            f,
            "{:.2} CPU hours, {:.0} virtual hours, {} turns, {} writes that arrived after their \
             sender had given up, {} pods that a late copy of their create brought back",
            self.cpu_seconds / 3_600.0,
            self.virtual_hours,
            self.n_turns,
            self.n_late_writes,
            self.n_late_copies
        )?;
        writeln!(f, "histories by steps (at least): {:?}", self.by_steps)?;
        writeln!(f, "histories by faults (at least): {:?}", self.by_faults)?;
        for (kind, n) in &self.faults {
            writeln!(f, "  {n:>10} {kind}")?;
        }
        for (place, n) in &self.reached {
            writeln!(f, "  {n:>10} reached: {place}")?;
        }
        Ok(())
    }
}
