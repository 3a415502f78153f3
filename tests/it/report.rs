//! The report of the long runs and the list of bugs in `tests/records`: each block between two
//! markers is made of the records beside it, to which the runs append, or of the sources.
//!
//! `make report` writes the blocks again and keeps the other text.

/// The record of the bugs.
mod bugs;
/// Sums of the long runs, and the properties.
mod totals;

use std::fmt::Write;
use std::fs;

use serde_json::{Map, Value};

use crate::documents::read;
use crate::tidy::root;

const REPORT: &str = "tests/records/REPORT.md";
const BUGS: &str = "tests/records/BUGS.md";
const END: &str = "<!-- end of the generated part -->\n";

/// What a run appends to its record.
type Line = Map<String, Value>;

/// A page, the name of a block on it, and what makes the text.
type Block = (&'static str, &'static str, fn() -> String);

const BLOCKS: [Block; 8] = [
    (REPORT, "properties", totals::properties),
    (REPORT, "simulation", totals::simulation),
    (REPORT, "scopes", totals::scopes),
    (REPORT, "fuzz", totals::fuzz),
    (REPORT, "chaos", totals::chaos),
    (REPORT, "mutants", totals::mutants),
    (BUGS, "summary", bugs::summary),
    (BUGS, "bugs", bugs::rows),
];

#[test]
fn the_report_is_that_of_the_records() {
    for page in [REPORT, BUGS] {
        let path = root().join(page);
        let text = read(&path);
        let mut expected = text.clone();
        for (_, name, block) in BLOCKS.iter().filter(|(of, _, _)| *of == page) {
            let begin = format!("<!-- tests/it/report.rs: {name} -->\n");
            let (head, rest) = expected.split_once(&begin).expect("the first marker");
            let (_, tail) = rest.split_once(END).expect("the second marker");
            expected = format!("{head}{begin}\n{}\n{END}{tail}", block());
        }
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(&path, expected).expect("the page can be written");
        } else {
            assert!(text == expected, "{page} is out of date: run `make report`");
        }
    }
}

/// The lines of a record; none if there has been no run.
fn lines(name: &str) -> Vec<Line> {
    let path = root().join(format!("tests/records/{name}.jsonl"));
    let text = fs::read_to_string(path).unwrap_or_default();
    let parse = |line| serde_json::from_str(line).expect("a line of figures");
    text.lines().map(parse).collect()
}

/// A table with one row for each list of cells.
fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(N));
    for row in rows {
        writeln!(text, "| {} |", row.join(" | ")).expect("text takes text");
    }
    text
}
