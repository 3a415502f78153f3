//! Batches of creates and deletes: how many requests a sync sends before it checks the responses
//! ([`slow_start`]), and the threads that send them ([`pool`]).
//!
//! A job is one request. The jobs of a batch may run at the same time. The next batch of a sync
//! starts after the last job of the previous one has ended.
//!
//! # Locks
//!
//! [`pool`] has one lock, around the number of helpers. Workers and the threads `batch-*` take it.

pub mod pool;
#[cfg(test)]
mod simulated;
pub mod slow_start;

use std::fmt::Debug;
use std::ops::Range;

pub use pool::FairPool;
pub use slow_start::slow_start_batch;

/// A sync that creates or deletes this many pods is a large one. Small syncs do not wait for large
/// ones: some workers and some batch threads never serve large syncs. A slow start with fewer pods
/// has no batch of more than 16.
pub const LARGE: usize = 32;

#[derive(Clone, Copy, Debug)]
pub struct Jobs {
    /// How many, in all batches.
    pub count: usize,
    /// Whose share of the threads runs them, such as a hash of the namespace.
    pub tenant: u64,
}

pub trait BatchRunner: Debug + Send + Sync {
    /// Runs `job` for each index of `batch`, a part of `jobs`. Blocks until the last job has ended.
    /// A panic in a job arrives here then.
    fn run(&self, jobs: Jobs, batch: Range<usize>, job: &(dyn Fn(usize) + Sync));
}
