//! How many pods a sync creates or deletes, and when the next one follows. Pure.

use std::cmp::Ordering;
use std::time::Instant;

pub use crate::batches::LARGE;

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
    pub fn to_act(&mut self, at: Instant) {
        self.high = self.high.into_iter().chain([at]).min();
    }

    pub fn to_report(&mut self, at: Instant) {
        self.low = self.low.into_iter().chain([at]).min();
    }
}
