//! What the records of the long runs come to, and the properties that the sources name.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use super::{Line, lines, table};
use crate::tidy::rust_files;

/// What precedes a property in a comment.
const PROPERTY: &str = "PROPERTY P";

/// A row for each value of `group`, or for each figure of the whole record: the sum of its values,
/// or the highest of a `slowest`. A figure of a map is a figure of its own.
fn totals(record: &str, group: Option<&str>) -> String {
    let mut groups: BTreeMap<String, Vec<(String, f64)>> = BTreeMap::new();
    for line in lines(record) {
        let name = group.and_then(|group| line[group].as_str());
        let totals = groups.entry(name.unwrap_or(record).to_owned()).or_default();
        for (figure, value) in figures(&line) {
            match totals.iter_mut().find(|(known, _)| *known == figure) {
                Some((_, total)) if figure.starts_with("slowest") => *total = total.max(value),
                Some((_, total)) => *total += value,
                None => totals.push((figure, value)),
            }
        }
    }
    let Some(group) = group else {
        let rows = groups.into_values().flatten();
        let rows = rows.map(|(figure, value)| [figure, format!("{value:.0}")]);
        return table(["figure", "sum of all runs"], rows);
    };
    let figures = |of: &Vec<(String, f64)>| {
        let of = of.iter();
        let of = of.map(|(figure, value)| format!("{figure} {value:.0}"));
        of.collect::<Vec<_>>().join(", ")
    };
    let rows = groups.iter().map(|(name, of)| [name.clone(), figures(of)]);
    table([group, "sum of all runs"], rows)
}

/// The numbers of a line, with those of its maps. `first` and `end` are those of its seeds.
fn figures(line: &Line) -> Vec<(String, f64)> {
    let numbers = line.iter().flat_map(|(name, value)| match value {
        Value::Object(map) => {
            let entries = map
                .iter()
                .map(|(key, value)| (format!("{name}: {key}"), value));
            entries.collect()
        }
        _ => vec![(name.clone(), value)],
    });
    let numbers = numbers.filter(|(name, _)| !["first", "end"].contains(&&**name));
    let numbers = numbers.filter_map(|(name, value)| Some((name, value.as_f64()?)));
    numbers.collect()
}

pub(super) fn simulation() -> String {
    totals("simulation", None)
}

pub(super) fn scopes() -> String {
    totals("scopes", Some("scope"))
}

pub(super) fn fuzz() -> String {
    totals("fuzz", Some("target"))
}

pub(super) fn chaos() -> String {
    totals("chaos", None)
}

/// How many mutants each part kills that those above it do not, and the names of those that no
/// part does.
pub(super) fn mutants() -> String {
    let lines = lines("mutants");
    let parts = ["simulation", "scopes", "unit_tests", "timeout", "missed"];
    let names = parts.map(|part| {
        let lists = lines.iter().filter_map(|line| line.get(part)?.as_array());
        lists
            .flatten()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
    });
    let n_all: usize = names.iter().map(Vec::len).sum();
    let rows = parts.iter().zip(&names).map(|(part, names)| {
        let n = names.len();
        [
            (*part).to_owned(),
            format!("{n} ({} %)", (100 * n + n_all / 2) / n_all.max(1)),
        ]
    });
    let mut text = format!("{n_all} mutants of {} shards.\n\n", lines.len());
    text += &table(["killed by", "mutants"], rows);
    for (part, names) in parts.iter().zip(&names).skip(3) {
        writeln!(text, "\n{part}:\n").expect("text takes text");
        for name in names {
            let (place, change) = name.split_once(": ").unwrap_or((name, ""));
            // The line would be too long for both.
            let change = change.replacen(" in ", "`\n  in `", 1);
            writeln!(text, "- `{place}`\n  `{change}`").expect("text takes text");
        }
    }
    text
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
