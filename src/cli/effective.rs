//! The effective configuration as a file, with the source of each value: `config`.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::sources::fields::{API_VERSION, FIELDS, Field, KIND, Shape};
use super::sources::{Argument, Origin};
use super::values::parse_bool;

/// The configuration file that gives all flags their `values`.
pub fn effective_file(values: &BTreeMap<String, String>) -> String {
    let arguments = &[];
    Effective { arguments, values }.yaml()
}

/// The values of all flags.
pub(super) struct Effective<'a> {
    /// The arguments of all sources, in the order of rising precedence.
    pub(super) arguments: &'a [Argument],
    /// The value of every flag, by its name.
    pub(super) values: &'a BTreeMap<String, String>,
}

impl Effective<'_> {
    /// Renders a YAML file for `--config`, with the source of each value as a comment.
    pub(super) fn yaml(&self) -> String {
        let mut yaml = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n");
        let mut above: Vec<&str> = Vec::new();
        for field in FIELDS {
            let Some(value) = self.values.get(field.flag) else {
                continue;
            };
            let keys: Vec<&str> = field.path.split('.').collect();
            let (key, sections) = keys.split_last().expect("a path has a key");
            let n_common = sections
                .iter()
                .zip(&above)
                .take_while(|(a, b)| a == b)
                .count();
            for (depth, section) in sections.iter().enumerate().skip(n_common) {
                writeln!(yaml, "{:1$}{section}:", "", 2 * depth).expect("text takes text");
            }
            above = sections.to_vec();
            let value = render(field.shape, value);
            let origin = self.origin(field);
            let indent = 2 * sections.len();
            writeln!(yaml, "{:indent$}{key}: {value}  # {origin}", "").expect("text takes text");
        }
        yaml
    }

    fn origin(&self, field: &Field) -> Origin {
        let mut given = self.arguments.iter().rev();
        let last = given.find(|argument| argument.is(field.flag));
        last.map_or(Origin::Default, |last| last.origin.clone())
    }
}

fn render(shape: Shape, value: &str) -> String {
    let items = value.split(',').filter(|item| !item.is_empty());
    match shape {
        Shape::Text => text(value),
        Shape::Plain => value.to_owned(),
        Shape::List => format!("[{}]", items.map(text).collect::<Vec<_>>().join(", ")),
        Shape::Gates => {
            let gates = items.filter_map(|item| item.split_once('='));
            let is_on = |value| parse_bool(value).is_ok_and(|is_on| is_on);
            let gates = gates.map(|(name, value)| format!("{name}: {}", is_on(value)));
            format!("{{{}}}", gates.collect::<Vec<_>>().join(", "))
        }
        Shape::Vmodule => {
            let items = items.filter_map(|item| item.split_once('='));
            let items = items.map(|(pattern, verbosity)| {
                format!("{{filePattern: {}, verbosity: {verbosity}}}", text(pattern))
            });
            format!("[{}]", items.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Quotes a value as JSON, which is valid YAML, unless it is a plain word.
fn text(value: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let is_plain = value.len() > 4
        && value.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && value.chars().all(is_word)
        && !value.eq_ignore_ascii_case("false");
    if is_plain {
        value.to_owned()
    } else {
        serde_json::Value::from(value).to_string()
    }
}
