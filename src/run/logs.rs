//! The log's flags, at the start and when they are to be read again. Called on the main thread.

use std::ffi::OsString;

use log::LevelFilter;

use crate::cli::flags::{LogArgs, LoggingFormat, level_of};
use crate::cli::{Command, Ignored, ParseOutcome, Sources, parse};
use crate::telemetry::logging::{self, Format, Levels};

/// Where this process's flags are from.
pub fn sources() -> Sources<'static> {
    Sources {
        arguments: std::env::args_os().collect(),
        environment: std::env::vars_os().collect::<Vec<(OsString, OsString)>>(),
        read_file: &|path| std::fs::read_to_string(path),
    }
}

/// Sets the log up for a command, once.
pub fn start_log(command: &Command) {
    let (args, unless_raised) = match command {
        // What is asked for goes to standard output.
        Command::Explain(args) => (&args.log, LevelFilter::Warn),
        #[cfg(feature = "devserver")]
        Command::StandIn(command) => (command.log(), command.log_level()),
        Command::Run(args) | Command::Config(args) => (&args.log, LevelFilter::Info),
        Command::Completions { .. } | Command::Man | Command::Rbac(_) => {
            (&LogArgs::default(), LevelFilter::Info)
        }
    };
    let format = match args.logging_format {
        LoggingFormat::Text => Format::Text,
        LoggingFormat::Json => Format::Json,
    };
    let mut levels = levels(args);
    if args.verbosity.is_empty() {
        levels.all = unless_raised;
    }
    logging::init(&levels, format);
}

/// Reads the flags of the log again, from all sources as at the start, since the file may say something
/// else by now, and puts them into force. The environment and the command line never change.
///
/// # Errors
/// What is wrong with the file by now; then the levels stay as they are.
pub fn reread_levels() -> Result<String, String> {
    match parse(&sources()) {
        ParseOutcome::Run(parsed) => {
            let levels = levels(&parsed.run_args().log);
            logging::set_levels(&levels);
            Ok(levels.to_string())
        }
        ParseOutcome::Show(_) => Ok(String::new()),
        ParseOutcome::Usage(mistakes) => Err(mistakes),
    }
}

/// Puts klog's number into force, for all modules but those of `--vmodule`, until the flags are read
/// again.
pub(super) fn set_verbosity(verbosity: u8) {
    let all = level_of(verbosity);
    let levels = logging::levels().map_or_else(|| all.into(), |levels| Levels { all, ..levels });
    logging::set_levels(&levels);
}

/// Says once what was accepted only for kube-controller-manager's sake.
pub fn tell_ignored(ignored: &Ignored) {
    if !ignored.foreign.is_empty() {
        let foreign = ignored.foreign.join(" ");
        log::info!("--kcm-compat: ignored, since it does not concern this daemon: {foreign}");
    }
    if !ignored.otherwise.is_empty() {
        let otherwise = ignored.otherwise.join("; ");
        log::warn!(
            "--kcm-compat: these flags concern this daemon, which does otherwise: {otherwise}"
        );
    }
}

fn levels(args: &LogArgs) -> Levels {
    let modules = args.vmodule.iter();
    let modules = modules.map(|item| (item.pattern.clone(), level_of(item.verbosity)));
    Levels {
        all: args.level(),
        modules: modules.collect(),
    }
}
