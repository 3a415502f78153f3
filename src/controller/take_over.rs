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

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::memory::positions::Versions;
use super::{ReplicaSetController, SyncError};
use crate::api::ReplicaSet;

/// Whether we stand by, and since we do no more, what is still to be proven. Shared by workers, watch
/// threads and `lease`; one short lock, which is not taken once all is proven.
#[derive(Debug, Default)]
pub(super) struct TakeOver {
    stands_by: AtomicBool,
    is_unproven: AtomicBool,
    /// What the caches must have reached to be as new as the take-over; empty: not known yet.
    unproven: Mutex<Versions>,
}

impl TakeOver {
    /// True while another may lead.
    pub(super) fn stands_by(&self) -> bool {
        self.stands_by.load(Ordering::SeqCst)
    }

    fn lock(&self) -> MutexGuard<'_, Versions> {
        self.unproven.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReplicaSetController {
    /// From now on no keys are collected, until [`take_over`](Self::take_over).
    pub fn stand_by(&self) {
        self.take_over.stands_by.store(true, Ordering::SeqCst);
    }

    /// From now on we lead, and the last leader writes no more. Every ReplicaSet must be enqueued
    /// after this ([`enqueue_all`](Self::enqueue_all)), and no worker may run before. Blocks on
    /// nothing.
    pub fn take_over(&self) {
        self.need_proof();
        // ORDER: whoever enqueues everything does so after this, so a change that is told before it is
        // in the cache then, and one that is told after it is enqueued by its own event.
        self.take_over.stands_by.store(false, Ordering::SeqCst);
    }

    /// The API server was restored from a backup, and a cache is about to follow. What was written in the
    /// lost time can be neither waited for nor relied on.
    pub fn handle_rewind(&self) {
        // ORDER: nothing is acted on any more before what holds it up is forgotten.
        self.need_proof();
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
        if !self.take_over.is_unproven.load(Ordering::SeqCst) {
            return true;
        }
        let cached = self.cached_versions();
        let mut unproven = self.take_over.lock();
        let Versions { pods, replica_sets } = &*unproven;
        // A version that says nothing never blocks, so it must not prove anything either.
        let is_reached = !pods.is_empty()
            && !replica_sets.is_empty()
            && cached.pods.is_as_new_as(pods)
            && cached.replica_sets.is_as_new_as(replica_sets);
        if is_reached {
            *unproven = Versions::default();
            self.take_over.is_unproven.store(false, Ordering::SeqCst);
            drop(unproven);
            self.forget_confirmations();
        }
        is_reached
    }

    /// Nothing that the caches show is proven to be as new as this moment.
    fn need_proof(&self) {
        *self.take_over.lock() = Versions::default();
        self.forget_confirmations();
        self.take_over.is_unproven.store(true, Ordering::SeqCst);
    }

    fn forget_confirmations(&self) {
        self.memories
            .each(|memory| memory.positions.is_confirmed = false);
    }

    /// Finds out how far the API server has come, if nobody has yet.
    pub(super) fn ask_for_versions(&self, rs: &ReplicaSet) -> Result<(), SyncError> {
        if *self.take_over.lock() != Versions::default() {
            return Ok(());
        }
        let cached = self.cached_versions();
        let newest = self.replica_set_control.newest_versions(&rs.key.namespace);
        let [pods, replica_sets] = newest?;
        // A cache that is ahead of the API server has not followed it into a restored past, and is
        // as new as anything: nothing is known until it has.
        let have_followed =
            pods.is_as_new_as(&cached.pods) && replica_sets.is_as_new_as(&cached.replica_sets);
        let mut unproven = self.take_over.lock();
        if have_followed && *unproven == Versions::default() {
            *unproven = Versions { pods, replica_sets };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
