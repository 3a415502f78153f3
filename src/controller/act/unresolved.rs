//! Retries of writes with an unknown outcome: which of them go first, and what the API server
//! reports about them where the cache is not enough.
//!
//! A sync retries a create that may have succeeded under the *same name* before any other, so that
//! it cannot create a second pod. It retries a delete that may have succeeded on the *same pod*
//! before it chooses another one, so that it cannot delete a second pod. A delete that can take no
//! effect any more has a known outcome once the sync has queried the API server.

use std::collections::HashSet;
use std::sync::Arc;

use crate::api::{Pod, ReplicaSet, Selector, Uid};
use crate::controller::act::manage::pod_key;
use crate::controller::decide::plan::plan;
use crate::controller::{ReplicaSetController, SyncError};

impl ReplicaSetController {
    /// Returns up to `count` names whose create must be retried. Blocks for one LIST if there are
    /// more: some of the omitted pods may exist, so names of existing pods go first and their pods
    /// count. Then come those whose create may still arrive.
    ///
    /// # Errors
    /// If the LIST fails.
    pub(in crate::controller) fn creations_to_retry(
        &self,
        rs: &ReplicaSet,
        selector: &Selector,
        count: usize,
    ) -> Result<Vec<Arc<str>>, SyncError> {
        let mut names = self.own_writes(rs, |writes| writes.unknown_creations());
        names.retain(|name| {
            let is_seen = self.cache.pod(&pod_key(rs, name)).is_some();
            if is_seen {
                self.own_writes(rs, |writes| writes.creation_seen(name));
            }
            !is_seen
        });
        if names.len() > count {
            let live = self.live.list_pods(rs, selector)?;
            let is_ours = |pod: &&Pod| pod.is_active() && pod.is_controlled_by(&rs.uid);
            let live = live.iter().filter(is_ours);
            let live: HashSet<&Arc<str>> = live.map(|pod| &pod.key.name).collect();
            // Existing pods first: creating another pod beside them would exceed `replicas`.
            names.sort_by_key(|name| !live.contains(name));
            names.truncate(count);
        }
        Ok(names)
    }

    /// Returns the active pods among `owned` whose delete must be retried. If not all of them fit
    /// into this sync, those already gone come first. Blocks for one LIST in that case, and if a
    /// delete is so old that an existing pod proves its failure: the cache alone proves nothing,
    /// since it may be as old.
    ///
    /// # Errors
    /// If the LIST fails.
    pub(in crate::controller) fn deletions_to_retry(
        &self,
        rs: &ReplicaSet,
        selector: &Selector,
        owned: &[Arc<Pod>],
    ) -> Result<Vec<Uid>, SyncError> {
        let is_ours = |pod: &&Arc<Pod>| pod.is_active() && selector.matches(&pod.labels);
        let active: HashSet<&Uid> = owned.iter().filter(is_ours).map(|pod| &pod.uid).collect();
        let count = plan(active.len(), rs.replicas, self.options.burst_replicas).n_pods();
        let now = self.clock.now();
        let unknown = self.own_writes(rs, |writes| writes.unknown_deletions(now));
        let resolve = |uid: &Uid| {
            self.own_writes(rs, |writes| writes.deletion_resolved(uid));
        };
        let is_active = |uid: &Uid| {
            let is_active = active.contains(uid);
            if !is_active {
                resolve(uid);
            }
            is_active
        };
        let (mut uids, mut over) = (unknown.under_way, unknown.over);
        uids.retain(is_active);
        over.retain(is_active);
        if !over.is_empty() || uids.len() > count {
            let live = self.live.list_pods(rs, selector)?;
            let live = live.iter().filter(|pod| pod.is_active());
            let live: HashSet<&Uid> = live.map(|pod| &pod.uid).collect();
            over.retain(|uid| {
                let is_live = live.contains(uid);
                if is_live {
                    resolve(uid);
                }
                !is_live
            });
            uids.extend(over);
            // Deleted pods first: deleting a live pod beside them would undershoot `replicas`.
            uids.sort_by_key(|uid| live.contains(uid));
        }
        Ok(uids)
    }
}

#[cfg(test)]
mod tests;
