//! What the thread `lease` counts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Upstream's two metrics of an election (component-base
/// `metrics/prometheus/clientgo/leaderelection/metrics.go`). Read by whoever reports metrics.
#[derive(Debug, Default)]
pub struct LeaderElectionStats {
    /// `leader_election_master_status{name}`: whether we lead.
    pub master_status: AtomicBool,
    /// `leader_election_slowpath_total{name}`: renewals that had to read the Lease first.
    pub slowpath_total: AtomicU64,
}

impl LeaderElectionStats {
    pub(super) fn set_leading(&self, is_leading: bool) {
        self.master_status.store(is_leading, Ordering::Relaxed);
    }

    pub(super) fn slowpath_exercised(&self) {
        self.slowpath_total.fetch_add(1, Ordering::Relaxed);
    }
}
