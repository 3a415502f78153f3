//! The annotations that control the simulated nodes. They stand on a pod or on its template, and
//! may change while the pod runs. The manual's page `dev.md` lists them.

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

/// The log of its containers.
pub const LOG: &str = "dev.replicaset-controller/log";

/// All annotations that the simulated nodes read.
pub const ANNOTATIONS: [&str; 7] = [
    FATE,
    NODE,
    READY_AFTER,
    TERMINATE_AFTER,
    RESTARTS,
    SIDECAR_RESTARTS,
    LOG,
];

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
pub(crate) enum Fate {
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
pub(crate) struct Behaviour {
    pub(crate) fate: Fate,
    pub(crate) node: Option<String>,
    pub(crate) ready_after: Option<Duration>,
    pub(crate) terminate_after: Option<Duration>,
    pub(crate) restarts: i64,
    pub(crate) sidecar_restarts: i64,
}

impl Behaviour {
    /// Parses a pod's annotations. Ignores invalid values, which [`mistakes`] returns.
    pub(crate) fn of(pod: &Value) -> Self {
        let value = |name: &str| annotation(pod, name);
        Self {
            fate: value(FATE).and_then(fate).unwrap_or_default(),
            node: value(NODE).and_then(node),
            ready_after: value(READY_AFTER).and_then(duration),
            terminate_after: value(TERMINATE_AFTER).and_then(duration),
            restarts: value(RESTARTS).and_then(count).unwrap_or(0),
            sidecar_restarts: value(SIDECAR_RESTARTS).and_then(count).unwrap_or(0),
        }
    }
}

/// A sentence for each annotation of a pod with an invalid value.
pub(crate) fn mistakes(pod: &Value) -> Vec<String> {
    let mut mistakes = Vec::new();
    for name in ANNOTATIONS {
        let Some(text) = annotation(pod, name) else {
            continue;
        };
        let (is_valid, expected) = match name {
            FATE => (fate(text).is_some(), format!("one of {}", FATES.join(", "))),
            LOG => (true, String::new()),
            NODE => (node(text).is_some(), "the name of a node".to_owned()),
            READY_AFTER | TERMINATE_AFTER => (
                duration(text).is_some(),
                "a duration such as 3s or 1m30s".to_owned(),
            ),
            _ => (
                count(text).is_some(),
                format!("a number from 0 to {}", u16::MAX),
            ),
        };
        if !is_valid {
            mistakes.push(format!(
                "annotation {name}: ignored invalid value {text:?}, expected {expected}"
            ));
        }
    }
    mistakes
}

/// The log that the pod's annotation has.
pub(crate) fn log_of(pod: &Value) -> Option<&str> {
    annotation(pod, LOG)
}

fn annotation<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    pod["metadata"]["annotations"].get(name)?.as_str()
}

fn node(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn count(text: &str) -> Option<i64> {
    text.parse::<u16>().ok().map(i64::from)
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

    use super::{Behaviour, FATE, FATES, Fate, fate, mistakes};

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
        let expected = [
            "annotation dev.replicaset-controller/terminate-after: ignored invalid value \
             \"later\", expected a duration such as 3s or 1m30s",
            "annotation dev.replicaset-controller/sidecar-restarts: ignored invalid value \"-1\", \
             expected a number from 0 to 65535",
        ];
        assert_eq!(mistakes(&pod), expected);
        let none = json!({"metadata": {}});
        assert_eq!(Behaviour::of(&none), Behaviour::default());
        assert_eq!(mistakes(&none), [""; 0]);
        let bogus = json!({"metadata": {"annotations": {FATE: "bogus"}}});
        let expected = "annotation dev.replicaset-controller/fate: ignored invalid value \
                        \"bogus\", expected one of unscheduled, pending, rejected, failed, \
                        unknown, crash-loop, unready";
        assert_eq!(mistakes(&bogus), [expected]);
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
