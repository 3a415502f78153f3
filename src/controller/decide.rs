//! The decision of a sync as a value: a pure function from the cache's state to actions. The sync
//! acts on it, a dry run reports it, `explain` renders it.

pub mod age_ratio;
pub mod availability;
pub mod claim;
pub mod counts;
pub mod deletion_context;
pub mod deletion_order;
pub mod due;
pub mod optional;
pub mod plan;
pub mod status;

use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use self::availability::Availability;
use self::claim::{Claim, claim_of};
use self::counts::Counts;
use self::deletion_context::{DeletionContext, Preferences, RelatedPods};
use self::deletion_order::DeletionOrder;
use self::optional::OptIns;
use self::plan::{BURST_REPLICAS, Plan, plan, pods_to_delete};
use crate::api::{Pod, Policy, ReplicaSet, Selector, Uid, WorkloadKind};
use crate::stdx::hash::HashSet;

/// The settings that a decision depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Maximum pods created or deleted per sync.
    pub burst_replicas: usize,
    /// Whether the deletion order uses the deletion cost of pods.
    pub uses_deletion_cost: bool,
    /// Whether the status counts terminating pods.
    pub counts_terminating: bool,
    /// What the ReplicaSet opts in to.
    pub policy: Policy,
}

impl Rules {
    /// The settings of a daemon with default flags, unless the status of `rs` shows others.
    pub fn by_default(kind: &WorkloadKind, rs: &ReplicaSet) -> Self {
        Self {
            burst_replicas: BURST_REPLICAS,
            uses_deletion_cost: true,
            counts_terminating: kind.has_terminating_replicas,
            policy: Policy::of(&rs.opt_ins, &optional::flags_of(rs)),
        }
    }
}

/// The input of a decision about one ReplicaSet.
#[derive(Debug)]
pub struct Facts<'a> {
    /// The ReplicaSet.
    pub rs: &'a ReplicaSet,
    /// Its selector.
    pub selector: &'a Selector,
    /// Its pods.
    pub pods: Pods,
    /// Finds the pods that determine how crowded a node is. Called only if the decision sorts pods.
    pub related_pods: Box<dyn RelatedPods + 'a>,
    /// Pods whose deletion may have happened already. The decision picks them first, in this order.
    pub unresolved: Vec<Uid>,
    /// The permitted kind of action: create pods, delete pods, or neither; any with `None`.
    pub may: Option<Plan>,
    /// The settings.
    pub rules: Rules,
    /// The time of day.
    pub now: Timestamp,
}

/// The pods of a ReplicaSet.
#[derive(Clone, Debug)]
pub enum Pods {
    /// Counted by the cache. No pod must be adopted, released, created or deleted.
    Counted {
        /// Number of pods in each state.
        counts: Counts,
        /// Time until the next pod becomes available.
        next_check: Option<Duration>,
    },
    /// Listed one by one.
    Listed {
        /// Pods controlled by the ReplicaSet.
        owned: Vec<Arc<Pod>>,
        /// Pods of its namespace without a controller.
        orphans: Vec<Arc<Pod>>,
    },
}

/// The actions of one sync.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// The active pods that the ReplicaSet keeps or adopts; empty if the pods were only counted.
    pub active: Vec<Arc<Pod>>,
    /// Pods to adopt.
    pub adopt: Vec<Arc<Pod>>,
    /// Pods to release.
    pub release: Vec<Arc<Pod>>,
    /// How many pods to create or delete, within the burst.
    pub plan: Plan,
    /// What the ReplicaSet's opt-ins make of it.
    pub opt_ins: OptIns,
    /// Whether this sync carries out `plan`.
    pub acts: bool,
    /// The pods to delete in this sync, in deletion order.
    pub delete: Vec<Arc<Pod>>,
    /// The counts of its status.
    pub counts: Counts,
    /// Time until the next Ready pod becomes available.
    pub next_check: Option<Duration>,
    /// The time of day of the decision.
    pub now: Timestamp,
}

impl Facts<'_> {
    /// Decides within the permitted kind of action.
    pub fn decide(&self) -> Decision {
        self.decide_without(&HashSet::default())
    }

    /// As [`decide`](Self::decide), as if the pods `gone` did not exist.
    pub fn decide_without(&self, gone: &HashSet<Uid>) -> Decision {
        let (owned, orphans) = match &self.pods {
            Pods::Counted { counts, next_check } => {
                return Decision::to_report(*counts, *next_check, self.now);
            }
            Pods::Listed { owned, orphans } => (owned, orphans),
        };
        let (rs, now) = (self.rs, self.now);
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
        let pods = (&owned[..], &active[..]);
        let opt_ins = OptIns::of(&self.rules.policy, rs, self.selector, pods, now);
        let plan = if rs.is_terminating() {
            Plan::Nothing
        } else {
            let n_counted = active.len() - opt_ins.n_kept();
            opt_ins.limit_creates(plan(n_counted, rs.replicas, self.rules.burst_replicas))
        };
        // The freshness check permitted one kind of action. A different kind waits for its own
        // check.
        let is_alike = |may: Plan| discriminant(&plan) == discriminant(&may);
        let acts = plan != Plan::Nothing && self.may.is_none_or(is_alike);
        let delete = match plan {
            // The choice costs a sort, so it happens only for a delete in this sync.
            Plan::Delete(count) if acts => {
                pods_to_delete(&active, count, &self.deletion_context(&opt_ins))
            }
            Plan::Delete(_) | Plan::Create(_) | Plan::Nothing => Vec::new(),
        };
        let availability = Availability::of(&active, rs.min_ready_seconds, now);
        let (available, terminating) = (availability.n_available, self.count_terminating(owned));
        Decision {
            counts: Counts::of_pods(rs, &active, available, terminating),
            next_check: availability.next_check,
            active,
            adopt,
            release,
            plan,
            opt_ins,
            acts,
            delete,
            now,
        }
    }

    /// The input of the choice of pods to delete.
    pub fn deletion_context(&self, opt_ins: &OptIns) -> DeletionContext<'_> {
        DeletionContext {
            related_pods: &*self.related_pods,
            unresolved: &self.unresolved,
            order: DeletionOrder {
                now: self.now,
                uses_deletion_cost: self.rules.uses_deletion_cost,
                marks: opt_ins.marks(&self.rules.policy),
            },
            preferences: Preferences {
                order: self.rules.policy.scale_down_order,
                rs: self.rs,
            },
        }
    }

    fn count_terminating(&self, owned: &[Arc<Pod>]) -> Option<i32> {
        let is_counted = |pod: &&Arc<Pod>| {
            pod.is_terminating() && !pod.phase.is_terminal() && self.selector.matches(&pod.labels)
        };
        let count = || owned.iter().filter(is_counted).count();
        let counts = self.rules.counts_terminating;
        counts.then(|| i32::try_from(count()).unwrap_or(i32::MAX))
    }
}

impl Decision {
    /// The decision to do nothing except report these counts.
    fn to_report(counts: Counts, next_check: Option<Duration>, now: Timestamp) -> Self {
        Self {
            counts,
            next_check,
            now,
            ..Self::default()
        }
    }
}
