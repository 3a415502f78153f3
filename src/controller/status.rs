//! What `status` should say, and writing it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::counts::Counts;
use super::memory::Memory;
use super::memory::positions::Resource;
use super::plan::Plan;
use super::{ReplicaSetController, SyncError};
use crate::api::conditions::{
    Condition, REPLICA_FAILURE, get_condition, remove_condition, set_condition,
};
use crate::api::{ReplicaSet, ReplicaSetStatus};
use crate::writes::WriteError;

/// Attempts to write a status in one sync
/// (kubernetes `pkg/controller/replicaset/replica_set.go:statusUpdateRetries`).
const STATUS_UPDATE_TRIES: usize = 2;

/// What a status is calculated from.
#[derive(Debug)]
pub struct Observation {
    /// How many pods it has, in which state.
    pub counts: Counts,
    /// What was tried and failed in this sync.
    pub failure: Option<(Plan, String)>,
    /// The time of day at which it was observed.
    pub now: Timestamp,
}

/// What `status` should say
/// (kubernetes `pkg/controller/replicaset/replica_set_utils.go:calculateStatus`).
pub fn calculate_status(rs: &ReplicaSet, observation: &Observation) -> ReplicaSetStatus {
    let Observation {
        counts,
        failure,
        now,
    } = observation;
    let mut conditions = rs.status.conditions.clone();
    match failure {
        None => remove_condition(&mut conditions, REPLICA_FAILURE),
        // A condition that is there stays as it is, even if another error came since.
        Some(_) if get_condition(&conditions, REPLICA_FAILURE).is_some() => {}
        Some((plan, message)) => {
            set_condition(&mut conditions, replica_failure(*plan, message, *now));
        }
    }
    ReplicaSetStatus {
        replicas: counts.replicas,
        fully_labeled_replicas: counts.fully_labeled,
        ready_replicas: counts.ready,
        available_replicas: counts.available,
        terminating_replicas: counts.terminating,
        observed_generation: rs.generation,
        conditions,
        other: rs.status.other.clone(),
        unknown: rs.status.unknown.clone(),
    }
}

fn replica_failure(plan: Plan, message: &str, now: Timestamp) -> Condition {
    let reason = match plan {
        Plan::Create(_) => "FailedCreate",
        Plan::Delete(_) | Plan::Nothing => "FailedDelete",
    };
    Condition {
        type_: REPLICA_FAILURE.to_owned(),
        status: "True".to_owned(),
        // The API has whole seconds.
        last_transition_time: Timestamp::from_second(now.as_second()).ok(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        ..Condition::default()
    }
}

impl ReplicaSetController {
    /// Writes `status` unless it says what `rs` says already. Answers the ReplicaSet as it is then.
    /// Blocks for at most three requests: an update, and after a failure a read and one more update.
    ///
    /// # Errors
    /// The error of the read, or of the second update.
    pub(super) fn update_replica_set_status(
        &self,
        rs: &Arc<ReplicaSet>,
        mut status: ReplicaSetStatus,
    ) -> Result<Arc<ReplicaSet>, SyncError> {
        let terminating = status.terminating_replicas;
        status.terminating_replicas = self.comparable_terminating(&rs.status, terminating);
        if rs.status == status && rs.generation == rs.status.observed_generation {
            return Ok(Arc::clone(rs));
        }
        status.terminating_replicas = terminating;
        log::debug!(
            object:% = self.kind.named(&rs.key);
            "status: {} replicas, {} ready, {} available, generation {}",
            status.replicas,
            status.ready_replicas,
            status.available_replicas,
            status.observed_generation
        );
        let mut current = Arc::clone(rs);
        let mut tries = 1;
        loop {
            let error = match self.replica_set_control.update_status(&current, &status) {
                Ok(updated) => {
                    let n_pods = updated.status.replicas.max(updated.replicas);
                    let now = self.clock.now();
                    self.memories.with(&rs.key, &rs.uid, |memory| {
                        let (version, longest) =
                            (&updated.resource_version, self.status_update_interval);
                        memory.pace.wrote(n_pods, longest, now);
                        memory.suspicion.wrote_status(version);
                        memory.names.forget_versions_before(version);
                    });
                    self.note_terminating_support(&status, &updated.status);
                    return Ok(Arc::new(updated));
                }
                Err(WriteError::Stopped) => return Err(WriteError::Stopped.into()),
                Err(error) => error,
            };
            if tries == STATUS_UPDATE_TRIES {
                return Err(error.into());
            }
            tries += 1;
            let fresh = self.replica_set_control.get(&rs.key)?;
            if fresh.uid != rs.uid {
                // Upstream would write the old object's counts into the new one.
                return Err(error.into());
            }
            status = carry_over(&fresh.status, status);
            current = Arc::new(fresh);
        }
    }

    /// How long `status` need not be written: as long as it says nothing new but counts that
    /// [can wait](Counts::can_wait), and the last one is not long ago.
    pub(super) fn hold_back(&self, rs: &ReplicaSet, status: &ReplicaSetStatus) -> Option<Duration> {
        let now = self.clock.now();
        let left = |memory: &mut Memory| memory.pace.left(now);
        let left = self.memories.get(&rs.key, &rs.uid, left).flatten()?;
        let counts = self.comparable(rs, Counts::from(status));
        let can_wait = rs.status.conditions == status.conditions
            && rs.status.observed_generation == rs.generation
            && Counts::from(&rs.status) != counts
            && counts.can_wait(rs);
        can_wait.then_some(left)
    }

    /// `counts` as they can be compared with those of `rs.status`.
    pub(super) fn comparable(&self, rs: &ReplicaSet, counts: Counts) -> Counts {
        Counts {
            terminating: self.comparable_terminating(&rs.status, counts.terminating),
            ..counts
        }
    }

    /// Notes the version of `rs` after the status step, so that the next sync does not start from an
    /// older one. Of the many that the cache shows already nothing is kept.
    pub(super) fn record_replica_set(&self, rs: &ReplicaSet) {
        let cached = self.cache.replica_sets_resource_version();
        if cached.is_as_new_as(&rs.resource_version) {
            return;
        }
        let now = self.clock.now();
        self.memories.with(&rs.key, &rs.uid, |memory| {
            let version = &rs.resource_version;
            memory
                .positions
                .wrote_at(Resource::ReplicaSets, version, now);
        });
    }
}

/// What others wrote into the fresh status stays: their conditions, and fields unknown to this build.
///
/// DIFFERS: upstream repeats the update with the conditions of its older view.
fn carry_over(fresh: &ReplicaSetStatus, mut computed: ReplicaSetStatus) -> ReplicaSetStatus {
    let ours = get_condition(&computed.conditions, REPLICA_FAILURE).cloned();
    computed.conditions.clone_from(&fresh.conditions);
    match ours {
        None => remove_condition(&mut computed.conditions, REPLICA_FAILURE),
        Some(ours) => set_condition(&mut computed.conditions, ours),
    }
    computed.other.clone_from(&fresh.other);
    computed.unknown.clone_from(&fresh.unknown);
    computed
}

#[cfg(test)]
mod tests;
