//! Messages for mistakes. Each names the flag, variable or line, the cause, and the remedy.

use std::any::TypeId;
use std::error::Error;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::Head;
use crate::cli::sources::{Argument, FIELDS, Origin, nearest};
use crate::cli::{MODULES, kcm, parse_bool};

/// Removes each value that follows its flag as a separate word although the flag takes values only
/// after `=`, and returns a mistake for it. clap would take the `false` of `--leader-elect false`
/// for a command.
pub(super) fn apart_from_flag(
    command: &clap::Command,
    arguments: &mut Vec<Argument>,
) -> Vec<String> {
    let mut mistakes = Vec::new();
    let mut at = 1;
    while at < arguments.len() {
        let (flag, word) = (&arguments[at - 1], arguments[at].word.to_string_lossy());
        if is_value_of(command, flag, &word) {
            let flag = flag.word.to_string_lossy();
            mistakes.push(format!("{flag} {word}: write {flag}={word}"));
            arguments.remove(at);
        } else {
            at += 1;
        }
    }
    mistakes
}

fn is_value_of(command: &clap::Command, flag: &Argument, word: &str) -> bool {
    let (Some(name), None) = (flag.name(), flag.value()) else {
        return false;
    };
    let mut own = command.get_arguments();
    let own = own.find(|arg| arg.get_long() == Some(&*name) && arg.is_require_equals_set());
    match own.and_then(clap::Arg::get_value_names) {
        Some([kind]) if kind == "BOOL" => parse_bool(word).is_ok(),
        Some([kind]) if kind == "URL" => word.contains("://"),
        _ => false,
    }
}

/// Returns where a flag is set: the flag itself, after its variable or its line and field.
pub(super) fn place(flag: &str, origin: &Origin) -> String {
    match origin {
        Origin::CommandLine | Origin::Default => format!("--{flag}"),
        Origin::Environment(_) => format!("{origin}: --{flag}"),
        Origin::File { .. } => {
            let field = FIELDS.iter().find(|field| field.flag == flag);
            let field = field.map_or("", |field| field.path);
            format!("{origin}: {field} (--{flag})")
        }
    }
}

/// Describes a mistake that clap has found, in one line.
pub(super) fn describe(head: &Head<'_>, error: &clap::Error, culprit: Option<&Argument>) -> String {
    let flag = culprit.and_then(Argument::name);
    // The flag's origin, or the word itself if it is not a flag.
    let at = match (culprit, &flag) {
        (Some(culprit), Some(flag)) => place(flag, &culprit.origin),
        (Some(culprit), None) => culprit.word.to_string_lossy().into_owned(),
        (None, _) => {
            let usage = context(error, ContextKind::InvalidArg).unwrap_or_default();
            let flag = usage.split([' ', '[']).next().unwrap_or_default();
            flag.to_owned()
        }
    };
    let value = context(error, ContextKind::InvalidValue).unwrap_or_default();
    match error.kind() {
        ErrorKind::UnknownArgument => match &flag {
            Some(flag) => format!("{at}: {}", unknown_flag(head, flag)),
            None if at.starts_with('-') => format!("{at}: unknown flag"),
            None => format!("unexpected argument '{at}'"),
        },
        ErrorKind::TooManyValues => format!("unexpected argument '{value}'"),
        ErrorKind::InvalidSubcommand => format!("unknown command '{at}'{}", meant_command(&at)),
        ErrorKind::ArgumentConflict
            if culprit.is_some() && error.get(ContextKind::InvalidSubcommand).is_some() =>
        {
            if head.command.find_subcommand(&at).is_some() {
                format!("'{at}': put the command before its flags: replicaset-controller {at} ...")
            } else {
                format!("unexpected argument '{at}'")
            }
        }
        ErrorKind::InvalidValue if value.is_empty() => {
            let usage = context(error, ContextKind::InvalidArg).unwrap_or_default();
            format!("{at}: a value is missing, expected {usage}")
        }
        ErrorKind::InvalidValue => {
            let known = match error.get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(known)) => known.join(", "),
                _ => String::new(),
            };
            format!("{at}: invalid value '{value}': expected one of {known}")
        }
        ErrorKind::ValueValidation => match error.source() {
            Some(reason) => format!("{at}: invalid value '{value}': {reason}"),
            None => format!("{at}: invalid value '{value}'"),
        },
        ErrorKind::InvalidUtf8 if culprit.is_some() => format!("{at}: the value is not UTF-8"),
        _ => rendered(error),
    }
}

fn unknown_flag(head: &Head<'_>, flag: &str) -> String {
    let foreign = kcm::names();
    if foreign.contains(&flag) {
        let hint = if flag == "vmodule" { MODULES } else { "" };
        return format!(
            "not supported here (a flag of kube-controller-manager){hint}; --kcm-compat accepts \
             and ignores it"
        );
    }
    let own = head.command.get_arguments();
    let own = own.filter_map(clap::Arg::get_long);
    let foreign = foreign.into_iter().filter(|_| head.kcm_compat);
    let known: Vec<&str> = own.chain(foreign).collect();
    let meant = nearest(flag, known);
    let hint = meant.map_or_else(String::new, |meant| format!("; did you mean --{meant}?"));
    format!("unknown flag{hint}")
}

/// Returns a tip for an unknown command. Commands are short, so only one edit counts as near.
fn meant_command(word: &str) -> String {
    if ["version", "help"].contains(&word) {
        return format!("; did you mean --{word}?");
    }
    let cli = <crate::cli::Cli as clap::CommandFactory>::command();
    let mut names = cli.get_subcommands().map(clap::Command::get_name);
    let meant = names.find(|name| strsim::osa_distance(name, word) == 1);
    meant.map_or_else(String::new, |name| format!("; did you mean {name}?"))
}

/// Returns clap's own message in one line, without the usage.
fn rendered(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let is_message = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more");
    let lines = text.lines().take_while(is_message).map(str::trim);
    let mut message = String::new();
    for line in lines.filter(|line| !line.is_empty()) {
        if !message.is_empty() {
            message.push_str(if message.ends_with(':') { " " } else { "; " });
        }
        message.push_str(line.strip_prefix("error: ").unwrap_or(line));
    }
    message
}

fn is_path(command: &clap::Command, argument: &Argument) -> bool {
    let name = argument.name();
    let mut own = command.get_arguments();
    let own = own.find(|arg| {
        name.as_deref()
            .is_some_and(|name| arg.get_long() == Some(name))
    });
    own.is_some_and(|arg| arg.get_value_parser().type_id() == TypeId::of::<PathBuf>())
}

fn context(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    }
}

/// Returns the index of the rejected argument, if it can be found.
pub(super) fn culprit(
    command: &clap::Command,
    arguments: &[Argument],
    error: &clap::Error,
) -> Option<usize> {
    if error.kind() == ErrorKind::InvalidUtf8 {
        // The error names no flag. A path may be any bytes.
        let is_rejected = |argument: &Argument| argument.word.to_str().is_none();
        let mut places = arguments.iter().enumerate();
        let found = places.find(|(_, it)| is_rejected(it) && !is_path(command, it));
        return found.map(|(at, _)| at);
    }
    // If a command conflicts with flags, the error names both. The command is the culprit.
    let named = context(error, ContextKind::InvalidSubcommand)
        .or_else(|| context(error, ContextKind::InvalidArg))?;
    // As "--flag <VALUE>" or "--flag[=<N>]".
    let flag = named.split([' ', '[', '=']).next().unwrap_or_default();
    let is_flag = |argument: &&Argument| {
        argument.word == named.as_str()
            || argument.word == flag
            || argument
                .name()
                .is_some_and(|name| flag.strip_prefix("--") == Some(&*name))
    };
    let value = context(error, ContextKind::InvalidValue);
    let has_value = |argument: &&Argument| match &value {
        Some(value) => argument
            .value()
            .is_some_and(|all| all == *value || all.split(',').any(|item| item == value)),
        None => true,
    };
    let find = |wanted: &dyn Fn(&&Argument) -> bool| {
        arguments.iter().position(|argument| wanted(&argument))
    };
    find(&|argument| is_flag(argument) && has_value(argument)).or_else(|| find(&is_flag))
}
