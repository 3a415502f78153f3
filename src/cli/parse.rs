//! Parses all sources into flags, checks the conditions between flags, and collects all mistakes.

mod mistakes;

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory, FromArgMatches};

use self::mistakes::{apart_from_flag, culprit, describe, place};
use super::effective::{flags_in_effect, yaml};
use super::flags::{Cli, Command, RunArgs};
use super::kcm::Ignored;
use super::sources::{Argument, Layer, Origin, file, join, read_environment};
use super::{SAMPLE, generate, parse_bool};

#[derive(Debug)]
pub enum ParseOutcome {
    Run(Box<Parsed>),
    /// A text, such as the help or the version: printed to standard output, exit code 0.
    Show(String),
    /// Mistakes: these lines are printed to standard error, exit code 2.
    Usage(String),
}

#[derive(Debug)]
pub struct Parsed {
    pub cli: Cli,
    /// What `--kcm-compat` ignored, for one report in the log.
    pub ignored: Ignored,
}

impl Parsed {
    /// The daemon's flags; their defaults for a command without them.
    pub fn run_args(&self) -> &RunArgs {
        run_args(&self.cli).unwrap_or(&self.cli.run)
    }
}

pub struct Sources<'a> {
    /// The command line; the first word is the program's name.
    pub arguments: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
    pub read_file: &'a dyn Fn(&Path) -> io::Result<String>,
}

/// The words before the flags: the names of the program and of the command.
struct Head<'a> {
    words: &'a [OsString],
    command: &'a clap::Command,
    /// True if `--kcm-compat` accepts flags of kube-controller-manager.
    kcm_compat: bool,
}

/// Parses all sources. Flags override the environment, which overrides the file, which overrides
/// the defaults.
///
/// clap stops at the first mistake. To report all mistakes, `Head::matches` removes each rejected
/// argument and parses the rest again, source by source.
pub fn parse(sources: &Sources<'_>) -> ParseOutcome {
    let mut arguments = sources.arguments.clone();
    if !is_plugin(&arguments) {
        return parse_arguments(sources, arguments);
    }
    arguments.splice(
        ..1,
        ["replicaset-controller", "explain"].map(OsString::from),
    );
    let as_called = |text: String| text.replace("replicaset-controller explain", PLUGIN);
    match parse_arguments(sources, arguments) {
        ParseOutcome::Show(text) => ParseOutcome::Show(as_called(text)),
        ParseOutcome::Usage(text) => ParseOutcome::Usage(as_called(text)),
        run @ ParseOutcome::Run(_) => run,
    }
}

/// What users write to call the program under the name `kubectl-rs_explain`.
const PLUGIN: &str = "kubectl rs-explain";

fn is_plugin(arguments: &[OsString]) -> bool {
    let program = arguments.first().map(Path::new).and_then(Path::file_name);
    program.is_some_and(|name| name == "kubectl-rs_explain")
}

fn parse_arguments(sources: &Sources<'_>, mut arguments: Vec<OsString>) -> ParseOutcome {
    let cli = Cli::command();
    if arguments.get(1).is_some_and(|word| word == "help") {
        arguments.retain(|word| word != "-h" && word != "--help");
    }
    let named = arguments.get(1).and_then(|word| word.to_str());
    let named = named.and_then(|word| cli.find_subcommand(word));
    let n_head = if named.is_some() { 2 } else { 1 }.min(arguments.len());
    let (words, rest) = arguments.split_at(n_head);
    let mut head = Head {
        words,
        command: named.unwrap_or(&cli),
        kcm_compat: false,
    };
    let mut command_line = Layer {
        arguments: join(head.command, rest),
        ..Layer::default()
    };
    let mut mistakes = apart_from_flag(head.command, &mut command_line.arguments);

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
            head.kcm_compat = true;
            let words = std::mem::take(&mut command_line.arguments);
            command_line.arguments = ignored.take_out(words);
            for layer in &mut lower {
                ignored.0.append(&mut layer.foreign);
            }
        }
        layers = lower;
    }

    match head.matches(command_line.arguments.clone(), &mut mistakes) {
        Read::Show(text) => return ParseOutcome::Show(text),
        Read::Flags(_) | Read::Mistakes => {}
    }
    for layer in &mut layers {
        mistakes.append(&mut layer.mistakes);
        let foreign = layer
            .foreign
            .iter()
            .map(|field| format!("{field} configures another controller; --kcm-compat ignores it"));
        mistakes.extend(foreign);
        // Only the mistakes count here. The merged arguments are parsed below.
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
        if let Some(args) = run_args(&parsed) {
            mistakes.extend(check(args, &merged));
        }
        if mistakes.is_empty() {
            return outcome(parsed, ignored, &merged);
        }
    }
    mistakes.dedup();
    let command = named.map_or(String::new(), |named| format!(" {}", named.get_name()));
    ParseOutcome::Usage(format!(
        "{}\nsee replicaset-controller{command} --help\n",
        mistakes.join("\n")
    ))
}

/// Returns the file and the environment, in the order of rising precedence.
fn lower_layers(sources: &Sources<'_>, head: &Head<'_>, command_line: &Layer) -> Vec<Layer> {
    let run = Cli::command();
    let all = run.get_arguments().filter_map(clap::Arg::get_long);
    let all: Vec<String> = all
        .filter(|flag| !["help", "version"].contains(flag))
        .map(str::to_owned)
        .collect();
    let environment = read_environment(&sources.environment, &all);
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

/// Merges the arguments: a flag of a later layer replaces that of the earlier layers.
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
        Some(Command::Config(args)) => ParseOutcome::Show(yaml(merged, &args.in_effect)),
        Some(Command::Completions { shell }) => ParseOutcome::Show(generate::completions(*shell)),
        Some(Command::Man) => ParseOutcome::Show(generate::man()),
        Some(Command::Sample) => ParseOutcome::Show(SAMPLE.to_owned()),
        _ => ParseOutcome::Run(Box::new(Parsed { cli, ignored })),
    }
}

/// What clap returns for the arguments of one source.
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
            match error.kind() {
                // After a rejected word, `help` alone would show the help of another command.
                ErrorKind::DisplayHelp if mistakes.len() > n_before && is_help(&arguments) => {
                    return Read::Mistakes;
                }
                ErrorKind::DisplayHelp => return Read::Show(error.render().to_string()),
                // clap names the command as well, as if it had a version of its own.
                ErrorKind::DisplayVersion => return Read::Show(Cli::command().render_version()),
                _ => {}
            }
            let culprit = culprit(self.command, &arguments, &error).map(|at| arguments.remove(at));
            mistakes.push(describe(self, &error, culprit.as_ref()));
            if culprit.is_none() {
                return Read::Mistakes;
            }
        }
    }
}

fn is_help(arguments: &[Argument]) -> bool {
    arguments.first().is_some_and(|first| first.word == "help")
}

impl Layer {
    /// The last argument of the flag, which wins.
    fn last(&self, flag: &str) -> Option<&Argument> {
        self.arguments.iter().rfind(|argument| argument.is(flag))
    }
}

/// The renew deadline must exceed the retry period by this factor
/// (client-go `tools/leaderelection/leaderelection.go:JitterFactor`).
const JITTER_FACTOR: f64 = 1.2;

/// Minimum of `leaseDurationSeconds`.
///
/// DIFFERS: upstream accepts any duration above zero. The Lease would carry 0 s, and anybody could
/// take it at any time.
const LEASE_DURATION_MIN: Duration = Duration::from_secs(1);

/// What replaces a leader migration configuration.
const LEADER_MIGRATION: &str = "leader migration is not supported; to share a Lease with \
                                kube-controller-manager, set --leader-elect-resource-name to the \
                                leaderName of replicaset-controller";

/// Returns the violated conditions between flags, each with the origin of its flag.
fn check(args: &RunArgs, merged: &[Argument]) -> Vec<String> {
    let mut mistakes = Vec::new();
    let mut require = |holds: bool, flag: &str, sentence: &str| {
        if !holds {
            let given = merged.iter().rfind(|argument| argument.is(flag));
            let at = place(flag, given.map_or(&Origin::Default, |given| &given.origin));
            mistakes.push(format!("{at}: {sentence}"));
        }
    };

    let client = &args.client;
    require(
        client.kube_api_qps <= 0.0 || client.kube_api_burst > 0,
        "kube-api-burst",
        "must be at least 1, unless --kube-api-qps sets no limit",
    );
    require(
        !args.api.master.as_deref().is_some_and(names_a_user),
        "master",
        "user and password do not belong in the server's URL",
    );
    require(
        !args.controller.enabled().is_empty() || args.controller.runs_deployments(),
        "controllers",
        "leaves no controller to run",
    );

    let election = &args.leader_election;
    if election.leader_elect {
        require(
            election.leader_elect_lease_duration >= LEASE_DURATION_MIN,
            "leader-elect-lease-duration",
            "must be at least 1s, since a Lease counts whole seconds",
        );
        for (flag, duration) in [
            (
                "leader-elect-renew-deadline",
                election.leader_elect_renew_deadline,
            ),
            (
                "leader-elect-retry-period",
                election.leader_elect_retry_period,
            ),
        ] {
            require(!duration.is_zero(), flag, "must be longer than 0");
        }
        require(
            election.leader_elect_lease_duration > election.leader_elect_renew_deadline,
            "leader-elect-lease-duration",
            "must be longer than --leader-elect-renew-deadline, so that the leader gives up before \
             another daemon takes over",
        );
        require(
            election.leader_elect_renew_deadline
                > election.leader_elect_retry_period.mul_f64(JITTER_FACTOR),
            "leader-elect-renew-deadline",
            "must be longer than 1.2 times --leader-elect-retry-period, so that the leader retries \
             before the deadline",
        );
    }
    // Without its file, this daemon would lead by another Lease beside the other leader.
    require(
        !election.enable_leader_migration,
        "enable-leader-migration",
        LEADER_MIGRATION,
    );
    require(
        election.leader_migration_config.is_none(),
        "leader-migration-config",
        LEADER_MIGRATION,
    );

    let serving = &args.serving;
    require(
        serving.tls_cert_file.is_none() || serving.tls_private_key_file.is_some(),
        "tls-cert-file",
        "needs --tls-private-key-file",
    );
    require(
        serving.tls_private_key_file.is_none() || serving.tls_cert_file.is_some(),
        "tls-private-key-file",
        "needs --tls-cert-file",
    );
    require(
        serving.insecure_port == 0 || serving.insecure_port != serving.secure_port,
        "insecure-port",
        "must differ from --secure-port",
    );
    mistakes
}

fn names_a_user(url: &str) -> bool {
    let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = after_scheme.split('/').next();
    authority.is_some_and(|authority| authority.contains('@'))
}

#[cfg(test)]
mod tests;
