//! Flags of the log.

use std::str::FromStr;

use clap::{Args, ValueEnum};

use crate::cli::values::number;

/// Flags of the log.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Log")]
pub struct LogArgs {
    /// Log verbosity: -v logs each event, -vv each request; or klog's number. $RUST_LOG overrides
    /// it.
    #[arg(short = 'v', long = "v", value_name = "N", num_args = 0..=1, require_equals = true,
        default_missing_value = "4", action = clap::ArgAction::Append,
        value_parser = number::<u8>(0..=255))]
    pub verbosity: Vec<u8>,

    /// Verbosity of single modules as PATTERN=N,...; a pattern is a file name without .rs or a
    /// module path, with * and ? as wildcards.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        hide_short_help = true
    )]
    pub vmodule: Vec<VmodulePattern>,

    /// Format of the log.
    #[arg(
        long,
        value_name = "FORMAT",
        value_enum,
        default_value = "text",
        hide_short_help = true
    )]
    pub logging_format: LoggingFormat,
}

/// Format of a log record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LoggingFormat {
    /// One line of text per record.
    #[default]
    Text,
    /// One JSON object per line, with klog's field names.
    Json,
}

/// One item of `--vmodule`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmodulePattern {
    /// Pattern for a file name or module path, with `*` and `?` as wildcards.
    pub pattern: String,
    /// Verbosity as in klog.
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

/// Maps klog's verbosity to a level: up to 3 info, 4 and 5 debug, above trace.
pub fn level_of(verbosity: u8) -> log::LevelFilter {
    match verbosity {
        0..=3 => log::LevelFilter::Info,
        4..=5 => log::LevelFilter::Debug,
        _ => log::LevelFilter::Trace,
    }
}

impl LogArgs {
    /// Verbosity as in klog; repeated `-v` add up.
    pub fn verbosity(&self) -> u8 {
        let all = self.verbosity.iter();
        all.fold(0, |sum, v| sum.saturating_add(*v))
    }

    /// The level of [`verbosity`](Self::verbosity).
    pub fn level(&self) -> log::LevelFilter {
        level_of(self.verbosity())
    }
}
