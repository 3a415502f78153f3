//! The annotations that control the simulated nodes. They are set on a pod or on its template, and
//! may change while the pod runs. The manual's page `dev.md` lists them.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::api::compact_timestamp::parse_duration;
use crate::status_error::FieldError;

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

/// The simulated lifecycle of a pod.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
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
    /// The pod runs until it is deleted, whatever its restart policy.
    Running,
}

/// The values of the annotation [`FATE`]. Without it a pod is healthy.
pub const FATES: [&str; 8] = [
    "unscheduled",
    "pending",
    "rejected",
    "failed",
    "unknown",
    "crash-loop",
    "unready",
    "running",
];

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
    /// Parses a pod's annotations. Ignores invalid values, which [`validate`] rejects.
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

/// Returns the errors in `annotations`, the map at the path `field`.
pub(crate) fn validate(annotations: &Value, field: &str) -> Vec<FieldError> {
    let error = |name: &str| {
        let text = annotations.get(name)?.as_str()?;
        let field = format!("{field}[{name}]");
        let (is_valid, why) = match name {
            FATE if fate(text).is_none() => {
                return Some(FieldError::not_supported(&field, text, &FATES));
            }
            FATE | LOG => return None,
            NODE => (node(text).is_some(), "must be the name of a node"),
            READY_AFTER | TERMINATE_AFTER => (
                duration(text).is_some(),
                "must be a duration such as 3s or 1m30s",
            ),
            _ => (count(text).is_some(), "must be a number from 0 to 65535"),
        };
        (!is_valid).then(|| FieldError::invalid(&field, text, why))
    };
    ANNOTATIONS.into_iter().filter_map(error).collect()
}

/// The log of the containers, from the pod's annotation [`LOG`].
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
    let is_named = text.is_empty() || FATES.contains(&text);
    let fate = serde_json::from_value(text.into());
    is_named.then(|| fate.unwrap_or_default())
}

fn duration(text: &str) -> Option<Duration> {
    parse_duration(text).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::{Behaviour, FATE, FATES, Fate, fate, validate};

    #[test]
    fn invalid_annotations_are_errors() {
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
        let errors = |pod: &serde_json::Value| {
            let errors = validate(&pod["metadata"]["annotations"], "a");
            errors.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let expected = [
            "a[dev.replicaset-controller/terminate-after]: Invalid value: \"later\": must be a \
             duration such as 3s or 1m30s",
            "a[dev.replicaset-controller/sidecar-restarts]: Invalid value: \"-1\": must be a \
             number from 0 to 65535",
        ];
        assert_eq!(errors(&pod), expected);
        let none = json!({"metadata": {}});
        assert_eq!(Behaviour::of(&none), Behaviour::default());
        assert_eq!(errors(&none), [""; 0]);
        let bogus = json!({"metadata": {"annotations": {FATE: "bogus"}}});
        let expected = "a[dev.replicaset-controller/fate]: Unsupported value: \"bogus\": \
                        supported values: \"unscheduled\", \"pending\", \"rejected\", \
                        \"failed\", \"unknown\", \"crash-loop\", \"unready\", \
                        \"running\"";
        assert_eq!(errors(&bogus), [expected]);
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
