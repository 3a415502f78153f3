//! Where families are registered, each once, and read out together. Names, labels and bounds are
//! constants of this program, so a mistake in one is a mistake in the code and ends it.

use prometheus::core::Collector;
use prometheus::proto::MetricType;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts,
};

use super::computed::Computed;
use super::text;

const UNIQUE: &str = "every metric is registered once, under a valid name";

/// A set of families that are shown together.
#[derive(Debug, Default)]
pub struct Registry(prometheus::Registry);

impl Registry {
    /// Everything as text, families and series in alphabetical order. Asks what is computed only now,
    /// and blocks for nothing else.
    pub fn render(&self) -> String {
        text::encode(&self.0.gather())
    }

    pub(super) fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.keep(IntCounterVec::new(Opts::new(name, help), labels).expect(UNIQUE))
    }

    pub(super) fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.keep(IntGaugeVec::new(Opts::new(name, help), labels).expect(UNIQUE))
    }

    pub(super) fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.keep(IntGauge::new(name, help).expect(UNIQUE))
    }

    pub(super) fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.keep(Histogram::with_opts(options).expect(UNIQUE))
    }

    pub(super) fn histograms(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> HistogramVec {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.keep(HistogramVec::new(options, labels).expect(UNIQUE))
    }

    pub(super) fn computed_gauges(&self, name: &str, help: &str, labels: &[&str]) -> Computed {
        self.keep(Computed::new(name, help, MetricType::GAUGE, labels))
    }

    pub(super) fn computed_counters(&self, name: &str, help: &str, labels: &[&str]) -> Computed {
        self.keep(Computed::new(name, help, MetricType::COUNTER, labels))
    }

    fn keep<C: Collector + Clone + 'static>(&self, family: C) -> C {
        self.0.register(Box::new(family.clone())).expect(UNIQUE);
        family
    }
}
