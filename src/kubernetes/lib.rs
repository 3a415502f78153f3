//! What any controller of Kubernetes needs: the vocabulary of the API, a client, caches, a work
//! queue, leader election, serving HTTP, a log and metrics. It knows nothing of the daemon above.
//!
//! The daemon's `lib.rs` says what each module owns and which others it may use.
//!
//! The feature `simulation` has the other half of [`stdx::turns`], a transport without sockets, and
//! what tests of other packages use. Tests enable it; no release build has it.

pub mod api;
pub mod cache;
pub mod client;
pub mod event_recorder;
pub mod http_server;
pub mod leader_election;
pub mod stdx;
pub mod telemetry;
pub mod workqueue;
