//! The figures of a run, and the file that keeps them.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::{Deserialize, Serialize};

use super::Outcome;
use super::faults::Fault;
use crate::tidy::root;

/// What each run came to, a line each.
const FILE: &str = "tests/records/chaos.jsonl";

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Figures {
    date: String,
    version: String,
    first: u64,
    /// The seed after the last.
    end: u64,
    n_rounds: usize,
    by_scene: BTreeMap<String, usize>,
    by_fault: BTreeMap<String, usize>,
    /// Rounds of which only the end was judged, as a watch of the harness was compacted away.
    n_unwatched: usize,
    pub(super) n_failed: usize,
    /// kill -9 of a daemon.
    n_kills: usize,
    /// kill -9 of an API server or etcd.
    n_server_kills: usize,
    /// Pods that the daemons created and deleted, in the rounds that count them.
    n_created: usize,
    n_deleted: usize,
    /// Pods above the newest spec, at most. What a daemon could not know yet is no violation.
    overshoot_max: i64,
    n_requests: usize,
    n_lists: usize,
    /// Writes that were compared with the lease.
    #[serde(default)]
    n_leased: usize,
    wall_seconds: f64,
    /// Of the test and of the daemons and kube-controller-managers that it started and ended.
    cpu_seconds: f64,
}

impl Figures {
    pub(super) fn new(first: u64) -> Self {
        Self {
            date: jiff::Timestamp::now().strftime("%F").to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            first,
            end: first,
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, outcome: &Outcome) {
        self.end = self.end.max(outcome.seed + 1);
        self.n_rounds += 1;
        let scene = self.by_scene.entry(outcome.scene.name().to_owned());
        *scene.or_default() += 1;
        let fault = self.by_fault.entry(outcome.fault.name().to_owned());
        *fault.or_default() += 1;
        self.n_unwatched += usize::from(!outcome.is_watched);
        self.n_failed += usize::from(!outcome.verdict.violations.is_empty());
        if outcome.fault == Fault::Servers {
            self.n_server_kills += outcome.n_kills;
        } else {
            self.n_kills += outcome.n_kills;
        }
        self.n_created += outcome.verdict.n_created;
        self.n_deleted += outcome.verdict.n_deleted;
        self.overshoot_max = self.overshoot_max.max(outcome.verdict.overshoot_max);
        self.n_requests += outcome.verdict.n_requests;
        self.n_lists += outcome.verdict.n_lists;
        self.n_leased += outcome.verdict.n_leased;
    }

    pub(super) fn took(&mut self, wall: Duration) {
        self.wall_seconds = wall.as_secs_f64().round();
        let seconds = |who| {
            let usage = getrusage(who).expect("every process has one");
            (usage.user_time() + usage.system_time()).num_seconds()
        };
        let seconds = seconds(UsageWho::RUSAGE_SELF) + seconds(UsageWho::RUSAGE_CHILDREN);
        self.cpu_seconds = f64::from(u32::try_from(seconds).unwrap_or(u32::MAX));
    }

    pub(super) fn line(&self) -> String {
        serde_json::to_string(self).expect("numbers")
    }

    /// Appends the figures to the record.
    pub(super) fn append(&self) {
        let file = OpenOptions::new().create(true).append(true).open(file());
        let mut file = file.expect("a file for the figures");
        writeln!(file, "{}", self.line()).expect("room on the disk");
    }
}

fn file() -> PathBuf {
    root().join(FILE)
}

/// The seed after the last on record.
pub(super) fn end() -> u64 {
    let text = fs::read_to_string(file()).unwrap_or_default();
    let lines = text.lines().map(|line| {
        let figures: Figures = serde_json::from_str(line).expect("a line of figures");
        figures.end
    });
    lines.max().unwrap_or(0)
}
