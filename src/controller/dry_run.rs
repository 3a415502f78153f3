//! A sync that decides and writes nothing: `--dry-run`. What it would do goes to the [`Shadow`], which
//! says it once and compares it with what another writer then does.
//!
//! It decides by the functions that ship: [`claim`](super::claim), [`plan`](super::plan),
//! [`calculate_status`]. Expectations stay empty, since nothing is written that could be waited for.

use std::cmp::Ordering;
use std::sync::Arc;

use super::ReplicaSetController;
use super::availability::Availability;
use super::claim::{Claim, decide};
use super::counts::Counts;
use super::deletion_order::{RankedPod, compare};
use super::plan::{DeletionContext, Plan, deletion_ranking, plan, pods_to_delete};
use super::shadow::{Decision, Shadow, WINDOW};
use super::status::{Observation, calculate_status};
use crate::api::conditions::{REPLICA_FAILURE, get_condition, set_condition};
use crate::api::{OwnerKey, Pod, ReplicaSet, Selector};

impl ReplicaSetController {
    /// The same controller, which from now on only decides.
    #[must_use]
    pub fn only_deciding(mut self, shadow: Arc<Shadow>) -> Self {
        self.shadow = Some(shadow);
        self
    }

    /// Decides for `rs` and tells the shadow. Sends nothing.
    pub(super) fn decide_only(&self, rs: &Arc<ReplicaSet>, selector: &Selector, shadow: &Shadow) {
        let owner = OwnerKey::new(self.kind.kind, &rs.key, &rs.uid);
        let owned = self.cache.pods_owned_by(&owner);
        let orphans = self.cache.orphans_in(&rs.key.namespace);
        let (mut active, mut adopts, mut releases) = (Vec::new(), Vec::new(), Vec::new());
        for pod in owned.iter().chain(&orphans).filter(|pod| pod.is_active()) {
            match decide(rs, selector, pod) {
                Claim::Keep => active.push(Arc::clone(pod)),
                Claim::Adopt => {
                    adopts.push(Arc::clone(pod));
                    active.push(Arc::clone(pod));
                }
                Claim::Release => releases.push(Arc::clone(pod)),
                Claim::Ignore => {}
            }
        }
        let mut wanted = plan(active.len(), rs.replicas, self.burst_replicas);
        if rs.is_terminating() {
            wanted = Plan::Nothing;
        }
        let now = self.clock.wall();
        let terminating = self.count_terminating(&owned, selector);
        let observation = Observation {
            counts: Counts::of_pods(rs, &active, terminating, now),
            failure: None,
            now,
        };
        let mut status = calculate_status(rs, &observation);
        // Only who writes learns of refusals, so that condition is taken for right.
        if let Some(failure) = get_condition(&rs.status.conditions, REPLICA_FAILURE) {
            set_condition(&mut status.conditions, failure.clone());
        }
        let is_written = rs.status == status && rs.generation == rs.status.observed_generation;
        let next_check = || Availability::of(&active, rs.min_ready_seconds, now).next_check;
        self.plan_availability_check(rs, next_check, &observation);
        let (deletes, ties) = self.choose_deletions(rs, selector, &active, wanted);
        let decision = Decision {
            deletes,
            ties,
            plan: wanted,
            active: active.clone(),
            ended: ended(&owned),
            adopts,
            releases,
            status: (!is_written).then_some(status),
        };
        if shadow.decided(rs, &decision) {
            // Another writer that does nothing sends no event.
            self.queue.add_after(rs.key.clone(), WINDOW);
        }
    }

    /// The pods to delete, and those that no rule tells from the last of them.
    fn choose_deletions(
        &self,
        rs: &ReplicaSet,
        selector: &Selector,
        active: &[Arc<Pod>],
        wanted: Plan,
    ) -> (Vec<Arc<Pod>>, Vec<Arc<Pod>>) {
        let Plan::Delete(count) = wanted else {
            return (Vec::new(), Vec::new());
        };
        let context = DeletionContext {
            related_pods: &self.siblings(rs, selector),
            unresolved: &[],
            order: self.deletion_order(),
        };
        let chosen = pods_to_delete(active, count, &context);
        let order = deletion_ranking(active, &context);
        let last = chosen.last().map(|pod| &pod.uid);
        let last = order.iter().find(|ranked| Some(&ranked.pod.uid) == last);
        let is_tied = |ranked: &&RankedPod| {
            last.is_some_and(|last| compare(ranked, last, context.order) == Ordering::Equal)
        };
        let ties = order.iter().filter(is_tied);
        (chosen, ties.map(|ranked| Arc::clone(&ranked.pod)).collect())
    }
}

/// Pods that have ended by themselves, and so were deleted by nobody.
fn ended(owned: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
    let has_ended = |pod: &&Arc<Pod>| !pod.is_active() && !pod.is_terminating();
    owned.iter().filter(has_ended).cloned().collect()
}
