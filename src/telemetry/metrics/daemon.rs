//! What the daemon does beside its syncs: events for people, the lease, and the results of health checks,
//! which `/metrics/slis` shows.

use prometheus::{IntCounterVec, IntGaugeVec};

use super::computed::Computed;
use super::process::start_time as start_time_of_process;
use super::registry::Registry;

/// What became of the events for people, by the controller that recorded them; `outcome` is `sent`,
/// `filtered`, `failed` or `dropped`.
#[derive(Debug)]
pub struct EventFamilies {
    /// What the recorder counts for itself anyway.
    pub events: Computed,
}

impl EventFamilies {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            events: registry.computed_counters(
                "replicaset_controller_events_total",
                "Events for people, by what became of them: sent to the API server, filtered because \
                 there were too many about one object, failed, or dropped because too many waited.",
                &["name", "outcome"],
            ),
        }
    }
}

/// What the thread `lease` says of itself, by the name of the lease
/// (component-base `metrics/prometheus/clientgo/leaderelection/metrics.go`).
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

/// The results of health checks, which `/metrics/slis` shows, apart from all others
/// (component-base `metrics/prometheus/slis/metrics.go`).
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
        start_time.show(&[], start_time_of_process);
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

    /// Notes the result of the check `name` of the endpoint `type_` (`healthz`, `livez` or `readyz`).
    pub fn observe(&self, name: &str, type_: &str, is_healthy: bool) {
        let result = self.healthcheck.with_label_values(&[name, type_]);
        result.set(i64::from(is_healthy));
        let status = if is_healthy { "success" } else { "error" };
        let total = self
            .healthchecks_total
            .with_label_values(&[name, type_, status]);
        total.inc();
    }

    /// Forgets all results, as DELETE of `/metrics/slis` does.
    pub fn reset(&self) {
        self.healthcheck.reset();
        self.healthchecks_total.reset();
    }
}
