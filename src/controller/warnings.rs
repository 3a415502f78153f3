//! Warnings in the log and in events: pods that fail as fast as the controller replaces them,
//! annotations that cannot be understood, and scale-downs that protected pods block. None of them
//! affects what the controller creates, deletes or writes.

use std::sync::Arc;
use std::time::Duration;

use super::Core;
use super::act::Writer;
use super::decide::optional::protection::{PROTECTED_TIMEOUT, is_block};
use super::decide::plan::Plan;
use super::decide::{Step, View};
use super::memory::Memory;
use super::memory::history::Mistake;
use crate::api::conditions::{Condition, SCALE_DOWN_BLOCKED};
use crate::api::policy::SCALE_DOWN;
use crate::api::{Pod, Policy, ReplicaSet, ReplicaSetStatus, ScaleDownMark, WorkloadKind};
use crate::stdx::escape::shell_word;
use crate::stdx::hash;

/// Warns that `count` pods of `rs`, `pod` among them, have failed within this time: a node rejects
/// or evicts them. As upstream, the controller replaces each one at once
/// (kubernetes/kubernetes#72593), so thousands of Failed pods may accumulate.
pub(super) fn warn_of_failures(
    kind: &WorkloadKind,
    rs: &ReplicaSet,
    pod: &Pod,
    (count, within): (usize, Duration),
) {
    log::warn!(
        object:% = kind.named(&rs.key);
        "{count} pods have failed within {:.0} s, and each is replaced at once: kubectl -n {} \
         describe pod {}; to slow the replacements down: {}",
        within.as_secs_f64().max(1.0),
        shell_word(&pod.key.namespace),
        shell_word(&pod.key.name),
        back_off_command(rs, kind.singular)
    );
}

pub fn back_off_command(rs: &ReplicaSet, resource: &str) -> String {
    let (namespace, name) = (shell_word(&rs.key.namespace), shell_word(&rs.key.name));
    format!(
        "kubectl -n {namespace} annotate {resource} {name} \
         replicaset-controller/failed-pod-backoff=10s..5m"
    )
}

const INVALID_ANNOTATION: &str = "InvalidAnnotation";

const GANG_SCHEDULING_UNSUPPORTED: &str = "GangSchedulingUnsupported";

pub fn no_gang(workload: &str) -> String {
    format!(
        "Workload {workload} asks for gang scheduling, which this daemon does not support: pods \
         are created without a PodGroup and scheduled one by one"
    )
}

impl Core {
    /// Logs annotations without effect, once per generation and text. Returns what it logged. No
    /// change of an annotation changes the generation.
    pub(super) fn log_mistakes(&self, rs: &ReplicaSet) -> Option<String> {
        let mistakes = Policy::mistakes(&rs.opt_ins);
        if mistakes.is_empty() {
            return None;
        }
        let (what, generation, text) = (Mistake::Annotations, rs.generation, hash(&mistakes));
        let note = |it: &mut Memory| it.history.note_mistake(what, generation, text);
        self.memories.with(rs, note).then(|| {
            let message = mistakes.join("; ");
            log::warn!(object:% = self.kind.named(&rs.key); "{message}");
            message
        })
    }
}

impl Writer {
    pub(super) fn warn(&self, rs: &ReplicaSet, reason: &'static str, message: String) {
        log::warn!(object:% = self.kind.named(&rs.key); "{message}");
        self.pod_control.warn(rs, reason, message);
    }

    /// Reports annotations without effect, as [`Core::log_mistakes`] does: an event and a log line.
    pub(super) fn report_mistakes(&self, rs: &ReplicaSet) {
        if let Some(message) = self.log_mistakes(rs) {
            self.pod_control.warn(rs, INVALID_ANNOTATION, message);
        }
    }

    /// Reports that a Workload asks for gang scheduling: an event, a log line and a metric. Only of
    /// a scale-up from zero and once per generation, however often its creates are rejected, since
    /// this blocks for a list where Workloads are served.
    pub(super) fn report_gang_scheduling(&self, rs: &ReplicaSet, step: &Step) {
        let creates = step.acts() && matches!(step.plan, Plan::Create(_));
        if !creates || rs.status.replicas > 0 || !self.live.serves_workloads() {
            return;
        }
        let searched = self
            .memories
            .get(rs, |it| Some(it.history.gang_workload.as_ref()?.0));
        if searched.flatten() == Some(rs.generation) {
            return;
        }
        match self.live.gang_workload(rs) {
            Ok(workload) => {
                if let Some(workload) = &workload {
                    self.metrics.gangs_ignored.inc();
                    self.warn(rs, GANG_SCHEDULING_UNSUPPORTED, no_gang(workload));
                }
                let found = Some(Box::new((rs.generation, workload.map(Into::into))));
                self.memories
                    .with(rs, |it| it.history.gang_workload = found);
            }
            Err(error) => {
                let object = self.kind.named(&rs.key);
                log::debug!(object:%, error:%; "cannot list Workloads");
            }
        }
    }

    /// Reports marks of pods that cannot be understood, once per generation and only when a
    /// scale-down respects marks: an event and a log line.
    pub(super) fn report_unreadable_marks(&self, view: &View<'_>, step: &Step) {
        let scales_down = step.effects.block.is_some() || matches!(step.plan, Plan::Delete(_));
        if !scales_down || !view.rules.policy.scale_down_protection {
            return;
        }
        let is_unreadable = |pod: &&Arc<Pod>| pod.scale_down == ScaleDownMark::Unreadable;
        let mut unreadable = step.active.iter().filter(is_unreadable);
        let Some(first) = unreadable.next() else {
            return;
        };
        let (rs, count) = (view.rs, 1 + unreadable.count());
        let note = |it: &mut Memory| it.history.note_mistake(Mistake::Marks, rs.generation, 0);
        if !self.memories.with(rs, note) {
            return;
        }
        let name = &first.key.name;
        let message = format!(
            "ignoring the annotation {SCALE_DOWN} of {count} pods (such as {name}): expected never \
             or first"
        );
        self.warn(rs, INVALID_ANNOTATION, message);
    }

    /// Records an event if a block of a scale-down began, or passed its timeout, with this status.
    /// The stored condition shows that it was reported, so a restart causes no second event.
    pub(super) fn report_block(&self, rs: &ReplicaSet, updated: &ReplicaSetStatus) {
        fn shown(status: &ReplicaSetStatus) -> Option<&Condition> {
            status.conditions.iter().find(|it| is_block(it))
        }
        let Some(after) = shown(updated) else { return };
        let before = shown(&rs.status).and_then(|before| before.reason.as_ref());
        if before != after.reason.as_ref() {
            let event = match after.reason.as_deref() {
                Some(PROTECTED_TIMEOUT) => PROTECTED_TIMEOUT,
                _ => SCALE_DOWN_BLOCKED,
            };
            let message = after.message.clone().unwrap_or_default();
            log::info!(object:% = self.kind.named(&rs.key); "{event}: {message}");
            self.pod_control.warn(rs, event, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use allocation_counter::measure;
    use serde_json::{Value, json};

    use crate::api::{Pod, PodPhase, ScaleDownMark};
    use crate::controller::testing::{
        Fixture, fixture, owned_pod, read_replica_set, replica_set, replica_set_json,
    };

    /// A pod of one ReplicaSet fails, and the watch shows it twice.
    fn one_fails(fixture: &Fixture) {
        let rs = replica_set("web", 1);
        fixture.deliver_replica_set(rs.clone());
        fixture.deliver_pod(owned_pod("a", &rs));
        for version in ["2", "3"] {
            fixture.deliver_pod(Pod {
                resource_version: version.into(),
                phase: PodPhase::Failed,
                restarts: i32::from(version == "3"),
                ..owned_pod("a", &rs)
            });
        }
    }

    #[test]
    fn each_pod_that_fails_is_counted_once() {
        let fixture = Fixture::new();
        one_fails(&fixture);
        assert_eq!(fixture.metrics.pods_failed.get(), 1);
    }

    #[test]
    fn a_standby_counts_no_pods_that_fail() {
        let fixture = Fixture::new();
        fixture.controller.stand_by();
        one_fails(&fixture);
        assert_eq!(fixture.metrics.pods_failed.get(), 0);
    }

    #[test]
    fn unreadable_marks_are_reported_once_for_a_scale_down() {
        for (replicas, protection, n_warnings) in [(0, "on", 1), (0, "off", 0), (2, "on", 0)] {
            let mut object = replica_set_json("web", replicas);
            let annotation = "replicaset-controller/scale-down-protection";
            object["metadata"]["annotations"] = json!({annotation: protection});
            let rs = read_replica_set(&object);
            let marked = |name| Pod {
                scale_down: ScaleDownMark::Unreadable,
                ..owned_pod(name, &rs)
            };
            let fixture = fixture(&rs, ["a", "b"].map(marked));
            fixture.sync_ok("web");
            let messages = fixture.writes.take_warnings();
            assert_eq!(messages.len(), n_warnings, "{replicas} {protection}");
        }
    }

    #[test]
    fn mistakes_are_reported_once_per_generation() {
        let mut object = replica_set_json("web", 0);
        object["metadata"]["annotations"] = json!({
            "replicaset-controller/failed-pods-kept": "some",
            "replicaset-controller/scale-down-order": "spread",
        });
        let fixture = fixture(&read_replica_set(&object), []);
        let n_warnings = || fixture.writes.take_warnings().len();
        fixture.sync_ok("web");
        fixture.sync_ok("web");
        assert_eq!(n_warnings(), 1);
        object["metadata"]["annotations"]["replicaset-controller/failed-pods-kept"] = json!("3x");
        object["metadata"]["resourceVersion"] = json!("2");
        fixture.cache_silently(Some(read_replica_set(&object)), []);
        fixture.sync_ok("web");
        assert_eq!(n_warnings(), 1, "another mistake");
        object["metadata"]["generation"] = json!(2);
        object["metadata"]["resourceVersion"] = json!("2");
        fixture.cache_silently(Some(read_replica_set(&object)), []);
        fixture.sync_ok("web");
        assert_eq!(n_warnings(), 1);
    }

    #[test]
    fn ten_thousand_mistakes_take_as_little_as_ten() {
        let mut object = replica_set_json("web", 0);
        let annotations =
            (0..10_000).map(|i| (format!("replicaset-controller/a{i:05}"), "".into()));
        object["metadata"]["annotations"] = Value::Object(annotations.collect());
        let rs = read_replica_set(&object);
        let fixture = fixture(&rs, []);
        let spent = measure(|| fixture.writer().report_mistakes(&rs));
        assert!(spent.bytes_max < 64 << 10, "{spent:?}");
        let warnings = fixture.writes.take_warnings();
        assert!(
            warnings[0].ends_with("; 9990 more annotations replicaset-controller/* have no effect")
        );
    }
}
