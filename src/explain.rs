//! Why does a ReplicaSet have the pods that it has, and what would happen next? From the facts that a
//! running daemon remembers, or from the API alone, to a report for people and for programs.
//!
//! [`report()`] is pure and decides by the code that ships (`controller::plan`, `deletion_order`,
//! `claim`); [`api_facts`] reads what it needs from an API server. Called by the debug page of the
//! daemon on the thread that answers it, and by the command `explain`.

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
