//! How much to log, and in which form.

use std::str::FromStr;

use clap::{Args, ValueEnum};

/// Flags of the log.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Log")]
pub struct LogArgs {
    /// How much to log: -v for each event, -vv for each request, or a number as klog's. RUST_LOG wins.
    #[arg(short = 'v', long = "v", value_name = "N", num_args = 0..=1, require_equals = true,
        default_missing_value = "4", action = clap::ArgAction::Append)]
    pub verbosity: Vec<u8>,

    /// Levels of single modules, as PATTERN=N,...: a pattern is a file's name without .rs, or a
    /// module's path, and may hold * and ?.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub vmodule: Vec<VmodulePattern>,

    /// Lines for people, or JSON objects with klog's fields.
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    pub logging_format: LoggingFormat,
}

/// The form of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LoggingFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line, with klog's field names.
    Json,
}

/// One item of `--vmodule`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmodulePattern {
    /// What a file's name or a module's path is compared with; `*` and `?` stand for others.
    pub pattern: String,
    /// klog's number.
    pub verbosity: u8,
}

impl FromStr for VmodulePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "expected PATTERN=N, such as sync=4 or client*=6".to_owned();
        let (pattern, verbosity) = text.split_once('=').ok_or_else(wrong)?;
        let is_pattern = |c: char| c.is_ascii_alphanumeric() || "_*?:/-".contains(c);
        if pattern.is_empty() || !pattern.chars().all(is_pattern) {
            return Err(wrong());
        }
        Ok(Self {
            pattern: pattern.to_owned(),
            verbosity: verbosity.parse().map_err(|_not_a_number| wrong())?,
        })
    }
}

/// klog's number as a level: up to 3 is info, 4 and 5 are debug, everything above is trace.
pub fn level_of(verbosity: u8) -> log::LevelFilter {
    match verbosity {
        0..=3 => log::LevelFilter::Info,
        4..=5 => log::LevelFilter::Debug,
        _ => log::LevelFilter::Trace,
    }
}

impl LogArgs {
    /// klog's number; repeating `-v` adds up.
    pub fn verbosity(&self) -> u8 {
        let all = self.verbosity.iter();
        all.fold(0, |sum, v| sum.saturating_add(*v))
    }

    /// The level that [`verbosity`](Self::verbosity) means.
    pub fn level(&self) -> log::LevelFilter {
        level_of(self.verbosity())
    }
}
