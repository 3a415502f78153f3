//! The coverage table, `tests/coverage.md`: the cases of the conformance checklist, and the tests
//! that cover them.
//!
//! A test's name begins with the ids of its cases: `c_17_a_23_...`, or `d_13_to_d_16_...`.
//! `UPDATE_EXPECT=1 cargo test --test it coverage` regenerates the table and keeps the notes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::tidy::{root, rust_files};

const TABLE: &str = "tests/coverage.md";

/// The cases that must be covered, by group.
const MUST: &[(char, &[u8])] = &[
    ('A', &[1, 2, 3, 4, 5, 6, 7, 9, 17, 18, 19, 20, 21, 23]),
    (
        'B',
        &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
    ),
    (
        'C',
        &[
            1, 2, 4, 5, 8, 10, 15, 17, 18, 21, 22, 24, 26, 27, 28, 29, 30,
        ],
    ),
    (
        'D',
        &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 14, 15, 16, 18, 19, 20],
    ),
    (
        'E',
        &[
            1, 2, 3, 4, 5, 6, 8, 9, 11, 12, 15, 16, 17, 18, 19, 22, 24, 25, 27, 28,
        ],
    ),
    (
        'F',
        &[
            1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 19, 21, 22, 23, 26, 27, 28, 29,
            30, 31, 32, 34,
        ],
    ),
    ('G', &[1, 2, 3, 4, 5, 6, 7, 9, 10, 11]),
    (
        'H',
        &[1, 2, 3, 4, 5, 6, 10, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21],
    ),
    ('I', &[1, 2, 3, 4, 5, 6, 12, 13, 14, 15, 16, 17, 18, 22]),
    (
        'J',
        &[1, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 17, 22, 23, 24, 37],
    ),
    ('K', &[1, 2, 3, 4, 5, 7, 9, 17, 18, 20, 27]),
    (
        'M',
        &[1, 2, 3, 6, 7, 8, 9, 10, 11, 13, 14, 15, 17, 19, 21, 22],
    ),
    (
        'O',
        &[
            1, 2, 4, 5, 6, 7, 9, 10, 11, 12, 13, 15, 17, 19, 20, 21, 23, 24, 25,
        ],
    ),
];

/// A row of the table.
#[derive(Debug)]
struct Row {
    id: String,
    weight: String,
    demand: String,
    tests: Vec<String>,
    /// The reason for a missing test, or a remark.
    note: String,
}

/// The text before the table's rows, and the rows.
fn read_table() -> (String, Vec<Row>) {
    let text = fs::read_to_string(root().join(TABLE)).expect("the coverage table");
    let (mut head, mut rows) = (String::new(), Vec::new());
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        match cells.as_slice() {
            ["", id, weight, demand, tests, note, ""] if parse_id(id).is_some() => rows.push(Row {
                id: (*id).to_owned(),
                weight: (*weight).to_owned(),
                demand: (*demand).to_owned(),
                tests: tests
                    .split([',', ' ', '`'])
                    .filter(|name| !name.is_empty())
                    .map(str::to_owned)
                    .collect(),
                note: (*note).to_owned(),
            }),
            _ if rows.is_empty() => head.extend([line, "\n"]),
            _ => panic!("not a row, but after the rows: {line}"),
        }
    }
    (head, rows)
}

/// Parses `A-01` into group and number.
fn parse_id(text: &str) -> Option<(char, u8)> {
    let (group, number) = text.split_once('-')?;
    let mut letters = group.chars();
    let group = letters.next().filter(char::is_ascii_uppercase)?;
    let number = number.parse().ok()?;
    letters.next().is_none().then_some((group, number))
}

/// The ids at the beginning of a test's name.
fn ids_of(name: &str) -> BTreeSet<(char, u8)> {
    let mut ids = BTreeSet::new();
    let mut words = name.split('_').peekable();
    let mut from = None;
    while let (Some(group), Some(number)) = (words.next(), words.next()) {
        let mut letters = group.chars();
        let (Some(letter @ 'a'..='o'), None) = (letters.next(), letters.next()) else {
            break;
        };
        let (Ok(number), 2) = (number.parse::<u8>(), number.len()) else {
            break;
        };
        let letter = letter.to_ascii_uppercase();
        let first = from.take().unwrap_or(number);
        ids.extend((first..=number).map(|number| (letter, number)));
        if words.next_if_eq(&"to").is_some() {
            from = Some(number);
        }
    }
    ids
}

/// The tests of each case, with their modules. The dev server's own tests do not count, as they do
/// not test the daemon.
fn tests_by_id() -> BTreeMap<(char, u8), BTreeSet<String>> {
    let mut tests: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for (file, text) in [rust_files("src"), rust_files("tests")].concat() {
        if file.starts_with("src/devserver/") {
            continue;
        }
        let module = module_of(&file);
        let names = text.lines().filter_map(|line| {
            let rest = line.trim_start().strip_prefix("fn ")?;
            rest.split_once('(').map(|(name, _)| name)
        });
        for name in names {
            for id in ids_of(name) {
                let test = format!("{module}::{name}");
                tests.entry(id).or_default().insert(test);
            }
        }
    }
    tests
}

/// The module of a file: `controller::act::claim` for `src/controller/act/claim/tests.rs`.
fn module_of(file: &str) -> String {
    let path = file.strip_prefix("src/").or(file.strip_prefix("tests/"));
    let path = path.unwrap_or(file).trim_start_matches("kubernetes/");
    let path = path.trim_end_matches(".rs");
    let parts = path.split('/').take_while(|part| *part != "tests");
    parts
        .filter(|part| *part != "mod")
        .collect::<Vec<_>>()
        .join("::")
}

#[test]
fn ids_are_parsed_from_test_names() {
    let ids = |name| ids_of(name).into_iter().collect::<Vec<_>>();
    assert_eq!(ids("c_17_a_23_nothing"), [('A', 23), ('C', 17)]);
    assert_eq!(ids("d_13_to_d_15_a_b"), [('D', 13), ('D', 14), ('D', 15)]);
    assert_eq!(ids("a_daemon_with"), []);
    let module = module_of("src/controller/act/claim/tests.rs");
    assert_eq!(module, "controller::act::claim");
    let module = module_of("src/kubernetes/cache/store/tests.rs");
    assert_eq!(module, "cache::store");
    assert_eq!(module_of("tests/it/adoption.rs"), "it::adoption");
}

#[test]
fn every_case_has_a_test_or_a_reason() {
    let (head, mut rows) = read_table();
    let tests = tests_by_id();
    let before: Vec<Vec<String>> = rows.iter().map(|row| row.tests.clone()).collect();
    for row in &mut rows {
        let id = parse_id(&row.id).expect("rows have ids");
        row.tests = tests.get(&id).into_iter().flatten().cloned().collect();
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let lines = rows.iter().map(|row| {
            let tests = row.tests.iter().map(|name| format!("`{name}`"));
            let tests = tests.collect::<Vec<_>>().join(", ");
            let Row {
                id,
                weight,
                demand,
                note,
                ..
            } = row;
            format!("| {id} | {weight} | {demand} | {tests} | {note} |\n")
        });
        let text = head + &lines.collect::<String>();
        fs::write(root().join(TABLE), text).expect("the table can be written");
    } else {
        for (row, before) in rows.iter().zip(before) {
            assert_eq!(
                before, row.tests,
                "{}: the table is outdated, see tests/it/coverage.rs",
                row.id
            );
        }
    }
    let unexplained = rows
        .iter()
        .filter(|row| row.tests.is_empty() && row.note.is_empty());
    let unexplained: Vec<&str> = unexplained.map(|row| row.id.as_str()).collect();
    assert_eq!(unexplained, [""; 0], "rows with neither a test nor a note");

    let without_demand = rows.iter().filter(|row| row.demand.is_empty());
    let without_demand: Vec<&str> = without_demand.map(|row| row.id.as_str()).collect();
    assert_eq!(without_demand, [""; 0], "rows without a demand");

    let listed: BTreeSet<(char, u8)> = rows.iter().filter_map(|row| parse_id(&row.id)).collect();
    assert_eq!(listed.len(), rows.len(), "an id is twice in the table");
    let unlisted: Vec<_> = tests.keys().filter(|id| !listed.contains(id)).collect();
    assert_eq!(
        unlisted,
        [&('-', 0); 0],
        "ids of tests that are not in the table"
    );
    let must = MUST
        .iter()
        .flat_map(|(group, numbers)| numbers.iter().map(|number| (*group, *number)));
    let missing: Vec<_> = must.filter(|id| !listed.contains(id)).collect();
    assert_eq!(missing, [], "mandatory ids that are not in the table");
}
