//! Captures what a sync decides from. The only reader of caches and record together.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::Core;
use super::decide::deletion_order::{NodeCounts, RelatedPods, count_on_node};
use super::decide::optional::respects_marks;
use super::decide::status::{Availability, Counts};
use super::decide::{Doubt, May, Pods, Rules, View};
use super::memory::positions::Versions;
use super::memory::{Memory, RecordView};
use crate::api::replica_set::DESIRED_REPLICAS;
use crate::api::{ObjectKey, OwnerKey, Pod, Policy, ReplicaSet, Selector, Uid, WorkloadKind};
use crate::cache::Cache;
use crate::cache::pods::PodBucket;

impl Core {
    /// Captures the record of `key`. Call this before the caches are read.
    ///
    /// A created pod may be missing although the cache has passed its version: the watch skipped
    /// both its creation and its deletion. Then the expectation counts as expired, and the next
    /// sync queries the API server. If a pod of that name exists but the ReplicaSet does not
    /// control it, only the expiry ends the expectation. That limits the rate of creates if a
    /// webhook strips the owner of each new pod.
    pub(super) fn capture_record(&self, key: &ObjectKey) -> RecordView {
        let mut record = self.memories.capture(key, || self.cached_versions());
        let Some(owner) = &record.owner else {
            return record;
        };
        let (mut seen, mut is_missing) = (Vec::new(), false);
        for name in &record.passed {
            let pod = ObjectKey::new(key.namespace.clone(), name.clone());
            match self.cache.pods.get(&pod) {
                // Its event may have come before the create was expected.
                Some(pod) if pod.is_controlled_by(owner) => seen.push(&**name),
                Some(_) => {}
                None => is_missing = true,
            }
        }
        if !seen.is_empty() {
            let now = self.clock.now();
            let may = self.memories.get_of(key, owner, |it| {
                for name in &seen {
                    it.own_writes.creation_seen(name);
                }
                it.own_writes.may(now)
            });
            if record.lagging.is_none() {
                record.may = may.unwrap_or(record.may);
            }
        }
        if is_missing && matches!(record.may, May::Report(_)) {
            record.may = May::Verify(Doubt::Unseen);
        }
        record
    }

    /// Captures the rest: the ReplicaSet must have been read after `record`, and this lists or
    /// counts its pods.
    pub(super) fn view<'a>(
        &'a self,
        rs: &'a ReplicaSet,
        selector: &'a Selector,
        record: RecordView,
    ) -> View<'a> {
        if record.owner.as_ref().is_some_and(|it| *it != rs.uid) {
            self.memories.forget(&rs.key, record.owner.as_ref());
        }
        let mut record = record.of_owner(&rs.uid);
        let is_new = rs.status.observed_generation < rs.generation;
        if is_new || record.spec_delay.is_some() {
            let (now, pods) = (self.clock.now(), &record.cached.pods);
            let compare = |it: &mut Memory| it.positions.spec_delay(rs, pods, now);
            let delay = self.memories.with(rs, compare);
            let policy = Policy::of(&rs.opt_ins, &self.options.policy);
            let waits = |_: &_| respects_marks(&policy) || !is_in_rollout(rs);
            record.spec_delay = delay.filter(waits);
        }
        let owner = self.owner_key(rs);
        let owned = self.cache.tally_of_pods_owned_by(&owner);
        let counts = self.count(rs, selector, &owned);
        let mut view = self.view_of(rs, selector, Pods::none());
        view.record = record;
        view.pods = match counts {
            Some(counts) if view.counts_are_enough(counts, owned.n_failed()) => {
                self.counted(rs, counts, view.now)
            }
            _ => {
                let [owned, orphans] = self.cache.pods_for(&owner, &rs.key.namespace);
                Pods::Listed { owned, orphans }
            }
        };
        view
    }

    /// The view of these pods without a record: nothing keeps a sync from acting.
    pub(super) fn view_of<'a>(
        &'a self,
        rs: &'a ReplicaSet,
        selector: &'a Selector,
        pods: Pods,
    ) -> View<'a> {
        View {
            rs,
            selector,
            record: RecordView::default(),
            pods,
            related_pods: Box::new(Siblings {
                kind: self.kind,
                cache: &self.cache,
                rs,
                selector,
            }),
            rules: self.rules_for(rs),
            now: self.clock.wall(),
        }
    }

    pub(crate) fn cached_versions(&self) -> Versions {
        Versions {
            pods: self.cache.pods.resource_version(),
            replica_sets: self.cache.replica_sets.resource_version(),
        }
    }

    pub(crate) fn rules_for(&self, rs: &ReplicaSet) -> Rules {
        Rules {
            burst_replicas: self.options.burst_replicas,
            uses_deletion_cost: self.options.gates.pod_deletion_cost,
            counts_terminating: self.counts_terminating(),
            policy: Policy::of(&rs.opt_ins, &self.options.policy),
        }
    }

    pub(super) fn counts_terminating(&self) -> bool {
        self.kind.has_terminating_replicas && self.options.gates.terminating_replicas
    }

    pub(crate) fn owner_key(&self, rs: &ReplicaSet) -> OwnerKey {
        OwnerKey::new(self.kind.kind, &rs.key, &rs.uid)
    }

    /// The view of these counts, with the pods that have been Ready for `minReadySeconds` as
    /// available. Visits the pods in place, without a list of them, and only if time matters.
    pub(super) fn counted(&self, rs: &ReplicaSet, mut counts: Counts, now: Timestamp) -> Pods {
        let mut availability = Availability::default();
        if counts.depend_on_time(rs) {
            // Every active pod matches the selector here; otherwise `count` returns `None`.
            let add = &mut |pod: &Pod| {
                if pod.is_active() {
                    availability.add(pod, rs.min_ready_seconds, now);
                }
            };
            let owned = PodBucket::OwnedBy(self.owner_key(rs));
            self.cache.pods.visit(&owned, add);
            // A pod may have become Ready after the tallies were read.
            counts.available = availability.n_available.min(counts.ready);
        }
        let next_check = availability.next_check;
        Pods::Counted { counts, next_check }
    }
}

/// True if a Deployment is replacing the pods of `rs` by those of another ReplicaSet, or the other
/// way round. Creates for that one do not wait, so deletes for this one must not: `maxSurge` allows
/// only so many pods. A Deployment of which only the size has changed scales `rs` to all of its
/// replicas.
fn is_in_rollout(rs: &ReplicaSet) -> bool {
    let desired = rs.annotation(DESIRED_REPLICAS);
    desired.is_some_and(|desired| {
        desired
            .parse()
            .is_ok_and(|desired: i32| desired != rs.replicas)
    })
}

/// The pods of all ReplicaSets that share this one's controller, such as the old and the new one of
/// a Deployment (kubernetes `pkg/controller/replicaset/replica_set.go:getIndirectlyRelatedPods`).
///
/// DIFFERS: upstream takes every pod of the namespace that a selector matches. Here pods of other
/// controllers do not count, so the cost follows the pods found. A ReplicaSet without a controller
/// has no related pods; upstream logs an error in that case, this controller does not.
#[derive(Debug)]
pub(crate) struct Siblings<'a> {
    pub(crate) kind: &'static WorkloadKind,
    pub(crate) cache: &'a Cache,
    pub(crate) rs: &'a ReplicaSet,
    pub(crate) selector: &'a Selector,
}

impl RelatedPods for Siblings<'_> {
    fn related_pods(&self) -> Vec<Arc<Pod>> {
        // Upstream's index of siblings holds no ReplicationControllers, so their ranks are all 0.
        if !self.kind.ranks_by_siblings {
            return Vec::new();
        }
        let Some(owner) = &self.rs.controller else {
            return Vec::new();
        };
        let mut seen: HashSet<Uid> = HashSet::new();
        let mut related = Vec::new();
        let mut add = |selector: &Selector, pods: Vec<Arc<Pod>>| {
            for pod in pods {
                if selector.matches(&pod.labels) && seen.insert(pod.uid.clone()) {
                    related.push(pod);
                }
            }
        };
        let (cache, kind) = (self.cache, self.kind.kind);
        let owned = |rs: &ReplicaSet| cache.pods_owned_by(&OwnerKey::new(kind, &rs.key, &rs.uid));
        add(self.selector, owned(self.rs));
        for sibling in cache.replica_sets_controlled_by(&owner.uid) {
            if let Ok(selector) = &sibling.selector {
                add(selector, owned(&sibling));
                add(selector, cache.orphans_in(&sibling.key.namespace));
            }
        }
        related
    }

    fn active_pods_per_node(&self) -> NodeCounts {
        let mut counts = NodeCounts::default();
        let count = &mut |pod: &Pod| count_on_node(pod, &mut counts);
        self.cache.pods.visit_all(count);
        counts
    }
}

#[cfg(test)]
mod tests;
