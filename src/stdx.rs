//! What the standard library lacks: named threads that tell what they work on, a stop signal and what
//! gives it, clocks that tests can turn, quick maps, back-off, what was built, and escapes for text
//! from elsewhere. Imports nothing of the project.
//!
//! # Locks
//!
//! - [`stop`] guards the cause of the stop and the wakers. Every thread takes it.
//! - [`activity`] has one lock for each thread's slot and one for the list of slots. The thread
//!   itself takes its slot; `http-N` and `signal` read all of them.

pub mod activity;
pub mod backoff;
pub mod boot_clock;
pub mod build;
pub mod clock;
pub mod escape;
pub mod hash;
pub mod report;
pub mod stop;
pub mod thread;
