//! The manual's report of the long runs: each block between two markers is made of a file in
//! `tests/records`, to which the runs append.
//!
//! `make report` writes the blocks again and keeps the other text.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use serde_json::{Map, Value};

use crate::tidy::root;

const PAGE: &str = "src/manual/report.md";
const END: &str = "<!-- end of the generated part -->\n";

/// What a run appends to its record.
type Line = Map<String, Value>;

/// Makes the text of a block of the lines of its record.
type Block = fn(&[Line]) -> String;

/// The blocks: the name of the record, and the text.
const BLOCKS: [(&str, Block); 4] = [
    ("simulation", simulation),
    ("fuzz", fuzz),
    ("chaos", chaos),
    ("mutants", mutants),
];

#[test]
fn the_report_is_that_of_the_records() {
    let path = root().join(PAGE);
    let page = fs::read_to_string(&path).expect("the page");
    let mut expected = page.clone();
    for (name, block) in BLOCKS {
        let begin = format!("<!-- tests/it/report.rs: {name} -->\n");
        let (head, rest) = expected.split_once(&begin).expect("the first marker");
        let (_, tail) = rest.split_once(END).expect("the second marker");
        let text = match &*lines(name) {
            [] => "No run is on record.\n".to_owned(),
            lines => block(lines),
        };
        expected = format!("{head}{begin}\n{text}\n{END}{tail}");
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, expected).expect("the page can be written");
    } else {
        assert!(page == expected, "{PAGE} is out of date: run `make report`");
    }
}

/// The lines of a record; none if there has been no run.
fn lines(name: &str) -> Vec<Line> {
    let path = root().join(format!("tests/records/{name}.jsonl"));
    let text = fs::read_to_string(path).unwrap_or_default();
    let parse = |line| serde_json::from_str(line).expect("a line of figures");
    text.lines().map(parse).collect()
}

/// The sum of a count over all lines.
fn sum(lines: &[Line], key: &str) -> u64 {
    let counts = lines.iter().filter_map(|line| line.get(key)?.as_u64());
    counts.sum()
}

/// The sum of a time over all lines.
fn time(lines: &[Line], key: &str) -> f64 {
    let times = lines.iter().filter_map(|line| line.get(key)?.as_f64());
    times.sum()
}

/// The sums of a map of counts over all lines.
fn sums(lines: &[Line], key: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for map in lines.iter().filter_map(|line| line.get(key)?.as_object()) {
        for (name, count) in map {
            *sums.entry(name.clone()).or_default() += count.as_u64().expect("a count");
        }
    }
    sums
}

/// A count with commas.
fn commas(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A table with one row for each list of cells.
fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(N));
    for row in rows {
        writeln!(text, "| {} |", row.join(" | ")).expect("text takes text");
    }
    text
}

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

fn simulation(lines: &[Line]) -> String {
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
            "writes that were sent under the lease and arrived after it",
            &count("n_late_writes"),
        ],
    ];
    let of = |key| {
        sums(lines, key)
            .into_iter()
            .map(|(name, n)| [name, commas(n)])
    };
    [
        table(
            ["figure", "value"],
            figures.map(|row| row.map(str::to_owned)),
        ),
        table(["fault", "times"], of("faults")),
        table(
            ["place where the order matters", "times reached"],
            of("reached"),
        ),
    ]
    .join("\n")
}

fn fuzz(lines: &[Line]) -> String {
    let mut targets: BTreeMap<&str, Vec<Line>> = BTreeMap::new();
    for line in lines {
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

fn chaos(lines: &[Line]) -> String {
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
    let of = |key| {
        sums(lines, key)
            .into_iter()
            .map(|(name, n)| [name, commas(n)])
    };
    [
        table(
            ["figure", "value"],
            figures.map(|row| row.map(str::to_owned)),
        ),
        table(["scene", "rounds"], of("by_scene")),
        table(["fault", "rounds"], of("by_fault")),
    ]
    .join("\n")
}

fn mutants(lines: &[Line]) -> String {
    let names = |key| -> Vec<&str> {
        let lists = lines.iter().filter_map(|line| line.get(key)?.as_array());
        lists.flatten().filter_map(Value::as_str).collect()
    };
    let n = |names: &[&str]| u64::try_from(names.len()).expect("a few");
    let (simulation, unit_tests) = (sum(lines, "simulation"), sum(lines, "unit_tests"));
    let controller = n(&names("controller_simulation"));
    let (timeout, missed) = (names("timeout"), names("missed"));
    let n_killed = simulation + unit_tests + controller + n(&timeout);
    let n_all = n_killed + n(&missed);
    let part = |n| format!("{} ({} %)", commas(n), (100 * n + n_all / 2) / n_all.max(1));
    let figures = [
        ["mutants that compile", &commas(n_all)],
        ["killed", &part(n_killed)],
        [
            "by the simulation of whole daemons and the small scopes",
            &part(simulation),
        ],
        ["of the others, by the unit tests", &part(unit_tests)],
        [
            "of the others, by the simulation of the controller",
            &part(controller),
        ],
        ["out of time, counted as killed", &part(n(&timeout))],
        ["missed", &part(n(&missed))],
        ["shards judged, of ten", &lines.len().to_string()],
    ];
    let mut text = table(
        ["figure", "value"],
        figures.map(|row| row.map(str::to_owned)),
    );
    for (title, names) in [("Out of time", timeout), ("Missed", missed)] {
        if !names.is_empty() {
            writeln!(text, "\n{title}:\n").expect("text takes text");
        }
        for name in names {
            writeln!(text, "- `{name}`").expect("text takes text");
        }
    }
    text
}
