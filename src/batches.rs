//! Creates and deletes of many pods: how many a sync sends before it looks at the answers
//! ([`slow_start`]), and the threads that send them ([`pool`], [`fair_pool`]).
//!
//! A job is one request. A batch is a number of jobs that may run at the same time; the next batch
//! of a sync begins when the last job of the one before has ended.
//!
//! # Locks
//!
//! [`fair_pool`] has one lock that guards no data: a worker and its helpers meet at it between two
//! batches. Workers and the threads `batch-*` take it.

pub mod fair_pool;
pub mod pool;
pub mod runner;
pub mod slow_start;

pub use fair_pool::FairPool;
pub use pool::BatchPool;
pub use runner::{BatchRunner, Serial};
pub use slow_start::{run_all, slow_start_batch};

/// A sync that creates or deletes so many pods is a large one, and small ones do not wait for it:
/// some workers and some threads for batches never serve large syncs. A slow start with fewer pods
/// has no batch of more than 16.
pub const LARGE: usize = 32;
