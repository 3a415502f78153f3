//! Writes whose outcome nobody knows, when they are repeated: which of them go first, and what the API
//! server says of them where the cache does not tell.
//!
//! A create that may have been stored is repeated under the *same name* before any other is tried, so
//! that it cannot make a second pod; a delete that may have happened is repeated on the *same pod*
//! before another one is chosen, so that it cannot take a second one.
//! A delete that can take no effect any more has a known outcome if the API server is asked for it.

use std::collections::HashSet;
use std::sync::Arc;

use crate::api::{Pod, ReplicaSet, Selector, Uid};
use crate::controller::act::manage::pod_key;
use crate::controller::decide::plan::plan;
use crate::controller::{ReplicaSetController, SyncError};

impl ReplicaSetController {
    /// The names under which pods of `rs` may be there already.
    pub(in crate::controller) fn unknown_creations(&self, rs: &ReplicaSet) -> Vec<Arc<str>> {
        self.own_writes(rs, |writes| {
            writes.unknown_creations().iter().cloned().collect()
        })
    }

    /// Up to `count` names whose creation is to be repeated. Blocks for one LIST if there are more: of
    /// those left out some pods may exist, so those that do have to be counted first.
    ///
    /// # Errors
    /// If the LIST fails.
    pub(in crate::controller) fn creations_to_repeat(
        &self,
        rs: &ReplicaSet,
        selector: &Selector,
        count: usize,
    ) -> Result<Vec<Arc<str>>, SyncError> {
        let mut names = self.unknown_creations(rs);
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
            names.sort_by_key(|name| !live.contains(name));
            names.truncate(count);
        }
        Ok(names)
    }

    /// The active pods among `owned` whose deletion is to be repeated, those first that are gone already
    /// if not all can be among those that go. Blocks for one LIST in that case, and if a deletion is so
    /// long ago that it has not happened if the pod is there: the cache alone does not tell, since it
    /// may be as old as that.
    ///
    /// # Errors
    /// If the LIST fails.
    pub(in crate::controller) fn deletions_to_repeat(
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
            uids.sort_by_key(|uid| live.contains(uid));
        }
        Ok(uids)
    }
}

#[cfg(test)]
mod tests;
