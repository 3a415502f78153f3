//! From all sources to flags, with all mistakes found at once.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, CommandFactory, FromArgMatches};

use super::checks;
use super::effective::Effective;
use super::flags::{Cli, Command, RunArgs};
use super::generate;
use super::in_effect::flags_in_effect;
use super::kcm::{self, Ignored};
use super::sources::{Argument, Flags, Layer, Origin, environment, file};
use super::values::parse_bool;

/// What came of the arguments.
#[derive(Debug)]
pub enum ParseOutcome {
    /// They are all right.
    Run(Box<Parsed>),
    /// Help, the version or something else that needs no daemon was asked for: this text goes to
    /// standard output, exit code 0.
    Show(String),
    /// They are wrong: these lines go to standard error, exit code 2.
    Usage(String),
}

/// Arguments that are all right.
#[derive(Debug)]
pub struct Parsed {
    /// The command and its flags, from all sources.
    pub cli: Cli,
    /// What of kube-controller-manager's was accepted and is to be told once.
    pub ignored: Ignored,
}

impl Parsed {
    /// The flags that `run` has; the defaults for a command that has none of them.
    pub fn run_args(&self) -> &RunArgs {
        run_args(&self.cli).unwrap_or(&self.cli.run)
    }
}

/// What flags are read from.
pub struct Sources<'a> {
    /// The command line; the first word is the program's name.
    pub arguments: Vec<OsString>,
    /// All variables of the environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Reads the configuration file.
    pub read_file: &'a dyn Fn(&Path) -> io::Result<String>,
}

impl std::fmt::Debug for Sources<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let arguments = &self.arguments;
        f.debug_struct("Sources")
            .field("arguments", arguments)
            .finish_non_exhaustive()
    }
}

/// The words before the flags: the program's name and the command's.
struct Head<'a> {
    words: &'a [OsString],
    /// The command whose flags follow.
    command: &'a clap::Command,
}

/// Reads all sources; flags win over the environment, that over the file, that over the defaults.
///
/// The parser stops at the first mistake. To report them all, each argument that it complains of is
/// taken out and the rest is read again, source by source.
pub fn parse(sources: &Sources<'_>) -> ParseOutcome {
    let cli = Cli::command();
    let arguments = &sources.arguments;
    let named = arguments.get(1).and_then(|word| word.to_str());
    let named = named.and_then(|word| cli.find_subcommand(word));
    let n_head = if named.is_some() { 2 } else { 1 }.min(arguments.len());
    let (words, rest) = arguments.split_at(n_head);
    let head = Head {
        words,
        command: named.unwrap_or(&cli),
    };
    let flags = Flags {
        command: head.command,
        foreign: kcm::takes_value,
    };
    let mut command_line = Layer {
        arguments: flags.join(rest.to_vec()),
        ..Layer::default()
    };

    let mut ignored = Ignored::default();
    let mut layers = Vec::new();
    if head.has("config") {
        let mut lower = lower_layers(sources, &head, &command_line);
        let is_set = |layer: &Layer| {
            let given = layer.last("kcm-compat")?;
            Some(given.value().is_none_or(|on| parse_bool(&on) == Ok(true)))
        };
        let all = lower.iter().chain([&command_line]);
        if all.filter_map(is_set).next_back() == Some(true) {
            let words = std::mem::take(&mut command_line.arguments);
            command_line.arguments = ignored.take_out(words);
            for layer in &mut lower {
                ignored.foreign.append(&mut layer.foreign);
            }
        }
        layers = lower;
    }

    let mut mistakes = Vec::new();
    match head.matches(command_line.arguments.clone(), &mut mistakes) {
        Read::Show(text) => return ParseOutcome::Show(text),
        Read::Flags(_) | Read::Mistakes => {}
    }
    for layer in &mut layers {
        mistakes.append(&mut layer.mistakes);
        let foreign = layer.foreign.iter().map(|field| {
            format!("{field} is of kube-controller-manager's other parts; --kcm-compat ignores it")
        });
        mistakes.extend(foreign);
        // The outcome is asked for again when all sources are merged.
        let (Read::Show(_) | Read::Flags(_) | Read::Mistakes) =
            head.matches(layer.arguments.clone(), &mut mistakes);
    }
    layers.push(command_line);
    let merged = merge(layers);
    if mistakes.is_empty()
        && let Read::Flags(matches) = head.matches(merged.clone(), &mut mistakes)
    {
        let mut parsed = Cli::from_arg_matches(&matches).expect("the matches are of this table");
        let own = matches.subcommand().map_or(&matches, |(_, own)| own);
        let args = match &mut parsed.command {
            None => Some(&mut parsed.run),
            Some(Command::Run(args) | Command::Config(args)) => Some(&mut **args),
            Some(_) => None,
        };
        if let Some(args) = args {
            args.in_effect = flags_in_effect(head.command, own, args);
        }
        mistakes.extend(check(&parsed, &merged));
        if mistakes.is_empty() {
            return outcome(parsed, ignored, &merged);
        }
    }
    mistakes.dedup();
    let hint = "see replicaset-controller --help for all flags";
    ParseOutcome::Usage(format!("{}\n{hint}\n", mistakes.join("\n")))
}

/// The environment and the file, in the order of rising precedence.
fn lower_layers(sources: &Sources<'_>, head: &Head<'_>, command_line: &Layer) -> Vec<Layer> {
    let run = Cli::command();
    let all = run.get_arguments().filter_map(clap::Arg::get_long);
    let all: Vec<String> = all
        .filter(|flag| !["help", "version"].contains(flag))
        .map(str::to_owned)
        .collect();
    let environment = environment::read(&sources.environment, &all);
    let config = command_line.last("config").or(environment.last("config"));
    let path = config
        .and_then(Argument::value)
        .filter(|path| !path.is_empty());
    let mut layers: Vec<Layer> = Vec::new();
    if let Some(path) = path {
        layers.push(match (sources.read_file)(Path::new(&path)) {
            Ok(text) => file::read(&path, &text),
            Err(error) => Layer {
                mistakes: vec![format!("--config: cannot read {path}: {error}")],
                ..Layer::default()
            },
        });
    }
    layers.push(environment);
    for layer in &mut layers {
        // Commands that share the sources may have fewer flags than `run`.
        layer
            .arguments
            .retain(|argument| argument.name().is_some_and(|name| head.has(&name)));
    }
    layers
}

/// All arguments, but for flags that a later layer has too.
fn merge(layers: Vec<Layer>) -> Vec<Argument> {
    let mut merged: Vec<Argument> = Vec::new();
    for layer in layers {
        merged.retain(|lower| match lower.name() {
            Some(name) => layer.last(&name).is_none(),
            None => true,
        });
        merged.extend(layer.arguments);
    }
    merged
}

/// What does not fit together, with where each flag is from.
fn check(cli: &Cli, merged: &[Argument]) -> Vec<String> {
    let Some(args) = run_args(cli) else {
        return Vec::new();
    };
    checks::check(args, &|flag| {
        let given = merged.iter().rfind(|argument| argument.is(flag));
        place(flag, given.map_or(&Origin::Default, |given| &given.origin))
    })
}

/// The flags of a command that runs a controller, or shows how one would run or what it would need.
fn run_args(cli: &Cli) -> Option<&RunArgs> {
    match &cli.command {
        None => Some(&cli.run),
        Some(Command::Run(args) | Command::Config(args)) => Some(args),
        Some(Command::Rbac(args)) => Some(&args.run),
        Some(_) => None,
    }
}

fn outcome(cli: Cli, ignored: Ignored, merged: &[Argument]) -> ParseOutcome {
    match &cli.command {
        Some(Command::Config(args)) => {
            let effective = Effective {
                arguments: merged,
                values: &args.in_effect,
            };
            ParseOutcome::Show(effective.yaml())
        }
        Some(Command::Completions { shell }) => ParseOutcome::Show(generate::completions(*shell)),
        Some(Command::Man) => ParseOutcome::Show(generate::man()),
        _ => ParseOutcome::Run(Box::new(Parsed { cli, ignored })),
    }
}

/// What the parser makes of one source.
enum Read {
    Flags(ArgMatches),
    Show(String),
    Mistakes,
}

impl Head<'_> {
    fn has(&self, flag: &str) -> bool {
        let mut own = self.command.get_arguments();
        own.any(|arg| arg.get_long() == Some(flag))
    }

    fn matches(&self, mut arguments: Vec<Argument>, mistakes: &mut Vec<String>) -> Read {
        let n_before = mistakes.len();
        loop {
            let words = arguments.iter().map(|argument| &argument.word);
            let words = self.words.iter().chain(words);
            let error = match Cli::command().try_get_matches_from(words) {
                Ok(matches) if mistakes.len() == n_before => return Read::Flags(matches),
                Ok(_) => return Read::Mistakes,
                Err(error) => error,
            };
            if matches!(
                error.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            ) {
                return Read::Show(error.render().to_string());
            }
            let culprit = culprit(&arguments, &error).map(|at| arguments.remove(at));
            mistakes.push(describe(&error, culprit.as_ref()));
            if culprit.is_none() {
                return Read::Mistakes;
            }
        }
    }
}

impl Layer {
    /// The one that counts.
    fn last(&self, flag: &str) -> Option<&Argument> {
        self.arguments.iter().rfind(|argument| argument.is(flag))
    }
}

/// Where a person finds the flag.
fn place(flag: &str, origin: &Origin) -> String {
    match origin {
        Origin::CommandLine | Origin::Default => format!("--{flag}"),
        origin => format!("{origin}: --{flag}"),
    }
}

/// The parser's own first lines, up to its usage hint, with the place if it is not the command line.
fn describe(error: &clap::Error, culprit: Option<&Argument>) -> String {
    let text = error.render().to_string();
    let is_message = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more");
    let lines = text
        .lines()
        .take_while(is_message)
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let mut text = lines.collect::<Vec<_>>().join("; ");
    let Some(culprit) = culprit else {
        return text;
    };
    if error.kind() == ErrorKind::UnknownArgument
        && culprit
            .name()
            .is_some_and(|name| kcm::takes_value(&name).is_some())
    {
        text = format!("{text}; it is one of kube-controller-manager: --kcm-compat ignores it");
    }
    match &culprit.origin {
        Origin::CommandLine | Origin::Default => text,
        origin => format!("{origin}: {text}"),
    }
}

/// The argument that the error complains of, if it can be found.
fn culprit(arguments: &[Argument], error: &clap::Error) -> Option<usize> {
    let named = error.get(ContextKind::InvalidArg);
    let named = named.or(error.get(ContextKind::InvalidSubcommand));
    let Some(ContextValue::String(culprit)) = named else {
        return None;
    };
    // As "--flag <VALUE>" or "--flag[=<N>]".
    let flag = culprit.split([' ', '[', '=']).next().unwrap_or_default();
    let is_flag = |argument: &&Argument| {
        argument.word == culprit.as_str()
            || argument.word == flag
            || argument
                .name()
                .is_some_and(|name| flag.strip_prefix("--") == Some(&*name))
    };
    let has_value = |argument: &&Argument| match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) => argument
            .value()
            .is_some_and(|all| all == *value || all.split(',').any(|item| item == value)),
        _ => true,
    };
    let find = |wanted: &dyn Fn(&&Argument) -> bool| {
        arguments.iter().position(|argument| wanted(&argument))
    };
    find(&|argument| is_flag(argument) && has_value(argument)).or_else(|| find(&is_flag))
}

#[cfg(test)]
mod tests;
