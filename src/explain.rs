//! Explains why a ReplicaSet has its pods, and what the next sync would do. The input is a running
//! daemon's facts or the API alone; the output is a report for people and programs.
//!
//! [`report()`] is pure and decides with the controller's own code (`plan`, `deletion_order` and
//! `claim` of `controller::decide`). [`api_facts`] reads its input from an API server. The daemon's
//! debug page calls this room on the connection's thread, and the command `explain` on its main
//! thread.

pub mod api_facts;
pub mod findings;
pub mod model;
mod pods;
pub mod report;
mod text;

pub use api_facts::{ApiError, ApiFacts};
pub use model::{Report, Sources};
pub use report::report;

#[cfg(test)]
mod tests;
