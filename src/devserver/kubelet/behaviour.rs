//! The annotations that control the simulated nodes. They stand on a pod or on its template, and
//! may change while the pod runs. The manual lists them in a table.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::Value;

/// The pod's fate: one of [`FATES`].
pub const FATE: &str = "dev.replicaset-controller/fate";

/// The node to bind the pod to.
pub const NODE: &str = "dev.replicaset-controller/node";

/// How long the pod runs before it is Ready, as a duration such as `3s`.
pub const READY_AFTER: &str = "dev.replicaset-controller/ready-after";

/// How long the pod takes to terminate, unless its grace period is shorter.
pub const TERMINATE_AFTER: &str = "dev.replicaset-controller/terminate-after";

/// Minimum restart count of its containers.
pub const RESTARTS: &str = "dev.replicaset-controller/restarts";

/// Minimum restart count of its sidecars (init containers with `restartPolicy: Always`).
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

/// All values of [`FATE`].
pub const FATES: [&str; 7] = [
    "unscheduled",
    "pending",
    "rejected",
    "failed",
    "unknown",
    "crash-loop",
    "unready",
];

/// The simulated course of a pod's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fate {
    /// The pod runs and becomes ready.
    #[default]
    Healthy,
    /// The pod never gets a node.
    Unscheduled,
    /// The pod gets a node, but its containers never start.
    Pending,
    /// The node rejects the pod, which is Failed at once.
    Rejected,
    /// The pod runs for a while and then fails.
    Failed,
    /// The pod's node becomes unreachable.
    Unknown,
    /// The pod's containers crash repeatedly.
    CrashLoop,
    /// The pod runs but is not ready.
    Unready,
}

/// The settings in one pod's annotations.
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
    /// Parses a pod's annotations. Logs and ignores invalid ones.
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
            log::warn!("pod {pod}: annotation {name} is ignored: invalid value {text:?}");
        }
        value
    }
}

fn fate(text: &str) -> Option<Fate> {
    Some(match text {
        "" => Fate::Healthy,
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
    fn invalid_annotations_are_ignored() {
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
    fn every_listed_fate_parses() {
        for text in FATES {
            assert!(
                fate(text).is_some_and(|fate| fate != Fate::Healthy),
                "{text}"
            );
        }
        assert_eq!(fate("doomed"), None);
    }
}
