//! Everything that the controller knows about one ReplicaSet, for `explain`. Reads and copies;
//! changes and sends nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::api::conditions::{REPLICA_FAILURE, get_condition};
use crate::api::{ArcStr, Labels, ObjectKey, OwnerKey, Pod, Policy, ReplicaSet, Uid, WorkloadKind};
use crate::cache::Cache;
use crate::controller::decide::Rules;
use crate::controller::decide::deletion_order::{NodeCounts, RelatedPods};
use crate::controller::decide::optional::{counts_all_pods, is_own};
use crate::controller::decide::plan::BURST_REPLICAS;
use crate::controller::memory::history::{LastError, LastSync};
use crate::controller::memory::own_writes::OpenExpectations;
use crate::controller::memory::positions::Versions;
use crate::controller::memory::rejections::BackedOff;
use crate::controller::memory::{Memory, Totals};
use crate::controller::{Core, Siblings};
use crate::workqueue::KeyState;

/// The input of the decisions about a ReplicaSet.
#[derive(Clone, Debug)]
pub struct ReplicaSetFacts {
    pub kind: &'static WorkloadKind,
    pub owned: Vec<Arc<Pod>>,
    pub orphans: Vec<Arc<Pod>>,
    /// The pods of all ReplicaSets with the same controller, which determine how crowded a node is.
    pub related: Vec<Arc<Pod>>,
    /// The other ReplicaSets of its namespace; empty for a table.
    pub neighbours: Vec<Arc<ReplicaSet>>,
    /// The active pods of all owners on each node; empty unless the ReplicaSet consolidates.
    pub per_node: NodeCounts,
    pub rules: Rules,
    /// The record of a running daemon; `None` without one.
    pub memory: Option<RecordFacts>,
    pub replica_set: Arc<ReplicaSet>,
}

impl Rules {
    /// The settings of a daemon with default flags, unless the status of `rs` shows others.
    pub fn by_default(kind: &WorkloadKind, rs: &ReplicaSet) -> Self {
        let flags = Policy {
            scale_down_protection: rs.status.conditions.iter().any(is_own),
            ..Policy::default()
        };
        Self {
            burst_replicas: BURST_REPLICAS,
            uses_deletion_cost: true,
            counts_terminating: kind.has_terminating_replicas,
            policy: Policy::of(&rs.opt_ins, &flags),
        }
    }
}

impl ReplicaSetFacts {
    /// What a table needs of it: without `related`, `neighbours` and `per_node`, on which only the
    /// deletion order depends, and of the orphans only those that the selector matches.
    pub fn of(
        kind: &'static WorkloadKind,
        cache: &Cache,
        replica_set: Arc<ReplicaSet>,
        rules: Rules,
        memory: Option<RecordFacts>,
    ) -> Self {
        let rs = &*replica_set;
        let namespace = &rs.key.namespace;
        let is_matching = |pod: &Labels| rs.selector.as_ref().is_ok_and(|it| it.matches(pod));
        let tally = cache.tally_of_orphans_in(namespace);
        let mut orphans = Vec::new();
        // The list is copied only if one matches.
        if tally.iter().any(|(labels, _)| is_matching(labels)) {
            orphans = cache.orphans_in(namespace);
            orphans.retain(|pod| is_matching(&pod.labels));
        }
        let owner = OwnerKey::new(kind.kind, &rs.key, &rs.uid);
        Self {
            kind,
            owned: cache.pods_owned_by(&owner),
            orphans,
            related: Vec::new(),
            neighbours: Vec::new(),
            per_node: NodeCounts::default(),
            rules,
            memory,
            replica_set,
        }
    }

    /// Adds what a report needs besides.
    #[must_use]
    pub fn complete(mut self, cache: &Cache) -> Self {
        let (kind, rs) = (self.kind, Arc::clone(&self.replica_set));
        if let Ok(selector) = &rs.selector {
            let siblings = Siblings {
                kind,
                cache,
                rs: &rs,
                selector,
            };
            self.related = siblings.related_pods();
            // Counting takes time in proportion to all pods.
            if counts_all_pods(&self.rules.policy) {
                self.per_node = siblings.active_pods_per_node();
            }
        }
        let owner = OwnerKey::new(kind.kind, &rs.key, &rs.uid);
        [self.owned, self.orphans] = cache.pods_for(&owner, &rs.key.namespace);
        self.neighbours = cache.replica_sets_in(&rs.key.namespace);
        self.neighbours.retain(|it| it.uid != rs.uid);
        self
    }
}

/// A running daemon's record of a ReplicaSet.
#[derive(Clone, Debug)]
pub struct RecordFacts {
    pub expectations: Option<OpenExpectations>,
    pub unresolved_creations: Vec<ArcStr>,
    pub unresolved_deletions: Vec<Uid>,
    /// Versions that the caches must reach before the next sync; `None` if they have.
    pub waits_for: Option<Versions>,
    pub cached: Versions,
    pub last_sync: Option<LastSync>,
    pub last_error: Option<Box<LastError>>,
    pub backed_off: Option<BackedOff>,
    /// What another controller wrote lately, to any ReplicaSet.
    pub other_writer: Option<String>,
    /// The Workload whose gang scheduling is unsupported, if a sync found one.
    pub gang_workload: Option<Box<str>>,
    /// True if quotas are watched, so that free quota ends the back-off.
    pub quotas_are_watched: bool,
    pub queue: KeyState,
}

impl RecordFacts {
    pub(crate) fn is_quiet(&self) -> bool {
        self.expectations.is_none()
            && self.unresolved_creations.is_empty()
            && self.unresolved_deletions.is_empty()
            && self.waits_for.is_none()
            && self.last_error.is_none()
            && self.backed_off.is_none()
            && !self.queue.is_waiting
            && self.queue.n_failures == 0
    }
}

/// Reads what a controller knows, for `explain` and telemetry.
pub struct Inspector<'a>(&'a Core);

impl Core {
    pub fn inspector(&self) -> Inspector<'_> {
        Inspector(self)
    }
}

impl Inspector<'_> {
    /// Collects the state of the ReplicaSet `key`; `None` if the cache has none of that name. Takes
    /// several short locks in turn, so the parts may stem from different moments.
    pub fn inspect(&self, key: &ObjectKey) -> Option<ReplicaSetFacts> {
        let rs = self.0.cache.replica_sets.get(key)?;
        let memory = self.memory_of(&rs);
        Some(self.facts(rs, memory).complete(&self.0.cache))
    }

    fn facts(&self, rs: Arc<ReplicaSet>, memory: RecordFacts) -> ReplicaSetFacts {
        let rules = self.0.rules_for(&rs);
        ReplicaSetFacts::of(self.0.kind, &self.0.cache, rs, rules, Some(memory))
    }

    pub fn current_of_deployment(&self, key: &ObjectKey) -> Option<ObjectKey> {
        let sets = self.0.cache.replica_sets_in(&key.namespace);
        current_of_deployment(&sets, &key.name).map(|rs| rs.key.clone())
    }

    /// Calls `take` with the state of each ReplicaSet of `namespace`, or of all with `None`, unless
    /// the cache's tallies and its record show that it has converged. Returns the number of all of
    /// them.
    pub fn inspect_unsettled(
        &self,
        namespace: Option<&str>,
        take: &mut dyn FnMut(&ReplicaSetFacts),
    ) -> usize {
        let all = match namespace {
            Some(namespace) => self.0.cache.replica_sets_in(namespace),
            None => self.0.cache.replica_sets.list(),
        };
        let n = all.len();
        for rs in all {
            let memory = self.memory_of(&rs);
            if !self.is_settled(&rs, &memory) {
                take(&self.facts(rs, memory));
            }
        }
        n
    }

    /// Returns how many ReplicaSets have not converged by their status, for telemetry. Terminating
    /// ones do not count, as this controller creates no pods for them.
    pub fn n_not_converged(&self) -> usize {
        let has_converged = |rs: &ReplicaSet| {
            let status = &rs.status;
            status.observed_generation >= rs.generation
                && status.replicas == rs.replicas
                && status.available_replicas == rs.replicas
        };
        let all = self.0.cache.replica_sets.list();
        let alive = all.iter().filter(|rs| !rs.is_terminating());
        alive.filter(|rs| !has_converged(rs)).count()
    }

    /// Returns how many ReplicaSets wait for a back-off: after failed syncs, rejected creates, or
    /// failed pods.
    pub fn n_in_back_off(&self) -> usize {
        let waiting = self.0.memories.in_back_off().into_iter();
        let waiting: BTreeSet<_> = waiting.chain(self.0.queue.failed()).collect();
        waiting.len()
    }

    /// True if every pod of `rs` is available, there are `spec.replicas` of them, and nothing is
    /// left to do or to report. Visits no pod.
    fn is_settled(&self, rs: &ReplicaSet, memory: &RecordFacts) -> bool {
        let Ok(selector) = &rs.selector else {
            return false;
        };
        let owned = self.0.cache.tally_of_pods_owned_by(&self.0.owner_key(rs));
        let n_owned: u32 = owned.iter().map(|(_, tally)| tally.n_pods).sum();
        let counts = self.0.count(rs, selector, &owned);
        counts.is_some_and(|it| it.available == rs.replicas && !it.depend_on_time(rs))
            // More pods than active ones have finished or are terminating.
            && i64::from(n_owned) == i64::from(rs.replicas)
            && !rs.is_terminating()
            && get_condition(&rs.status.conditions, REPLICA_FAILURE).is_none()
            && Policy::mistakes(&rs.opt_ins).is_empty()
            && memory.is_quiet()
    }

    fn memory_of(&self, rs: &ReplicaSet) -> RecordFacts {
        let (cached, now) = (self.0.cached_versions(), self.0.clock.now());
        let backed_off = self.0.memories.backed_off(rs);
        let quotas_are_watched = self.0.memories.quota_watch.is_open.load(Ordering::Relaxed);
        let other_writer = self.0.other_writer(now);
        let queue = self.0.queue.state_of(&rs.key);
        let copy = |memory: &mut Memory| {
            let (writes, positions) = (&memory.own_writes, &memory.positions);
            let (mut deletions, n_over) = writes.unknown_deletions(now);
            let is_held_up = self.0.options.gates.stale_controller_consistency
                && positions.lagging(&cached).is_some();
            RecordFacts {
                expectations: writes.open(now),
                unresolved_creations: writes.creations_under_way(now),
                unresolved_deletions: deletions.split_off(n_over),
                waits_for: positions.written().filter(|_| is_held_up).cloned(),
                last_sync: memory.history.last_sync.clone(),
                last_error: memory.history.last_error.clone(),
                backed_off: backed_off.clone(),
                other_writer: other_writer.clone(),
                gang_workload: memory
                    .history
                    .gang_workload
                    .as_ref()
                    .and_then(|it| it.1.clone()),
                quotas_are_watched,
                queue,
                cached: cached.clone(),
            }
        };
        let known = self.0.memories.get(rs, copy);
        known.unwrap_or_else(|| copy(&mut Memory::of(&rs.uid)))
    }

    /// Returns how many pods all ReplicaSets keep above `spec.replicas` because the pods are
    /// protected, for telemetry, by their statuses.
    pub fn n_kept_by_protection(&self) -> usize {
        let n_kept = |rs: &Arc<ReplicaSet>| {
            rs.status.conditions.iter().find(|it| is_own(it))?;
            let n_beyond = rs.status.replicas.saturating_sub(rs.replicas.max(0));
            usize::try_from(n_beyond).ok()
        };
        self.0
            .cache
            .replica_sets
            .list()
            .iter()
            .filter_map(n_kept)
            .sum()
    }

    pub fn totals(&self) -> Totals {
        self.0.memories.totals()
    }
}

/// The current one of the ReplicaSets of this Deployment: that of the highest revision, which
/// after a rollback is an older one. Without revisions, the newest with `spec.replicas` above
/// zero, or else the newest.
pub fn current_of_deployment<'a>(
    sets: &'a [Arc<ReplicaSet>],
    deployment: &str,
) -> Option<&'a Arc<ReplicaSet>> {
    let is_its = |rs: &&Arc<ReplicaSet>| {
        let owner = rs.controller.as_ref();
        owner.is_some_and(|owner| &*owner.kind == "Deployment" && &*owner.name == deployment)
    };
    let sets = sets.iter().filter(is_its);
    sets.max_by_key(|rs| (rs.revision(), rs.replicas > 0, rs.creation, &rs.key.name))
}
