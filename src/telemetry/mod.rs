//! What the daemon shows of itself: its log and its numbers.

pub mod logging;
pub mod metrics;
