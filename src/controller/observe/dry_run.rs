//! A sync that decides and writes nothing: `--dry-run`. The decision goes to the [`Shadow`], which
//! logs it once and compares it with the actions of another writer.
//!
//! It uses the decision function that ships ([`Facts::decide`]). Expectations stay empty, because
//! it writes nothing.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::api::{ObjectKey, Pod};
use crate::controller::decide::deletion_order::{RankedPod, compare};
use crate::controller::decide::plan::deletion_ranking;
use crate::controller::decide::protection::show_block;
use crate::controller::decide::scale_down_order::Places;
use crate::controller::decide::status::calculate_status;
use crate::controller::decide::{Decision, Facts, Pods};
use crate::controller::observe::shadow::{Intent, Shadow, WINDOW};
use crate::controller::{Mode, ReplicaSetController};

impl ReplicaSetController {
    /// Turns this controller into one that decides and writes nothing.
    #[must_use]
    pub fn only_deciding(mut self, shadow: Arc<Shadow>) -> Self {
        self.mode = Mode::DryRun(shadow);
        self
    }

    /// Decides for the ReplicaSet `key` and passes the decision to the shadow. Sends no request.
    pub(in crate::controller) fn dry_run(&self, key: &ObjectKey, shadow: &Shadow) {
        let Some(rs) = self.cache.replica_set(key) else {
            self.memories.forget(key, None);
            return shadow.forget(key);
        };
        let Ok(selector) = &rs.selector else {
            return self.log_unusable_selector(&rs);
        };
        self.report_mistakes(&rs);
        let owner = self.owner_key(&rs);
        let [owned, orphans] = self.cache.pods_for(&owner, &rs.key.namespace);
        let ended = ended(&owned);
        let facts = self.facts(&rs, selector, Pods::Listed { owned, orphans });
        let decision = facts.decide();
        let mut status = calculate_status(&rs, &decision.counts, None);
        // Only the writer learns of failures, so the stored condition is taken as right.
        status.conditions.clone_from(&rs.status.conditions);
        show_block(&mut status, &rs, decision.block.as_ref());
        // Nor does a dry run learn whether the API server keeps this count.
        if rs.status.terminating_replicas.is_none() {
            status.terminating_replicas = None;
        }
        let is_written = rs.status == status && rs.generation == rs.status.observed_generation;
        self.schedule_availability_check(&rs, &decision);
        self.note_held_back(&rs, &decision);
        self.schedule_back_off(&rs, &decision);
        self.schedule_end_of_block(&rs, &decision);
        if let Some(next) = decision.leftovers.next_in {
            self.queue.add_low_after(rs.key.clone(), next);
        }
        let intent = Intent {
            ties: ties(&facts, &decision),
            ended,
            status: (!is_written).then_some(status),
            decision,
        };
        if shadow.decided(self.kind, &rs, &intent) {
            // No event arrives if the other writer does nothing.
            self.queue.add_after(rs.key.clone(), WINDOW);
        }
    }
}

/// Returns the pods that no rule and no preference distinguishes from the last one to delete.
fn ties(facts: &Facts<'_>, decision: &Decision) -> Vec<Arc<Pod>> {
    let Some(last) = decision.delete.last() else {
        return Vec::new();
    };
    let context = facts.deletion_context(decision.block.as_ref());
    let order = deletion_ranking(&decision.active, &context);
    let last = order.iter().find(|ranked| ranked.pod.uid == last.uid);
    let places = Places::of(&decision.active, context.preferences);
    let is_tied = |ranked: &&RankedPod| {
        last.is_some_and(|last| {
            compare(ranked, last, context.order) == Ordering::Equal
                && places.are_equal(&ranked.pod, &last.pod)
        })
    };
    let ties = order.iter().filter(is_tied);
    ties.map(|ranked| Arc::clone(&ranked.pod)).collect()
}

/// Returns the pods that finished by themselves, and so were not deleted by a client.
fn ended(owned: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
    let has_ended = |pod: &&Arc<Pod>| !pod.is_active() && !pod.is_terminating();
    owned.iter().filter(has_ended).cloned().collect()
}
