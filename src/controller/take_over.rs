//! Standby until this daemon leads, and the take-over from the previous leader.
//!
//! A standby runs its watches to keep the caches warm, but enqueues no keys: without workers the
//! queue would grow by every ReplicaSet that ever existed. The new leader syncs every ReplicaSet
//! once.
//!
//! The watches may not have shown the previous leader's last writes yet. A sync that acted on such
//! a cache would create the same pods again. So the first sync with something to do queries the API
//! server for its current versions, until a query succeeds, and each ReplicaSet delays its first
//! action until both caches have reached those versions. A quiet watch learns its position only
//! about once a minute, so within that minute the sync compares with the API server instead: one
//! GET and one LIST for each ReplicaSet with something to do. Each cache is compared with a version
//! of its own resource, because versions of two resources need not share a history.
//!
//! The state of the proof is in the store of the ReplicaSets' records
//! ([`memory::take_over`](super::memory::take_over)).

use super::ReplicaSetController;
use crate::stdx::turns;

impl ReplicaSetController {
    /// Stops enqueueing keys, until [`take_over`](Self::take_over).
    pub fn stand_by(&self) {
        self.memories.set_standby(true);
    }

    /// Starts leading: the previous leader writes no more. The caller must enqueue every ReplicaSet
    /// afterwards ([`enqueue_all`](Self::enqueue_all)), and must start no worker before. Never
    /// blocks.
    pub fn take_over(&self) {
        self.memories.need_proof();
        // ORDER: `enqueue_all` runs after this. A change from before is then in the cache, and a
        // change from after enqueues its key by its own event.
        turns::reached("take-over: before the standby ends");
        self.memories.set_standby(false);
    }
}

#[cfg(test)]
mod tests;
