//! Standard output of commands that print one text and exit.

use std::io::{self, Write};

/// Writes `text` to standard output. A closed pipe is no failure.
///
/// # Errors
/// If standard output cannot be written, such as on a full disk.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    seen_enough(written)
}

/// Returns the name under which this process was started, for hints that a person can type.
#[cfg(feature = "devserver")]
pub(super) fn program() -> String {
    let name = std::env::args_os().next().unwrap_or_default();
    match name.into_string() {
        Ok(name) if !name.is_empty() => name,
        _ => "replicaset-controller".to_owned(),
    }
}

/// Turns the error of a closed pipe into success: the reader has seen enough.
///
/// # Errors
/// Any other failure to write.
pub(super) fn seen_enough(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
