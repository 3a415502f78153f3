//! Secrets of every kind: no log, page, thread or error shows one.

/// The secret, and how to find it.
mod canary;
/// A running daemon that has a secret of each kind.
mod running;
/// Files and flags with a secret that are not valid.
mod starting;
