//! Arguments, logging, signals, exit code.
//!
//! Exit codes: 0 a clean stop, 1 a failure, 2 wrong usage.

use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, Signal};
use replicaset_controller::cli::{Cli, Command, ParseOutcome, parse};
use replicaset_controller::stdx::report::report;
use replicaset_controller::stdx::stop::{Cause, Stop};
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
    let command = cli.command.unwrap_or(Command::Run(cli.run));
    let Command::Run(args) = command;
    telemetry::logging::init(args.log.level());
    let stop = Stop::new();
    if let Err(error) = listen_for_signals(&stop) {
        log::error!("cannot listen for signals: {error}");
        return ExitCode::from(FAILURE);
    }
    match run::run(&args, &stop) {
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

/// The first SIGTERM or SIGINT stops the daemon, the second ends it at once. SIGHUP does nothing yet.
fn listen_for_signals(stop: &Stop) -> Result<(), Box<dyn std::error::Error>> {
    // ORDER: blocked before any other thread is started, since threads inherit what is blocked. The
    // handler cannot tell signals apart, and SIGHUP must not be mistaken for SIGTERM.
    let mut ignored = SigSet::empty();
    ignored.add(Signal::SIGHUP);
    ignored.thread_block()?;
    let (stop, is_second) = (stop.clone(), AtomicBool::new(false));
    ctrlc::set_handler(move || {
        if is_second.swap(true, Ordering::Relaxed) {
            log::error!("second signal: ending at once");
            #[expect(clippy::exit, reason = "the operator has asked twice")]
            std::process::exit(FAILURE.into());
        }
        stop.stop(Cause::Requested("a signal asked for it".to_owned()));
    })?;
    Ok(())
}
