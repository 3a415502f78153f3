//! Arguments, logging, signals, exit code.

fn main() {}
