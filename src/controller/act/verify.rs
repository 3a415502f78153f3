//! Queries the API server when the watch does not show this daemon's writes in time.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::Writer;
use crate::api::{Pod, ReplicaSet, Selector, Uid};
use crate::controller::SyncError;
use crate::controller::decide::Doubt;
use crate::controller::memory::positions::Versions;

/// Delay until the next check whether the watch has shown a changed ReplicaSet, in case no event
/// does.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);

impl Writer {
    /// Queries the API server about `rs`, since the caches may be outdated, and records the answer,
    /// so that the next sync can decide, after the returned delay. Blocks for a GET, a LIST, or
    /// both; in the first sync after a failover also for two LISTs of one item.
    pub(in crate::controller) fn verify(
        &self,
        rs: &ReplicaSet,
        selector: &Selector,
        doubt: Doubt,
    ) -> Result<Duration, SyncError> {
        match doubt {
            Doubt::Failover => {
                if self.memories.lacks_target() {
                    let [pods, replica_sets] = self.live.newest_versions(&rs.key.namespace)?;
                    self.memories.set_target(Versions { pods, replica_sets });
                }
                let view = self.memories.capture(&rs.key, || self.cached_versions());
                if !view.is_unproven {
                    return Ok(Duration::ZERO);
                }
                if !self.confirm_spec(rs)? {
                    return Ok(RECHECK_INTERVAL);
                }
                self.compare_with_live(rs, selector)?;
                self.memories
                    .with(rs, |memory| memory.positions.is_confirmed = true);
            }
            // A cache that lacks such an old write may also show an outdated spec.
            Doubt::Overdue if !self.confirm_spec(rs)? => {
                self.metrics.stale_owners_skips.inc();
                return Ok(RECHECK_INTERVAL);
            }
            Doubt::Overdue | Doubt::Unseen => {
                let is_stuck = self.memories.get(rs, |it| it.history.fails_for_good());
                // In a terminating namespace the expectation stays on purpose.
                let level = match is_stuck {
                    Some(true) => log::Level::Debug,
                    _ => log::Level::Warn,
                };
                log::log!(
                    level, object:% = self.kind.named(&rs.key);
                    "own writes are missing in the cache, querying the API server"
                );
                self.compare_with_live(rs, selector)?;
                self.memories
                    .get(rs, |memory| memory.positions.forget_written());
            }
            Doubt::Unknown => {
                let live = self.compare_with_live(rs, selector)?;
                let now = self.clock.now();
                self.own_writes(rs, |writes| {
                    let (unknown, n_over) = writes.unknown_deletions(now);
                    let is_live =
                        |uid: &&Uid| live.iter().any(|pod| pod.uid == **uid && pod.is_active());
                    // The first `n_over` have no effect any more: a pod that lives was not deleted.
                    for uid in unknown[..n_over].iter().filter(is_live) {
                        writes.deletion_resolved(uid);
                    }
                    writes.are_compared = true;
                });
            }
        }
        Ok(Duration::ZERO)
    }

    /// Checks whether the API server has this ReplicaSet with this spec. If not, the watch will
    /// bring the change. Blocks for one GET.
    fn confirm_spec(&self, rs: &ReplicaSet) -> Result<bool, SyncError> {
        let live = match self.live.get_replica_set(&rs.key) {
            Ok(live) => Some(live),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.into()),
        };
        Ok(live.is_some_and(|live| live.uid == rs.uid && live.generation == rs.generation))
    }

    /// Compares the cache with a LIST of the pods, and sets expectations for whatever the cache
    /// lacks. Returns the list. Blocks for one LIST.
    ///
    /// DIFFERS: upstream treats an expired expectation as fulfilled and acts on the cache as it is,
    /// however old (kubernetes/kubernetes#129795).
    fn compare_with_live(
        &self,
        rs: &ReplicaSet,
        selector: &Selector,
    ) -> Result<Vec<Pod>, SyncError> {
        // ORDER: before the LIST. A pod that the cache shows later is younger than the LIST.
        let cached = self.cache.pods_owned_by(&self.owner_key(rs));
        let live = self.live.list_pods(rs, selector)?;
        let active = || live.iter().filter(|pod| pod.is_active());
        let known: HashSet<&Uid> = cached.iter().map(|pod| &pod.uid).collect();
        let existing: HashSet<&Uid> = active().map(|pod| &pod.uid).collect();
        let is_unknown = |pod: &&Pod| pod.is_controlled_by(&rs.uid) && !known.contains(&pod.uid);
        let creations: Vec<&Pod> = active().filter(is_unknown).collect();
        let is_gone = |pod: &&Arc<Pod>| {
            let counts = pod.is_active() && selector.keeps(&pod.labels);
            counts && !existing.contains(&pod.uid)
        };
        let deletions: Vec<&Arc<Pod>> = cached.iter().filter(is_gone).collect();
        // The loops below observe the events since the cache read above, which may precede the new
        // expectation. The next sync follows at once: no event wakes its key. A pod that appeared
        // and disappeared meanwhile stays expected until the expectation expires: a version that
        // the cache has passed proves nothing after a restore, and each sync would query again.
        let names = creations.iter().map(|pod| pod.key.name.clone());
        let uids = deletions.iter().map(|pod| pod.uid.clone());
        self.expect(rs, names, uids);
        for pod in creations {
            let cached = self.cache.pods.get(&pod.key);
            if cached.is_some_and(|cached| cached.uid == pod.uid) {
                self.own_writes(rs, |writes| writes.creation_seen(&pod.key.name));
            }
        }
        for pod in deletions {
            let cached = self.cache.pods.get(&pod.key);
            let is_it = |cached: &Pod| cached.uid == pod.uid && cached.is_controlled_by(&rs.uid);
            if !cached.is_some_and(|cached| cached.is_active() && is_it(&cached)) {
                self.own_writes(rs, |writes| writes.deletion_seen(&pod.uid));
            }
        }
        Ok(live)
    }
}

#[cfg(test)]
mod tests;
