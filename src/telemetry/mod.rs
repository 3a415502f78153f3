//! What the daemon shows of itself.
