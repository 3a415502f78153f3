//! What the daemon shows of itself: its log, its health.

pub mod health;
pub mod logging;
