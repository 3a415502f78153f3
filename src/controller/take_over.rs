//! Standing by until this daemon leads, and beginning where the last leader ended.
//!
//! A standby runs its watches, so that its caches are warm, and collects no keys: a queue that nobody
//! takes from would remember every ReplicaSet that ever was. When it takes over, every ReplicaSet
//! is looked at once.
//!
//! What the last leader did in its last moments may not have come through the watches yet. Acting on
//! such a cache would make its pods a second time. So the first act on each ReplicaSet waits until
//! the cache is known to be newer than the take-over; and since a quiet watch hears only about once a
//! minute how far it has come, the API server is asked instead: one GET and one LIST for each ReplicaSet
//! that something is to be done about, within that minute.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{ReplicaSetController, SyncError};
use crate::api::{ReplicaSet, ResourceVersion, Selector, Uid};

/// Whether we stand by, and since we do no more, what is still to be proven. Shared by workers, watch
/// threads and `lease`; one short lock, which is not taken once all is proven.
#[derive(Debug, Default)]
pub(super) struct TakeOver {
    stands_by: AtomicBool,
    is_unproven: AtomicBool,
    unproven: Mutex<Unproven>,
}

#[derive(Debug, Default)]
struct Unproven {
    /// What the caches must have reached to be as new as the take-over; empty: not known.
    version: ResourceVersion,
    /// ReplicaSets for which the API server was asked.
    asked: HashSet<Uid>,
}

impl TakeOver {
    /// True while another may lead.
    pub(super) fn stands_by(&self) -> bool {
        self.stands_by.load(Ordering::SeqCst)
    }
}

impl ReplicaSetController {
    /// From now on no keys are collected, until [`take_over`](Self::take_over).
    pub fn stand_by(&self) {
        self.take_over.stands_by.store(true, Ordering::SeqCst);
    }

    /// From now on we lead. `version` is one of pods that the API server had after the last leader could
    /// write; empty if it could not be found out. Every ReplicaSet must be enqueued after this, and no
    /// worker may run before.
    pub fn take_over(&self, version: ResourceVersion) {
        *self.unproven() = Unproven {
            version,
            asked: HashSet::new(),
        };
        self.take_over.is_unproven.store(true, Ordering::SeqCst);
        // ORDER: whoever enqueues everything does so after this, so a change that is told before it is
        // in the cache then, and one that is told after it is enqueued by its own event.
        self.take_over.stands_by.store(false, Ordering::SeqCst);
    }

    /// Whether `rs` may be acted on: the caches are as new as the take-over, or the API server was asked
    /// and had nothing else. If not, the caller must not act on what it has read of the cache, and the
    /// key comes again. Blocks for up to two requests, once for each ReplicaSet.
    ///
    /// # Errors
    /// If a request fails.
    pub(super) fn confirm_take_over(
        &self,
        rs: &ReplicaSet,
        selector: &Selector,
    ) -> Result<bool, SyncError> {
        if !self.take_over.is_unproven.load(Ordering::SeqCst) || self.is_proven(rs) {
            return Ok(true);
        }
        if !self.confirm_spec(rs)? {
            return Ok(false);
        }
        self.compare_with_live(rs, selector)?;
        self.unproven().asked.insert(rs.uid.clone());
        // Whatever differs is expected now; and if nothing does, the pods that this sync has read are
        // still older than the answer.
        self.queue.add(rs.key.clone());
        Ok(false)
    }

    fn is_proven(&self, rs: &ReplicaSet) -> bool {
        let cached = self.cached_versions();
        let mut unproven = self.unproven();
        let version = &unproven.version;
        let is_reached = !version.is_empty()
            && cached.pods.is_as_new_as(version)
            && cached.replica_sets.is_as_new_as(version);
        if is_reached {
            *unproven = Unproven::default();
            self.take_over.is_unproven.store(false, Ordering::SeqCst);
        }
        is_reached || unproven.asked.contains(&rs.uid)
    }

    fn unproven(&self) -> std::sync::MutexGuard<'_, Unproven> {
        let unproven = self.take_over.unproven.lock();
        unproven.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
