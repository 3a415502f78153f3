//! A pod, reduced to the fields that the controller reads.
//!
//! # Memory per pod
//!
//! A pod of 4 to 6 KB takes this many bytes on a 64-bit machine, including all indexes. Pods of one
//! ReplicaSet share one copy of their labels and of their owner:
//!
//! | bytes | for |
//! |---|---|
//! | 16 | [`key`](Pod::key): pointers to the namespace (shared) and to the name |
//! | 16 + n | the name's own allocation: length, counter and its n bytes |
//! | 24 | [`uid`](Pod::uid), as an integer of 128 bits |
//! | 16 | [`resource_version`](Pod::resource_version), as an integer of 64 bits |
//! | 16 | [`labels`](Pod::labels): a pointer to the shared set |
//! | 8 | [`controller`](Pod::controller): a pointer to the shared owner |
//! | 8 | [`node`](Pod::node): a pointer to the shared text |
//! | 24 | creation, deletion and the last change of Ready, as integers of 64 bits |
//! | 16 | restarts, deletion cost, phase, Ready, finalizers, [`scale_down`](Pod::scale_down) |
//! | 8 | [`failure`](Pod::failure): a pointer, of a Failed pod to 32 bytes more |
//! | 16 | the counters of the pod's own allocation |
//! | 8 to 16 | its pointer in the array of all pods, which doubles when it is full |
//! | 6 to 12 | its index and a hash byte in the table, which is 7/16 to 7/8 full |
//! | 4 to 8 | its index in its owner's bucket |
//! | some 30 | the allocator's overhead for two allocations |
//!
//! The total is 240 to 270 bytes. A running process also holds partly filled allocator pages;
//! [tests/bench](../../../tests/bench/README.md) measures the total.

mod message;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer};

use super::compact_timestamp::CompactTimestamp;
use super::interner::Interner;
use super::json::{MetadataJson, Text, collect_map, controller_of};
use super::label_selector::Labels;
use super::object_key::{ControllerRef, ObjectKey, OwnerKey, ResourceVersion, Uid};
use super::policy::{SCALE_DOWN, ScaleDownMark};

/// Annotation with the pod's deletion cost (kubernetes
/// `pkg/apis/core/annotation_key_constants.go:PodDeletionCost`).
pub const POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    pub key: ObjectKey,
    pub uid: Uid,
    pub resource_version: ResourceVersion,
    pub labels: Labels,
    /// The owner reference with `controller: true`, if any.
    pub controller: Option<Arc<ControllerRef>>,
    pub phase: PodPhase,
    /// `spec.nodeName`, if the pod is scheduled.
    pub node: Option<ArcStr>,
    pub is_ready: bool,
    /// `lastTransitionTime` of the condition `Ready`, regardless of its status.
    pub ready_transition: Option<CompactTimestamp>,
    pub creation: Option<CompactTimestamp>,
    /// `metadata.deletionTimestamp`: set while the pod is terminating.
    pub deletion: Option<CompactTimestamp>,
    /// The highest restart count of a regular container.
    pub restarts: i32,
    /// The highest restart count of an init container with `restartPolicy: Always`.
    pub sidecar_restarts: i32,
    pub deletion_cost: i32,
    /// The annotation [`SCALE_DOWN`].
    pub scale_down: ScaleDownMark,
    pub has_finalizers: bool,
    /// Why and when the pod failed; `None` unless its phase is `Failed`.
    pub failure: Option<Box<PodFailure>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFailure {
    /// `status.reason`, such as `Evicted` or `OutOfcpu`; may be empty.
    pub reason: ArcStr,
    /// The last transition of any condition, or `status.startTime` if that is later: the kubelet
    /// changes Ready when the pod fails, and leaves a pod that it rejects without conditions.
    pub at: Option<CompactTimestamp>,
}

/// `status.phase`. Unknown phases count as `Other`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodPhase {
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
    /// Empty or unknown to this build.
    #[default]
    Other,
}

impl Pod {
    /// True unless the pod is finished or terminating (kubernetes
    /// `pkg/controller/controller_utils.go:IsPodActive`).
    pub fn is_active(&self) -> bool {
        !self.phase.is_terminal() && !self.is_terminating()
    }

    pub fn is_terminating(&self) -> bool {
        self.deletion.is_some()
    }

    /// True if the pod exists because its node does: a DaemonSet's, or the mirror of a static pod.
    pub fn belongs_to_node(&self) -> bool {
        let controller = self.controller.as_deref();
        controller.is_some_and(|it| matches!(&*it.kind, "DaemonSet" | "Node"))
    }

    /// True if the object with this UID is the pod's controller.
    pub fn is_controlled_by(&self, owner: &Uid) -> bool {
        self.controller
            .as_ref()
            .is_some_and(|controller| controller.uid == *owner)
    }

    /// True if `other` differs at most in its resource version.
    pub fn differs_in_version_only(&self, other: &Self) -> bool {
        let same_version = Self {
            resource_version: self.resource_version.clone(),
            ..other.clone()
        };
        *self == same_version
    }

    /// True if it has been Ready for `min_ready_seconds`, the boundary included (kubernetes
    /// `pkg/api/v1/pod/util.go:IsPodAvailable`).
    pub fn is_available(&self, min_ready_seconds: i32, now: Timestamp) -> bool {
        let is_old =
            |since: CompactTimestamp| since.age(now).as_secs_f64() >= f64::from(min_ready_seconds);
        self.is_ready && (min_ready_seconds == 0 || self.ready_transition.is_some_and(is_old))
    }

    /// Returns the time until it becomes available; `None` if it is, or if time alone does not make
    /// it so (kubernetes `pkg/controller/controller_utils.go:nextPodAvailabilityCheck`).
    pub fn available_in(&self, min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
        if !self.is_ready || min_ready_seconds == 0 {
            return None;
        }
        let ready_for = self.ready_transition?.age(now);
        let missing = SignedDuration::from_secs(min_ready_seconds.into()) - ready_for;
        // No fallible conversion: it would build an error for each available pod.
        missing.is_positive().then(|| missing.unsigned_abs())
    }

    pub fn owner_key(&self) -> Option<OwnerKey> {
        self.controller.as_ref().map(|controller| OwnerKey {
            namespace: self.key.namespace.clone(),
            owner: Arc::clone(controller),
        })
    }

    /// Decodes a pod from JSON.
    pub fn from_json(json: &[u8], interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let pod: PodJson<'_> = serde_json::from_slice(json)?;
        Ok(pod.into_pod(interner))
    }

    /// Decodes one pod from the JSON body of a response, without sharing values.
    pub fn from_answer(body: &[u8]) -> Result<Self, serde_json::Error> {
        Self::from_json(body, &mut Interner::default())
    }
}

impl PodFailure {
    fn of(
        phase: PodPhase,
        reason: &str,
        at: Option<CompactTimestamp>,
        interner: &mut Interner,
    ) -> Option<Box<Self>> {
        (phase == PodPhase::Failed).then(|| {
            let reason = interner.text(reason);
            Box::new(Self { reason, at })
        })
    }
}

impl PodPhase {
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    fn from_text(text: &str) -> Self {
        match text {
            "Pending" => Self::Pending,
            "Running" => Self::Running,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            "Unknown" => Self::Unknown,
            _ => Self::Other,
        }
    }
}

#[derive(Deserialize)]
struct PodJson<'a> {
    #[serde(borrow)]
    metadata: MetadataJson<'a, Annotations>,
    #[serde(borrow)]
    spec: Option<SpecJson<'a>>,
    #[serde(borrow)]
    status: Option<StatusJson<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecJson<'a> {
    #[serde(borrow)]
    node_name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    init_containers: Option<Vec<InitContainerJson<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitContainerJson<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    restart_policy: Option<Cow<'a, str>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusJson<'a> {
    #[serde(borrow)]
    phase: Option<Cow<'a, str>>,
    #[serde(borrow)]
    reason: Option<Cow<'a, str>>,
    start_time: Option<CompactTimestamp>,
    #[serde(borrow)]
    conditions: Option<Vec<ConditionJson<'a>>>,
    #[serde(borrow)]
    container_statuses: Option<Vec<ContainerStatusJson<'a>>>,
    #[serde(borrow)]
    init_container_statuses: Option<Vec<ContainerStatusJson<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConditionJson<'a> {
    #[serde(borrow, rename = "type")]
    type_: Option<Cow<'a, str>>,
    #[serde(borrow)]
    status: Option<Cow<'a, str>>,
    last_transition_time: Option<CompactTimestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerStatusJson<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    restart_count: Option<i32>,
}

impl PodJson<'_> {
    fn into_pod(self, interner: &mut Interner) -> Pod {
        let (metadata, spec) = (self.metadata, self.spec.unwrap_or_default());
        let status = self.status.unwrap_or_default();
        let annotations = metadata.annotations.unwrap_or_default();
        let conditions = status.conditions.as_deref().unwrap_or_default().iter();
        let ready = conditions
            .clone()
            .find(|condition| condition.type_.as_deref() == Some("Ready"));
        let transitions = conditions.filter_map(|condition| condition.last_transition_time);
        let last_change = transitions.max().max(status.start_time);
        let phase = PodPhase::from_text(status.phase.as_deref().unwrap_or_default());
        let reason = status.reason.as_deref().unwrap_or_default();
        let sidecars = spec.init_containers.iter().flatten();
        let sidecars = sidecars.filter(|it| it.restart_policy.as_deref() == Some("Always"));
        let sidecars: HashSet<_> = sidecars.map(|container| &container.name).collect();
        let is_sidecar = |status: &&ContainerStatusJson<'_>| sidecars.contains(&status.name);
        let sidecars = status
            .init_container_statuses
            .iter()
            .flatten()
            .filter(is_sidecar);
        let node = spec.node_name.as_deref().filter(|node| !node.is_empty());
        Pod {
            key: ObjectKey {
                namespace: interner.text(metadata.namespace.as_deref().unwrap_or_default()),
                name: ArcStr::from(&*metadata.name),
            },
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            labels: interner.labels(metadata.labels),
            controller: controller_of(metadata.owner_references, interner),
            phase,
            node: node.map(|node| interner.text(node)),
            is_ready: ready.is_some_and(|ready| ready.status.as_deref() == Some("True")),
            ready_transition: ready.and_then(|ready| ready.last_transition_time),
            creation: metadata.creation_timestamp,
            deletion: metadata.deletion_timestamp,
            restarts: max_restarts(status.container_statuses.iter().flatten()),
            sidecar_restarts: max_restarts(sidecars),
            deletion_cost: annotations.deletion_cost,
            scale_down: annotations.scale_down,
            has_finalizers: metadata.finalizers.is_some_and(|it| !it.is_empty()),
            failure: PodFailure::of(phase, reason, last_change, interner),
        }
    }
}

fn max_restarts<'a>(statuses: impl Iterator<Item = &'a ContainerStatusJson<'a>>) -> i32 {
    // No count is negative (upstream's maximum starts at 0, too).
    let counts = statuses.filter_map(|status| status.restart_count);
    counts.fold(0, i32::max)
}

/// The annotations that the controller reads.
#[derive(Default)]
struct Annotations {
    deletion_cost: i32,
    scale_down: ScaleDownMark,
}

impl<'a> FromIterator<(Text<'a>, Text<'a>)> for Annotations {
    fn from_iter<T: IntoIterator<Item = (Text<'a>, Text<'a>)>>(all: T) -> Self {
        let mut annotations = Self::default();
        for (key, value) in all {
            let value = value.as_ref();
            match key.as_ref() {
                POD_DELETION_COST => annotations.deletion_cost = parse_deletion_cost(value),
                SCALE_DOWN => annotations.scale_down = ScaleDownMark::from_text(value),
                _ => {}
            }
        }
        annotations
    }
}

impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        collect_map(deserializer)
    }
}

/// Parses [`POD_DELETION_COST`]: a 32-bit decimal without `+` or leading zeros; `None` for anything
/// else (kubernetes `pkg/apis/core/helper/helpers.go:GetDeletionCostFromPodAnnotations`).
pub fn deletion_cost(text: &str) -> Option<i32> {
    match text.as_bytes() {
        [b'-' | b'1'..=b'9', ..] | [b'0'] => text.parse().ok(),
        _ => None,
    }
}

fn parse_deletion_cost(text: &str) -> i32 {
    deletion_cost(text).unwrap_or(0)
}

impl Default for ObjectKey {
    fn default() -> Self {
        Self::new("", "")
    }
}

#[cfg(test)]
mod tests;
