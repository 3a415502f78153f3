//! The process's environment as an argument, so that tests need not change the process.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Directory of a pod's service account (client-go `rest/config.go:InClusterConfig`).
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Environment variables, and the directory with the pod's service account.
#[derive(Clone, Debug)]
pub struct Environment {
    vars: BTreeMap<String, String>,
    pub(super) service_account: PathBuf,
}

impl Environment {
    /// The environment of this process.
    pub fn of_process() -> Self {
        let vars = std::env::vars_os().map(|(name, value)| {
            let text = |s: std::ffi::OsString| s.to_string_lossy().into_owned();
            (text(name), text(value))
        });
        Self {
            vars: vars.collect(),
            service_account: PathBuf::from(SERVICE_ACCOUNT),
        }
    }

    /// An environment with these variables and this service account directory.
    pub fn new<'a>(
        vars: impl IntoIterator<Item = (&'a str, &'a str)>,
        service_account: impl Into<PathBuf>,
    ) -> Self {
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Self {
            vars: vars.into_iter().map(own).collect(),
            service_account: service_account.into(),
        }
    }

    /// A variable's value; `None` if it is not set.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.vars.get(name).map(String::as_str)
    }

    /// All variables.
    pub(super) fn all(&self) -> BTreeMap<String, String> {
        self.vars.clone()
    }

    /// A variable's value; `None` if it is not set or empty.
    pub(super) fn non_empty_var(&self, name: &str) -> Option<&str> {
        self.var(name).filter(|value| !value.is_empty())
    }
}
