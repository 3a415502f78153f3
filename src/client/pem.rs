//! Where certificates and keys are from: the configuration itself, or a file that may be replaced at
//! any time. Read by `live_tls`, on whatever thread finds that it is time to look again.

use std::fmt;
use std::fs;
use std::path::PathBuf;

/// A source of PEM. What it holds never shows in `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Pem {
    /// What the configuration holds itself.
    Data(Vec<u8>),
    /// What a file holds now; `name` is what the configuration calls it.
    File { name: &'static str, path: PathBuf },
}

impl Pem {
    /// The bytes as they are now.
    ///
    /// # Errors
    /// Which file cannot be read and why, for people.
    pub(super) fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::Data(bytes) => Ok(bytes.clone()),
            Self::File { name, path } => fs::read(path)
                .map_err(|error| format!("{name} {} cannot be read: {error}", path.display())),
        }
    }

    /// True if it may have changed since it was read.
    pub(super) fn is_file(&self) -> bool {
        matches!(self, Self::File { .. })
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data(_) => f.write_str("data"),
            Self::File { path, .. } => write!(f, "file {}", path.display()),
        }
    }
}
