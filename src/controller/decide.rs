//! The decision of a sync as a value: a pure function from the cache's state to actions. The sync
//! acts on it, a dry run reports it, `explain` renders it.

pub mod deletion_order;
pub mod optional;
pub mod plan;
pub mod status;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use self::deletion_order::{DeletionContext, DeletionOrder, RelatedPods, pods_to_delete};
use self::optional::{Effects, reads_failed_pods, respects_marks};
use self::plan::{Next, Plan, plan};
use self::status::{Availability, Counts};
use crate::api::{ArcStr, Pod, Policy, ReplicaSet, Selector, Uid};
use crate::controller::memory::RecordView;
use crate::stdx::HashSet;

pub use crate::controller::memory::{Doubt, May};

/// The settings that a decision depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    pub burst_replicas: usize,
    pub uses_deletion_cost: bool,
    pub counts_terminating: bool,
    pub policy: Policy,
}

/// Everything that a sync decides from, captured once.
#[derive(Debug)]
pub struct View<'a> {
    pub rs: &'a ReplicaSet,
    pub selector: &'a Selector,
    /// What its record says. Older than its pods.
    pub record: RecordView,
    pub pods: Pods,
    /// Finds the pods that determine how crowded a node is. Called only if the decision sorts pods.
    pub related_pods: Box<dyn RelatedPods + 'a>,
    pub rules: Rules,
    pub now: Timestamp,
}

#[derive(Clone, Debug)]
pub enum Pods {
    /// Counted by the cache. No pod must be adopted, released, created or deleted.
    Counted {
        counts: Counts,
        next_check: Option<Duration>,
    },
    Listed {
        owned: Vec<Arc<Pod>>,
        orphans: Vec<Arc<Pod>>,
    },
}

/// The answer of a decision: what a sync may do, what it does, and when the next one follows.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// The active pods that the ReplicaSet keeps or adopts; empty if the pods were only counted.
    pub active: Vec<Arc<Pod>>,
    pub adopt: Vec<Arc<Pod>>,
    pub release: Vec<Arc<Pod>>,
    /// How many pods to create or delete, within the burst.
    pub plan: Plan,
    pub effects: Effects,
    pub may: May,
    /// Names that the creates repeat before they take new ones.
    pub retry: Vec<ArcStr>,
    pub delete: Vec<Arc<Pod>>,
    pub counts: Counts,
    /// Time until the next Ready pod becomes available.
    pub next_check: Option<Duration>,
    pub now: Timestamp,
}

impl Step {
    pub fn acts(&self) -> bool {
        self.may == May::Act && self.plan != Plan::Nothing
    }

    pub fn has_converged(&self) -> bool {
        self.may == May::Act && self.plan == Plan::Nothing && self.effects.allow_convergence()
    }

    /// When `rs` needs its next sync without any event, as seen at `now`.
    pub fn next(&self, rs: &ReplicaSet, now: Instant) -> Next {
        let mut next = Next::default();
        match self.may {
            // DIFFERS: upstream waits for the next event of the ReplicaSet or its pods, or for the
            // periodic resync, also if an expectation expires. A lost event, or a pod that appeared
            // and vanished unseen, wakes no key.
            May::Report(Some(delay)) | May::Wait(delay) => next.to_act(now + delay),
            May::Verify(_) => next.to_act(now),
            May::Report(None) | May::Act => {}
        }
        let Counts {
            ready, available, ..
        } = self.counts;
        if rs.min_ready_seconds > 0 && ready != available {
            let fallback = Duration::from_secs(rs.min_ready_seconds.unsigned_abs().into());
            let delay = self.next_check.unwrap_or(fallback);
            next.to_report(now + delay);
        }
        self.effects.add_next(now, &mut next);
        if let Some(delay) = self.effects.next_extra_deletes() {
            next.to_report(now + delay);
        }
        next
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The ReplicaSet controls the pod and keeps it.
    Keep,
    /// The pod has another controller, or the ReplicaSet cannot claim it.
    Ignore,
    /// The pod has no controller and matches the selector.
    Adopt,
    /// The ReplicaSet controls the pod, but the selector no longer matches.
    Release,
}

/// Returns the claim of `rs` on `pod`, judged by the two objects alone (kubernetes
/// `pkg/controller/controller_ref_manager.go:BaseControllerRefManager.ClaimObject`).
pub fn claim_of(rs: &ReplicaSet, selector: &Selector, pod: &Pod) -> Claim {
    let matches = selector.matches(&pod.labels);
    match &pod.controller {
        Some(controller) if controller.uid != rs.uid => Claim::Ignore,
        Some(_) if selector.keeps(&pod.labels) => Claim::Keep,
        // A ReplicaSet under deletion releases nothing: the garbage collector handles its pods.
        Some(_) if rs.is_terminating() => Claim::Ignore,
        Some(_) => Claim::Release,
        None if rs.is_terminating() || !matches || pod.is_terminating() => Claim::Ignore,
        None if pod.key.namespace != rs.key.namespace && !rs.key.namespace.is_empty() => {
            Claim::Ignore
        }
        None => Claim::Adopt,
    }
}

impl Pods {
    pub fn none() -> Self {
        let (owned, orphans) = (Vec::new(), Vec::new());
        Self::Listed { owned, orphans }
    }
}

impl View<'_> {
    pub fn decide(&self) -> Step {
        self.decide_without(&HashSet::default())
    }

    /// As [`decide`](Self::decide), as if the pods `gone` did not exist.
    pub fn decide_without(&self, gone: &HashSet<Uid>) -> Step {
        // EnsureReady, SatisfiedExpectations. With open expectations it reports.
        if let May::Wait(_) | May::Verify(_) = self.record.may {
            return Step {
                may: self.record.may,
                now: self.now,
                ..Step::default()
            };
        }
        let (owned, orphans) = match &self.pods {
            Pods::Counted { counts, next_check } => {
                let (plan, may) = self.may_by_counts(*counts);
                return Step {
                    plan,
                    may,
                    counts: *counts,
                    next_check: *next_check,
                    now: self.now,
                    ..Step::default()
                };
            }
            Pods::Listed { owned, orphans } => (owned, orphans),
        };
        let (rs, now) = (self.rs, self.now);
        // FilterActivePods, claimPods.
        let (mut active, mut adopt, mut release) = (Vec::new(), Vec::new(), Vec::new());
        let candidates = owned.iter().chain(orphans);
        for pod in candidates.filter(|pod| pod.is_active() && !gone.contains(&pod.uid)) {
            match claim_of(rs, self.selector, pod) {
                Claim::Keep => active.push(Arc::clone(pod)),
                // As upstream: a pod adopted in this sync counts as active at once.
                Claim::Adopt => {
                    adopt.push(Arc::clone(pod));
                    active.push(Arc::clone(pod));
                }
                Claim::Release => release.push(Arc::clone(pod)),
                Claim::Ignore => {}
            }
        }
        // manageReplicas.
        let pods = (&owned[..], &active[..]);
        let effects = Effects::of(&self.rules.policy, rs, self.selector, pods, now);
        let plan = if rs.is_terminating() {
            Plan::Nothing
        } else {
            let n_counted = active.len() - effects.n_kept();
            effects.limit_creates(plan(n_counted, rs.replicas, self.rules.burst_replicas))
        };
        let (mut retry, mut is_unclear) = (Vec::new(), false);
        match plan {
            Plan::Create(count) => {
                retry = self.names_to_retry(owned);
                is_unclear = retry.len() > count && !self.record.unknowns_are_compared;
            }
            Plan::Delete(count) => is_unclear = self.deletes_are_unclear(&active, count),
            Plan::Nothing => {}
        }
        let may = self.may(plan, active.len(), is_unclear);
        let delete = match plan {
            // The choice costs a sort, so it happens only for a delete in this sync.
            Plan::Delete(count) if may == May::Act => {
                let context = self.deletion_context(&effects);
                pods_to_delete(&active, count, &context)
            }
            Plan::Delete(_) | Plan::Create(_) | Plan::Nothing => Vec::new(),
        };
        // calculateStatus.
        let availability = Availability::of(&active, rs.min_ready_seconds, now);
        let (available, terminating) = (availability.n_available, self.count_terminating(owned));
        Step {
            counts: Counts::of_pods(rs, &active, available, terminating),
            next_check: availability.next_check,
            active,
            adopt,
            release,
            plan,
            effects,
            may,
            retry,
            delete,
            now,
        }
    }

    /// What this sync may do of `plan`, with this many active pods. It `is_unclear` which of the
    /// earlier creates or deletes of unknown outcome it would repeat.
    fn may(&self, plan: Plan, n_active: usize, is_unclear: bool) -> May {
        let record = &self.record;
        if record.may != May::Act {
            return record.may;
        }
        // A status needs no proof: the next sync corrects an outdated one.
        if plan == Plan::Nothing {
            return May::Act;
        }
        if let (Plan::Create(_), Some((generation, Some(delay)))) = (plan, record.rejected)
            && generation == self.rs.generation
        {
            return May::Report(Some(delay));
        }
        if record.is_unproven && !record.is_confirmed {
            return May::Verify(Doubt::Failover);
        }
        match plan {
            Plan::Create(_) if record.loss_delay.is_some() => {
                return May::Report(record.loss_delay);
            }
            // Only a choice among pods depends on their newest state. A delete of all needs none,
            // unless some may be protected.
            Plan::Delete(count) if count < n_active || respects_marks(&self.rules.policy) => {
                if let Some(delay) = record.spec_delay {
                    return May::Wait(delay);
                }
            }
            Plan::Create(_) | Plan::Delete(_) | Plan::Nothing => {}
        }
        if is_unclear {
            return May::Verify(Doubt::Unknown);
        }
        May::Act
    }

    /// Names under which a pod may exist although the cache shows none.
    fn names_to_retry(&self, owned: &[Arc<Pod>]) -> Vec<ArcStr> {
        let mut names = self.record.unknown_creations.clone();
        names.retain(|name| !owned.iter().any(|pod| pod.key.name == *name));
        names
    }

    /// True if more than `count` of the active pods may be deleted already, or one whose delete can
    /// take no effect any more: the query settles what became of that one.
    fn deletes_are_unclear(&self, active: &[Arc<Pod>], count: usize) -> bool {
        let unknown = &self.record.unknown_deletions;
        let is_active = |uid: &&Uid| active.iter().any(|pod| pod.uid == **uid);
        !self.record.unknowns_are_compared && unknown.iter().filter(is_active).count() > count
            || unknown[..self.record.n_overdue]
                .iter()
                .any(|uid| is_active(&uid))
    }

    /// True if the decision has considered this pod one by one.
    pub fn lists(&self, pod: &Pod) -> bool {
        match &self.pods {
            Pods::Counted { .. } => false,
            Pods::Listed { owned, orphans } => {
                owned.iter().chain(orphans).any(|it| it.uid == pod.uid)
            }
        }
    }

    /// What this sync may do if it has these counts, and no pod to adopt, release or protect.
    fn may_by_counts(&self, counts: Counts) -> (Plan, May) {
        let n_active = usize::try_from(counts.replicas).unwrap_or(0);
        let plan = plan(n_active, self.rs.replicas, self.rules.burst_replicas);
        (plan, self.may(plan, n_active, false))
    }

    /// True if these counts are all that the decision reads of the pods: no pod must be created or
    /// deleted in this sync, and no opt-in reads them.
    pub fn counts_are_enough(&self, counts: Counts, n_failed: usize) -> bool {
        let (plan, may) = self.may_by_counts(counts);
        let acts = plan != Plan::Nothing && may == May::Act;
        let is_surplus = counts.replicas > self.rs.replicas.max(0);
        let policy = &self.rules.policy;
        let reads_pods = self.rs.is_terminating()
            || reads_failed_pods(policy, || n_failed)
            || is_surplus && respects_marks(policy);
        !acts && !reads_pods
    }

    pub fn deletion_context(&self, effects: &Effects) -> DeletionContext<'_> {
        DeletionContext {
            related_pods: &*self.related_pods,
            unresolved: &self.record.unknown_deletions,
            order: DeletionOrder {
                now: self.now,
                uses_deletion_cost: self.rules.uses_deletion_cost,
                marks: effects.marks(&self.rules.policy),
            },
            preferences: self.rules.policy.scale_down_order,
            rs: self.rs,
        }
    }

    fn count_terminating(&self, owned: &[Arc<Pod>]) -> Option<i32> {
        let is_counted = |pod: &&Arc<Pod>| {
            pod.is_terminating() && !pod.phase.is_terminal() && self.selector.keeps(&pod.labels)
        };
        let counts = self.rules.counts_terminating;
        counts.then(|| i32::try_from(owned.iter().filter(is_counted).count()).unwrap_or(i32::MAX))
    }
}

#[cfg(test)]
mod tests;
