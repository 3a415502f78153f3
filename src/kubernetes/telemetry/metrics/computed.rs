//! Families whose values are computed at scrape time, such as queue depths, ages and counters that
//! other code keeps anyway.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

/// Computes one value, `None` if there is none now.
type Source = Arc<dyn Fn() -> Option<f64> + Send + Sync>;

/// Label values with their source.
type Series = (Vec<String>, Source);

/// A computed family. Clones share their series.
#[derive(Clone)]
pub struct Computed {
    desc: Arc<Desc>,
    kind: MetricType,
    sources: Arc<Mutex<Vec<Series>>>,
}

impl Computed {
    /// A family of gauges or counters without any series.
    pub(super) fn new(name: &str, help: &str, kind: MetricType, labels: &[&str]) -> Self {
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        let desc = Desc::new(name.to_owned(), help.to_owned(), labels, [].into());
        Self {
            desc: Arc::new(desc.expect("names of metrics and labels are valid")),
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
        assert_eq!(label_values.len(), self.desc.variable_labels.len());
        let label_values: Vec<String> = label_values.iter().map(|&v| v.to_owned()).collect();
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        sources.retain(|(known, _)| *known != label_values);
        sources.push((label_values, Arc::new(value)));
    }

    fn metric(&self, label_values: &[String], value: f64) -> Metric {
        let names = self.desc.variable_labels.iter();
        let mut pairs: Vec<LabelPair> = names
            .zip(label_values)
            .map(|(name, value)| {
                let mut pair = LabelPair::default();
                pair.set_name(name.clone());
                pair.set_value(value.clone());
                pair
            })
            .collect();
        pairs.sort_by(|a, b| a.name().cmp(b.name()));
        let mut metric = Metric::from_label(pairs);
        if self.kind == MetricType::COUNTER {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        metric
    }
}

impl Collector for Computed {
    fn desc(&self) -> Vec<&Desc> {
        vec![&*self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        // Sources run without the lock, since they may take other locks.
        let series = sources.clone();
        drop(sources);
        let metrics = series
            .iter()
            .filter_map(|(label_values, source)| Some(self.metric(label_values, source()?)));
        let mut family = MetricFamily::default();
        family.set_name(self.desc.fq_name.clone());
        family.set_help(self.desc.help.clone());
        family.set_field_type(self.kind);
        family.set_metric(metrics.collect());
        vec![family]
    }
}

impl fmt::Debug for Computed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Computed").field(&self.desc.fq_name).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use prometheus::core::Collector;

    use super::{Computed, MetricType};

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
}
