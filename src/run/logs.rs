//! Log flags: at the start on the main thread, at a reload on `signal`, and for `/debug/flags/v` on
//! the threads `http-N`.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::ffi::OsString;
use std::panic::PanicHookInfo;

use log::LevelFilter;

use crate::cli::flags::{LogArgs, LoggingFormat};
use crate::cli::{Command, Ignored, MODULES, ParseOutcome, Sources, parse};
use crate::stdx::bounded_file;
use crate::telemetry::logging::{self, Format};

/// Returns the sources of this process's flags.
pub fn sources() -> Sources<'static> {
    Sources {
        arguments: std::env::args_os().collect(),
        environment: std::env::vars_os().collect::<Vec<(OsString, OsString)>>(),
        read_file: &|path| bounded_file::read_text(path),
    }
}

pub fn start_log(command: &Command) {
    let (args, unless_raised) = match command {
        // The report is written to standard output.
        Command::Explain(args) => (&args.log, LevelFilter::Warn),
        #[cfg(feature = "devserver")]
        Command::Local(command) => (command.log(), command.log_level()),
        Command::Run(args) | Command::Config(args) => (&args.log, LevelFilter::Info),
        Command::Completions { .. } | Command::Man | Command::Rbac(_) | Command::Sample => {
            (&LogArgs::default(), LevelFilter::Info)
        }
    };
    let format = match args.logging_format {
        LoggingFormat::Text => Format::Text,
        LoggingFormat::Json => Format::Json,
    };
    let level = if args.verbosity.is_empty() {
        unless_raised
    } else {
        logging::level_of(args.verbosity())
    };
    logging::init(level, format);
    std::panic::set_hook(Box::new(log_panic));
}

/// Logs a panic, since std's hook escapes nothing and knows no JSON. Who catches the panic logs the
/// consequence.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let message = panic.payload_as_str().unwrap_or("without a message");
    let place = panic.location().map(ToString::to_string);
    let place = place.unwrap_or_default();
    let trace = Backtrace::capture();
    if trace.status() == BacktraceStatus::Captured {
        log::error!(error:% = message, then:% = trace; "panicked at {place}");
    } else {
        log::error!(error:% = message; "panicked at {place}");
    }
}

/// Parses the log flags of all sources again and applies them. Only the configuration file can have
/// changed.
///
/// # Errors
/// The mistakes in the file. The level then stays the same.
pub fn reread_level() -> Result<String, String> {
    match parse(&sources()) {
        ParseOutcome::Run(parsed) => {
            let level = logging::level_of(parsed.run_args().log.verbosity());
            logging::set_level(level);
            Ok(level.to_string())
        }
        ParseOutcome::Show(_) => Ok(String::new()),
        ParseOutcome::Usage(mistakes) => Err(mistakes),
    }
}

/// Logs what `--kcm-compat` ignored.
pub fn log_ignored(ignored: &Ignored) {
    if !ignored.0.is_empty() {
        let has_vmodule = ignored.0.iter().any(|flag| flag == "--vmodule");
        let hint = if has_vmodule { MODULES } else { "" };
        let ignored = ignored.0.join(" ");
        log::info!("--kcm-compat: these flags and fields have no effect here: {ignored}{hint}");
    }
}
