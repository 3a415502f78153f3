//! Writes the status.

use std::sync::Arc;
use std::time::Duration;

use super::Writer;
use crate::api::conditions::{Condition, REPLICA_FAILURE, get_condition};
use crate::api::{ReplicaSet, ReplicaSetStatus};
use crate::controller::SyncError;
use crate::controller::decide::optional::is_own as is_of_opt_in;
use crate::controller::decide::plan::{Next, Plan};
use crate::controller::decide::status::{Counts, Failure, StatusChange, calculate_status};
use crate::controller::decide::{May, Step};
use crate::controller::memory::Memory;
use crate::controller::memory::positions::Resource;
use crate::stdx::escape::bounded;
use crate::writes::WriteError;

/// Pause per pod after a status write, before a status with mere progress. So small ReplicaSets are
/// never delayed noticeably, and the number of writes follows the time that pods take, not the
/// number of pods.
const PAUSE_PER_POD: Duration = Duration::from_millis(1);

/// Pause after a status write, in durations of that write. So progress takes at most a fifth of a
/// slow API server's time, and of a rate limit that creates and deletes wait for.
const PAUSE_PER_WRITE: u32 = 4;

/// Attempts of one sync to write a status
/// (kubernetes `pkg/controller/replicaset/replica_set.go:statusUpdateRetries`).
const STATUS_UPDATE_TRIES: usize = 2;

impl Writer {
    /// The failure that the status reports while creates of `rs` wait after a rejection: upstream
    /// would try, fail and report it.
    pub(in crate::controller) fn lasting_failure(
        &self,
        rs: &ReplicaSet,
        step: &Step,
    ) -> Option<Failure> {
        let creates_later = matches!(step.plan, Plan::Create(_)) && !step.acts();
        if !creates_later && !matches!(step.may, May::Report(_)) {
            return None;
        }
        let message = |it: &mut Memory| Some(it.rejected.as_ref()?.message.to_string());
        let message = self.memories.get(rs, message).flatten()?;
        Some(self.failure(Plan::Create(1), &message))
    }

    pub(in crate::controller) fn failure(&self, plan: Plan, message: &str) -> Failure {
        let (message, at) = (bounded(message), self.clock.wall());
        Failure { plan, message, at }
    }

    /// True if neither the status nor an event reports the failure of a sync, or without an `error`
    /// the last rejected create: the API server asks for another try, and client-go would retry
    /// without its callers' notice. A condition that exists is kept up to date.
    pub(in crate::controller) fn is_postponed(
        &self,
        rs: &ReplicaSet,
        error: Option<&SyncError>,
    ) -> bool {
        let is_postponed = |it: &mut Memory| {
            let is_requested = match error {
                Some(error) => error.retry_after().is_some(),
                None => it.awaits_requested_try(),
            };
            is_requested && it.history.is_postponed()
        };
        get_condition(&rs.status.conditions, REPLICA_FAILURE).is_none()
            && self.memories.get(rs, is_postponed) == Some(true)
    }

    /// Records the event about creates or deletes that the API server asks to send again.
    pub(in crate::controller) fn report_postponed(&self, rs: &ReplicaSet, error: &SyncError) {
        match error {
            SyncError::Batch { error, .. } if error.retry_after().is_none() => {}
            SyncError::Batch {
                plan: Plan::Delete(_),
                error,
                ..
            } => {
                self.pod_control.warn_of_failed_delete(rs, error);
            }
            SyncError::Batch { error, .. } => self.pod_control.warn_of_failed_create(rs, error),
            _ => {}
        }
    }

    /// Writes the status if it changed, unless it waits: then it adds the time to `next`. Blocks as
    /// [`update_replica_set_status`](Self::update_replica_set_status).
    pub(in crate::controller) fn sync_status(
        &self,
        rs: &Arc<ReplicaSet>,
        step: &Step,
        failure: Option<&Failure>,
        next: &mut Next,
    ) -> Result<(), SyncError> {
        let mut status = calculate_status(rs, &step.counts, failure);
        let event = step.effects.add_conditions(&mut status, rs, failure);
        let now = self.clock.now();
        let next_status = || self.memories.get(rs, |it| it.next_status).flatten();
        let counts = Counts::from(&status);
        let counts = counts.with_terminating(!self.memories.drops_terminating(rs));
        match StatusChange::of(rs, &status, counts) {
            StatusChange::Nothing => return Ok(()),
            StatusChange::Progress if let Some(at) = next_status().filter(|at| *at > now) => {
                next.to_report(at);
                return Ok(());
            }
            StatusChange::Progress | StatusChange::Urgent => {}
        }
        let updated = self.update_replica_set_status(rs, status)?;
        // The next sync must not start from an older version.
        let (version, cached) = (
            &updated.resource_version,
            self.cache.replica_sets.resource_version(),
        );
        if !cached.is_as_new_as(version) {
            self.wrote_at(rs, Resource::ReplicaSets, version);
        }
        if let Some((reason, message)) = event {
            self.warn(rs, reason, message);
        }
        self.report_block(rs, &updated.status);
        Ok(())
    }

    /// Returns the resulting ReplicaSet. Blocks for at most three requests: an update, and after a
    /// failure a read and one more update. If `rs` is not complete, a read precedes them.
    fn update_replica_set_status(
        &self,
        rs: &Arc<ReplicaSet>,
        mut status: ReplicaSetStatus,
    ) -> Result<Arc<ReplicaSet>, SyncError> {
        log::debug!(
            object:% = self.kind.named(&rs.key);
            "status: {} replicas, {} ready, {} available, generation {}",
            status.replicas,
            status.ready_replicas,
            status.available_replicas,
            status.observed_generation
        );
        let mut current = Arc::clone(rs);
        if !rs.is_complete() {
            (current, status) = self.read_again(rs, status, "the ReplicaSet was recreated")?;
        }
        let (began, mut tries) = (self.clock.now(), 1);
        loop {
            let error = match self.replica_set_control.update_status(&current, &status) {
                Ok(updated) => {
                    let n_pods = updated.status.replicas.max(updated.replicas);
                    let now = self.clock.now();
                    let longest = self.options.status_update_interval;
                    let next = Some(now + pause_after(n_pods, now - began, longest));
                    self.memories.with(rs, |it| it.next_status = next);
                    self.memories
                        .note_terminating_support(&status, &updated.status);
                    return Ok(Arc::new(updated));
                }
                Err(WriteError::Stopped) => return Err(WriteError::Stopped.into()),
                Err(error) => error,
            };
            if tries == STATUS_UPDATE_TRIES || error.retry_after().is_some() {
                return Err(SyncError::of_replica_set(error));
            }
            tries += 1;
            // As upstream: the read yields the version for the second attempt, whatever the error
            // was.
            (current, status) = self.read_again(rs, status, &error.to_string())?;
        }
    }

    /// Reads `rs` from the API server, and merges `status` into what it has. Blocks for one GET.
    ///
    /// # Errors
    /// The error of the read; [`SyncError::Deleted`] with this reason if another object has its
    /// name.
    fn read_again(
        &self,
        rs: &ReplicaSet,
        status: ReplicaSetStatus,
        reason: &str,
    ) -> Result<(Arc<ReplicaSet>, ReplicaSetStatus), SyncError> {
        let fresh = self.live.get_replica_set(&rs.key);
        let fresh = fresh.map_err(SyncError::of_replica_set)?;
        if fresh.uid != rs.uid {
            // Upstream writes the old object's counts into the new object in this case.
            return Err(SyncError::Deleted(reason.to_owned()));
        }
        let status = carry_over(&fresh.status, status);
        Ok((Arc::new(fresh), status))
    }
}

/// How long mere progress waits after a status with `n_pods` pods whose write took `taken`;
/// `longest` at most.
///
/// DIFFERS: upstream writes a status in every sync in which a number has changed.
fn pause_after(n_pods: i32, taken: Duration, longest: Duration) -> Duration {
    let pause = PAUSE_PER_POD.saturating_mul(n_pods.max(0).unsigned_abs());
    pause.max(taken * PAUSE_PER_WRITE).min(longest)
}

/// Keeps what other clients wrote into the fresh status: their conditions, and fields unknown to
/// this build.
///
/// DIFFERS: upstream retries the update with the conditions of its older view.
fn carry_over(fresh: &ReplicaSetStatus, mut computed: ReplicaSetStatus) -> ReplicaSetStatus {
    computed.conditions.retain(is_own);
    let is_kept =
        |it: &&Condition| !is_own(it) && get_condition(&computed.conditions, &it.type_).is_none();
    let others: Vec<_> = fresh.conditions.iter().filter(is_kept).cloned().collect();
    computed.conditions.splice(..0, others);
    computed.other.clone_from(&fresh.other);
    computed.unknown.clone_from(&fresh.unknown);
    computed
}

fn is_own(condition: &Condition) -> bool {
    condition.type_ == REPLICA_FAILURE || is_of_opt_in(condition)
}

#[cfg(test)]
mod tests;
