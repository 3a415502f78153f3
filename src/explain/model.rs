//! What a report says: plain data, as JSON for programs; `super::text` makes it text for people.

use jiff::Timestamp;
use serde::Serialize;

use crate::api::conditions::Condition;
use crate::api::{Pod, Uid};

/// What a report is made from, beside the facts.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Recent events about the ReplicaSet, oldest first; `None` if nobody asked for them.
    pub events: Option<Vec<EventLine>>,
    /// Finalizers by pod, where they are known.
    pub finalizers: Vec<(Uid, Vec<String>)>,
    /// Why pods are not further, or have failed, where that is known: `Unschedulable`, the reason
    /// for which a container waits, the reason of the pod's status.
    pub reasons: Vec<(Uid, String)>,
    /// True if the namespace is going away; `None` if nobody looked.
    pub namespace_is_terminating: Option<bool>,
}

impl Sources {
    /// Why this pod is not further, or has failed.
    pub fn reason_of(&self, pod: &Pod) -> Option<&str> {
        let mut reasons = self.reasons.iter();
        let reason = reasons.find(|(uid, _)| *uid == pod.uid);
        reason.map(|(_, reason)| reason.as_str())
    }
}

/// One thing that stands in the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What it is.
    pub what: String,
    /// What can be done about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub way_out: Option<String>,
}

/// Everything that is to be said about one ReplicaSet.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// `ReplicaSet` or `ReplicationController`.
    pub kind: &'static str,
    /// Where it is.
    pub namespace: String,
    /// What it is called.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// `daemon` if a running one told what it remembers, `api` if only the API server was asked.
    pub source: &'static str,
    /// `spec.replicas`.
    pub desired: i32,
    /// Pods whose controller it is.
    pub owned: usize,
    /// Pods that count.
    pub active: usize,
    /// Counted pods that are Ready.
    pub ready: usize,
    /// Counted pods that are available.
    pub available: usize,
    /// `metadata.generation`.
    pub generation: i64,
    /// `status.observedGeneration`.
    pub observed_generation: i64,
    /// Why it is not moving, most important first; empty if it has what it wants.
    pub findings: Vec<Finding>,
    /// What the next sync would do.
    pub next: NextStep,
    /// The pods in the order in which they would be deleted, with the rule that puts each in front of
    /// the one after it.
    pub deletion_order: Vec<Deletion>,
    /// Pods that do not count, and why.
    pub not_counted: Vec<NotCounted>,
    /// How many those are in all.
    pub not_counted_total: usize,
    /// What the daemon remembers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryReport>,
    /// `status.conditions`.
    pub conditions: Vec<Condition>,
    /// Recent events, oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<EventLine>>,
}

/// What a sync would do now.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NextStep {
    /// `create`, `delete` or `nothing`.
    pub action: &'static str,
    /// How many pods.
    pub count: usize,
    /// Which, of those to be deleted.
    pub pods: Vec<Deletion>,
    /// Pods that would be adopted first.
    pub adopts: Vec<String>,
    /// Pods that would be released first.
    pub releases: Vec<String>,
    /// Why it is not done yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_back: Option<String>,
}

/// One pod in the order of deletion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Deletion {
    /// The pod.
    pub pod: String,
    /// The rule that decides, as `deletion-cost`; absent for the last one, or if none decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<&'static str>,
    /// The rule for people, with this pod's value and the next one's.
    pub because: String,
}

/// One pod that does not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NotCounted {
    /// The pod.
    pub pod: String,
    /// `terminating`, `finished`, `does-not-match` or `other-owner`.
    pub reason: &'static str,
    /// The same for people.
    pub because: String,
}

/// What the daemon remembers.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryReport {
    /// Names of created pods that the watch has not shown yet.
    pub expected_creations: Vec<String>,
    /// Deleted pods that the watch still shows, by name if the cache knows them, else by UID.
    pub expected_deletions: Vec<String>,
    /// How old these expectations are, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expectations_age_seconds: Option<f64>,
    /// Pods whose creation or deletion had an unknown outcome: these are tried again first.
    pub unresolved: Vec<String>,
    /// The version that the pods' cache must reach before the next sync.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for_pods_version: Option<String>,
    /// The version that the ReplicaSets' cache must reach before the next sync.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for_replica_sets_version: Option<String>,
    /// How far the pods' cache has come.
    pub cached_pods_version: String,
    /// How far the ReplicaSets' cache has come.
    pub cached_replica_sets_version: String,
    /// When the last remembered sync began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sync_at: Option<Timestamp>,
    /// How long it took, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sync_seconds: Option<f64>,
    /// How it ended: `synced`, `tooEarly`, `failed` or `panicked`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sync_end: Option<&'static str>,
    /// What went wrong last and was not put right since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error_at: Option<Timestamp>,
    /// Failures since the last success; they decide the back-off.
    pub failures: u32,
    /// How long until it is looked at again by the passing of time, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_try_seconds: Option<f64>,
    /// True if its key waits for a worker.
    pub is_queued: bool,
    /// True if a worker is busy with it.
    pub is_syncing: bool,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventLine {
    /// When it was last seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Timestamp>,
    /// How often.
    pub count: i64,
    /// `Normal` or `Warning`.
    pub type_: String,
    /// Such as `FailedCreate`.
    pub reason: String,
    /// What it says.
    pub message: String,
    /// Who says so.
    pub component: String,
}
