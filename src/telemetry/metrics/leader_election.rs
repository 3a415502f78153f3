//! What the thread `lease` says of itself
//! (component-base `metrics/prometheus/clientgo/leaderelection/metrics.go`).

use prometheus::{IntCounterVec, IntGaugeVec};

use super::registry::Registry;

/// Families by the name of the lease.
#[derive(Debug)]
pub struct LeaderElectionMetrics {
    master_status: IntGaugeVec,
    slowpath: IntCounterVec,
}

impl LeaderElectionMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            master_status: registry.gauges(
                "leader_election_master_status",
                "[ALPHA] Gauge of if the reporting system is master of the relevant lease, 0 \
                 indicates backup, 1 indicates master. 'name' is the string used to identify the \
                 lease. Please make sure to group by name.",
                &["name"],
            ),
            slowpath: registry.counters(
                "leader_election_slowpath_total",
                "[ALPHA] Total number of slow path exercised in renewing leader leases. 'name' is \
                 the string used to identify the lease. Please make sure to group by name.",
                &["name"],
            ),
        }
    }

    /// Says whether this process holds the lease. Upstream says 0 once when it starts to compete.
    pub fn set_master_status(&self, lease: &str, is_master: bool) {
        let status = self.master_status.with_label_values(&[lease]);
        status.set(i64::from(is_master));
    }

    /// Counts a renewal that had to read the lease first.
    pub fn slowpath_exercised(&self, lease: &str) {
        self.slowpath.with_label_values(&[lease]).inc();
    }
}
