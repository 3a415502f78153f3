//! Explains why a ReplicaSet has its pods, and what the next sync would do. The input is a running
//! daemon's facts or the API alone; the output is a report for people and programs.
//!
//! [`report()`] is pure and decides with the controller's own code (`plan`, `deletion_order` and
//! `claim` of `controller::decide`). A [`table`] has one line for each object that has not
//! converged. [`api_facts`] reads the input of both from an API server. The daemon's debug pages
//! run on the connection's thread, and the command `explain` on its main thread.

pub mod api_facts;
pub mod findings;
pub mod model;
pub mod report;
pub mod table;

pub use api_facts::{ApiError, ApiFacts, read_table};
pub use model::{Report, Sources};
pub use report::report;
pub use table::{Row, Table};

#[cfg(test)]
mod tests;
