//! Parses command line, environment and configuration file into options. It has no side effects: it
//! logs and starts nothing, and the caller passes the function that reads the file.
//!
//! [`flags`] defines all flags; [`parse()`] checks all sources by it and collects all mistakes.

mod checks;
mod effective;
pub mod flags;
mod generate;
mod in_effect;
pub mod kcm;
pub mod parse;
mod sources;
pub mod values;

pub use effective::effective_file;
pub use flags::{Cli, Command, ExplainArgs, RunArgs};
pub use kcm::Ignored;
pub use parse::{ParseOutcome, Parsed, Sources, parse};

/// Sample ReplicaSets, as `sample` prints and `demo` applies them.
pub const SAMPLE: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/config/replicasets.yaml"
));
