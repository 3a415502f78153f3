//! One flag with its value as one word, and its source.

use std::ffi::{OsStr, OsString};
use std::fmt;

/// Source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Origin {
    /// The command line.
    CommandLine,
    /// The environment variable of this name.
    Environment(String),
    /// A line of the configuration file.
    File {
        /// Path of the file, as it was given.
        path: String,
        /// Line number, from 1.
        line: u64,
    },
    /// The default of the flag.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CommandLine => f.write_str("flag"),
            Self::Environment(name) => write!(f, "${name}"),
            Self::File { path, line } => write!(f, "{path}:{line}"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A word of a command line: `--flag=value`, `--flag`, or a word that is no flag.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Argument {
    pub(in crate::cli) word: OsString,
    pub(in crate::cli) origin: Origin,
}

impl Argument {
    /// Creates `--name=value`.
    pub(in crate::cli) fn new(name: &str, value: &OsStr, origin: Origin) -> Self {
        let mut word = OsString::from(format!("--{name}="));
        word.push(value);
        Self { word, origin }
    }

    /// The flag's name without dashes; `None` if the word is no flag.
    pub(in crate::cli) fn name(&self) -> Option<String> {
        let word = self.word.to_string_lossy();
        let name = word.strip_prefix("--")?.split('=').next()?;
        (!name.is_empty()).then(|| name.to_owned())
    }

    /// The value after the `=`.
    pub(in crate::cli) fn value(&self) -> Option<String> {
        let word = self.word.to_string_lossy();
        word.split_once('=').map(|(_, value)| value.to_owned())
    }

    /// True if the argument sets this flag.
    pub(in crate::cli) fn is(&self, name: &str) -> bool {
        self.name().as_deref() == Some(name)
    }
}

/// Splits a command line into arguments.
pub(in crate::cli) struct Flags<'a> {
    /// The command that the flags belong to.
    pub(in crate::cli) command: &'a clap::Command,
    /// Returns whether a flag that the command does not have takes a value, if that is known.
    pub(in crate::cli) foreign: fn(&str) -> Option<bool>,
}

impl Flags<'_> {
    /// Normalizes a command line: joins each flag with a value that is a separate word, turns `-v`,
    /// `-vv`, `-v4` and `-v 4` into `--v=N`, and replaces underscores in names by dashes, as
    /// kube-controller-manager does
    /// (component-base `cli/flag/flags.go:WordSepNormalizeFunc`).
    pub(in crate::cli) fn join(&self, words: Vec<OsString>) -> Vec<Argument> {
        let mut joined = Vec::new();
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            let Some(text) = word.to_str() else {
                joined.push(word);
                continue;
            };
            if text == "--" {
                joined.push(word);
                joined.extend(words);
                break;
            }
            let next = words.peek().map(|next| next.to_string_lossy().into_owned());
            if let Some(verbosity) = verbosity(text, next.as_deref()) {
                if verbosity.took_next {
                    words.next();
                }
                joined.push(format!("--v={}", verbosity.value).into());
                continue;
            }
            let Some(flag) = text.strip_prefix("--") else {
                joined.push(word);
                continue;
            };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name.replace('_', "-"), Some(value.to_owned())),
                None => (flag.replace('_', "-"), None),
            };
            let mut word = OsString::from(format!("--{name}"));
            if let Some(value) = value {
                word.push("=");
                word.push(value);
            } else if self.has_value_apart(&name, next.as_deref())
                && let Some(value) = words.next()
            {
                word.push("=");
                word.push(value);
            }
            joined.push(version(word));
        }
        let origin = Origin::CommandLine;
        let argument = |word| Argument {
            word,
            origin: origin.clone(),
        };
        joined.into_iter().map(argument).collect()
    }

    /// A word after an unknown flag counts as its value, so that both are one mistake.
    fn has_value_apart(&self, name: &str, next: Option<&str>) -> bool {
        let own = self.command.get_arguments();
        let mut own = own.filter(|arg| arg.get_long() == Some(name));
        if let Some(arg) = own.next() {
            return arg.get_action().takes_values() && !arg.is_require_equals_set();
        }
        let is_word = next.is_some_and(|next| !next.starts_with('-'));
        (self.foreign)(name).unwrap_or(is_word)
    }
}

struct Verbosity {
    value: String,
    took_next: bool,
}

/// Parses `-v` in all its forms, and a bare `--v`, which only a number can follow as its value.
fn verbosity(word: &str, next: Option<&str>) -> Option<Verbosity> {
    /// Verbosity of one bare `-v`: each event.
    const STEP: usize = 4;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let of = |value: String, took_next| Some(Verbosity { value, took_next });
    if word == "-v" || word == "--v" {
        return match next {
            Some(next) if is_number(next) => of(next.to_owned(), true),
            _ => of(STEP.to_string(), false),
        };
    }
    let rest = word.strip_prefix("-v")?;
    if rest.bytes().all(|b| b == b'v') {
        return of((STEP * (1 + rest.len())).min(255).to_string(), false);
    }
    let value = rest.strip_prefix('=').unwrap_or(rest);
    (rest.starts_with('=') || is_number(rest))
        .then(|| of(value.to_owned(), false))
        .flatten()
}

/// Turns `--version=raw` and `--version=true` into `--version`.
fn version(word: OsString) -> OsString {
    match word.to_str() {
        Some("--version=raw" | "--version=true") => "--version".into(),
        _ => word,
    }
}
