//! What is seen of other writers: in a dry run beside one, and when there should be none.

use prometheus::IntCounterVec;

use super::registry::Registry;

/// Families of our own.
#[derive(Debug)]
pub struct OtherWriterMetrics {
    shadow_decisions: IntCounterVec,
    other_writer: IntCounterVec,
}

impl OtherWriterMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            shadow_decisions: registry.counters(
                "replicaset_controller_shadow_decisions_total",
                "Decisions of a dry run by what they are about (create, delete, adopt, release, \
                 status) and how they compare with what another writer did.",
                &["decision", "verdict"],
            ),
            other_writer: registry.counters(
                "replicaset_controller_other_writer_total",
                "Writes by somebody else to what this daemon controls, by what was written (pod, \
                 status).",
                &["what"],
            ),
        }
    }

    /// Counts a comparison of a dry run.
    pub fn shadow(&self, decision: &str, verdict: &str) {
        let labels = [decision, verdict];
        self.shadow_decisions.with_label_values(&labels).inc();
    }

    /// Counts a write by somebody else.
    pub fn seen(&self, what: &str) {
        self.other_writer.with_label_values(&[what]).inc();
    }
}
