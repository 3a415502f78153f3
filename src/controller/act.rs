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
use super::error::Batch;
use super::memory::own_writes::OwnWrites;
use super::memory::{Memories, Memory};
use super::other_writers::OtherWriters;
use super::{Options, SyncError};
use crate::api::{ObjectKey, ReplicaSet, Uid, WorkloadKind};
use crate::batches::BatchRunner;
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

    pub(super) fn log_batch(
        &self,
        rs: &ReplicaSet,
        batch: &Batch,
        result: &Result<(), WriteError>,
    ) {
        let object = self.kind.named(&rs.key);
        let Batch { what, done, count } = *batch;
        let level = level_of_batch(done, result);
        if what == "created" {
            log::log!(
                level, object:% = object, created = done, wanted = count;
                "{what} {done} of {count} pods"
            );
        } else {
            log::log!(
                level, object:% = object, deleted = done, wanted = count;
                "{what} {done} of {count} pods"
            );
        }
    }

    pub(super) fn note_first_request(&self, rs: &ReplicaSet) {
        let now = self.clock.now();
        let note = |memory: &mut Memory| memory.history.note_request(rs, now);
        if let Some(after) = self.memories.get(&rs.key, &rs.uid, note).flatten() {
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
        self.memories.with(&rs.key, &rs.uid, |memory| {
            memory.own_writes.expect(creations, deletions, now);
        });
    }

    /// Changes the expectations in the record of `rs`.
    pub(in crate::controller) fn own_writes<R>(
        &self,
        rs: &ReplicaSet,
        change: impl FnOnce(&mut OwnWrites) -> R,
    ) -> R {
        self.memories
            .with(&rs.key, &rs.uid, |memory| change(&mut memory.own_writes))
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
