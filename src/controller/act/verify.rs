//! When what was written does not come back in time: asking the API server instead of guessing.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::api::{OwnerKey, Pod, ReplicaSet, Selector, Uid};
use crate::controller::freshness::{Doubt, Freshness};
use crate::controller::memory::Memory;
use crate::controller::memory::own_writes::Satisfaction;
use crate::controller::{ReplicaSetController, SyncError};
use crate::workqueue::Lanes;

/// When to look again whether a ReplicaSet that has changed has come through its watch, should no
/// event say so.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl ReplicaSetController {
    /// Asks the API server about `rs`, whose caches are in doubt. Returns what the sync may do then. Blocks
    /// for a GET, a LIST, or both; in the first sync after a take-over for two more LISTs of one item.
    ///
    /// # Errors
    /// If a request fails.
    pub(in crate::controller) fn verify(
        &self,
        rs: &ReplicaSet,
        selector: &Selector,
        doubt: Doubt,
        lanes: Lanes,
    ) -> Result<Freshness, SyncError> {
        match doubt {
            Doubt::TakeOver => return self.verify_take_over(rs, selector),
            // A cache that lacks what was written so long ago may show a spec that nobody wants any more.
            Doubt::Overdue if !self.confirm_spec(rs)? => {
                self.metrics.stale_owners_skips.inc();
                return Ok(Freshness::Wait(LOOK_AGAIN));
            }
            Doubt::Overdue | Doubt::Unseen => {}
        }
        log::warn!(
            object:% = self.kind.named(&rs.key);
            "what was written was not seen, asking the API server"
        );
        let is_current = self.compare_with_live(rs, selector)?;
        let forget = |memory: &mut Memory| memory.positions.forget_written();
        self.memories.get(&rs.key, &rs.uid, forget);
        if !is_current {
            return Ok(Freshness::CountOnly(None));
        }
        let freshness = self.freshness(&rs.key, lanes);
        let cached = self.cache.replica_set(&rs.key);
        let is_same =
            cached.is_some_and(|it| it.uid == rs.uid && it.resource_version == rs.resource_version);
        Ok(match freshness {
            known if is_same && !matches!(known, Freshness::Verify(_)) => known,
            // The verdict is about another one than this sync has read, or there is one doubt more.
            _ => Freshness::Wait(Duration::ZERO),
        })
    }

    /// The caches are not proven to be as new as the take-over.
    fn verify_take_over(
        &self,
        rs: &ReplicaSet,
        selector: &Selector,
    ) -> Result<Freshness, SyncError> {
        self.ask_for_versions(rs)?;
        if !self.take_over_is_proven() {
            if !self.confirm_spec(rs)? {
                return Ok(Freshness::Wait(LOOK_AGAIN));
            }
            self.compare_with_live(rs, selector)?;
            let confirm = |memory: &mut Memory| memory.positions.is_confirmed = true;
            self.memories.with(&rs.key, &rs.uid, confirm);
        }
        // What differs is expected now. If nothing does, this sync has still read the ReplicaSet before
        // the caches were as new as that.
        Ok(Freshness::Wait(Duration::ZERO))
    }

    /// Whether the API server has this ReplicaSet with this spec. If not, its watch brings it. Blocks for
    /// one GET.
    ///
    /// # Errors
    /// If the GET fails.
    fn confirm_spec(&self, rs: &ReplicaSet) -> Result<bool, SyncError> {
        let live = match self.live.get_replica_set(&rs.key) {
            Ok(live) => Some(live),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.into()),
        };
        // A generation can come a second time, with another spec: after a restore from a backup.
        let spec = |it: &ReplicaSet| (it.uid.clone(), it.generation, it.replicas);
        let is_the_same = |it: &ReplicaSet| spec(it) == spec(rs);
        Ok(live.as_ref().is_some_and(is_the_same))
    }

    /// Compares the cache with what the API server has now. Whatever the cache lacks is expected
    /// anew; true if in the end it lacks nothing, so that the sync may act. Blocks for one LIST.
    ///
    /// DIFFERS: upstream takes an expired expectation for a met one and acts on the cache as it is,
    /// however old (kubernetes/kubernetes#129795).
    ///
    /// # Errors
    /// If the LIST fails.
    fn compare_with_live(&self, rs: &ReplicaSet, selector: &Selector) -> Result<bool, SyncError> {
        let owner = OwnerKey::new(self.kind.kind, &rs.key, &rs.uid);
        let cached_before = self.cache.pods_owned_by(&owner);
        let live = self.live.list_pods(rs, selector)?;
        let cached = self.cache.pods_owned_by(&owner);
        // What the cache had before the LIST and has no more is known to have gone since.
        let known = cached.iter().chain(&cached_before);
        let known_uids: HashSet<&Uid> = known.map(|pod| &pod.uid).collect();
        let live_uids: HashSet<&Uid> = live
            .iter()
            .filter(|pod| pod.is_active())
            .map(|pod| &pod.uid)
            .collect();
        let creations: Vec<&Pod> = live
            .iter()
            .filter(|pod| pod.is_active() && pod.is_controlled_by(&rs.uid))
            .filter(|pod| !known_uids.contains(&pod.uid))
            .collect();
        let deletions: Vec<Uid> = cached
            .iter()
            .filter(|pod| pod.is_active() && selector.matches(&pod.labels))
            .filter(|pod| !live_uids.contains(&pod.uid))
            .map(|pod| pod.uid.clone())
            .collect();
        // INVARIANT: what arrived in the cache since it was read above is struck out below, because
        // its event may have come before the new expectation was written down. With nothing left the
        // sync has to act by itself: no event wakes its key again.
        let names = creations.iter().map(|pod| Arc::clone(&pod.key.name));
        self.expect(rs, names, deletions.clone());
        for pod in creations {
            let cached = self.cache.pod(&pod.key);
            if cached.is_some_and(|cached| cached.uid == pod.uid) {
                self.own_writes(rs, |writes| writes.creation_seen(&pod.key.name));
            }
        }
        for uid in &deletions {
            let pods = self.cache.pods_owned_by(&owner);
            if !pods.iter().any(|pod| pod.uid == *uid && pod.is_active()) {
                self.own_writes(rs, |writes| writes.deletion_seen(uid));
            }
        }
        Ok(self.satisfaction(rs) == Satisfaction::Satisfied)
    }
}

#[cfg(test)]
mod tests;
