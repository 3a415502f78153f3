//! Arguments, logging, signals, exit code.
//!
//! Exit codes: 0 a clean stop, 1 a failure, 2 wrong usage.

use std::io::Write;
use std::process::ExitCode;

use replicaset_controller::cli::{Cli, Command, ParseOutcome, parse};
use replicaset_controller::stdx::report::report;
use replicaset_controller::stdx::signals;
use replicaset_controller::stdx::stop::Stop;
use replicaset_controller::{run, telemetry};

const FAILURE: u8 = 1;
const USAGE: u8 = 2;

fn main() -> ExitCode {
    match parse(std::env::args_os()) {
        ParseOutcome::Run(cli) => start(*cli),
        ParseOutcome::Show(text) => {
            // Whoever closed the pipe early has seen enough.
            std::io::stdout()
                .write_all(text.as_bytes())
                .unwrap_or_default();
            ExitCode::SUCCESS
        }
        ParseOutcome::Usage(text) => {
            std::io::stderr()
                .write_all(text.as_bytes())
                .unwrap_or_default();
            ExitCode::from(USAGE)
        }
    }
}

fn start(cli: Cli) -> ExitCode {
    let command = cli.command.unwrap_or(Command::Run(Box::new(cli.run)));
    let level = match &command {
        Command::Run(args) => args.log.level(),
        // Its own lines say what changes.
        Command::Dev(args) if args.log.verbosity.is_empty() => log::LevelFilter::Warn,
        Command::Dev(args) => args.log.level(),
        // The demo tells its story on standard output; the log would only talk over it, and of
        // failures that are part of the story.
        Command::Demo(args) if args.log.verbosity.is_empty() => log::LevelFilter::Error,
        Command::Demo(args) => args.log.level(),
    };
    telemetry::logging::init(level);
    let stop = Stop::new();
    if let Err(error) = signals::listen(&stop) {
        log::error!("cannot listen for signals: {error}");
        return ExitCode::from(FAILURE);
    }
    let result = match command {
        Command::Run(args) => run::run(&args, &stop),
        Command::Dev(args) => run::dev(&args, &stop),
        Command::Demo(args) => run::demo(&args, &stop),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Not through the log: RUST_LOG must not hide why nothing runs.
            let text = format!("replicaset-controller: {}\n", report(&error));
            std::io::stderr()
                .write_all(text.as_bytes())
                .unwrap_or_default();
            ExitCode::from(if error.is_usage() { USAGE } else { FAILURE })
        }
    }
}
