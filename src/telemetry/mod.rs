//! What the daemon shows of itself: its log, and what its threads do.

pub mod logging;
pub mod threads;
