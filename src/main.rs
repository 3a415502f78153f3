//! Arguments, logging, signals, exit code.
//!
//! Exit codes: 0 a clean stop, 1 a failure, 2 wrong usage.

use std::io::Write;
use std::process::ExitCode;

use replicaset_controller::cli::{Command, ParseOutcome, Parsed, parse};
use replicaset_controller::stdx::report::report;
use replicaset_controller::stdx::signals;
use replicaset_controller::stdx::stop::Stop;
use replicaset_controller::{run, telemetry};

const FAILURE: u8 = 1;
const USAGE: u8 = 2;

fn main() -> ExitCode {
    match parse(&run::sources()) {
        ParseOutcome::Run(parsed) => start(*parsed),
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

fn start(parsed: Parsed) -> ExitCode {
    let Parsed { cli, ignored } = parsed;
    let command = cli.command.unwrap_or(Command::Run(Box::new(cli.run)));
    run::start_log(&command);
    run::tell_ignored(&ignored);
    let stop = Stop::new();
    signals::on_dump("threads", telemetry::threads::log_threads);
    if let Err(error) = signals::listen(&stop) {
        log::error!("cannot listen for signals: {error}");
        return ExitCode::from(FAILURE);
    }
    let result = match command {
        Command::Run(args) => run::run(&args, &stop),
        Command::Explain(args) => run::explain(&args, &stop),
        Command::Dev(args) => run::dev(&args, &stop),
        Command::Demo(args) => run::demo(&args, &stop),
        Command::Rbac(args) => run::rbac(&args),
        // Their text was shown when the arguments were read.
        Command::Config(_) | Command::Completions { .. } | Command::Man => Ok(()),
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
