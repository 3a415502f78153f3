//! The indexes of the pods (by owner, and orphans by namespace) and of the ReplicaSets (by
//! namespace, and by the UID of their controller), with a tally of each group of pods that the
//! controller queries; and what a watch thread reports to metrics and health checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arcstr::ArcStr;
use parking_lot::Mutex;

use super::store::{Indexed, Store};
use crate::api::workload_kind::{REPLICA_SET, REPLICATION_CONTROLLER};
use crate::api::{Labels, ObjectKey, OwnerKey, Pod, PodPhase, ReplicaSet, ResourceVersion, Uid};
use crate::stdx::{HashMap, SHRINK_FACTOR};

pub type PodStore = Store<Pod>;

/// A group of pods that is queried together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PodBucket {
    /// Pods with this controller.
    OwnedBy(OwnerKey),
    /// Pods of a namespace without a controller.
    OrphansIn(ArcStr),
}

impl Indexed for Pod {
    type Bucket = PodBucket;
    type Tally = PodTally;

    fn identity(&self) -> (&ObjectKey, &Uid, &ResourceVersion) {
        (&self.key, &self.uid, &self.resource_version)
    }

    fn buckets(&self) -> [Option<PodBucket>; 2] {
        let bucket = match self.owner_key() {
            Some(owner) => PodBucket::OwnedBy(owner),
            None => PodBucket::OrphansIn(self.key.namespace.clone()),
        };
        [Some(bucket), None]
    }

    fn count(&self, tally: &mut PodTally) {
        if is_counted(self) {
            tally.add(self);
        }
    }

    fn discount(&self, tally: &mut PodTally) {
        if is_counted(self) {
            tally.remove(self);
        }
    }
}

/// Returns whether `pod` counts in a tally. The controller never queries the tallies of other
/// owners, and each of their pods may have its own labels, as those of an indexed Job and of a
/// StatefulSet do.
fn is_counted(pod: &Pod) -> bool {
    let kinds = [REPLICA_SET.kind, REPLICATION_CONTROLLER.kind];
    let controller = pod.controller.as_deref();
    controller.is_none_or(|controller| kinds.contains(&&*controller.kind))
}

/// All ReplicaSets. Each is in the bucket of its namespace and, if it has a controller, in that
/// controller's.
pub type ReplicaSetStore = Store<ReplicaSet>;

/// A group of ReplicaSets that is queried together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReplicaSetBucket {
    /// ReplicaSets of a namespace.
    In(ArcStr),
    /// ReplicaSets whose controller has this UID.
    ControlledBy(Uid),
}

impl Indexed for ReplicaSet {
    type Bucket = ReplicaSetBucket;
    type Tally = ();

    fn identity(&self) -> (&ObjectKey, &Uid, &ResourceVersion) {
        (&self.key, &self.uid, &self.resource_version)
    }

    fn buckets(&self) -> [Option<ReplicaSetBucket>; 2] {
        let controller = self.controller.as_ref();
        [
            Some(ReplicaSetBucket::In(self.key.namespace.clone())),
            controller.map(|controller| ReplicaSetBucket::ControlledBy(controller.uid.clone())),
        ]
    }
}

/// Counters of one watch thread since its start, and its current outage. Each counter is exact;
/// together they need not be consistent.
#[derive(Debug)]
pub struct CacheStats {
    /// Objects on the wire that could not be decoded. An object that arrives again counts again.
    pub unread_objects: AtomicU64,
    /// Completed lists after the first one, streamed or paged.
    pub relists: AtomicU64,
    /// Watches that the server has opened, including streamed lists.
    pub watches: AtomicU64,
    /// Events delivered to the handlers, including resyncs.
    pub events: AtomicU64,
    created: Instant,
    /// Milliseconds from `created` to the last object or message that was read.
    last_heard_ms: AtomicU64,
    /// Start of the current outage and the reason of its last failure.
    outage: Mutex<Option<(Instant, String)>>,
}

impl CacheStats {
    /// Returns for how long nothing of a list or watch could be read; since `created` if nothing
    /// ever was. A response's head does not count, nor does the page of a proxy.
    pub fn silence(&self, now: Instant) -> Duration {
        let last_heard = Duration::from_millis(self.last_heard_ms.load(Ordering::Relaxed));
        now.saturating_duration_since(self.created + last_heard)
    }

    /// True if something was read since then; within a millisecond, it counts.
    pub(super) fn was_notified_since(&self, since: Instant) -> bool {
        let ms = since.saturating_duration_since(self.created).as_millis();
        u128::from(self.last_heard_ms.load(Ordering::Relaxed)) >= ms
    }

    /// Duration of the current outage and the reason of its last failure; `None` if the last list
    /// or watch could be read.
    pub fn outage(&self, now: Instant) -> Option<(Duration, String)> {
        let outage = self.outage.lock();
        let (since, why) = outage.as_ref()?;
        Some((now.saturating_duration_since(*since), why.clone()))
    }

    /// Records an object of a list, a complete list or a message of a watch.
    pub(super) fn heard(&self, now: Instant) {
        let ms = now.saturating_duration_since(self.created).as_millis();
        let ms = u64::try_from(ms).unwrap_or(u64::MAX);
        self.last_heard_ms.store(ms, Ordering::Relaxed);
    }

    /// Records the outage, or its end.
    pub fn set_outage(&self, outage: Option<(Instant, String)>) {
        *self.outage.lock() = outage;
    }
}

impl Default for CacheStats {
    fn default() -> Self {
        Self {
            unread_objects: AtomicU64::default(),
            relists: AtomicU64::default(),
            watches: AtomicU64::default(),
            events: AtomicU64::default(),
            created: Instant::now(),
            last_heard_ms: AtomicU64::default(),
            outage: Mutex::default(),
        }
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

// Pod counts of one group by state and labels, updated with each pod event, so that a no-op sync
// need not visit the pods. The lock of the pods' store guards them.

/// The pods of one group by their labels. Cloning copies two pointers, and a clone never changes.
#[derive(Clone, Debug, Default)]
pub struct PodTally {
    /// Most groups have one label set, which needs no map.
    first: Option<(Labels, LabelTally)>,
    /// INVARIANT: neither empty nor with the label set of `first`.
    others: Option<Arc<HashMap<Labels, LabelTally>>>,
}

/// The pods of one group that share one label set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelTally {
    pub n_pods: u32,
    /// Active pods ([`Pod::is_active`]).
    pub n_active: u32,
    /// Active and Ready pods.
    pub n_ready: u32,
    /// Terminating pods that have not finished.
    pub n_terminating: u32,
    /// Failed pods that are not terminating.
    pub n_failed: u32,
}

impl PodTally {
    /// The label sets, each of which has a pod, in any order.
    pub fn iter(&self) -> impl Iterator<Item = (&Labels, &LabelTally)> {
        let first = self.first.iter().map(|(labels, tally)| (labels, tally));
        first.chain(self.others.iter().flat_map(|tallies| &**tallies))
    }

    pub fn n_active(&self) -> usize {
        self.iter().map(|(_, tally)| tally.n_active as usize).sum()
    }

    pub fn n_failed(&self) -> usize {
        self.iter().map(|(_, tally)| tally.n_failed as usize).sum()
    }

    pub(super) fn add(&mut self, pod: &Pod) {
        let is_new = self.of(&pod.labels).is_none();
        if is_new && self.first.is_none() {
            self.first = Some((pod.labels.clone(), LabelTally::default()));
        } else if is_new {
            let others = Arc::make_mut(self.others.get_or_insert_default());
            others.insert(pod.labels.clone(), LabelTally::default());
        }
        let tally = self.of(&pod.labels).expect("it was inserted");
        for (number, is_counted) in tally.numbers(pod) {
            *number += u32::from(is_counted);
        }
    }

    pub(super) fn remove(&mut self, pod: &Pod) {
        let tally = self.of(&pod.labels);
        let tally = tally.expect("the pod was counted with the same labels");
        for (number, is_counted) in tally.numbers(pod) {
            *number -= u32::from(is_counted);
        }
        if tally.n_pods > 0 {
            return;
        }
        debug_assert_eq!(*tally, LabelTally::default(), "the counts match");
        if self.first.take_if(|first| first.0 == pod.labels).is_some() {
            return;
        }
        let Some(others) = self.others.as_mut().map(Arc::make_mut) else {
            return;
        };
        others.remove(&pod.labels);
        if others.is_empty() {
            self.others = None;
        } else if others.capacity() > SHRINK_FACTOR * others.len() {
            others.shrink_to(2 * others.len());
        }
    }

    fn of(&mut self, labels: &Labels) -> Option<&mut LabelTally> {
        match &mut self.first {
            Some((first, tally)) if first == labels => Some(tally),
            _ => Arc::make_mut(self.others.as_mut()?).get_mut(labels),
        }
    }
}

impl LabelTally {
    /// Returns every count, and whether `pod` counts for it.
    fn numbers(&mut self, pod: &Pod) -> [(&mut u32, bool); 5] {
        let is_active = pod.is_active();
        let is_terminating = pod.is_terminating() && !pod.phase.is_terminal();
        [
            (&mut self.n_pods, true),
            (&mut self.n_active, is_active),
            (&mut self.n_ready, is_active && pod.is_ready),
            (&mut self.n_terminating, is_terminating),
            (
                &mut self.n_failed,
                pod.phase == PodPhase::Failed && !pod.is_terminating(),
            ),
        ]
    }
}

#[cfg(test)]
mod tests;
