//! The effective configuration: each flag's value, for `/flagz`, and as a file with the source of
//! each value, for the command `config`.

use std::collections::BTreeMap;
use std::fmt::Write;

use clap::{ArgMatches, Command};

use super::flags::RunArgs;
use super::parse_bool;
use super::sources::{API_VERSION, Argument, FIELDS, Field, KIND, Origin, Shape};

/// The configuration file that gives all flags their `values`.
pub fn effective_file(values: &BTreeMap<String, String>) -> String {
    yaml(&[], values)
}

/// Renders a YAML file for `--config`, with the source of each value as a comment. `arguments` are
/// those of all sources, in the order of rising precedence.
pub(super) fn yaml(arguments: &[Argument], values: &BTreeMap<String, String>) -> String {
    let mut yaml = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n");
    let mut above: Vec<&str> = Vec::new();
    for field in FIELDS {
        let Some(value) = values.get(field.flag) else {
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
        let origin = origin_of(field, arguments);
        let indent = 2 * sections.len();
        writeln!(yaml, "{:indent$}{key}: {value}  # {origin}", "").expect("text takes text");
    }
    yaml
}

fn origin_of(field: &Field, arguments: &[Argument]) -> Origin {
    let mut given = arguments.iter().rev();
    let last = given.find(|argument| argument.is(field.flag));
    last.map_or(Origin::Default, |last| last.origin.clone())
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

/// Returns the value of every flag of `command` as text, by its name without dashes. `args` is
/// parsed from `matches`.
pub(super) fn flags_in_effect(
    command: &Command,
    matches: &ArgMatches,
    args: &RunArgs,
) -> BTreeMap<String, String> {
    let shown = command.get_arguments().filter(|flag| !flag.is_hide_set());
    let flags = shown.filter_map(|flag| {
        let name = flag
            .get_long()
            .filter(|name| !matches!(*name, "help" | "version"))?;
        let raw = matches.try_get_raw(flag.get_id().as_str()).ok()?;
        let raw = raw.into_iter().flatten();
        let raw: Vec<_> = raw.map(|value| value.to_string_lossy()).collect();
        let given = || {
            let given = raw.join(",");
            // A bool has several spellings, such as 1 and T.
            let is_bool = matches!(flag.get_value_names(), Some([kind]) if kind == "BOOL");
            match parse_bool(&given) {
                Ok(is_on) if is_bool => is_on.to_string(),
                _ => given,
            }
        };
        let value = computed(name, args).unwrap_or_else(given);
        Some((name.to_owned(), value))
    });
    flags.collect()
}

/// Values that are not simply the last argument: a sum, or a default that depends on other flags.
fn computed(flag: &str, args: &RunArgs) -> Option<String> {
    match flag {
        "leader-elect-resource-namespace" => {
            let namespace = args.api.namespace.as_deref();
            let namespace = args.leader_election.resource_namespace(namespace);
            Some(namespace.to_owned())
        }
        "v" => Some(args.log.verbosity().to_string()),
        _ => None,
    }
}
