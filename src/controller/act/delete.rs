//! Deletes pods.

use super::Writer;
use crate::api::{Pod, ReplicaSet, Uid};
use crate::controller::decide::deletion_order::age_ratios;
use crate::controller::decide::optional::respects_marks;
use crate::controller::decide::{Step, View};
use crate::controller::error::Did;
use crate::controller::{SyncError, outcome_of};
use crate::stdx::{thread, turns};
use crate::telemetry::metrics::controller::WriteOutcome;
use crate::writes::{Precondition, WriteError};

/// Deletes of one pod that one sync sends at most, each for a newer version.
const DELETE_TRIES_MAX: usize = 4;

/// How a delete without an error ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deleted {
    /// The API server deleted the pod.
    Success,
    /// The pod was terminating or gone.
    Gone,
    /// The pod has changed since it was chosen, so another sync must choose again.
    Superseded,
}

impl Writer {
    /// Deletes the chosen pods, all in one batch. Blocks until every request has ended.
    ///
    /// # Errors
    /// The first error.
    pub(super) fn delete_pods(&self, view: &View<'_>, step: &Step) -> Result<(), SyncError> {
        let rs = view.rs;
        let Step {
            active,
            delete: pods,
            ..
        } = step;
        let is_over = |uid: &&Uid| !active.iter().any(|pod| pod.uid == **uid);
        self.own_writes(rs, |writes| {
            for uid in view.record.unknown_deletions.iter().filter(is_over) {
                writes.deletion_resolved(uid);
            }
        });
        // ORDER: every deletion is expected before the first request, because its event may arrive
        // first.
        let uids = pods.iter().map(|pod| pod.uid.clone());
        self.expect(rs, [], uids);
        turns::reached("delete: expected, before the first request");
        self.note_first_request(rs);
        if pods.len() < active.len() {
            for ratio in age_ratios(active, pods, step.now) {
                self.metrics.sorting_deletion_age_ratio.observe(ratio);
            }
        }
        // A mark may be set after the choice. The API server then refuses a delete of the version
        // that was chosen.
        let precondition = if respects_marks(&view.rules.policy) {
            Precondition::SameVersion
        } else {
            Precondition::None
        };
        let delete = |index: usize| {
            let deleted = self.delete_pod_of(rs, &pods[index], precondition)?;
            Ok(!matches!(deleted, Deleted::Superseded))
        };
        let _batch = thread::enter("waits for a batch of deletes", pods.len());
        self.run_batch(rs, (Did::Deleted, pods.len(), pods.len()), &delete)
    }

    /// Deletes one pod. Its expectation stays if and only if the watch will show the deletion.
    fn delete_pod_of(
        &self,
        rs: &ReplicaSet,
        pod: &Pod,
        precondition: Precondition,
    ) -> Result<Deleted, WriteError> {
        let _job = thread::enter("deletes a pod of", &rs.key);
        let deleted = self.try_delete(rs, pod, precondition);
        self.queue.progressed(&rs.key);
        self.metrics.pods_deleted.count(match &deleted {
            Ok(Deleted::Success) => WriteOutcome::Success,
            Ok(Deleted::Gone | Deleted::Superseded) => WriteOutcome::Moot,
            Err(error) => outcome_of(error),
        });
        if !matches!(deleted, Ok(Deleted::Success | Deleted::Gone)) {
            if deleted.as_ref().is_err_and(WriteError::is_unknown) {
                self.deletion_is_unknown(rs, pod);
            }
            self.own_writes(rs, |writes| writes.deletion_failed(&pod.uid));
            return deleted;
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
        deleted
    }

    /// Sends the delete, and sends it again for a newer version if nothing has changed that the
    /// choice of this pod depends on.
    fn try_delete(
        &self,
        rs: &ReplicaSet,
        chosen: &Pod,
        precondition: Precondition,
    ) -> Result<Deleted, WriteError> {
        let mut newer: Option<Pod> = None;
        let mut tries = 1;
        loop {
            let pod = newer.as_ref().unwrap_or(chosen);
            let conflict = match self.pod_control.delete_pod(rs, pod, precondition) {
                Ok(()) => return Ok(Deleted::Success),
                // DIFFERS: upstream drops the expectation of a pod that is not found. While the
                // cache still shows that pod, its next sync may delete another one in its place.
                Err(error) if error.is_not_found() => return Ok(Deleted::Gone),
                Err(error) if error.is_conflict() => error,
                Err(error) => return Err(error),
            };
            let Some(live) = self.find_conflicting(rs, pod)? else {
                return Ok(Deleted::Gone);
            };
            let expected = precondition.version_of(pod);
            // Without a change the conflict is a refusal: an admission webhook may use any code.
            let is_changed = expected.is_some_and(|expected| *expected != live.resource_version);
            let is_superseded = is_changed && !live.differs_in_version_only(chosen);
            if is_superseded && self.will_show(rs, chosen, &live) {
                return Ok(Deleted::Superseded);
            }
            if is_superseded || !is_changed || tries == DELETE_TRIES_MAX {
                self.pod_control.warn_of_failed_delete(rs, &conflict);
                return Err(conflict);
            }
            newer = Some(live);
            tries += 1;
        }
    }

    fn deletion_is_unknown(&self, rs: &ReplicaSet, pod: &Pod) {
        let now = self.clock.now();
        self.own_writes(rs, |writes| writes.deletion_is_unknown(&pod.uid, now));
    }

    /// Reads a pod whose delete failed with a conflict. `None` if it is terminating or gone, or was
    /// recreated. Blocks for one LIST.
    fn find_conflicting(&self, rs: &ReplicaSet, pod: &Pod) -> Result<Option<Pod>, WriteError> {
        match self.live.find_pod(rs, &pod.key.name) {
            Ok(live) => Ok(live.filter(|live| live.uid == pod.uid && live.is_active())),
            Err(error) => {
                // The pod may be gone, so the next sync must not choose another one.
                self.deletion_is_unknown(rs, pod);
                Err(error)
            }
        }
    }

    /// True if the cache has changed since the choice of `chosen`, or if the next sync waits until
    /// it shows `live`. Otherwise only the back-off bounds the choices: without the gate of that
    /// wait, and after a restore from a backup, which the pod watch may never show.
    fn will_show(&self, rs: &ReplicaSet, chosen: &Pod, live: &Pod) -> bool {
        let version = &live.resource_version;
        // ORDER: the position is read first, so a cache that has reached `live` shows it below.
        if self.cache.pods_resource_version().is_as_new_as(version) {
            let cached = self.cache.pod(&chosen.key);
            return cached.is_none_or(|cached| cached.resource_version != chosen.resource_version);
        }
        let waits = self.options.gates.stale_controller_consistency;
        if waits {
            self.wrote_pod(rs, version);
        }
        waits
    }
}

#[cfg(test)]
mod tests;
