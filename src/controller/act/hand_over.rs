//! Hand-over of large syncs: what a worker for small syncs does before it leaves a ReplicaSet with
//! much work to another worker.

use std::sync::Arc;

use log::Level;

use crate::api::{ReplicaSet, ReplicaSetStatus, Uid};
use crate::controller::ReplicaSetController;
use crate::controller::decide::status::calculate_status;
use crate::controller::decide::{Decision, Facts};
use crate::stdx::hash::HashSet;

impl ReplicaSetController {
    /// Hands `rs` over to a worker for large syncs, and first writes the status if it hides a loss.
    /// That status keeps the observed generation and the conditions, because the spec is not acted
    /// on yet. If the write fails, the pods are created all the same: the large sync writes the
    /// status again.
    pub(in crate::controller) fn hand_over(
        &self,
        rs: &Arc<ReplicaSet>,
        facts: &Facts<'_>,
        decision: &Decision,
    ) {
        // This sync adopts no pod.
        let adopt: HashSet<Uid> = decision.adopt.iter().map(|pod| pod.uid.clone()).collect();
        let counts = if adopt.is_empty() {
            decision.counts
        } else {
            facts.decide_without(&adopt).counts
        };
        if self.comparable(rs, counts).show_loss(rs) {
            let status = ReplicaSetStatus {
                observed_generation: rs.status.observed_generation,
                conditions: rs.status.conditions.clone(),
                ..calculate_status(rs, &counts, None)
            };
            match self.update_replica_set_status(rs, status) {
                Ok(updated) => self.record_replica_set(&updated),
                Err(error) => {
                    let object = self.kind.named(&rs.key);
                    // The stop ends the large sync, too.
                    let level = if error.is_stopped() {
                        Level::Debug
                    } else {
                        Level::Warn
                    };
                    log::log!(level, object:%, error:%; "the status does not show a loss yet");
                }
            }
        }
    }
}
