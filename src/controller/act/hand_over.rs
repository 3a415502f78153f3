//! Syncs with many pods to create, delete, adopt or release: what a worker for small work does before it
//! leaves the ReplicaSet to a worker for large work.

use std::sync::Arc;

use crate::api::{ReplicaSet, ReplicaSetStatus, Selector};
use crate::controller::decide::Pods;
use crate::controller::decide::status::calculate_status;
use crate::controller::sync::Outcome;
use crate::controller::{ReplicaSetController, SyncError};

impl ReplicaSetController {
    /// Leaves `rs` to a worker for large work, and writes a loss before that worker comes to it. The
    /// spec counts as observed, and an earlier failure as mended, only after that. A status that
    /// cannot be written does not keep the pods from being created: the large sync writes it again.
    ///
    /// # Errors
    /// That the daemon stops.
    pub(in crate::controller) fn hand_over(
        &self,
        rs: &Arc<ReplicaSet>,
        selector: &Selector,
    ) -> Result<Outcome, SyncError> {
        let facts = self.facts(
            rs,
            selector,
            Pods::Listed {
                owned: self.cache.pods_owned_by(&self.owner_key(rs)),
                // None is adopted here.
                orphans: Vec::new(),
            },
        );
        let decision = facts.decide();
        if self.comparable(rs, decision.counts).are_a_loss(rs) {
            let status = ReplicaSetStatus {
                observed_generation: rs.status.observed_generation,
                conditions: rs.status.conditions.clone(),
                ..calculate_status(rs, &decision.counts, None)
            };
            match self.update_replica_set_status(rs, status) {
                Ok(updated) => self.record_replica_set(&updated),
                Err(error) if error.is_stopped() => return Err(error),
                Err(error) => {
                    let object = self.kind.named(&rs.key);
                    log::warn!(object:%, error:%; "the status does not show a loss yet");
                }
            }
        }
        Ok(Outcome::TooLarge)
    }
}
