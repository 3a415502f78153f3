//! Batches of creates and deletes: how many requests a sync sends before it checks the responses
//! ([`slow_start`]), and the threads that send them ([`pool`], [`fair_pool`]).
//!
//! A job is one request. The jobs of a batch may run at the same time. The next batch of a sync
//! starts after the last job of the previous one has ended.
//!
//! # Locks
//!
//! [`fair_pool`] has one lock: a worker and its helpers meet at it between two batches. Workers and
//! the threads `batch-*` take it.

pub mod fair_pool;
pub mod pool;
pub mod runner;
#[cfg(test)]
mod simulated;
pub mod slow_start;

pub use fair_pool::FairPool;
pub use pool::BatchPool;
pub use runner::{BatchRunner, Serial};
pub use slow_start::{run_all, slow_start_batch};

/// A sync that creates or deletes this many pods is a large one. Small syncs do not wait for large
/// ones: some workers and some batch threads never serve large syncs. A slow start with fewer pods
/// has no batch of more than 16.
pub const LARGE: usize = 32;
