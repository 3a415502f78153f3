//! Observability: the log, health checks, metrics, systemd notification and thread dumps.
//!
//! # Locks
//!
//! - [`expiry`] guards which warning was last. The threads that look for renewed certificates take
//!   it.
//! - [`health`] guards the list of checks. Threads that add a check, `http-N` and `systemd` take
//!   it.
//! - [`logging`] (`limit`) guards how much each place in the code has logged. Every logging thread
//!   takes it.
//! - [`metrics::computed`] guards the sources of values that are computed at scrape time. `main`
//!   adds them. `http-N` copies them, and calls them after it has released the lock.
//! - [`metrics::credentials`] guards when a plugin's credential expires. The thread that runs the
//!   plugin writes it, `http-N` reads it.
//! - [`systemd`] guards whether systemd knows that the daemon is ready. `systemd` sets it, `signal`
//!   reads it.

pub mod expiry;
pub mod health;
pub mod logging;
pub mod metrics;
mod proc_stat;
pub mod systemd;
pub mod threads;
