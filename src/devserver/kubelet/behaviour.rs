//! What annotations ask of the simulated nodes. They stand on a pod or on the template that it is
//! made from, and may come and go while the pod runs. The README has them as a table.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::Value;

/// What becomes of the pod: one of `Fate`'s words.
pub const FATE: &str = "dev.replicaset-controller/fate";

/// The node that the pod gets.
pub const NODE: &str = "dev.replicaset-controller/node";

/// How long the pod runs before it is Ready, as a duration such as `3s`.
pub const READY_AFTER: &str = "dev.replicaset-controller/ready-after";

/// How long the pod takes to end, if its grace period is not shorter.
pub const TERMINATE_AFTER: &str = "dev.replicaset-controller/terminate-after";

/// How often its containers have been restarted, at least.
pub const RESTARTS: &str = "dev.replicaset-controller/restarts";

/// How often its sidecars (init containers with `restartPolicy: Always`) have been restarted, at
/// least.
pub const SIDECAR_RESTARTS: &str = "dev.replicaset-controller/sidecar-restarts";

/// All annotations that the simulated nodes read.
pub const ANNOTATIONS: [&str; 6] = [
    FATE,
    NODE,
    READY_AFTER,
    TERMINATE_AFTER,
    RESTARTS,
    SIDECAR_RESTARTS,
];

/// All words that [`FATE`] may have.
pub const FATES: [&str; 7] = [
    "unscheduled",
    "pending",
    "rejected",
    "failed",
    "unknown",
    "crash-loop",
    "unready",
];

/// What becomes of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fate {
    /// It runs and becomes ready.
    #[default]
    Good,
    /// It never gets a node.
    Unscheduled,
    /// It gets a node, and its containers never start.
    Pending,
    /// The node refuses it: it is Failed at once.
    Rejected,
    /// It runs for a while, and then it is Failed.
    Failed,
    /// Its node is not heard of any more.
    Unknown,
    /// Its containers end again and again.
    CrashLoop,
    /// It runs and is not ready.
    Unready,
}

/// What one pod's annotations ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Behaviour {
    pub(super) fate: Fate,
    pub(super) node: Option<String>,
    pub(super) ready_after: Option<Duration>,
    pub(super) terminate_after: Option<Duration>,
    pub(super) restarts: i64,
    pub(super) sidecar_restarts: i64,
}

impl Behaviour {
    /// Reads the annotations of a pod. What cannot be read counts as not there, and is logged.
    pub(super) fn of(pod: &Value) -> Self {
        let annotations = Annotations(pod);
        let count = |text: &str| text.parse::<u16>().ok().map(i64::from);
        let name = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Self {
            fate: annotations.read(FATE, fate).unwrap_or_default(),
            node: annotations.read(NODE, name),
            ready_after: annotations.read(READY_AFTER, duration),
            terminate_after: annotations.read(TERMINATE_AFTER, duration),
            restarts: annotations.read(RESTARTS, count).unwrap_or(0),
            sidecar_restarts: annotations.read(SIDECAR_RESTARTS, count).unwrap_or(0),
        }
    }
}

/// The annotations of a pod.
struct Annotations<'a>(&'a Value);

impl Annotations<'_> {
    fn read<T>(&self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let metadata = &self.0["metadata"];
        let text = metadata["annotations"].get(name)?.as_str()?;
        let value = parse(text);
        if value.is_none() {
            let pod = metadata["name"].as_str().unwrap_or_default();
            log::warn!("pod {pod}: annotation {name} cannot be {text:?}, it is ignored");
        }
        value
    }
}

fn fate(text: &str) -> Option<Fate> {
    Some(match text {
        "" => Fate::Good,
        "unscheduled" => Fate::Unscheduled,
        "pending" => Fate::Pending,
        "rejected" => Fate::Rejected,
        "failed" => Fate::Failed,
        "unknown" => Fate::Unknown,
        "crash-loop" => Fate::CrashLoop,
        "unready" => Fate::Unready,
        _ => return None,
    })
}

fn duration(text: &str) -> Option<Duration> {
    let duration: SignedDuration = text.parse().ok()?;
    Duration::try_from(duration).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::{Behaviour, FATES, Fate, fate};

    #[test]
    fn annotations_are_read_and_nonsense_is_ignored() {
        let pod = json!({"metadata": {"name": "p", "annotations": {
            "dev.replicaset-controller/fate": "unready",
            "dev.replicaset-controller/node": "node-9",
            "dev.replicaset-controller/ready-after": "1m30s",
            "dev.replicaset-controller/terminate-after": "later",
            "dev.replicaset-controller/restarts": "3",
            "dev.replicaset-controller/sidecar-restarts": "-1",
        }}});
        let expected = Behaviour {
            fate: Fate::Unready,
            node: Some("node-9".to_owned()),
            ready_after: Some(Duration::from_secs(90)),
            restarts: 3,
            ..Behaviour::default()
        };
        assert_eq!(Behaviour::of(&pod), expected);
        assert_eq!(
            Behaviour::of(&json!({"metadata": {}})),
            Behaviour::default()
        );
    }

    #[test]
    fn every_fate_that_is_listed_is_known() {
        for text in FATES {
            assert!(fate(text).is_some_and(|fate| fate != Fate::Good), "{text}");
        }
        assert_eq!(fate("doomed"), None);
    }
}
