//! The actions of a sync after its decision: it queries the API server where the caches are in
//! doubt ([`verify`]), patches owner references ([`claim`]), creates and deletes pods, writes the
//! status ([`status`]) and deletes Failed pods ([`old_failed_pods`]). Everything that sends a
//! request for a ReplicaSet is a method of [`Writer`].
//!
//! Every write of the daemon, all behind the client's fence:
//!
//! | write | sent |
//! |---|---|
//! | create a pod | if the step acts; more than a few with a permit |
//! | delete a pod, by UID (protected: and version) | the same |
//! | delete an old Failed pod, by UID and version | spare tokens are left; 8 in a sync |
//! | patch a pod: adopt (after a GET of the owner), release | unless the sync waits or verifies |
//! | update the status | if it changed and is not paused; once more after a GET |
//! | events | outcomes of creates and deletes, warnings |
//! | the Lease | by [`leader_election`](crate::leader_election) |

mod claim;
mod manage;
mod old_failed_pods;
mod status;
mod verify;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::Core;
use super::decide::plan::Plan;
use super::memory::Memory;
use super::memory::own_writes::OwnWrites;
use super::memory::positions::Resource;
use crate::api::{ArcStr, ReplicaSet, ResourceVersion, Uid};
use crate::batches::BatchRunner;
use crate::live::LiveReader;
use crate::writes::{PodControl, ReplicaSetControl, WriteError};

/// Sends the requests of the syncs. A dry run has none.
pub(super) struct Writer {
    pub(super) core: Arc<Core>,
    pub(super) live: Arc<dyn LiveReader>,
    pub(super) pod_control: Arc<dyn PodControl>,
    pub(super) replica_set_control: Arc<dyn ReplicaSetControl>,
    pub(super) batches: Arc<dyn BatchRunner>,
}

impl Deref for Writer {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl Writer {
    /// Records that a response showed this `version`. No sync acts on an older cache.
    fn wrote_at(&self, rs: &ReplicaSet, resource: Resource, version: &ResourceVersion) {
        let now = self.clock.now();
        let wrote = |it: &mut Memory| it.positions.wrote_at(resource, version, now);
        self.memories.with(rs, wrote);
    }

    pub(in crate::controller) fn expect(
        &self,
        rs: &ReplicaSet,
        creations: impl IntoIterator<Item = ArcStr>,
        deletions: impl IntoIterator<Item = Uid>,
    ) {
        let now = self.clock.now();
        self.own_writes(rs, |writes| writes.expect(creations, deletions, now));
    }

    pub(in crate::controller) fn own_writes<R>(
        &self,
        rs: &ReplicaSet,
        change: impl FnOnce(&mut OwnWrites) -> R,
    ) -> R {
        self.memories.with(rs, |it| change(&mut it.own_writes))
    }
}

/// An error that ended a sync early. The worker requeues the key with back-off.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    #[error("{0}")]
    Write(#[from] WriteError),
    #[error("[{messages}]")]
    Several {
        messages: String,
        /// The longest time after which the API server asks for another try.
        retry_after: Option<Duration>,
    },
    #[error("{}{error}", if let Plan::Delete(_) = plan { "unable to delete pods: " } else { "" })]
    Batch {
        plan: Plan,
        done: usize,
        error: WriteError,
    },
    /// The ReplicaSet was deleted, or is being deleted, and the cache did not show it yet.
    #[error("{0}")]
    Deleted(String),
    #[error("the sync panicked: {0}")]
    Panic(String),
}

impl SyncError {
    fn write_error(&self) -> Option<&WriteError> {
        match self {
            Self::Write(error) | Self::Batch { error, .. } => Some(error),
            Self::Several { .. } | Self::Deleted(_) | Self::Panic(_) => None,
        }
    }

    pub fn is_stopped(&self) -> bool {
        self.write_error().is_some_and(WriteError::is_stopped)
    }

    /// Time after which an overloaded API server asks for another try.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Several { retry_after, .. } => *retry_after,
            _ => self.write_error()?.retry_after(),
        }
    }

    /// The plan of a batch that failed, and how many of its pods succeeded.
    pub(super) fn batch(&self) -> Option<(Plan, usize)> {
        match self {
            Self::Batch { plan, done, .. } => Some((*plan, *done)),
            _ => None,
        }
    }

    /// Its level in the log. To lose the race against a deletion is normal: the watch event that
    /// ends it is on its way.
    pub(super) fn level(&self) -> log::Level {
        match self {
            Self::Deleted(_) => log::Level::Debug,
            _ => log::Level::Warn,
        }
    }

    pub(super) fn of_replica_set(error: WriteError) -> Self {
        if error.is_not_found() {
            Self::Deleted(error.to_string())
        } else {
            Self::Write(error)
        }
    }
}

/// Merges errors: none, a single one, or all distinct messages in brackets (apimachinery
/// `pkg/util/errors:NewAggregate`). A stop hides the others: the next leader meets them again.
pub(super) fn aggregate(mut errors: Vec<WriteError>) -> Option<SyncError> {
    if errors.iter().any(WriteError::is_stopped) {
        return Some(WriteError::Stopped.into());
    }
    let mut messages: Vec<String> = Vec::new();
    for message in errors.iter().map(ToString::to_string) {
        if !messages.contains(&message) {
            messages.push(message);
        }
    }
    if messages.len() > 1 {
        Some(SyncError::Several {
            messages: messages.join(", "),
            retry_after: errors.iter().filter_map(WriteError::retry_after).max(),
        })
    } else {
        errors.pop().map(SyncError::Write)
    }
}

/// Describes a batch of creates or deletes for the log.
pub(super) fn describe_batch(plan: Plan, done: usize) -> String {
    let did = match plan {
        Plan::Delete(_) => "deleted",
        Plan::Create(_) | Plan::Nothing => "created",
    };
    format!("{did} {done} of {} pods", plan.n_pods())
}

#[cfg(test)]
mod tests;
