//! Command line, environment and configuration file turned into options, without any effect: nothing is
//! logged or started here, and the configuration file is read by a function that the caller gives.
//!
//! [`flags`] is the one table; [`parse()`] reads all sources by it and finds all mistakes at once.

mod checks;
pub mod duration;
mod effective;
pub mod flags;
mod generate;
mod in_effect;
pub mod kcm;
pub mod parse;
mod sources;
pub mod values;

pub use flags::{Cli, Command, ExplainArgs, RunArgs};
pub use kcm::Ignored;
pub use parse::{ParseOutcome, Parsed, Sources, parse};
