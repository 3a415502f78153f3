//! Opt-in annotations: which apply to a ReplicaSet, and a report of those that cannot be
//! understood.

use crate::api::{Policy, ReplicaSet};
use crate::controller::ReplicaSetController;
use crate::controller::memory::Memory;

impl ReplicaSetController {
    /// What `rs` opts in to.
    pub(in crate::controller) fn policy_of(&self, rs: &ReplicaSet) -> Policy {
        Policy::of(&rs.opt_ins, &self.options.policy)
    }

    /// Reports annotations without effect, once per generation: an event and a log line.
    pub(in crate::controller) fn report_mistakes(&self, rs: &ReplicaSet) {
        let mistakes = Policy::mistakes(&rs.opt_ins);
        if mistakes.is_empty() {
            return;
        }
        let note = |memory: &mut Memory| memory.history.note_mistakes(rs.generation);
        if !self.memories.with(&rs.key, &rs.uid, note) {
            return;
        }
        let mistakes: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        let message = mistakes.join("; ");
        log::warn!(object:% = self.kind.named(&rs.key); "{message}");
        self.pod_control.warn(rs, "InvalidAnnotation", message);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::controller::testing::{fixture, read_replica_set, replica_set_json};

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
        object["metadata"]["generation"] = json!(2);
        object["metadata"]["resourceVersion"] = json!("2");
        fixture.cache_silently(Some(read_replica_set(&object)), []);
        fixture.sync_ok("web");
        assert_eq!(n_warnings(), 1);
    }
}
