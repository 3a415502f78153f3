//! Families whose values are asked for when somebody looks, instead of being kept up to date all the
//! time: queue depths, ages, what a room counts for itself anyway.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

/// Where one value comes from; `None` once the thing that it describes is gone.
type Source = Arc<dyn Fn() -> Option<f64> + Send + Sync>;

/// Label values, and where the value comes from.
type Series = (Vec<String>, Source);

/// One family. Clones are the same one.
#[derive(Clone)]
pub struct Computed {
    desc: Arc<Desc>,
    kind: MetricType,
    sources: Arc<Mutex<Vec<Series>>>,
}

impl Computed {
    /// A family of gauges or counters without any source yet.
    pub(super) fn new(name: &str, help: &str, kind: MetricType, labels: &[&str]) -> Self {
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        let desc = Desc::new(name.to_owned(), help.to_owned(), labels, [].into());
        Self {
            desc: Arc::new(desc.expect("names of metrics and labels are valid")),
            kind,
            sources: Arc::default(),
        }
    }

    /// Shows what `value` answers under these label values, in the order of the family's labels, until
    /// it answers `None`. Replaces an earlier source with the same label values. `value` is called on
    /// the thread that serves the metrics, and must not block.
    pub fn show(
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
        // Asked without the lock: a source may take others.
        let asked = sources.clone();
        drop(sources);
        let mut metrics = Vec::new();
        let mut gone = Vec::new();
        for (label_values, source) in asked {
            match source() {
                Some(value) => metrics.push(self.metric(&label_values, value)),
                None => gone.push(source),
            }
        }
        if !gone.is_empty() {
            let is_gone = |source: &Source| gone.iter().any(|gone| Arc::ptr_eq(gone, source));
            let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
            sources.retain(|(_, source)| !is_gone(source));
        }
        let mut family = MetricFamily::default();
        family.set_name(self.desc.fq_name.clone());
        family.set_help(self.desc.help.clone());
        family.set_field_type(self.kind);
        family.set_metric(metrics);
        vec![family]
    }
}

impl fmt::Debug for Computed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Computed").field(&self.desc.fq_name).finish()
    }
}
