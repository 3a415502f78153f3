//! Decides whether the caches are new enough for a sync to act on. Each sync checks this once, here
//! only.
//!
//! Two kinds of evidence count. *Identities*: the cache must have shown the names of the pods that
//! this daemon created and the UIDs of the pods that it deleted
//! ([`OwnWrites`](super::memory::own_writes::OwnWrites)). *Positions*: the caches must have reached
//! certain resource versions, namely those of own writes, of a changed spec, of lost pods
//! ([`Positions`](super::memory::positions::Positions)) and of the take-over
//! ([`TakeOver`](super::memory::take_over::TakeOver)).

use std::time::Duration;

use super::ReplicaSetController;
use super::act::manage::pod_key;
use super::decide::due::Due;
use super::decide::optional::respects_marks;
use super::decide::plan::Plan;
use super::memory::Memory;
use super::memory::own_writes::Satisfaction;
use super::memory::positions::{Readiness, Versions};
use crate::api::ReplicaSet;

/// What a sync may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    /// The caches are new enough. The sync may do this much, or nothing.
    Current(Plan),
    /// The sync neither creates nor deletes pods: own writes are not shown yet (upstream:
    /// `rsNeedsSync` is false), or the API server refused a create. An event, or this delay,
    /// requeues the key.
    CountOnly(Option<Duration>),
    /// The sync does nothing. An event, or this delay, requeues the key.
    Wait(Duration),
    /// The sync must query the API server before it does anything.
    Verify(Doubt),
}

/// Why a sync must query the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// A written version is overdue for so long that the cached spec may be outdated too.
    Overdue,
    /// The watch did not show a created or deleted pod in time, or skipped it.
    Unseen,
    /// The caches may be older than the previous leader's writes.
    TakeOver,
    /// A scale-down must respect marks that the user set before the spec, and the pod cache may be
    /// older than the spec.
    OlderThanSpec,
}

impl ReplicaSetController {
    /// Returns what a sync of `rs` may do. If the sync has to wait, this registers the key, so that
    /// the event that ends the wait enqueues it.
    ///
    /// ORDER: call this before the cache reads of the sync, also before that of the ReplicaSet that
    /// it acts on, which must have the same spec. Changes that arrive in between belong to the next
    /// sync, which their event enqueues.
    pub(super) fn freshness(&self, rs: &ReplicaSet) -> Freshness {
        let key = &rs.key;
        let (cached, began) = (|| self.cached_versions(), self.clock.now());
        // ORDER: before any status write, because a status declares the spec observed.
        let observe_spec = |memory: &mut Memory| memory.positions.observe_spec(rs, began);
        self.memories.with(key, &rs.uid, observe_spec);
        match self.memories.readiness(key, &rs.uid, cached) {
            // The status has waited for the created pods for as long as it may.
            Readiness::TooEarly(delay) if self.owes_status(rs) => {
                return Freshness::CountOnly(Some(delay));
            }
            Readiness::TooEarly(delay) => {
                self.count_skip(rs, &cached());
                return Freshness::Wait(delay);
            }
            Readiness::Overdue => return Freshness::Verify(Doubt::Overdue),
            Readiness::Ready => {}
        }
        let (is_proven, cached, now) = (self.take_over_is_proven(), cached(), self.clock.now());
        let satisfaction = self.check_expectations(rs);
        let due = self.due(rs);
        let held_back = match due.plan {
            Plan::Create(_) => {
                let wait = |memory: &mut Memory| memory.creates_wait(rs.generation, now);
                self.memories.get(key, &rs.uid, wait).flatten()
            }
            Plan::Delete(_) | Plan::Nothing => None,
        };
        match satisfaction {
            Satisfaction::Open => return Freshness::CountOnly(None),
            Satisfaction::Expired => return Freshness::Verify(Doubt::Unseen),
            Satisfaction::Satisfied => {}
        }
        if let Some(delay) = held_back {
            return Freshness::CountOnly(Some(delay));
        }
        let is_protecting = respects_marks(&self.policy_of(rs));
        let mut has_hold = false;
        let freshness = self.memories.with(key, &rs.uid, |memory| {
            has_hold = memory.last_refusal().is_some();
            let positions = &mut memory.positions;
            match due.plan {
                // A status needs no proof: the next sync corrects an outdated one.
                Plan::Nothing => Freshness::Current(Plan::Nothing),
                _ if !is_proven && !positions.is_confirmed => Freshness::Verify(Doubt::TakeOver),
                // Only a choice among pods depends on their newest state. A delete of all needs
                // none, unless some may be protected.
                Plan::Delete(count) if count < due.n_active || is_protecting => {
                    match positions.delete_delay(&cached.pods, now) {
                        Some(delay) => Freshness::Wait(delay),
                        None if is_protecting && !positions.show_spec(&cached.pods) => {
                            Freshness::Verify(Doubt::OlderThanSpec)
                        }
                        None => Freshness::Current(due.plan),
                    }
                }
                Plan::Delete(_) | Plan::Create(_) => Freshness::Current(due.plan),
            }
        });
        if has_hold && !matches!(due.plan, Plan::Create(_)) {
            self.memories.note_creates(rs, None, true);
        }
        freshness
    }

    /// True if a deferred status has waited for own pods for as long as it may, and `rs` shows the
    /// last written status.
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

    /// Returns what is due by the cache's tallies.
    fn due(&self, rs: &ReplicaSet) -> Due {
        let Ok(selector) = &rs.selector else {
            return Due::default();
        };
        let owned = self.cache.tally_of_pods_owned_by(&self.owner_key(rs));
        let orphans = self.cache.tally_of_orphans_in(&rs.key.namespace);
        Due::of_tallies(rs, selector, &owned, &orphans, self.options.burst_replicas)
    }

    /// Checks whether the cache has shown every own write of `rs`.
    ///
    /// A created pod may be missing although the cache has passed its version: the pod came and
    /// went, or the store was restored from a backup. Then the expectation counts as expired, and
    /// the API server decides. If a pod of that name exists but `rs` does not control it, only the
    /// expiry ends the expectation. That slows down a webhook which strips the owner of each new
    /// pod.
    pub(super) fn check_expectations(&self, rs: &ReplicaSet) -> Satisfaction {
        let position = self.cache.pods_resource_version();
        let mut is_missing = false;
        let passed = |memory: &mut Memory| memory.own_writes.passed(&position);
        let passed = self.memories.get(&rs.key, &rs.uid, passed);
        for name in passed.into_iter().flatten() {
            match self.cache.pod(&pod_key(rs, &name)) {
                // The store shows a pod before the handler observes its creation.
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

    /// Whether the watch threads have observed every expected write.
    pub(super) fn satisfaction(&self, rs: &ReplicaSet) -> Satisfaction {
        let now = self.clock.now();
        let satisfaction = |memory: &mut Memory| memory.own_writes.satisfaction(now);
        let satisfaction = self.memories.get(&rs.key, &rs.uid, satisfaction);
        satisfaction.unwrap_or(Satisfaction::Satisfied)
    }

    /// Counts a skipped sync by the cache that lags: the ReplicaSet cache only if the pod cache
    /// does not.
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
