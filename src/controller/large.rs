//! Syncs with many pods to create, delete, adopt or release: how a worker for small work recognizes
//! one, and what it does before it leaves the ReplicaSet to a worker for large work.

use std::sync::Arc;

use super::counts::Counts;
use super::plan::{LARGE, plan};
use super::status::{Observation, calculate_status};
use super::sync::Outcome;
use super::{ReplicaSetController, SyncError};
use crate::api::{Pod, ReplicaSet, ReplicaSetStatus, Selector};

impl ReplicaSetController {
    /// Whether this sync would create, delete, adopt or release many pods.
    pub(super) fn is_large(
        &self,
        rs: &ReplicaSet,
        selector: &Selector,
        needs_sync: bool,
        owned: &[Arc<Pod>],
        orphans: &[Arc<Pod>],
    ) -> bool {
        let n = |pods: &[Arc<Pod>], is_ours: bool| {
            let counts =
                |pod: &&Arc<Pod>| pod.is_active() && selector.matches(&pod.labels) == is_ours;
            pods.iter().filter(counts).count()
        };
        let (n_kept, n_released, n_adopted) = (n(owned, true), n(owned, false), n(orphans, true));
        let acts = needs_sync && !rs.is_terminating();
        let plan = plan(n_kept + n_adopted, rs.replicas, self.burst_replicas);
        n_released + n_adopted >= LARGE || (acts && plan.n_pods() >= LARGE)
    }

    /// Leaves `rs` to a worker for large work, and writes a loss before that worker comes to it. The
    /// spec counts as observed, and an earlier failure as mended, only after that. A status that
    /// cannot be written does not keep the pods from being created: the large sync writes it again.
    ///
    /// # Errors
    /// That the daemon stops.
    pub(super) fn hand_over(
        &self,
        rs: &Arc<ReplicaSet>,
        selector: &Selector,
        owned: &[Arc<Pod>],
    ) -> Result<Outcome, SyncError> {
        let is_ours = |pod: &&Arc<Pod>| pod.is_active() && selector.matches(&pod.labels);
        let active: Vec<Arc<Pod>> = owned.iter().filter(is_ours).cloned().collect();
        let now = self.clock.wall();
        let terminating = self.count_terminating(owned, selector);
        let observation = Observation {
            counts: Counts::of_pods(rs, &active, terminating, now),
            failure: None,
            now,
        };
        if self.comparable(rs, observation.counts).are_a_loss(rs) {
            let status = ReplicaSetStatus {
                observed_generation: rs.status.observed_generation,
                conditions: rs.status.conditions.clone(),
                ..calculate_status(rs, &observation)
            };
            match self.update_replica_set_status(rs, status) {
                Ok(updated) => self.record_replica_set(&updated),
                Err(error) if error.is_stopped() => return Err(error),
                Err(error) => {
                    let object = self.kind.named(&rs.key);
                    log::warn!(object:%; "the status does not show a loss yet: {error}");
                }
            }
        }
        Ok(Outcome::TooLarge)
    }
}
