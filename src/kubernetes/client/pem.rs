//! The source of a certificate or key: the configuration itself, or a file that may be replaced at
//! any time. `live_tls` reads it on the thread that runs a check.

use std::path::{Path, PathBuf};

use crate::stdx::bounded_file;

/// A source of PEM.
#[derive(Clone)]
pub(super) enum Pem {
    /// PEM in the configuration itself.
    Data(Vec<u8>),
    /// PEM in a file; `name` is the configuration's name for it.
    File { name: &'static str, path: PathBuf },
}

impl Pem {
    /// Returns the current bytes.
    ///
    /// # Errors
    /// Which file cannot be read and why, as text.
    pub(super) fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::Data(bytes) => Ok(bytes.clone()),
            Self::File { name, path } => bounded_file::read_regular(path)
                .map_err(|error| format!("{name} {} cannot be read: {error}", path.display())),
        }
    }

    /// The file, if the source is one.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Data(_) => None,
            Self::File { path, .. } => Some(path),
        }
    }

    /// True if the source may change after it was read.
    pub(super) fn is_file(&self) -> bool {
        self.path().is_some()
    }
}

/// Returns why an authority's file is rejected, as the metrics' label (client-go
/// `transport/ca_rotation.go`).
pub(super) fn rejection_reason(bytes: &[u8]) -> &'static str {
    let is_empty = bytes.trim_ascii().is_empty();
    if is_empty { "empty" } else { "ca_parse_error" }
}
