//! Registers each family once and renders all of them. Names, labels and buckets are constants of
//! this program, so an invalid one is a bug and panics.

use prometheus::core::Collector;
use prometheus::proto::MetricType;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts,
};

use super::computed::Computed;

const UNIQUE: &str = "every metric is registered once, under a valid name";

/// A set of families that one page renders.
#[derive(Debug, Default)]
pub struct Registry(prometheus::Registry);

impl Registry {
    /// Renders all families as text, families and series in alphabetical order. Computes computed
    /// values during the call and does not block otherwise.
    pub fn render(&self) -> String {
        let text = prometheus::TextEncoder::new().encode_to_string(&self.0.gather());
        text.expect("a registry gathers valid families")
    }

    pub(super) fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.register(IntCounterVec::new(Opts::new(name, help), labels).expect(UNIQUE))
    }

    pub(super) fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.register(IntGaugeVec::new(Opts::new(name, help), labels).expect(UNIQUE))
    }

    pub(super) fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.register(IntGauge::new(name, help).expect(UNIQUE))
    }

    pub(super) fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.register(Histogram::with_opts(options).expect(UNIQUE))
    }

    pub(super) fn histograms(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> HistogramVec {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.register(HistogramVec::new(options, labels).expect(UNIQUE))
    }

    pub(super) fn computed_gauges(&self, name: &str, help: &str, labels: &[&str]) -> Computed {
        self.register(Computed::new(name, help, MetricType::GAUGE, labels))
    }

    pub(super) fn computed_counters(&self, name: &str, help: &str, labels: &[&str]) -> Computed {
        self.register(Computed::new(name, help, MetricType::COUNTER, labels))
    }

    fn register<C: Collector + Clone + 'static>(&self, family: C) -> C {
        self.0.register(Box::new(family.clone())).expect(UNIQUE);
        family
    }
}
