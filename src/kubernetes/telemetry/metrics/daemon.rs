//! Metrics outside of syncs: events, leader election, and the results of health checks on
//! `/metrics/slis`.

use prometheus::{IntCounterVec, IntGaugeVec};

use super::computed::Computed;
use super::process::start_time as start_time_of_process;
use super::registry::Registry;

/// Events by recording controller; `outcome` is `sent`, `filtered`, `failed` or `dropped`.
#[derive(Debug)]
pub struct EventFamilies {
    /// Computed from the recorders' own counters.
    pub events: Computed,
}

impl EventFamilies {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            events: registry.computed_counters(
                "replicaset_controller_events_total",
                "Events by outcome: sent to the API server, filtered because there were too many \
                 about one object, failed, or dropped because too many waited.",
                &["name", "outcome"],
            ),
        }
    }
}

/// Leader election by lease name (component-base
/// `metrics/prometheus/clientgo/leaderelection/metrics.go`).
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

    /// Sets whether this process holds the lease. Like upstream, a process sets 0 when it joins the
    /// election.
    pub fn set_master_status(&self, lease: &str, is_master: bool) {
        let status = self.master_status.with_label_values(&[lease]);
        status.set(i64::from(is_master));
    }

    /// Counts a renewal that read the Lease first.
    pub fn slowpath_exercised(&self, lease: &str) {
        self.slowpath.with_label_values(&[lease]).inc();
    }
}

/// Results of health checks, rendered only by `/metrics/slis` (component-base
/// `metrics/prometheus/slis/metrics.go`).
#[derive(Debug)]
pub struct HealthcheckMetrics {
    healthcheck: IntGaugeVec,
    healthchecks_total: IntCounterVec,
}

impl HealthcheckMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let start_time = registry.computed_gauges(
            "process_start_time_seconds",
            "[ALPHA] Start time of the process since unix epoch in seconds.",
            &[],
        );
        start_time.register(&[], start_time_of_process);
        Self {
            healthcheck: registry.gauges(
                "kubernetes_healthcheck",
                "[STABLE] This metric records the result of a single healthcheck.",
                &["name", "type"],
            ),
            healthchecks_total: registry.counters(
                "kubernetes_healthchecks_total",
                "[STABLE] This metric records the results of all healthcheck.",
                &["name", "type", "status"],
            ),
        }
    }

    /// Records the result of the check `name` at the endpoint `type_` (`healthz`, `livez` or
    /// `readyz`).
    pub fn observe(&self, name: &str, type_: &str, is_healthy: bool) {
        let result = self.healthcheck.with_label_values(&[name, type_]);
        result.set(i64::from(is_healthy));
        let status = if is_healthy { "success" } else { "error" };
        let total = self
            .healthchecks_total
            .with_label_values(&[name, type_, status]);
        total.inc();
    }

    /// Resets all results, like DELETE of `/metrics/slis`.
    pub fn reset(&self) {
        self.healthcheck.reset();
        self.healthchecks_total.reset();
    }
}
