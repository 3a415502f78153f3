//! What the daemon shows of itself: its log.

pub mod logging;
