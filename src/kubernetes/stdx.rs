//! Additions to the standard library: named threads that register their work, a stop signal, flags
//! to wait for, fake and boot clocks, fast maps, back-off, build information, certificates and keys
//! of TLS, escaping of foreign text, files with a bound, a standard error that cannot block, and
//! the seam of simulations ([`turns`]). Imports nothing else of the crate.
//!
//! # Locks
//!
//! - [`stop`] guards the cause of the stop and the wakers. Every thread takes it.
//! - [`latch`] guards the sender whose end is the signal. The thread that sets the flag takes it.
//! - [`activity`] has one lock for each thread's slot and one for the list of slots. The thread
//!   itself takes its slot; `http-N` and `signal` read all of them.
//! - [`stderr`] guards whether a thread writes. Every thread that logs takes it.

pub mod activity;
pub mod backoff;
pub mod boot_clock;
pub mod bounded_file;
pub mod build;
pub mod certificate;
pub mod clock;
pub mod escape;
#[cfg(any(test, feature = "simulation"))]
pub mod explore;
pub mod hash;
pub mod latch;
pub mod report;
pub mod stderr;
pub mod stop;
pub mod thread;
pub mod tls;
pub mod turns;
pub mod uuid;
