//! Deletes pods.

use crate::api::{Pod, ReplicaSet};
use crate::batches::run_all;
use crate::controller::decide::Decision;
use crate::controller::decide::age_ratio::age_ratios;
use crate::controller::{ReplicaSetController, SyncError, outcome_of};
use crate::stdx::activity;
use crate::stdx::turns;
use crate::telemetry::metrics::controller::WriteOutcome;
use crate::writes::{Precondition, WriteError};

impl ReplicaSetController {
    /// Deletes the chosen pods, all in one batch. Blocks until every request has ended.
    ///
    /// # Errors
    /// The first error.
    pub(super) fn delete_pods(
        &self,
        rs: &ReplicaSet,
        decision: &Decision,
    ) -> Result<(), SyncError> {
        let Decision {
            active,
            delete: pods,
            ..
        } = decision;
        // ORDER: every deletion is expected before the first request, because its event may arrive
        // first.
        let uids = pods.iter().map(|pod| pod.uid.clone());
        self.expect(rs, [], uids);
        turns::reached("delete: expected, before the first request");
        self.note_first_request(rs);
        if pods.len() < active.len() {
            for ratio in age_ratios(active, pods, decision.now) {
                self.metrics.sorting_deletion_age_ratio.observe(ratio);
            }
        }
        let delete = |index: usize| self.delete_pod_of(rs, &pods[index]);
        let _batch = activity::enter("waits for a batch of deletes", pods.len());
        let (deleted, result) = run_all(pods.len(), &*self.batches, &delete);
        self.log_batch(rs, "deleted", (deleted, pods.len()), &result);
        result.map_err(SyncError::Delete)
    }

    /// Deletes one pod. Its expectation stays if and only if the watch will show the deletion.
    fn delete_pod_of(&self, rs: &ReplicaSet, pod: &Pod) -> Result<(), WriteError> {
        let _job = activity::enter("deletes a pod of", &rs.key);
        let deleted = match self.pod_control.delete_pod(rs, pod, Precondition::None) {
            // DIFFERS: upstream drops the expectation of a pod that is not found. While the cache
            // still shows that pod, its next sync may delete another one in its place.
            Err(error) if error.is_not_found() => Ok(WriteOutcome::Moot),
            Err(error) if error.is_conflict() => self.resolve_delete_conflict(rs, pod, error),
            result => result.map(|()| WriteOutcome::Success),
        };
        self.metrics.pods_deleted.count(match &deleted {
            Ok(outcome) => *outcome,
            Err(error) => outcome_of(error),
        });
        if let Err(error) = deleted {
            if error.is_unknown() {
                self.deletion_is_unknown(rs, pod);
            }
            self.own_writes(rs, |writes| writes.deletion_failed(&pod.uid));
            return Err(error);
        }
        // The event may precede the expectation, and the next one may be long in coming: a pod can
        // take long to terminate.
        let cached = self.cache.pod(&pod.key);
        let is_seen = !cached.is_some_and(|cached| cached.uid == pod.uid && cached.is_active());
        self.own_writes(rs, |writes| {
            writes.deletion_resolved(&pod.uid);
            if is_seen {
                writes.deletion_seen(&pod.uid);
            }
        });
        Ok(())
    }

    fn deletion_is_unknown(&self, rs: &ReplicaSet, pod: &Pod) {
        let now = self.clock.now();
        self.own_writes(rs, |writes| writes.deletion_is_unknown(&pod.uid, now));
    }

    /// Resolves a delete that failed with a conflict: the pod was recreated, or an admission
    /// webhook refused with that code. Blocks for one LIST.
    fn resolve_delete_conflict(
        &self,
        rs: &ReplicaSet,
        pod: &Pod,
        conflict: WriteError,
    ) -> Result<WriteOutcome, WriteError> {
        match self.live.find_pod(rs, &pod.key.name) {
            Ok(Some(live)) if live.uid == pod.uid && live.is_active() => {
                self.pod_control.warn_of_failed_delete(rs, &conflict);
                Err(conflict)
            }
            Ok(_) => Ok(WriteOutcome::Moot),
            Err(error) => {
                // The pod may be gone, so the next sync must not choose another one.
                self.deletion_is_unknown(rs, pod);
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests;
