//! What a worker does with a key: takes it from the queue, syncs it, and hands it back.

use super::memory::Memory;
use super::memory::history::{LastSync, SyncEnd};
use super::sync::Outcome;
use super::{Mode, ReplicaSetController, SyncError};
use crate::api::ObjectKey;
use crate::stdx::activity;
use crate::stdx::thread::catch_panic;
use crate::workqueue::Lanes;

impl ReplicaSetController {
    /// Waits for a key of these lanes and syncs it; false once the queue is shut down and has none.
    pub fn process_next_work_item(&self, lanes: Lanes) -> bool {
        let wait = activity::enter("waits for a key", "");
        let key = self.queue.get_from(lanes);
        drop(wait);
        key.map(|key| self.process(&key, lanes)).is_some()
    }

    /// Syncs a key that was taken from the queue, and hands it back: done, or to be repeated with
    /// back-off. A panic is an error like any other.
    pub fn process(&self, key: &ObjectKey, lanes: Lanes) {
        let _sync = activity::enter("sync", key);
        let (at, began) = (self.clock.wall(), self.clock.now());
        let result = catch_panic(|| self.sync(key, lanes))
            .unwrap_or_else(|message| Err(SyncError::Panic(message)));
        let end = match &result {
            Ok(Outcome::Synced) => SyncEnd::Synced,
            Ok(Outcome::TooEarly) => SyncEnd::TooEarly,
            Ok(Outcome::TooLarge) => {
                self.queue.add_large(key.clone());
                return self.queue.done(key);
            }
            Err(SyncError::Panic(_)) => SyncEnd::Panicked,
            Err(_) => SyncEnd::Failed,
        };
        let took = self.clock.now().saturating_duration_since(began);
        self.note_sync(key, LastSync { at, took, end }, result.as_ref().err());
        match result {
            // A leader whose lease ran out while it was frozen may find that it leads still. Once the
            // daemon stops, the queue takes nothing any more.
            Err(error) if error.is_stopped() => self.queue.add_rate_limited(key.clone()),
            Err(error) => {
                let object = self.kind.named(key);
                log::warn!(object:% = object, error:%; "sync failed and is repeated");
                self.metrics.sync_ended(end);
                self.queue.add_rate_limited(key.clone());
            }
            Ok(outcome) => {
                self.metrics.sync_ended(end);
                // A sync that came too early proves nothing, so an earlier failure's back-off stays.
                if outcome == Outcome::Synced {
                    self.queue.forget(key);
                }
            }
        }
        self.queue.done(key);
    }

    /// One sync, or what a dry run does instead.
    pub(super) fn sync(&self, key: &ObjectKey, lanes: Lanes) -> Result<Outcome, SyncError> {
        match &self.mode {
            Mode::Writes(_) => self.sync_replica_set(key, lanes),
            Mode::DryRun(shadow) => {
                self.dry_run(key, shadow);
                Ok(Outcome::Synced)
            }
        }
    }

    fn note_sync(&self, key: &ObjectKey, sync: LastSync, error: Option<&SyncError>) {
        let error = error.map(ToString::to_string);
        if let Some(rs) = self.cache.replica_set(key) {
            let note = |memory: &mut Memory| {
                memory.history.note_sync(sync, error);
                memory.names.forget_versions_before(&rs.resource_version);
            };
            self.memories.with(key, &rs.uid, note);
        }
    }
}
