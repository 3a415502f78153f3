//! `--retry-backoff`: how refused creates are tried again.

use std::fmt;
use std::str::FromStr;

/// The wait of a ReplicaSet whose pods the API server refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetryBackoff {
    /// By the kind of refusal, ended by what cures it.
    #[default]
    ByRefusal,
    /// As kube-controller-manager: from 5 ms, doubled with each failure up to 1,000 s.
    Kcm,
}

impl fmt::Display for RetryBackoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ByRefusal => "by-refusal",
            Self::Kcm => "kcm",
        })
    }
}

impl FromStr for RetryBackoff {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::ByRefusal, Self::Kcm];
        let found = all.into_iter().find(|it| it.to_string() == text);
        found.ok_or_else(|| "expected by-refusal or kcm".to_owned())
    }
}
