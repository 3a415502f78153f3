//! The answer of a decision: what a sync may do, what it does, and when the next one follows.
//! Pure.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::optional::Effects;
use super::status::Counts;
use crate::api::{Pod, ReplicaSet};

pub use crate::batches::LARGE;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum May {
    /// Create and delete pods.
    #[default]
    Act,
    /// Everything but that: it only reports. An event, or this delay, brings the next sync.
    Report(Option<Duration>),
    /// Nothing, not even a status: the caches lag. An event, or this delay, brings the next sync.
    Wait(Duration),
    /// Nothing before it has queried the API server.
    Verify(Doubt),
}

/// Why a sync must query the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// A written version is overdue for so long that the cached spec may be outdated too.
    Overdue,
    /// The watch did not show a created or deleted pod in time, or skipped it.
    Unseen,
    /// The caches may be older than the previous leader's writes.
    TakeOver,
    /// More writes have an unknown outcome than this sync would repeat, or one is so old that it
    /// has no effect any more.
    Unknown,
}

#[derive(Clone, Debug, Default)]
pub struct Step {
    /// The active pods that the ReplicaSet keeps or adopts; empty if the pods were only counted.
    pub active: Vec<Arc<Pod>>,
    pub adopt: Vec<Arc<Pod>>,
    pub release: Vec<Arc<Pod>>,
    /// How many pods to create or delete, within the burst.
    pub plan: Plan,
    pub effects: Effects,
    pub may: May,
    /// Names that the creates repeat before they take new ones.
    pub retry: Vec<Arc<str>>,
    /// The pods to delete in this sync, in deletion order.
    pub delete: Vec<Arc<Pod>>,
    pub counts: Counts,
    /// Time until the next Ready pod becomes available.
    pub next_check: Option<Duration>,
    /// The time of day of the decision.
    pub now: Timestamp,
}

impl Step {
    pub fn acts(&self) -> bool {
        self.may == May::Act && self.plan != Plan::Nothing
    }

    /// True if the ReplicaSet has what its spec asks for.
    pub fn has_converged(&self) -> bool {
        self.may == May::Act && self.plan == Plan::Nothing && self.effects.allow_convergence()
    }

    /// When `rs` needs its next sync without any event, as seen at `now`.
    pub fn next(&self, rs: &ReplicaSet, now: Instant) -> Next {
        let mut next = Next::default();
        match self.may {
            // DIFFERS: upstream waits for the next event of the ReplicaSet or its pods, or for the
            // periodic resync, also if an expectation expires. A lost event, or a pod that appeared
            // and vanished unseen, wakes no key.
            May::Report(Some(delay)) | May::Wait(delay) => next.to_act(now + delay),
            May::Verify(_) => next.to_act(now),
            May::Report(None) | May::Act => {}
        }
        let Counts {
            ready, available, ..
        } = self.counts;
        if rs.min_ready_seconds > 0 && ready != available {
            let fallback = Duration::from_secs(rs.min_ready_seconds.unsigned_abs().into());
            let delay = self.next_check.unwrap_or(fallback);
            next.to_report(now + delay);
        }
        self.effects.add_next(now, &mut next);
        if let Some(delay) = self.effects.next_extra_deletes() {
            next.to_report(now + delay);
        }
        next
    }
}

/// Maximum pods created or deleted per sync (kubernetes
/// `pkg/controller/replicaset/replica_set.go:BurstReplicas`).
pub const BURST_REPLICAS: usize = 500;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plan {
    #[default]
    Nothing,
    Create(usize),
    Delete(usize),
}

impl Plan {
    pub fn n_pods(self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Create(count) | Self::Delete(count) => count,
        }
    }
}

/// Compares the number of active pods with `replicas`. The plan never exceeds `burst` pods.
pub fn plan(active: usize, replicas: i32, burst: usize) -> Plan {
    let wanted = usize::try_from(replicas).unwrap_or(0);
    match active.cmp(&wanted) {
        Ordering::Less => Plan::Create((wanted - active).min(burst)),
        Ordering::Greater => Plan::Delete((active - wanted).min(burst)),
        Ordering::Equal => Plan::Nothing,
    }
}

/// When a sync is needed without an event. The earliest reason counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Next {
    /// When pods may have to be created or deleted.
    pub high: Option<Instant>,
    /// When anything else may have to be done.
    pub low: Option<Instant>,
}

impl Next {
    /// Pods may have to be created or deleted then.
    pub fn to_act(&mut self, at: Instant) {
        self.high = self.high.into_iter().chain([at]).min();
    }

    /// Anything else may have to be done then.
    pub fn to_report(&mut self, at: Instant) {
        self.low = self.low.into_iter().chain([at]).min();
    }
}
