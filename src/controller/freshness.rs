//! Is what the caches show of a ReplicaSet new enough to be acted on? Asked once in each sync, here alone.
//!
//! Two kinds of evidence count. *Identities*: the names of pods that this daemon created and the UIDs of
//! those that it deleted must have been seen ([`OwnWrites`](super::memory::own_writes::OwnWrites)).
//! *Positions*: the caches must have come to certain versions, those of own answers, of a changed spec, of
//! pods that went ([`Positions`](super::memory::positions::Positions)) and of the take-over
//! ([`TakeOver`](super::memory::take_over::TakeOver)).

use std::time::Duration;

use super::ReplicaSetController;
use super::act::manage::pod_key;
use super::decide::due::Due;
use super::decide::plan::{LARGE, Plan};
use super::memory::Memory;
use super::memory::own_writes::Satisfaction;
use super::memory::positions::{Readiness, Versions};
use crate::api::{ObjectKey, ReplicaSet};
use crate::workqueue::Lanes;

/// What a sync may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    /// The caches are new enough for what they say is due: this, or nothing.
    Current(Plan),
    /// Pods are neither created nor deleted (upstream: `rsNeedsSync` is false). The key comes back by an
    /// event, or after this time.
    CountOnly(Option<Duration>),
    /// Nothing is done. The key comes back by an event, or after this time.
    Wait(Duration),
    /// Nothing is done before the API server was asked.
    Verify(Doubt),
    /// Many pods are due, which this worker leaves to others.
    TooLarge,
}

/// Why the API server has to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// A version that was written has not come for so long that the spec may be an old one too.
    Overdue,
    /// A pod that was created or deleted was not seen in time, or was missed.
    Unseen,
    /// The caches may be older than the last leader's writes.
    TakeOver,
}

impl ReplicaSetController {
    /// What a sync of `key` may do, by a worker for these lanes. If it has to wait, the key is noted, so
    /// that the event that ends the wait enqueues it.
    ///
    /// ORDER: asked before the caches are read, which then are as new as the answer or newer. What they
    /// show then beside what is due now is left to the next sync, which its event asks for.
    pub(super) fn freshness(&self, key: &ObjectKey, lanes: Lanes) -> Freshness {
        let Some(rs) = self.cache.replica_set(key) else {
            return Freshness::Current(Plan::Nothing);
        };
        let (cached, began) = (|| self.cached_versions(), self.clock.now());
        // Before any status is written, since that says that the spec was observed.
        let saw_spec = |memory: &mut Memory| memory.positions.saw_spec(&rs, began);
        self.memories.with(key, &rs.uid, saw_spec);
        match self.memories.readiness(key, Some(&rs.uid), cached) {
            // A status that has waited for them long enough does not wait for pods that do not come.
            Readiness::TooEarly(left) if self.owes_status(&rs) => {
                return Freshness::CountOnly(Some(left));
            }
            Readiness::TooEarly(left) => {
                self.count_skip(&rs, &cached());
                return Freshness::Wait(left);
            }
            Readiness::Overdue => return Freshness::Verify(Doubt::Overdue),
            Readiness::Ready => {}
        }
        let (is_proven, cached, now) = (self.take_over_is_proven(), cached(), self.clock.now());
        let satisfaction = self.look_at_expectations(&rs);
        let due = self.due(&rs);
        let is_due = satisfaction == Satisfaction::Satisfied && due.plan != Plan::Nothing;
        let n_pods = if is_due { due.plan.n_pods() } else { 0 };
        if lanes == Lanes::Small && n_pods.max(due.n_claims) >= LARGE {
            return Freshness::TooLarge;
        }
        match satisfaction {
            Satisfaction::Open => return Freshness::CountOnly(None),
            Satisfaction::Expired => return Freshness::Verify(Doubt::Unseen),
            Satisfaction::Satisfied => {}
        }
        self.memories.with(key, &rs.uid, |memory| {
            let positions = &mut memory.positions;
            match due.plan {
                Plan::Nothing => Freshness::Current(Plan::Nothing),
                _ if !is_proven && !positions.is_confirmed => Freshness::Verify(Doubt::TakeOver),
                Plan::Delete(count) if count < due.n_active => {
                    let left = positions.left_to_choose(&cached.pods, now);
                    left.map_or(Freshness::Current(due.plan), Freshness::Wait)
                }
                Plan::Delete(_) | Plan::Create(_) => Freshness::Current(due.plan),
            }
        })
    }

    /// Whether a status is due that could not wait for own pods any longer, and `rs` shows its last one.
    fn owes_status(&self, rs: &ReplicaSet) -> bool {
        let cached = self.cached_versions();
        let now = self.clock.now();
        let owes_status = |memory: &mut Memory| {
            let written = memory.positions.written();
            memory.status_throttle.is_overdue(now)
                && written.is_none_or(|it| cached.replica_sets.is_as_new_as(&it.replica_sets))
        };
        self.memories.get(&rs.key, &rs.uid, owes_status) == Some(true)
    }

    /// What the cache's tallies say is due.
    fn due(&self, rs: &ReplicaSet) -> Due {
        let Ok(selector) = &rs.selector else {
            return Due::default();
        };
        let owned = self.cache.tally_of_pods_owned_by(&self.owner_key(rs));
        let orphans = self.cache.tally_of_orphans_in(&rs.key.namespace);
        Due::of_tallies(rs, selector, &owned, &orphans, self.options.burst_replicas)
    }

    /// Whether all that is expected of the own writes of `rs` was seen.
    ///
    /// A pod that the cache must show by its version and does not show has come and gone, or the cache is
    /// of another history than the answer, as after a restore of etcd: its expectation counts as expired,
    /// so that the API server decides. A pod of that name that is not controlled by `rs` is left to the
    /// expiry, which is the brake on a webhook that takes the owner off each new pod.
    pub(super) fn look_at_expectations(&self, rs: &ReplicaSet) -> Satisfaction {
        let position = self.cache.pods_resource_version();
        let mut is_missing = false;
        let passed = |memory: &mut Memory| memory.own_writes.passed(&position);
        let passed = self.memories.get(&rs.key, &rs.uid, passed);
        for name in passed.into_iter().flatten() {
            match self.cache.pod(&pod_key(rs, &name)) {
                // The store shows a pod before its handler has struck it out.
                Some(pod) if pod.is_controlled_by(&rs.uid) => {
                    self.own_writes(rs, |writes| writes.creation_seen(&name));
                }
                Some(_) => {}
                None => is_missing = true,
            }
        }
        match self.satisfaction(rs) {
            Satisfaction::Open if is_missing => Satisfaction::Expired,
            satisfaction => satisfaction,
        }
    }

    /// As far as the watch threads have struck it out.
    pub(super) fn satisfaction(&self, rs: &ReplicaSet) -> Satisfaction {
        let now = self.clock.now();
        let satisfaction = |memory: &mut Memory| memory.own_writes.satisfaction(now);
        let satisfaction = self.memories.get(&rs.key, &rs.uid, satisfaction);
        satisfaction.unwrap_or(Satisfaction::Satisfied)
    }

    /// Counts a sync that came too early, by the cache that is behind: the ReplicaSets' only if the
    /// pods' is not.
    fn count_skip(&self, rs: &ReplicaSet, cached: &Versions) {
        let shows_pods = |memory: &mut Memory| {
            let written = memory.positions.written();
            written.is_none_or(|written| cached.pods.is_as_new_as(&written.pods))
        };
        if self.memories.get(&rs.key, &rs.uid, shows_pods) == Some(true) {
            self.metrics.stale_owners_skips.inc();
        } else {
            self.metrics.stale_pods_skips.inc();
        }
    }
}
