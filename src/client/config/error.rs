//! Why there is no configuration, in words that lead to one. Shown by `main` at the start.

use std::fmt;
use std::path::PathBuf;

/// Why it is not known where the API server is or how to appear before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Nothing says where the API server is.
    #[error("no configuration for an API server was found; looked at{}", Lines(.0))]
    NotFound(Vec<LookedAt>),
    /// A kubeconfig file cannot be used.
    #[error("kubeconfig {}: {problem}", file.display())]
    File {
        /// Which one.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// An entry of a kubeconfig cannot be used.
    #[error("kubeconfig {}, {entry}: {problem}", file.display())]
    Entry {
        /// Where it stands.
        file: PathBuf,
        /// What it is and its name, such as `context "prod"`.
        entry: String,
        /// What is wrong with it, and what would help.
        problem: String,
    },
    /// The pod's service account cannot be used.
    #[error("in-cluster configuration: {0}")]
    InCluster(String),
    /// The address given by `--master` cannot be used.
    #[error("--master {url:?}: {problem}")]
    Master {
        /// The address as given, without a password.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// A place where no configuration was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookedAt {
    /// The place, such as `$KUBECONFIG`.
    pub place: String,
    /// What was there instead.
    pub found: String,
}

impl LookedAt {
    pub(super) fn new(place: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            found: found.into(),
        }
    }
}

struct Lines<'a>(&'a [LookedAt]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for LookedAt { place, found } in self.0 {
            write!(f, "\n  {place}: {found}")?;
        }
        Ok(())
    }
}
