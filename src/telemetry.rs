//! What the daemon shows of itself: its log, its health, its numbers, and what its threads do.

pub mod health;
pub mod logging;
pub mod metrics;
pub mod systemd;
pub mod threads;
