//! The effective values and where each is from, as a configuration file: `replicaset-controller config`.

use std::fmt::Write;

use super::flags::RunArgs;
use super::sources::fields::{API_VERSION, FIELDS, Field, KIND, Shape};
use super::sources::{Argument, Origin};

/// What all flags come to.
pub(super) struct Effective<'a> {
    /// The command with the flags' defaults.
    pub(super) command: &'a clap::Command,
    /// All that was given, in the order of rising precedence.
    pub(super) arguments: &'a [Argument],
    /// What was read from it.
    pub(super) args: &'a RunArgs,
}

impl Effective<'_> {
    /// YAML that `--config` takes, with the source of each value as a comment.
    pub(super) fn yaml(&self) -> String {
        let mut yaml = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n");
        let mut above: Vec<&str> = Vec::new();
        for field in FIELDS {
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
            let (value, origin) = self.value(field);
            let indent = 2 * sections.len();
            let value = render(field.shape, &value);
            writeln!(yaml, "{:indent$}{key}: {value}  # {origin}", "").expect("text takes text");
        }
        yaml
    }

    fn value(&self, field: &Field) -> (String, Origin) {
        let given = self
            .arguments
            .iter()
            .filter(|argument| argument.is(field.flag));
        let given: Vec<&Argument> = given.collect();
        let own = self.command.get_arguments();
        let arg = own
            .into_iter()
            .find(|arg| arg.get_long() == Some(field.flag));
        let Some(last) = given.last() else {
            let default = arg.map(|arg| arg.get_default_values().join(",".as_ref()));
            let default = default.unwrap_or_default().to_string_lossy().into_owned();
            return (
                self.computed(field.flag).unwrap_or(default),
                Origin::Default,
            );
        };
        let is_list = arg.is_some_and(|arg| matches!(arg.get_action(), clap::ArgAction::Append));
        // What is given without a value is a bool that is meant to be true.
        let value_of = |argument: &&Argument| argument.value().unwrap_or("true".to_owned());
        let value = if field.flag == "v" {
            self.args.log.verbosity().to_string()
        } else if is_list {
            given.iter().map(value_of).collect::<Vec<_>>().join(",")
        } else {
            value_of(last)
        };
        (value, last.origin.clone())
    }

    /// Defaults that depend on other flags.
    fn computed(&self, flag: &str) -> Option<String> {
        match flag {
            "leader-elect-resource-namespace" => {
                let namespace = self.args.api.namespace.as_deref();
                let namespace = self.args.leader_election.resource_namespace(namespace);
                Some(namespace.to_owned())
            }
            "v" => Some(self.args.log.verbosity().to_string()),
            _ => None,
        }
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
            let gates = gates.map(|(name, value)| format!("{name}: {}", value.to_lowercase()));
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

/// A JSON string is a YAML string, whatever is in it; plain words need no quotes.
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
