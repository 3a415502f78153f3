//! The actions of a sync after its decision: it queries the API server where the caches are in
//! doubt ([`verify`]), patches owner references ([`claim`]), creates and deletes pods, writes the
//! status ([`status`]) and deletes Failed pods ([`leftovers`]). Everything that sends a request for
//! a ReplicaSet is a method of [`Writer`].

mod claim;
mod create;
mod delete;
mod leftovers;
mod status;
mod verify;

use std::sync::Arc;

use log::Level;

use super::decide::step::Plan;
use super::decide::{Step, View};
use super::error::{Batch, Did};
use super::memory::own_writes::OwnWrites;
use super::memory::positions::Resource;
use super::memory::{Memories, Memory};
use super::other_writers::OtherWriters;
use super::{Options, SyncError};
use crate::api::{ObjectKey, ReplicaSet, ResourceVersion, Uid, WorkloadKind};
use crate::batches::{BatchRunner, Jobs, slow_start_batch};
use crate::cache::Cache;
use crate::live::LiveReader;
use crate::stdx::clock::Clock;
use crate::telemetry::metrics::controller::ControllerMetrics;
use crate::workqueue::WorkQueue;
use crate::writes::{PodControl, ReplicaSetControl, WriteError};

/// Sends the requests of the syncs. A dry run has none.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) kind: &'static WorkloadKind,
    /// For checks of what the watch has shown since the decision.
    pub(super) cache: Cache,
    pub(super) live: Arc<dyn LiveReader>,
    pub(super) pod_control: Arc<dyn PodControl>,
    pub(super) replica_set_control: Arc<dyn ReplicaSetControl>,
    /// Told of each response, so that it knows a long sync from a stuck one.
    pub(super) queue: Arc<WorkQueue<ObjectKey>>,
    pub(super) batches: Arc<dyn BatchRunner>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) options: Options,
    pub(super) metrics: ControllerMetrics,
    pub(super) memories: Arc<Memories>,
    pub(super) others: OtherWriters,
}

impl Writer {
    /// Creates or deletes pods according to `step`. Blocks until every request has ended.
    ///
    /// # Errors
    /// The first error.
    pub(in crate::controller) fn manage_replicas(
        &self,
        view: &View<'_>,
        step: &Step,
    ) -> Result<(), SyncError> {
        match step.plan {
            Plan::Create(count) if step.acts() => self.create_pods(view, step, count),
            Plan::Delete(_) if step.acts() => self.delete_pods(view, step),
            Plan::Create(_) | Plan::Delete(_) | Plan::Nothing => Ok(()),
        }
    }

    /// Runs the writes of one batch, the first `n_first` of them before the others, and logs how it
    /// ended.
    fn run_batch(
        &self,
        rs: &ReplicaSet,
        (did, count, n_first): (Did, usize, usize),
        write: &(dyn Fn(usize) -> Result<bool, WriteError> + Sync),
    ) -> Result<(), SyncError> {
        let jobs = Jobs {
            count,
            tenant: rs.key.namespace_hash(),
        };
        let (done, result) = slow_start_batch(jobs, n_first, &*self.batches, write);
        let batch = Batch { did, done, count };
        let level = level_of_batch(done, &result);
        let object = self.kind.named(&rs.key);
        match did {
            Did::Created => {
                log::log!(level, object:% = object, created = done, wanted = count; "{batch}");
            }
            Did::Deleted => {
                log::log!(level, object:% = object, deleted = done, wanted = count; "{batch}");
            }
        }
        result.map_err(|error| SyncError::Batch { batch, error })
    }

    /// Records that a response showed the pod of this `version`. No sync acts on an older cache.
    pub(super) fn wrote_pod(&self, rs: &ReplicaSet, version: &ResourceVersion) {
        let now = self.clock.now();
        let wrote = |it: &mut Memory| it.positions.wrote_at(Resource::Pods, version, now);
        self.memories.with(rs, wrote);
    }

    fn note_first_request(&self, rs: &ReplicaSet) {
        let now = self.clock.now();
        let note = |memory: &mut Memory| memory.history.note_request(rs, now);
        if let Some(after) = self.memories.get(rs, note).flatten() {
            self.metrics.first_request.observe(after.as_secs_f64());
        }
    }

    /// Expects pods with these names to appear and pods with these UIDs to terminate. Replaces all
    /// earlier expectations.
    pub(in crate::controller) fn expect(
        &self,
        rs: &ReplicaSet,
        creations: impl IntoIterator<Item = Arc<str>>,
        deletions: impl IntoIterator<Item = Uid>,
    ) {
        let now = self.clock.now();
        self.own_writes(rs, |writes| writes.expect(creations, deletions, now));
    }

    /// Changes the own writes in the record of `rs`.
    pub(in crate::controller) fn own_writes<R>(
        &self,
        rs: &ReplicaSet,
        change: impl FnOnce(&mut OwnWrites) -> R,
    ) -> R {
        self.memories.with(rs, |it| change(&mut it.own_writes))
    }
}

/// A batch that changed nothing is worth a debug line only: the worker reports its error.
fn level_of_batch(done: usize, result: &Result<(), WriteError>) -> Level {
    match result {
        Err(_) if done == 0 => Level::Debug,
        _ => Level::Info,
    }
}

#[cfg(test)]
mod tests;
