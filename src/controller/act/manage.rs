//! Creates and deletes pods
//! (kubernetes `pkg/controller/replicaset/replica_set.go:manageReplicas`).

use std::sync::Arc;

use log::Level;

use crate::api::{ReplicaSet, Uid};
use crate::controller::decide::plan::Plan;
use crate::controller::decide::{Step, View};
use crate::controller::error::Batch;
use crate::controller::memory::Memory;
use crate::controller::memory::own_writes::OwnWrites;
use crate::controller::{ReplicaSetController, SyncError};
use crate::writes::WriteError;

impl ReplicaSetController {
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
