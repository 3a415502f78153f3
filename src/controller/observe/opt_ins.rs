//! Opt-in annotations: which apply to a ReplicaSet, and reports of those that cannot be understood
//! and of scale-downs that protected pods block.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use crate::api::conditions::{Condition, SCALE_DOWN_BLOCKED};
use crate::api::opt_ins::SCALE_DOWN;
use crate::api::{Pod, Policy, ReplicaSet, ReplicaSetStatus, ScaleDownMark, WorkloadKind};
use crate::controller::act::Writer;
use crate::controller::decide::optional::protection::{PROTECTED_TIMEOUT, is_block};
use crate::controller::decide::plan::Plan;
use crate::controller::decide::{Step, View};
use crate::controller::memory::{Memories, Memory};

/// Reason of the event about an annotation without effect.
const INVALID_ANNOTATION: &str = "InvalidAnnotation";

/// Logs annotations without effect, once per generation and text. Returns what it logged. No change
/// of an annotation changes the generation.
pub(in crate::controller) fn log_mistakes(
    kind: &WorkloadKind,
    memories: &Memories,
    rs: &ReplicaSet,
) -> Option<String> {
    let mistakes = Policy::mistakes(&rs.opt_ins);
    if mistakes.is_empty() {
        return None;
    }
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&mistakes);
    let note = |memory: &mut Memory| memory.history.note_mistakes(rs.generation, hash);
    if !memories.with(&rs.key, &rs.uid, note) {
        return None;
    }
    let message = mistakes.join("; ");
    log::warn!(object:% = kind.named(&rs.key); "{message}");
    Some(message)
}

impl Writer {
    /// Reports annotations without effect, as [`log_mistakes`] does: an event and a log line.
    pub(in crate::controller) fn report_mistakes(&self, rs: &ReplicaSet) {
        if let Some(message) = log_mistakes(self.kind, &self.memories, rs) {
            self.pod_control.warn(rs, INVALID_ANNOTATION, message);
        }
    }

    /// Reports marks of pods that cannot be understood, once per generation and only when a
    /// scale-down respects marks: an event and a log line.
    pub(in crate::controller) fn report_unreadable_marks(&self, view: &View<'_>, step: &Step) {
        let scales_down = step.opt_ins.block.is_some() || matches!(step.plan, Plan::Delete(_));
        if !scales_down || !view.rules.policy.scale_down_protection {
            return;
        }
        let is_unreadable = |pod: &&Arc<Pod>| pod.scale_down == ScaleDownMark::Unreadable;
        let mut unreadable = step.active.iter().filter(is_unreadable);
        let Some(first) = unreadable.next() else {
            return;
        };
        let (rs, count) = (view.rs, 1 + unreadable.count());
        let note = |memory: &mut Memory| memory.history.note_unreadable_marks(rs.generation);
        if !self.memories.with(&rs.key, &rs.uid, note) {
            return;
        }
        let name = &first.key.name;
        let message = format!(
            "the annotation {SCALE_DOWN} of {count} pods, such as {name}, has no effect: expected \
             never or first"
        );
        log::warn!(object:% = self.kind.named(&rs.key); "{message}");
        self.pod_control.warn(rs, INVALID_ANNOTATION, message);
    }

    /// Records an event if a block of a scale-down began, or passed its timeout, with this status.
    /// The stored condition tells, so there is one event however often the daemon restarts.
    pub(in crate::controller) fn report_block(&self, rs: &ReplicaSet, updated: &ReplicaSetStatus) {
        let shown = |status: &ReplicaSetStatus| {
            let mut conditions = status.conditions.iter();
            conditions.find(|condition| is_block(condition)).cloned()
        };
        let (before, after) = (shown(&rs.status), shown(updated));
        let Some(Condition {
            reason: Some(reason),
            message: Some(message),
            ..
        }) = after
        else {
            return;
        };
        if before.and_then(|before| before.reason).as_ref() != Some(&reason) {
            let event = match &*reason {
                PROTECTED_TIMEOUT => PROTECTED_TIMEOUT,
                _ => SCALE_DOWN_BLOCKED,
            };
            log::info!(object:% = self.kind.named(&rs.key); "{event}: {message}");
            self.pod_control.warn(rs, event, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use allocation_counter::measure;
    use serde_json::{Value, json};

    use crate::api::{Pod, ScaleDownMark};
    use crate::controller::testing::{fixture, owned_pod, read_replica_set, replica_set_json};

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
            let told = fixture.writes.take_warnings();
            assert_eq!(told.len(), n_warnings, "{replicas} {protection}");
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
