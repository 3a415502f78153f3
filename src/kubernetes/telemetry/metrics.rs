//! Prometheus metrics: upstream's series under upstream's names, labels, help and buckets, and this
//! project's own under `replicaset_controller_`.
//!
//! [`global`] is the set of the process, which the HTTP server renders. Recording code keeps its
//! handles ([`prometheus`] handles are atomics behind an `Arc`), so that it neither looks up nor
//! allocates anything per pod. No series is labeled by ReplicaSet, so the number of series does not
//! grow with the cluster.

/// Declares a struct of families. The documentation of a field is the family's help text.
macro_rules! families {
    ($(#[$about:meta])* $vis:vis struct $Families:ident {
        $($(#[doc = $help:literal])+ $access:vis $field:ident: $Family:ty
            = $register:ident($name:literal $(, $arg:expr)*);)+
    }) => {
        $(#[$about])*
        $vis struct $Families {
            $(#[doc = concat!("`", $name, "`")] $access $field: $Family,)+
        }

        impl $Families {
            pub(super) fn new(registry: &Registry) -> Self {
                let help = |text: &'static str| text.trim_start();
                Self {
                    $($field: registry.$register(
                        $name, help(concat!($($help),+)) $(, $arg)*
                    ),)+
                }
            }
        }
    };
}

pub mod controller;
pub mod credentials;
pub mod process;
pub mod rest_client;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use controller::ControllerFamilies;
use credentials::CredentialMetrics;
use parking_lot::Mutex;
use process::{BuildMetrics, EventFamilies, HealthcheckMetrics, LeaderElectionMetrics};
use prometheus::core::{Collector, Desc, Describer};
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{
    CounterVec, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts,
};
use rest_client::{RestClientFamilies, WatchFamilies, WorkQueueFamilies};

use crate::stdx::build;

pub(super) use credentials::seconds_until;

/// `Content-Type` of the pages.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All families of one process or one test.
pub struct Metrics {
    main: Registry,
    slis: Registry,
    pub build: BuildMetrics,
    pub controller: ControllerFamilies,
    pub credentials: CredentialMetrics,
    pub events: EventFamilies,
    pub leader_election: LeaderElectionMetrics,
    pub rest_client: RestClientFamilies,
    pub watch: WatchFamilies,
    pub workqueue: WorkQueueFamilies,
    /// Results of health checks; only [`Metrics::render_slis`] renders them.
    pub healthchecks: HealthcheckMetrics,
}

impl Metrics {
    pub fn new() -> Self {
        let (main, slis) = (Registry::default(), Registry::default());
        process::register(&main);
        let metrics = Self {
            build: BuildMetrics::new(&main),
            controller: ControllerFamilies::new(&main),
            credentials: CredentialMetrics::new(&main),
            events: EventFamilies::new(&main),
            leader_election: LeaderElectionMetrics::new(&main),
            rest_client: RestClientFamilies::new(&main),
            watch: WatchFamilies::new(&main),
            workqueue: WorkQueueFamilies::new(&main),
            healthchecks: HealthcheckMetrics::new(&slis),
            main,
            slis,
        };
        let own = [build::VERSION, build::COMMIT.unwrap_or_default()];
        metrics.build.own.with_label_values(&own).set(1);
        metrics.credentials.expect_no_exec_plugin();
        let start_time = &metrics.healthchecks.start_time;
        start_time.register(&[], process::start_time);
        metrics
    }

    pub fn render(&self) -> String {
        self.main.render()
    }

    pub fn render_slis(&self) -> String {
        self.slis.render()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

pub fn global() -> &'static Metrics {
    static GLOBAL: LazyLock<Metrics> = LazyLock::new(Metrics::new);
    &GLOBAL
}

/// Converts a count into Prometheus' number type.
#[expect(
    clippy::cast_precision_loss,
    reason = "Prometheus knows no other numbers, and counts above 2^53 take millennia"
)]
pub fn whole(count: u64) -> f64 {
    count as f64
}

const UNIQUE: &str = "every metric is registered once, under a valid name";

/// The metric families of one page, such as `/metrics`.
#[derive(Debug, Default)]
pub struct Registry(prometheus::Registry);

impl Registry {
    /// Renders all families as text, families and series in alphabetical order. Computes computed
    /// values during the call and does not block otherwise.
    pub fn render(&self) -> String {
        let text = prometheus::TextEncoder::new().encode_to_string(&self.0.gather());
        let text = text.expect("a registry gathers valid families");
        let lines = text.split_inclusive('\n').map(with_upstreams_bound);
        lines.collect()
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.register(IntCounterVec::new(Opts::new(name, help), labels).expect(UNIQUE))
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.register(IntGaugeVec::new(Opts::new(name, help), labels).expect(UNIQUE))
    }

    fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.register(Histogram::with_opts(options).expect(UNIQUE))
    }

    fn histograms(&self, name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.register(HistogramVec::new(options, labels).expect(UNIQUE))
    }

    fn computed_gauges(&self, name: &str, help: &str, labels: &[&str]) -> Computed {
        self.register(Computed::new(name, help, MetricType::GAUGE, labels))
    }

    fn computed_counters(&self, name: &str, help: &str, labels: &[&str]) -> Computed {
        self.register(Computed::new(name, help, MetricType::COUNTER, labels))
    }

    fn register<C: Collector + Clone + 'static>(&self, family: C) -> C {
        self.0.register(Box::new(family.clone())).expect(UNIQUE);
        family
    }
}

/// Writes the bound of a bucket as Go does, such as `1e-08`. It is a label, so a query over the
/// series of upstream and of this daemon needs the same text.
fn with_upstreams_bound(line: &str) -> Cow<'_, str> {
    const LABEL: &str = "le=\"";
    let written = || {
        let (name, labels) = line.split_once('{')?;
        let at = labels.rfind(LABEL).filter(|_| name.ends_with("_bucket"))?;
        let (before, bound) = labels.split_at(at + LABEL.len());
        let (bound, after) = bound.split_once('"')?;
        let scientific = format!("{:e}", bound.parse::<f64>().ok()?);
        let (digits, exponent) = scientific.split_once('e')?;
        let exponent: i32 = exponent.parse().ok()?;
        let is_short = (-4..6).contains(&exponent);
        (!is_short).then(|| format!("{name}{{{before}{digits}e{exponent:+03}\"{after}"))
    };
    written().map_or(Cow::Borrowed(line), Cow::Owned)
}

/// Computes one value, `None` if there is none now.
type Source = Arc<dyn Fn() -> Option<f64> + Send + Sync>;

/// Label values with their source.
type Series = (Vec<String>, Source);

/// A computed family. Clones share their series.
#[derive(Clone)]
pub struct Computed {
    options: Opts,
    desc: Desc,
    kind: MetricType,
    sources: Arc<Mutex<Vec<Series>>>,
}

impl Computed {
    /// A family of gauges or counters without any series.
    fn new(name: &str, help: &str, kind: MetricType, labels: &[&str]) -> Self {
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        let options = Opts::new(name, help).variable_labels(labels);
        Self {
            desc: options.describe().expect(UNIQUE),
            options,
            kind,
            sources: Arc::default(),
        }
    }

    /// Registers `value` as the series with these label values, in the order of the family's
    /// labels; without a value the series is absent. Replaces an earlier source of the same series.
    /// `value` runs on the thread that serves the metrics and must not block.
    pub fn register(
        &self,
        label_values: &[&str],
        value: impl Fn() -> Option<f64> + Send + Sync + 'static,
    ) {
        self.add_source(label_values, Arc::new(value), |_| true);
    }

    /// Like [`register`](Self::register), but earlier sources of the same series stay while they
    /// have a value. The smallest one is shown. `value` must take no lock.
    pub fn register_beside(
        &self,
        label_values: &[&str],
        value: impl Fn() -> Option<f64> + Send + Sync + 'static,
    ) {
        self.add_source(label_values, Arc::new(value), |old| old().is_none());
    }

    fn add_source(&self, labels: &[&str], value: Source, drops: fn(&Source) -> bool) {
        assert_eq!(labels.len(), self.desc.variable_labels.len());
        let labels: Vec<String> = labels.iter().map(|&v| v.to_owned()).collect();
        let mut sources = self.sources.lock();
        sources.retain(|(known, old)| *known != labels || !drops(old));
        sources.push((labels, value));
    }
}

impl Collector for Computed {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let sources = self.sources.lock();
        // Sources run without the lock, since they may take other locks.
        let series = sources.clone();
        drop(sources);
        let mut values = BTreeMap::new();
        for (label_values, source) in &series {
            if let Some(value) = source() {
                let least = values.entry(label_values).or_insert(value);
                *least = least.min(value);
            }
        }
        let values = values.into_iter();
        let labels: Vec<&str> = self.desc.variable_labels.iter().map(|it| &**it).collect();
        if self.kind == MetricType::COUNTER {
            let family = CounterVec::new(self.options.clone(), &labels).expect(UNIQUE);
            values.for_each(|(labels, value)| family.with_label_values(labels).inc_by(value));
            family.collect()
        } else {
            let family = GaugeVec::new(self.options.clone(), &labels).expect(UNIQUE);
            values.for_each(|(labels, value)| family.with_label_values(labels).set(value));
            family.collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use prometheus::core::Collector;

    use super::{Computed, MetricType, Registry};

    #[test]
    fn bounds_of_buckets_are_written_as_by_upstream() {
        let registry = Registry::default();
        let bounds = [1e-8, 1e-5, 0.0001, 0.5, 604_800.0, 1_048_576.0];
        let family = registry.histograms("h", "help", &["role"], &bounds);
        family.with_label_values(&["le=\"1000000\""]).observe(1e7);
        let text = registry.render();
        let written = ["1e-08", "1e-05", "0.0001", "0.5", "604800", "1.048576e+06"];
        for bound in written {
            let line = format!("\nh_bucket{{role=\"le=\\\"1000000\\\"\",le=\"{bound}\"}} 0\n");
            assert!(text.contains(&line), "no {line} in {text}");
        }
        assert!(text.contains(",le=\"+Inf\"} 1\n"), "{text}");
        assert!(
            text.contains("\nh_sum{role=\"le=\\\"1000000\\\"\"} 10000000\n"),
            "{text}"
        );
    }

    /// A file below `/proc` cannot be read while the process has no free descriptor.
    #[test]
    fn a_series_without_a_value_returns_with_the_next_one() {
        let family = Computed::new("a", "help", MetricType::GAUGE, &[]);
        let has_value = Arc::new(AtomicBool::new(false));
        let source = Arc::clone(&has_value);
        family.register(&[], move || source.load(Ordering::Relaxed).then_some(1.0));
        for expected in [0, 1, 0, 1] {
            assert_eq!(family.collect()[0].get_metric().len(), expected);
            has_value.store(expected == 0, Ordering::Relaxed);
        }
    }

    /// Two kubeconfigs may embed a certificate each, and no label tells them apart.
    #[test]
    fn sources_beside_each_other_show_the_smallest_value() {
        let family = Computed::new("a", "help", MetricType::GAUGE, &["file"]);
        let held = [2.0, 1.0, 3.0].map(Arc::new);
        for value in &held {
            let value = Arc::downgrade(value);
            family.register_beside(&[""], move || value.upgrade().map(|value| *value));
        }
        let shown = || family.collect()[0].get_metric()[0].get_gauge().get_value();
        assert_eq!(shown().to_string(), "1");
        let [two, one, _three] = held;
        drop(one);
        assert_eq!(shown().to_string(), "2");
        drop(two);
        family.register_beside(&[""], || Some(4.0));
        assert_eq!(shown().to_string(), "3");
        assert_eq!(
            family.sources.lock().len(),
            2,
            "those without a value are dropped"
        );
    }
}
