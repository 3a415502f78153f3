//! Deletes old Failed pods. They do not count as replicas, so a sync does not wait for them and
//! does not fail with them.

use std::time::Duration;

use super::Writer;
use super::manage::{Deleted, outcome_of_delete};
use crate::api::{Pod, ReplicaSet};
use crate::controller::decide::Step;
use crate::controller::decide::plan::Next;
use crate::writes::WriteError;

/// Maximum old Failed pods that one sync deletes, one after the other, so that the worker soon
/// serves other keys.
const PER_SYNC: usize = 8;

/// Pause before the next ones of the same ReplicaSet. The watch shows the deletions meanwhile.
const PAUSE: Duration = Duration::from_millis(500);

/// Delay after a delete was rejected, or if all deletes of a sync met a conflict.
const REJECTED_PAUSE: Duration = Duration::from_mins(1);

impl Writer {
    /// Deletes some old Failed pods of `rs`, unless creates and deletes that the ReplicaSets need
    /// take up the rate limit, and adds the time of the others to `next`. If the sync has failed,
    /// its retry deletes the others. Blocks for one request each.
    pub(in crate::controller) fn delete_old_failed_pods(
        &self,
        rs: &ReplicaSet,
        step: &Step,
        has_failed: bool,
        next: &mut Next,
    ) {
        let old = step.effects.extra_deletes();
        if old.is_empty() {
            return;
        }
        let now = self.clock.now();
        let not_before = self
            .memories
            .get(rs, |it| it.next_old_failed_pods)
            .flatten();
        if let Some(at) = not_before.filter(|at| *at > now) {
            return next.to_report(at);
        }
        // The requests for the replicas themselves come first.
        let n_spare = if step.acts() && !has_failed {
            0
        } else {
            self.pod_control.n_spare_requests()
        };
        let count = old.len().min(PER_SYNC).min(n_spare);
        let object = self.kind.named(&rs.key);
        let (mut n_deleted, mut n_changed, mut pause) = (0, 0, PAUSE);
        for pod in &old[..count] {
            match self.delete_old_failed_pod(rs, pod) {
                Ok(Deleted::Success) => n_deleted += 1,
                Ok(Deleted::Gone) => {}
                Ok(Deleted::Superseded) => n_changed += 1,
                // The lease renewal may just be late; retry.
                Err(WriteError::Stopped) => return next.to_report(now + PAUSE),
                Err(error) => {
                    log::warn!(
                        object:%, error:%;
                        "cannot delete old Failed pod {}; retrying in a minute",
                        pod.key.name
                    );
                    pause = REJECTED_PAUSE;
                    break;
                }
            }
        }
        if n_deleted > 0 {
            log::info!(
                object:%, deleted = n_deleted, wanted = old.len();
                "deleted {n_deleted} of {} old Failed pods",
                old.len()
            );
        }
        // A webhook may reject every delete as a conflict.
        if count > 0 && n_changed == count {
            pause = REJECTED_PAUSE;
        }
        self.memories
            .with(rs, |it| it.next_old_failed_pods = Some(now + pause));
        if count < old.len() || pause == REJECTED_PAUSE {
            next.to_report(now + pause);
        }
    }

    /// Deletes one pod unless it has changed since the cache saw it: it may have a finalizer now,
    /// or another owner.
    fn delete_old_failed_pod(&self, rs: &ReplicaSet, pod: &Pod) -> Result<Deleted, WriteError> {
        let version = Some(&pod.resource_version);
        let deleted = match self.pod_control.delete_pod_quietly(rs, pod, version) {
            Ok(()) => Ok(Deleted::Success),
            Err(error) if error.is_not_found() => Ok(Deleted::Gone),
            Err(error) if error.is_conflict() => Ok(Deleted::Superseded),
            Err(error) => Err(error),
        };
        self.queue.progressed(&rs.key);
        let outcome = outcome_of_delete(&deleted);
        self.metrics.old_failed_pods_deleted.count(outcome);
        deleted
    }
}

#[cfg(test)]
mod tests;
