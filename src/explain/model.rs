//! The report's data, serialized as JSON for programs; `super::text` renders it for people.

use jiff::Timestamp;
use serde::Serialize;

use crate::api::conditions::Condition;
use crate::api::{Pod, Uid};
use crate::stdx::hash::HashMap;

/// The report's input besides the facts.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Recent events about the ReplicaSet, oldest first; `None` if nothing read them.
    pub events: Option<Vec<EventLine>>,
    /// Finalizers of the pods for which they are known.
    pub finalizers: HashMap<Uid, Vec<String>>,
    /// Why pods are not running or have failed, if known: `Unschedulable`, a container's waiting
    /// reason, or the reason of the pod's status.
    pub reasons: HashMap<Uid, String>,
    /// True if the namespace is terminating; `None` if unknown.
    pub namespace_is_terminating: Option<bool>,
}

impl Sources {
    /// Why this pod is not running or has failed.
    pub fn reason_of(&self, pod: &Pod) -> Option<&str> {
        self.reasons.get(&pod.uid).map(String::as_str)
    }
}

/// One problem of the ReplicaSet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The problem.
    pub what: String,
    /// The remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub way_out: Option<String>,
}

/// The report about one ReplicaSet.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// `ReplicaSet` or `ReplicationController`.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its controller as `Kind/name`, such as the Deployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The other ReplicaSets of that controller.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub siblings: Vec<Sibling>,
    /// `daemon` if the facts come from a running daemon, `api` if from the API server alone.
    pub source: &'static str,
    /// `spec.replicas`.
    pub desired: i32,
    /// Pods that it controls.
    pub owned: usize,
    /// Pods that count as replicas.
    pub active: usize,
    /// Active pods that are Ready.
    pub ready: usize,
    /// Active pods that are available.
    pub available: usize,
    /// `metadata.generation`.
    pub generation: i64,
    /// `status.observedGeneration`.
    pub observed_generation: i64,
    /// Why the ReplicaSet makes no progress, most important first; empty if it is in its desired
    /// state.
    pub findings: Vec<Finding>,
    /// What the next sync would do.
    pub next: NextStep,
    /// The pods in the order of deletion, each with the rule that ranks it before the next one.
    pub deletion_order: Vec<Deletion>,
    /// The total of those pods.
    pub deletion_order_total: usize,
    /// Pods that do not count as replicas, and why.
    pub not_counted: Vec<NotCounted>,
    /// The total of those pods.
    pub not_counted_total: usize,
    /// The daemon's in-memory state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryReport>,
    /// `status.conditions`.
    pub conditions: Vec<Condition>,
    /// Recent events, oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<EventLine>>,
}

/// Another ReplicaSet of the same controller, such as the old one of a Deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sibling {
    /// Its name.
    pub name: String,
    /// `spec.replicas`.
    pub desired: i32,
    /// `status.replicas`.
    pub replicas: i32,
}

impl Report {
    /// True if the ReplicaSet has what it wants.
    pub fn is_in_step(&self) -> bool {
        self.findings.is_empty() && self.next.is_nothing()
    }

    /// Why it is not in step, in one line, and the remedy: the most important finding, or else what
    /// a sync would do.
    pub fn reason(&self) -> (String, Option<String>) {
        match self.findings.first() {
            Some(finding) => (finding.what.clone(), finding.way_out.clone()),
            None => (format!("a sync would now: {}", self.next), None),
        }
    }
}

/// The action of a sync at the time of the report.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NextStep {
    /// `create`, `delete` or `nothing`.
    pub action: &'static str,
    /// The number of pods.
    pub count: usize,
    /// The pods to delete.
    pub pods: Vec<Deletion>,
    /// The total of those pods.
    pub pods_total: usize,
    /// Pods that the sync would adopt first.
    pub adopts: Vec<String>,
    /// Pods that the sync would release first.
    pub releases: Vec<String>,
    /// The number of Failed pods that are deleted because they are not kept, some by each sync.
    pub leftovers: usize,
    /// Why the sync does not act yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_back: Option<String>,
}

impl NextStep {
    /// True if a sync would leave all pods as they are.
    pub fn is_nothing(&self) -> bool {
        self.action == "nothing" && self.adopts.is_empty() && self.releases.is_empty()
    }
}

/// One pod in the deletion order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Deletion {
    /// The pod's name.
    pub pod: String,
    /// The deciding rule, such as `deletion-cost`; absent for the last pod, or if no rule decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<&'static str>,
    /// The rule in words, with this pod's value and the next pod's.
    pub because: String,
    /// The pod from which no rule separates it: either of the two may go first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ties_with: Option<String>,
}

/// One pod that does not count as a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NotCounted {
    /// The pod's name.
    pub pod: String,
    /// `terminating`, `finished`, `does-not-match` or `other-owner`.
    pub reason: &'static str,
    /// The reason in words.
    pub because: String,
}

/// The daemon's in-memory state of the ReplicaSet.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryReport {
    /// Names of created pods that the watch has not delivered yet.
    pub expected_creations: Vec<String>,
    /// The total of those pods.
    pub expected_creations_total: usize,
    /// Deleted pods whose deletion the watch has not delivered yet: names if the cache knows them,
    /// UIDs otherwise.
    pub expected_deletions: Vec<String>,
    /// The total of those pods.
    pub expected_deletions_total: usize,
    /// The age of these expectations, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expectations_age_seconds: Option<f64>,
    /// Pods whose creation or deletion had an unknown outcome. The next sync retries these first.
    pub unresolved: Vec<String>,
    /// The total of those pods.
    pub unresolved_total: usize,
    /// The version that the pod cache must reach before the next sync.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for_pods_version: Option<String>,
    /// The version that the ReplicaSet cache must reach before the next sync.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for_replica_sets_version: Option<String>,
    /// The version of the pod cache.
    pub cached_pods_version: String,
    /// The version of the ReplicaSet cache.
    pub cached_replica_sets_version: String,
    /// When the last recorded sync began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sync_at: Option<Timestamp>,
    /// How long that sync took, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sync_seconds: Option<f64>,
    /// The outcome: `synced`, `tooEarly`, `failed` or `panicked`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sync_end: Option<&'static str>,
    /// The last error that no later success has cleared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// When it occurred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error_at: Option<Timestamp>,
    /// Why and how long its creates are held back after a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldReport>,
    /// Failures since the last success; they decide the back-off.
    pub failures: u32,
    /// Time until the queue adds the key by itself, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_try_seconds: Option<f64>,
    /// True if the key waits for a worker.
    pub is_queued: bool,
    /// True if a worker syncs the key.
    pub is_syncing: bool,
}

/// Creates that are held back after a refusal. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HoldReport {
    /// `quota`, `overload` or `invalid`.
    pub kind: &'static str,
    /// Refusals of this kind in a row.
    pub refusals: u32,
    /// Time since the first of them.
    pub since_seconds: f64,
    /// Time until its own next try, if nothing ends the wait earlier.
    pub next_try_seconds: f64,
    /// The line in front of a quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<LineReport>,
}

/// The line in front of a quota, and a place in it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LineReport {
    /// The name of the ResourceQuota.
    pub quota: String,
    /// Its place, from 1 on; absent in reports about many ReplicaSets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<usize>,
    /// How many ReplicaSets wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<usize>,
    /// Time until the line's next probe, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_probe_seconds: Option<f64>,
    /// True if the quota's status starts a probe as soon as it shows more room.
    pub is_watched: bool,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventLine {
    /// When the event last occurred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Timestamp>,
    /// How often it occurred.
    pub count: i64,
    /// `Normal` or `Warning`.
    pub type_: String,
    /// The reason, such as `FailedCreate`.
    pub reason: String,
    /// The message.
    pub message: String,
    /// The reporting component.
    pub component: String,
}
