//! What `/metrics/slis` shows: the results of health checks
//! (component-base `metrics/prometheus/slis/metrics.go`).

use prometheus::{IntCounterVec, IntGaugeVec};

use super::process::start_time as start_time_of_process;
use super::registry::Registry;

/// Families of their own, read out apart from all others.
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
