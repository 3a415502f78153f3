//! Command line flags turned into options, without any effect: nothing is opened, logged or started
//! here.

pub mod duration;
pub mod flags;
pub mod parse;
pub mod values;

pub use flags::{Cli, Command, DemoArgs, DevArgs, RunArgs};
pub use parse::{ParseOutcome, parse};
