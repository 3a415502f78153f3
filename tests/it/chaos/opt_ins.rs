//! What the ReplicaSets of some scenes opt in to, as the judge reads it.

use std::time::Duration;

use serde_json::Value;

pub(super) const ORDER: &str = "replicaset-controller/scale-down-order";
pub(super) const PROTECTION: &str = "replicaset-controller/scale-down-protection";
pub(super) const MARK: &str = "replicaset-controller/scale-down";
pub(super) const BACK_OFF: &str = "replicaset-controller/failed-pod-backoff";
pub(super) const KEPT: &str = "replicaset-controller/failed-pods-kept";
pub(super) const MIN_AGE: &str = "replicaset-controller/failed-pods-min-age";

/// Failed pods that a ReplicaSet with [`KEPT`] keeps.
pub(super) const N_KEPT: usize = 3;

/// The wait after the first failures, with [`BACK_OFF`].
pub(super) const FIRST_WAIT: Duration = Duration::from_secs(8);

/// What a ReplicaSet opts in to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OptIns {
    pub(super) protects: bool,
    pub(super) backs_off: bool,
    pub(super) keeps_few: bool,
}

impl OptIns {
    pub(super) fn of(set: &Value) -> Self {
        let has = |name| !set["metadata"]["annotations"][name].is_null();
        Self {
            protects: has(PROTECTION),
            backs_off: has(BACK_OFF),
            keeps_few: has(KEPT),
        }
    }
}

/// The mark of a pod, in the order of deletion. Only pods of ReplicaSets that protect have one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    First,
    #[default]
    None,
    Never,
}

impl Mark {
    pub(super) fn of(pod: &Value) -> Self {
        match pod["metadata"]["annotations"][MARK].as_str() {
            Some("first") => Self::First,
            Some("never") => Self::Never,
            _ => Self::None,
        }
    }
}
