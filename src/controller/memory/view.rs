//! What a record says at the start of a sync. Plain data without lock, clock or I/O.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Memory;
use super::own_writes::Satisfaction;
use super::positions::{Readiness, Versions};
use crate::api::Uid;

/// A copy of what a decision reads of a ReplicaSet's record, and the positions of the caches.
///
/// ORDER: a sync takes it before it reads the ReplicaSet and the pods. Whatever the watches bring
/// in between can only make those newer than this claims. In the other order an event could settle
/// an expectation whose pod the list of pods lacks, and the sync would create one too many.
#[derive(Clone, Debug, Default)]
pub struct RecordView {
    /// The UID of the ReplicaSet; `None` without a record.
    pub owner: Option<Uid>,
    /// The positions of the caches.
    pub cached: Versions,
    /// Whether the caches show every own write.
    pub readiness: Readiness,
    /// Whether the watches have shown every expected pod and deletion.
    pub expectations: Satisfaction,
    /// Time until the open expectations expire.
    pub expire_in: Option<Duration>,
    /// Expected pods whose stored version the pod cache has passed.
    pub passed: Vec<Arc<str>>,
    /// True if the caches may be older than the take-over.
    pub is_unproven: bool,
    /// True if the API server has confirmed them for this ReplicaSet.
    pub is_confirmed: bool,
    /// How long creates wait for the ReplicaSet's own deletion after a loss of pods.
    pub loss_delay: Option<Duration>,
    /// True if the API server refused the last create.
    pub has_refusal: bool,
    /// How long creates wait after that, and for which generation.
    pub creates_wait: Option<(i64, Duration)>,
    /// Whether the pod cache is as new as the spec.
    pub spec: SpecLag,
    /// Names under which a pod may exist already, in the order of their retries.
    pub unknown_creations: Vec<Arc<str>>,
    /// Pods that may be deleted already: first those whose delete can take no effect any more.
    pub unknown_deletions: Vec<Uid>,
    /// How many those are.
    pub n_overdue: usize,
    /// True if the API server has been queried since the last write of unknown outcome.
    pub unknowns_are_compared: bool,
}

/// How the pod cache compares with the version at which the spec was first seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpecLag {
    /// It is as new, or no scale-down waits for it.
    #[default]
    None,
    /// They were not compared.
    Unknown,
    /// It is older. A choice among pods waits for this long at most.
    Delay(Duration),
    /// It may be older, and the wait is over.
    Possible,
}

impl RecordView {
    /// The view, or that of no record if the record belongs to an earlier ReplicaSet of that name:
    /// a late response to one of its writes may have been recorded after its deletion.
    #[must_use]
    pub fn of_owner(self, owner: &Uid) -> Self {
        if self.owner.as_ref().is_none_or(|it| it == owner) {
            return self;
        }
        Self {
            cached: self.cached,
            is_unproven: self.is_unproven,
            ..Self::default()
        }
    }
}

impl Memory {
    /// Takes the view at `cached`, after a take-over that is proven. Own writes and losses that
    /// `cached` shows are forgotten.
    pub(super) fn view(&mut self, cached: Versions, now: Instant) -> RecordView {
        self.own_writes.forget_found();
        let writes = &self.own_writes;
        let unknown_deletions = writes.unknown_deletions(now);
        RecordView {
            owner: Some(self.owner.clone()),
            readiness: self.positions.readiness(&cached, now),
            expectations: writes.satisfaction(now),
            expire_in: writes.remaining(now),
            passed: writes.passed(&cached.pods),
            is_unproven: false,
            is_confirmed: self.positions.is_confirmed,
            loss_delay: self.positions.loss_delay(&cached.replica_sets, now),
            has_refusal: self.refused.is_some(),
            creates_wait: self.creates_wait(now),
            spec: if self.positions.has_spec() {
                SpecLag::Unknown
            } else {
                SpecLag::None
            },
            unknown_creations: writes.unknown_creations(),
            n_overdue: unknown_deletions.over.len(),
            unknown_deletions: [unknown_deletions.over, unknown_deletions.under_way].concat(),
            unknowns_are_compared: writes.are_compared,
            cached,
        }
    }
}
