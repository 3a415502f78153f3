//! What the checks have found, as metrics: the page `/metrics/slis`
//! (component-base `metrics/prometheus/slis`). A registry of their own, since that page has nothing
//! else.

use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder};

use super::Probe;

pub(super) struct Slis {
    registry: Registry,
    healthcheck: IntGaugeVec,
    healthchecks_total: IntCounterVec,
}

impl Default for Slis {
    fn default() -> Self {
        let healthcheck = IntGaugeVec::new(
            Opts::new(
                "kubernetes_healthcheck",
                "[STABLE] This metric records the result of a single healthcheck.",
            ),
            &["name", "type"],
        );
        let healthchecks_total = IntCounterVec::new(
            Opts::new(
                "kubernetes_healthchecks_total",
                "[STABLE] This metric records the results of all healthcheck.",
            ),
            &["name", "type", "status"],
        );
        let slis = Self {
            registry: Registry::new(),
            healthcheck: healthcheck.expect("names are valid"),
            healthchecks_total: healthchecks_total.expect("names are valid"),
        };
        let all: [Box<dyn prometheus::core::Collector>; 2] = [
            Box::new(slis.healthcheck.clone()),
            Box::new(slis.healthchecks_total.clone()),
        ];
        for metric in all {
            let registered = slis.registry.register(metric);
            registered.expect("each is registered once");
        }
        slis
    }
}

impl Slis {
    pub(super) fn count(&self, name: &str, probe: Probe, is_good: bool) {
        let probe = probe.name();
        let result = self.healthcheck.with_label_values(&[name, probe]);
        result.set(i64::from(is_good));
        let status = if is_good { "success" } else { "error" };
        let total = &self.healthchecks_total;
        total.with_label_values(&[name, probe, status]).inc();
    }

    pub(super) fn reset(&self) {
        self.healthcheck.reset();
        self.healthchecks_total.reset();
    }

    pub(super) fn render(&self) -> String {
        let families = self.registry.gather();
        let text = TextEncoder::new().encode_to_string(&families);
        text.expect("metrics with names can be written")
    }
}
