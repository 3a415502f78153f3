//! Standing by until this daemon leads, and beginning where the last leader ended.
//!
//! A standby runs its watches, so that its caches are warm, and collects no keys: a queue that nobody
//! takes from would remember every ReplicaSet that ever was. When it takes over, every ReplicaSet
//! is looked at once.
//!
//! What the last leader did in its last moments may not have come through the watches yet. Acting
//! on such a cache would make its pods a second time. So the first sync that has to act asks the
//! API server how far it has come, until it is answered; and each ReplicaSet waits with its first
//! act until both caches have come so far. Since a quiet watch hears only about once a minute how
//! far it has come, the API server is asked instead within that minute: one GET and one LIST for
//! each ReplicaSet that something is to be done about. Each cache is measured by a version of its
//! own kind of objects: versions of two kinds need not be of one history.
//!
//! The same holds when the API server was restored from a backup. The caches follow one after the other
//! then, and until both have, one may show what is lost; so each ReplicaSet is asked about, and again
//! when the other cache has followed.
//!
//! What is still to be proven stands beside the records of the ReplicaSets
//! ([`memory::take_over`](super::memory::take_over)).

use super::memory::positions::Versions;
use super::{ReplicaSetController, SyncError};
use crate::api::ReplicaSet;

impl ReplicaSetController {
    /// From now on no keys are collected, until [`take_over`](Self::take_over).
    pub fn stand_by(&self) {
        self.memories.set_stands_by(true);
    }

    /// From now on we lead, and the last leader writes no more. Every ReplicaSet must be enqueued
    /// after this ([`enqueue_all`](Self::enqueue_all)), and no worker may run before. Blocks on
    /// nothing.
    pub fn take_over(&self) {
        self.memories.need_proof();
        // ORDER: whoever enqueues everything does so after this, so a change that is told before it is
        // in the cache then, and one that is told after it is enqueued by its own event.
        self.memories.set_stands_by(false);
    }

    /// The API server was restored from a backup, and a cache is about to follow. What was written in the
    /// lost time can be neither waited for nor relied on.
    pub fn handle_rewind(&self) {
        // ORDER: nothing is acted on any more before what holds it up is forgotten.
        self.memories.need_proof();
        self.memories.each(|memory| {
            memory.own_writes.forget_expected();
            memory.positions.forget_written();
        });
        for rs in self.cache.replica_sets() {
            self.enqueue(&rs.key);
        }
    }

    /// Whether all that is read of the caches from now on is as new as the take-over.
    pub(super) fn take_over_is_proven(&self) -> bool {
        self.memories.is_proven(|| self.cached_versions())
    }

    /// Finds out how far the API server has come, if that is to be known and nobody has yet. Blocks for
    /// two requests then.
    ///
    /// # Errors
    /// If one of them fails.
    pub(super) fn ask_for_versions(&self, rs: &ReplicaSet) -> Result<(), SyncError> {
        if !self.memories.lacks_target() {
            return Ok(());
        }
        let cached = self.cached_versions();
        let [pods, replica_sets] = self.live.newest_versions(&rs.key.namespace)?;
        // A cache that is ahead of the API server has not followed it into a restored past, and is
        // as new as anything: nothing is known until it has.
        let have_followed =
            pods.is_as_new_as(&cached.pods) && replica_sets.is_as_new_as(&cached.replica_sets);
        if have_followed {
            self.memories.set_target(Versions { pods, replica_sets });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
