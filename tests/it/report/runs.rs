//! Tables of the long runs: simulation, fuzzing, chaos and mutants.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use super::{Line, commas, lines, sum, sums, table, time};

const NO_RUN: &str = "No run is on record.\n";

/// The power of two below which lie at least nine, half or one of ten histories.
fn quantile(histogram: &BTreeMap<String, u64>, tenths: u64) -> u64 {
    let parse = |power: &String| power.parse().expect("a power of two");
    let powers: BTreeMap<u64, u64> = histogram.iter().map(|(p, n)| (parse(p), *n)).collect();
    let n_all: u64 = powers.values().sum();
    let mut n_below = 0;
    for (power, n) in powers {
        n_below += n;
        if n_below * 10 >= n_all * tenths {
            return power * 2;
        }
    }
    0
}

pub(super) fn simulation() -> String {
    let lines = &lines("simulation");
    if lines.is_empty() {
        return NO_RUN.to_owned();
    }
    let count = |key| commas(sum(lines, key));
    let spread = |key| {
        let histogram = sums(lines, key);
        let [low, half, high] = [1, 5, 9].map(|tenths| commas(quantile(&histogram, tenths)));
        format!("{low}, {half}, {high}")
    };
    let figures = [
        ["histories", &count("n_histories")],
        [
            "of these with 200 steps, 5 faults and 10 virtual minutes, or more",
            &count("n_full"),
        ],
        [
            "steps: 10, 50 and 90 % of the histories have fewer than",
            &spread("by_steps"),
        ],
        [
            "faults: 10, 50 and 90 % of the histories have fewer than",
            &spread("by_faults"),
        ],
        [
            "virtual hours",
            &format!("{:.0}", time(lines, "virtual_hours")),
        ],
        [
            "CPU hours",
            &format!("{:.2}", time(lines, "cpu_seconds") / 3_600.0),
        ],
        ["turns of threads", &count("n_turns")],
        [
            "writes that arrived after their process had given up on them",
            &count("n_late_writes"),
        ],
        [
            "pods that a late copy of their create brought back after their deletion",
            &count("n_late_copies"),
        ],
    ];
    [
        table(
            ["figure", "value"],
            figures.map(|row| row.map(str::to_owned)),
        ),
        table(["fault", "times"], counted(lines, "faults")),
        table(
            ["place where the order matters, or result", "times reached"],
            counted(lines, "reached"),
        ),
    ]
    .join("\n")
}

/// The rows of a map of counts, added up over all lines.
fn counted(lines: &[Line], key: &str) -> impl Iterator<Item = [String; 2]> {
    let sums = sums(lines, key).into_iter();
    sums.map(|(name, n)| [name, commas(n)])
}

pub(super) fn fuzz() -> String {
    let lines = lines("fuzz");
    if lines.is_empty() {
        return NO_RUN.to_owned();
    }
    let mut targets: BTreeMap<&str, Vec<Line>> = BTreeMap::new();
    for line in &lines {
        let target = line["target"].as_str().expect("a name");
        targets.entry(target).or_default().push(line.clone());
    }
    let rows = targets.into_iter().map(|(target, lines)| {
        let slowest = lines
            .iter()
            .map(|line| line["slowest_us_per_byte"].as_f64());
        [
            target.to_owned(),
            commas(sum(&lines, "n_accepted")),
            commas(sum(&lines, "n_refused")),
            format!("{:.0}", time(&lines, "cpu_seconds")),
            format!("{:.1}", slowest.flatten().fold(0.0, f64::max)),
        ]
    });
    let head = [
        "target",
        "inputs accepted",
        "refused",
        "CPU seconds",
        "slowest, µs a byte",
    ];
    table(head, rows)
}

pub(super) fn chaos() -> String {
    let lines = &lines("chaos");
    if lines.is_empty() {
        return NO_RUN.to_owned();
    }
    let count = |key| commas(sum(lines, key));
    let figures = [
        ["rounds", &count("n_rounds")],
        ["rounds that failed", &count("n_failed")],
        ["kill -9 of a daemon", &count("n_kills")],
        ["kill -9 of an API server or etcd", &count("n_server_kills")],
        ["pods created", &count("n_created")],
        ["pods deleted", &count("n_deleted")],
        ["requests of the daemons", &count("n_requests")],
        ["of these, lists", &count("n_lists")],
        [
            "hours",
            &format!("{:.2}", time(lines, "wall_seconds") / 3_600.0),
        ],
        [
            "CPU hours",
            &format!("{:.2}", time(lines, "cpu_seconds") / 3_600.0),
        ],
    ];
    [
        table(
            ["figure", "value"],
            figures.map(|row| row.map(str::to_owned)),
        ),
        table(["scene", "rounds"], counted(lines, "by_scene")),
        table(["fault", "rounds"], counted(lines, "by_fault")),
    ]
    .join("\n")
}

/// The shards that `make mutants` judges.
pub(super) const MUTANT_SHARDS: usize = 26;

/// The modules whose mutants the simulations must kill.
const CORE: [&str; 3] = [
    "src/controller",
    "src/kubernetes/leader_election",
    "src/kubernetes/workqueue",
];

pub(super) fn mutants() -> String {
    let lines = &lines("mutants");
    if lines.is_empty() {
        return NO_RUN.to_owned();
    }
    let names = |key| -> Vec<&str> {
        let lists = lines.iter().filter_map(|line| line.get(key)?.as_array());
        lists.flatten().filter_map(Value::as_str).collect()
    };
    let parts = ["simulation", "scopes", "unit_tests", "timeout", "missed"].map(names);
    let column = |of: &dyn Fn(&str) -> bool| {
        let n = parts.each_ref().map(|names| {
            let n = names.iter().filter(|name| of(name)).count();
            u64::try_from(n).expect("a few")
        });
        let n_all: u64 = n.iter().sum();
        let part = |n: u64| format!("{} ({} %)", commas(n), (100 * n + n_all / 2) / n_all.max(1));
        let [simulation, scopes, unit_tests, timeout, missed] = n.map(part);
        let killed = part(n_all - n[4]);
        [
            commas(n_all),
            killed,
            simulation,
            scopes,
            unit_tests,
            timeout,
            missed,
        ]
    };
    let all = column(&|_| true);
    let core = column(&|name| CORE.iter().any(|room| name.starts_with(room)));
    let figures = [
        "mutants that compile",
        "killed",
        "by the simulations",
        "of the others, by the small scopes",
        "of the others, by the unit tests",
        "out of time, counted as killed",
        "missed",
    ];
    let rows = figures.into_iter().zip(all).zip(core);
    let mut text = format!(
        "{} of {MUTANT_SHARDS} shards are on record.\n\n",
        lines.len()
    );
    text += &table(
        ["figure", "all", "of controller, election and queue"],
        rows.map(|((figure, all), core)| [figure.to_owned(), all, core]),
    );
    let [.., timeout, missed] = parts;
    for (title, names) in [("Out of time", timeout), ("Missed", missed)] {
        if !names.is_empty() {
            writeln!(text, "\n{title}:\n").expect("text takes text");
        }
        for name in names {
            let (place, change) = name.split_once(": ").unwrap_or((name, ""));
            // The line would be too long for both.
            let change = change.replacen(" in ", "`\n  in `", 1);
            writeln!(text, "- `{place}`\n  `{change}`").expect("text takes text");
        }
    }
    text
}
