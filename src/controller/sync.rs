//! One sync of one ReplicaSet, from key to status
//! (kubernetes `pkg/controller/replicaset/replica_set.go:syncReplicaSet`, whose steps the comments
//! name).

use super::act::Writer;
use super::decide::May;
use super::decide::plan::{LARGE, Next};
use super::memory::history::SyncEnd;
use super::{ReplicaSetController, SyncError};
use crate::api::ObjectKey;
use crate::stdx::turns;

impl ReplicaSetController {
    /// Claims the pods of a ReplicaSet, creates or deletes pods, and writes the status. The queue
    /// never runs one key on two threads at once. Blocks for the requests.
    ///
    /// # Errors
    /// The first failure. The caller must requeue the key with back-off.
    pub(super) fn sync_replica_set(
        &self,
        key: &ObjectKey,
        writer: &Writer,
    ) -> Result<SyncEnd, SyncError> {
        // EnsureReady, SatisfiedExpectations: read before the objects, judged by `decide`.
        let began = self.clock.now();
        let record = self.capture_record(key);
        turns::reached("sync: between the record and the ReplicaSet");
        // ReplicaSets(namespace).Get: if it is gone, only its record remains to clean up.
        let Some(rs) = self.cache.replica_sets.get(key) else {
            self.memories.forget(key, None);
            return Ok(SyncEnd::Synced);
        };
        // LabelSelectorAsSelector: no retry repairs a bad one, so the sync succeeds, as upstream's.
        let Ok(selector) = &rs.selector else {
            self.log_unusable_selector(&rs);
            return Ok(SyncEnd::Synced);
        };
        // GetPodsForOwner: the pods, or their counts where these suffice. `decide` filters them.
        let view = self.view(&rs, selector, record);
        let mut step = view.decide();
        if self.wait_or_verify(writer, &view, &step, began)? {
            return Ok(SyncEnd::TooEarly);
        }
        // Before another writer's pod is deleted: its managedFields name that writer.
        writer.report_other_writer(&rs);
        writer.report_mistakes(&rs);
        // A large sync without a permit only writes the status, which may not show lost pods yet.
        let waits_for_permit =
            step.acts() && step.plan.n_pods() >= LARGE && !self.queue.begin_large(key);
        // claimPods: a pod that could not be adopted must not count as a replica.
        let gone = writer.claim_pods(&view, &step)?;
        if !gone.is_empty() {
            step = view.decide_without(&gone);
            if self.wait_or_verify(writer, &view, &step, began)? {
                return Ok(SyncEnd::TooEarly);
            }
        }
        if waits_for_permit {
            step.may = May::Report(None);
        }
        writer.report_unreadable_marks(&view, &step);
        // manageReplicas.
        let managed = writer.manage_replicas(&view, &step);
        writer.note_creates(&view, &step, &managed);
        // The daemon stops or has lost its lease, so it sends no status either.
        if managed.as_ref().is_err_and(SyncError::is_stopped) {
            return managed.map(|()| SyncEnd::Synced);
        }
        writer.report_gang_scheduling(&rs, &step);
        // calculateStatus, updateReplicaSetStatus: also after a failure, which the status reports.
        let failure = match &managed {
            Err(error) => Some(writer.failure(step.plan, &error.to_string())),
            Ok(()) => writer.lasting_failure(&rs, &step),
        };
        let reported = failure.as_ref();
        let reported = reported.filter(|_| !writer.is_postponed(&rs, managed.as_ref().err()));
        if let (Some(_), Err(error)) = (reported, &managed) {
            writer.report_postponed(&rs, error);
        }
        let mut next = step.next(&rs, began);
        self.note_backed_off(&rs, &step);
        let written = writer.sync_status(&rs, &step, reported, &mut next);
        let ended = managed.and(written);
        writer.delete_old_failed_pods(&rs, &step, ended.is_err(), &mut next);
        if let Err(error) = ended {
            // The retry does everything else.
            let mut next = Next::default();
            step.effects.add_next(began, &mut next);
            self.requeue(key, next);
            return Err(error);
        }
        // enqueueReplicaSetAfter.
        self.next_after_own_writes(key, &step, &mut next);
        self.requeue(key, next);
        if step.has_converged() {
            self.note_converged(&rs);
        }
        Ok(if waits_for_permit {
            SyncEnd::TooEarly
        } else if failure.is_some() {
            SyncEnd::BackedOff
        } else {
            SyncEnd::Synced
        })
    }
}

#[cfg(test)]
mod tests;
