//! What the daemon shows of itself: its log, its health and its numbers.

pub mod health;
pub mod logging;
pub mod metrics;
