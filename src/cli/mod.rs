//! Command line flags turned into options, without any effect: nothing is opened, logged or started
//! here.

pub mod duration;
pub mod flags;
mod in_effect;
pub mod parse;
pub mod values;

pub use flags::{Cli, Command, DemoArgs, DevArgs, ExplainArgs, RunArgs};
pub use parse::{ParseOutcome, parse};
