//! What each part of the tests took, the small scopes, Kubernetes' own tests, and the properties.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use super::runs::MUTANT_SHARDS;
use super::{Line, commas, lines, sum, table, time};
use crate::documents::read;
use crate::tidy::{root, rust_files};

const NO_RECORD: &str = "no record";

/// What stands before a property in a comment.
const PROPERTY: &str = "PROPERTY P";

/// Time of each part, from its record.
pub(super) fn parts() -> String {
    let [simulation, scopes, fuzz, chaos, mutants] =
        ["simulation", "scopes", "fuzz", "chaos", "mutants"].map(lines);
    let extent = |key, of: &[Line], what: &str| format!("{} {what}", commas(sum(of, key)));
    let mut rows = vec![
        [
            "simulation of whole daemons",
            "make simulate",
            &extent("n_histories", &simulation, "histories"),
            &taken(&simulation, "wall_seconds"),
            &taken(&simulation, "cpu_seconds"),
        ]
        .map(str::to_owned),
        [
            "small scopes",
            "make simulate",
            &extent("n_states", &scopes, "states"),
            &taken(&scopes, "wall_seconds"),
            &taken(&scopes, "cpu_seconds"),
        ]
        .map(str::to_owned),
        [
            "fuzzing",
            "make fuzz",
            &format!(
                "{} inputs",
                commas(sum(&fuzz, "n_accepted") + sum(&fuzz, "n_refused"))
            ),
            NO_RECORD,
            &taken(&fuzz, "cpu_seconds"),
        ]
        .map(str::to_owned),
        [
            "chaos",
            "make chaos",
            &extent("n_rounds", &chaos, "rounds"),
            &taken(&chaos, "wall_seconds"),
            &taken(&chaos, "cpu_seconds"),
        ]
        .map(str::to_owned),
        [
            "mutants",
            "make mutants",
            &format!("{} of {MUTANT_SHARDS} shards", mutants.len()),
            &taken(&mutants, "wall_seconds"),
            &taken(&mutants, "cpu_seconds"),
        ]
        .map(str::to_owned),
    ];
    rows.extend(upstream_runs().into_iter().map(|run| {
        let seconds = format!("{:.0} s", run.seconds);
        let extent = format!("{} tests, {}", run.n_tests, run.version);
        let part = format!("Kubernetes' {} tests", run.name);
        let command = "make test-upstream".to_owned();
        [part, command, extent, seconds, NO_RECORD.to_owned()]
    }));
    let unrecorded = [
        ["unit and integration tests", "make test"],
        [
            "integration tests on a real control plane",
            "make test-control-plane",
        ],
    ];
    rows.extend(
        unrecorded
            .map(|[part, command]| [part, command, "", NO_RECORD, NO_RECORD].map(str::to_owned)),
    );
    for row in &mut rows {
        row[1] = format!("`{}`", row[1]);
    }
    table(
        ["part", "command", "on record", "wall time", "CPU time"],
        rows,
    )
}

/// The sum of a time, and of how many lines it is missing.
fn taken(lines: &[Line], key: &str) -> String {
    let n_without = lines.iter().filter(|line| !line.contains_key(key)).count();
    if n_without == lines.len() {
        return NO_RECORD.to_owned();
    }
    let seconds = time(lines, key);
    let sum = if seconds < 600.0 {
        format!("{seconds:.0} s")
    } else {
        format!("{:.2} h", seconds / 3_600.0)
    };
    match n_without {
        0 => sum,
        n => format!("{sum}, and {n} runs without a record"),
    }
}

/// The small scopes.
pub(super) fn scopes() -> String {
    let lines = lines("scopes");
    if lines.is_empty() {
        return "No run is on record.\n".to_owned();
    }
    let count = |line: &Line, key: &str| commas(line[key].as_u64().expect("a count"));
    let rows = lines.iter().map(|line| {
        let scope = line["scope"].as_str().expect("a name").to_owned();
        let seconds = line["cpu_seconds"].as_f64().expect("a time");
        [
            scope,
            count(line, "n_states"),
            count(line, "n_steps"),
            count(line, "depth"),
            format!("{seconds:.0}"),
        ]
    });
    table(
        ["scope", "states", "steps", "longest history", "CPU seconds"],
        rows,
    )
}

/// What a run of Kubernetes' own tests came to.
struct UpstreamRun {
    name: &'static str,
    version: String,
    n_passed: usize,
    n_tests: usize,
    seconds: f64,
    /// The last line, if it names upstream's controllers too.
    upstream: String,
}

/// The last run of both sets on each version.
fn upstream_runs() -> Vec<UpstreamRun> {
    let folder = fs::read_dir(root().join("tests/records")).expect("a readable folder");
    let paths = folder.map(|entry| entry.expect("a readable entry").path());
    let mut paths: Vec<_> = paths
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.ends_with(".txt") && !name.starts_with("packages-")
        })
        .collect();
    paths.sort();
    let runs = paths.iter().map(|path| {
        let text = read(path);
        let version = text.lines().next().unwrap_or_default().to_owned();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if name.starts_with("conformance") {
            conformance(version, &text)
        } else {
            integration(version, &text)
        }
    });
    runs.collect()
}

/// The lines are such as `passed 2.2 s  [sig-apps] …`.
fn conformance(version: String, text: &str) -> UpstreamRun {
    let tests: Vec<Vec<&str>> = text
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect())
        .collect();
    let seconds = tests.iter().map(|words| words[1].parse::<f64>());
    UpstreamRun {
        name: "conformance",
        version,
        n_passed: tests.iter().filter(|words| words[0] == "passed").count(),
        n_tests: tests.len(),
        seconds: seconds.map(|time| time.expect("seconds")).sum(),
        upstream: String::new(),
    }
}

/// The last line is such as `ours 45 of 45 in 452 s, upstream 45 of 45 in 465 s`.
fn integration(version: String, text: &str) -> UpstreamRun {
    let last = text.lines().last().unwrap_or_default();
    let (ours, upstream) = last.split_once(", upstream ").expect("both results");
    let words: Vec<&str> = ours.split_whitespace().collect();
    let ["ours", passed, "of", all, "in", seconds, "s"] = words[..] else {
        panic!("{last}");
    };
    UpstreamRun {
        name: "integration",
        version,
        n_passed: passed.parse().expect("a count"),
        n_tests: all.parse().expect("a count"),
        seconds: seconds.parse().expect("seconds"),
        upstream: upstream.to_owned(),
    }
}

/// The results of Kubernetes' own tests.
pub(super) fn upstream() -> String {
    let rows = upstream_runs().into_iter().map(|run| {
        let upstream = match &*run.upstream {
            "" => NO_RECORD,
            upstream => upstream,
        };
        [
            format!("{} tests", run.name),
            run.version,
            format!(
                "{} of {} in {:.0} s",
                run.n_passed, run.n_tests, run.seconds
            ),
            upstream.to_owned(),
        ]
    });
    table(
        ["tests", "on", "this daemon", "upstream's controllers"],
        rows,
    )
}

/// The properties that the sources name, in their order.
pub(super) fn properties() -> String {
    let mut found = BTreeMap::new();
    for (file, text) in [rust_files("src"), rust_files("tests")].concat() {
        if file.starts_with("tests/it/report") {
            continue;
        }
        for (number, property) in properties_in(&text) {
            let link = format!("[{file}](../../{file})");
            let before = found.insert(number, (property, link));
            assert!(before.is_none(), "two properties P{number}");
        }
    }
    let numbers = found.keys().copied();
    assert!(
        numbers.eq(1..=found.len()),
        "the numbers of properties have gaps: {:?}",
        found.keys()
    );
    let rows = found
        .into_iter()
        .map(|(number, (property, link))| [format!("P{number}"), property, link]);
    table(["", "property", "checked in"], rows)
}

/// The numbered sentences of a file: each reaches to the end of its paragraph.
fn properties_in(text: &str) -> Vec<(usize, String)> {
    let mut properties: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for line in text.lines().map(str::trim) {
        let comment = line.strip_prefix("///").map(str::trim);
        let comment = comment.filter(|comment| !comment.is_empty());
        let begins = comment.and_then(|comment| comment.strip_prefix(PROPERTY)?.split_once(": "));
        if let Some((number, property)) = begins {
            let number = number.parse().expect("a number");
            properties.push((number, property.to_owned()));
            goes_on = true;
        } else if let (true, Some(comment), Some((_, last))) =
            (goes_on, comment, properties.last_mut())
        {
            write!(last, " {comment}").expect("text takes text");
        } else {
            goes_on = false;
        }
    }
    properties
}
