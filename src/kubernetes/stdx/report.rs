//! Formats errors on one line.

use std::error::Error;
use std::fmt::Write;

/// The error and all its sources, joined by `: `.
pub fn report(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        // Writing to a string cannot fail.
        write!(line, ": {error}").unwrap_or_default();
        source = error.source();
    }
    line
}
