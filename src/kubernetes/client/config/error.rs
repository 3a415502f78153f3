//! Why there is no configuration, with hints how to fix it. `main` prints these errors at startup.

use std::fmt;
use std::path::PathBuf;

/// Why the client has no API server address or no credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No source names an API server.
    #[error("no configuration for an API server was found; looked at{}", Lines(.0))]
    NotFound(Vec<SearchedPlace>),
    /// `--context` names a context, and there is no kubeconfig to have it.
    #[error("no kubeconfig has the --context {context:?}; looked at{}", Lines(.searched))]
    Context {
        /// The context.
        context: String,
        /// Where a kubeconfig was looked for.
        searched: Vec<SearchedPlace>,
    },
    /// A kubeconfig file cannot be used.
    #[error("kubeconfig {}: {problem}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// An entry of a kubeconfig cannot be used.
    #[error("kubeconfig {}, {entry}: {problem}", file.display())]
    Entry {
        /// The file with the entry.
        file: PathBuf,
        /// Kind and name of the entry, such as `context "prod"`.
        entry: String,
        /// What is wrong with it, and how to fix it.
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
pub struct SearchedPlace {
    /// The place, such as `$KUBECONFIG`.
    pub place: String,
    /// What the search found there.
    pub found: String,
}

impl SearchedPlace {
    pub(super) fn new(place: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            found: found.into(),
        }
    }
}

struct Lines<'a>(&'a [SearchedPlace]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for SearchedPlace { place, found } in self.0 {
            write!(f, "\n  {place}: {found}")?;
        }
        Ok(())
    }
}
