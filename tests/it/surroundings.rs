//! The binary in bad surroundings: limits of the system, streams that are closed or full, odd
//! environments and folders, and signals in pairs. Tables say what it does in each.

/// What a shell does before it becomes the daemon.
mod shells;
/// Signals that arrive together.
mod signals;
