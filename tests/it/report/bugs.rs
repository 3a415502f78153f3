//! The record of the bugs, `tests/records/bugs.jsonl`: a line for each, in the order of the fixes.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Deserialize;

use super::table;
use crate::documents::read;
use crate::tidy::{assert_none, root, rust_files};

/// Ways to find a bug, also those that have found none.
const FOUND: [&str; 17] = [
    "review",
    "trial",
    "attack",
    "unit or integration tests",
    "simulation of the controller",
    "simulation of whole daemons",
    "random histories of two electors",
    "small scopes",
    "fuzzing",
    "mutants",
    "real control plane",
    "differential test",
    "chaos",
    "Kubernetes' own tests",
    "benchmark",
    "another toolchain",
    "users",
];

/// What a bug could do, the worst first.
const SEVERITIES: [&str; 6] = ["pods", "crash", "security", "stall", "status", "use"];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bug {
    /// The day of the fix.
    date: String,
    /// `daemon` or `dev server`.
    part: String,
    severity: String,
    found: String,
    /// What went wrong, as a user would see it.
    went_wrong: String,
    /// A command, seed or input that shows it, in the state before the fix.
    #[serde(default)]
    shown_by: String,
    /// `file::name` of the tests that fail without the fix.
    tests: Vec<String>,
    /// The title of the commit that fixed it.
    commit: String,
}

impl Bug {
    fn is_of_daemon(&self) -> bool {
        self.part == "daemon"
    }
}

fn bugs() -> Vec<Bug> {
    let text = read(&root().join("tests/records/bugs.jsonl"));
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    text.lines().map(parse).collect()
}

/// Numbers of the daemon's bugs by how they were found and by severity, then of the dev server's.
pub(super) fn summary() -> String {
    let bugs = bugs();
    let count = |is: &dyn Fn(&Bug) -> bool| match bugs.iter().filter(|bug| is(bug)).count() {
        0 => String::new(),
        n => n.to_string(),
    };
    let row = |name: &str, is_found: &dyn Fn(&Bug) -> bool| {
        let of = |severity| {
            count(&|bug| is_found(bug) && bug.is_of_daemon() && bug.severity == severity)
        };
        let or_zero = |n: String| if n.is_empty() { "0".to_owned() } else { n };
        let daemon = or_zero(count(&|bug| is_found(bug) && bug.is_of_daemon()));
        let server = or_zero(count(&|bug| is_found(bug) && !bug.is_of_daemon()));
        let [pods, crash, security, stall, status, usage] = SEVERITIES.map(of);
        let name = name.to_owned();
        [
            name, pods, crash, security, stall, status, usage, daemon, server,
        ]
    };
    let mut rows: Vec<_> = FOUND
        .map(|found| row(found, &|bug| bug.found == found))
        .into();
    rows.push(row("**all**", &|_| true));
    let [pods, crash, security, stall, status, usage] = SEVERITIES;
    let (daemon, server) = ("daemon", "dev server");
    let head = [
        "found by", pods, crash, security, stall, status, usage, daemon, server,
    ];
    let n_covered = bugs.iter().filter(|bug| !bug.tests.is_empty()).count();
    let mut text = table(head, rows);
    writeln!(text, "\n{n_covered} of the {} have a test.", bugs.len()).expect("text takes text");
    text
}

/// A row for each bug, the newest first.
pub(super) fn rows() -> String {
    let link = |test: &String| {
        let (file, name) = test.split_once("::").unwrap_or_default();
        format!("[`{name}`](../../{file})")
    };
    let rows = bugs().into_iter().rev().map(|bug| {
        let what = match &*bug.part {
            "daemon" => bug.went_wrong,
            part => format!("({part}) {}", bug.went_wrong),
        };
        let found = match &*bug.shown_by {
            "" => bug.found,
            shown_by => format!("{}: `{shown_by}`", bug.found),
        };
        let tests: Vec<String> = bug.tests.iter().map(link).collect();
        let tests = match &*tests {
            [] => "–".to_owned(),
            tests => tests.join(", "),
        };
        [bug.date, what, bug.severity, found, tests, bug.commit]
    });
    let head = [
        "fixed",
        "what went wrong",
        "severity",
        "found by",
        "test",
        "commit",
    ];
    table(head, rows)
}

#[test]
fn every_bug_names_tests_that_exist() {
    let sources: BTreeMap<String, String> = [rust_files("src"), rust_files("tests")]
        .concat()
        .into_iter()
        .collect();
    let is_there = |test: &str| {
        let (file, name) = test.split_once("::").unwrap_or_default();
        let text = sources.get(file);
        text.is_some_and(|text| text.contains(&format!("fn {name}(")))
    };
    let mut problems = Vec::new();
    for bug in bugs() {
        let absent = bug.tests.iter().filter(|test| !is_there(test));
        problems.extend(absent.map(|test| format!("{test} is not there: {}", bug.went_wrong)));
    }
    assert_none("tests in tests/records/bugs.jsonl", &problems);
}

#[test]
fn every_field_of_a_bug_is_filled_in() {
    let bugs = bugs();
    let mut problems = Vec::new();
    for bug in &bugs {
        let wrong = [
            (bug.date.parse::<jiff::civil::Date>().is_err(), "date"),
            (!["daemon", "dev server"].contains(&&*bug.part), "part"),
            (!SEVERITIES.contains(&&*bug.severity), "severity"),
            (!FOUND.contains(&&*bug.found), "found"),
            (
                !bug.went_wrong.ends_with('.') || bug.went_wrong.contains('|'),
                "went_wrong",
            ),
            (bug.commit.is_empty() || bug.commit.contains('|'), "commit"),
        ];
        let wrong = wrong.iter().filter(|(is_wrong, _)| *is_wrong);
        problems.extend(wrong.map(|(_, field)| format!("{field}: {bug:?}")));
    }
    assert_none("fields in tests/records/bugs.jsonl", &problems);
    let dates = bugs.iter().map(|bug| &bug.date);
    assert!(dates.is_sorted(), "new bugs go to the end of the record");
}
