//! Parses arguments, starts logging and signal handling, and sets the exit code.
//!
//! Exit codes: 0 for a clean stop, 1 for a failure, 2 for wrong usage.

use std::error::Error;
use std::process::ExitCode;

use replicaset_controller::cli::{Command, ParseOutcome, Parsed, parse};
use replicaset_controller::run;
use replicaset_controller::run::{RunError, signals};
use replicaset_controller::stdx::escape::{escaped_lines, report};
use replicaset_controller::stdx::stderr;
use replicaset_controller::stdx::stop::Stop;

const FAILURE: u8 = 1;
const USAGE: u8 = 2;

fn main() -> ExitCode {
    match parse(&run::sources()) {
        ParseOutcome::Run(parsed) => start(*parsed),
        ParseOutcome::Show(text) => match run::print(&text) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                print_error(&RunError::Output(error));
                ExitCode::from(FAILURE)
            }
        },
        ParseOutcome::Usage(text) => {
            stderr::write(&text).unwrap_or_default();
            ExitCode::from(USAGE)
        }
    }
}

fn start(parsed: Parsed) -> ExitCode {
    let Parsed { cli, ignored } = parsed;
    let command = cli.command.unwrap_or(Command::Run(Box::new(cli.run)));
    run::start_log(&command);
    run::log_ignored(&ignored);
    let stop = Stop::new();
    // A stop signal before the daemon runs is a clean stop. Any other command has not done its
    // work.
    let early_code = if command.is_daemon() { 0 } else { FAILURE };
    if let Err(error) = signals::listen(&stop, early_code.into()) {
        print_error(&error);
        return ExitCode::from(FAILURE);
    }
    let result = match command {
        Command::Run(args) => run::run(&args, &stop),
        Command::Explain(args) => run::explain(&args, &stop),
        #[cfg(feature = "devserver")]
        Command::Local(command) => run::local(&command, &stop),
        Command::Rbac(args) => run::rbac(&args),
        // The parser has rendered their text already.
        Command::Config(_) | Command::Completions { .. } | Command::Man | Command::Sample => Ok(()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !error.is_logged() {
                print_error(&error);
            }
            ExitCode::from(if error.is_usage() { USAGE } else { FAILURE })
        }
    }
}

/// Bypasses the log: RUST_LOG must not hide why the process exits.
fn print_error(error: &dyn Error) {
    let text = report(error);
    let text = format!("replicaset-controller: {}\n", escaped_lines(&text));
    // The exit code reports it, too.
    stderr::write(&text).unwrap_or_default();
}
