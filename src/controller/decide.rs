//! What a sync does about a ReplicaSet, as a value: pure, from what the caches show to what follows. The
//! sync acts on it, a dry run reports it, `explain` renders it.

pub mod age_ratio;
pub mod availability;
pub mod claim;
pub mod counts;
pub mod deletion_order;
pub mod due;
pub mod plan;
pub mod status;

use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use self::availability::Availability;
use self::claim::{Claim, claim_of};
use self::counts::Counts;
use self::deletion_order::DeletionOrder;
use self::plan::{DeletionContext, Plan, RelatedPods, plan, pods_to_delete};
use crate::api::{Pod, ReplicaSet, Selector, Uid};
use crate::stdx::hash::HashSet;

/// What a decision rests on beside the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The most pods that one sync creates or deletes.
    pub burst_replicas: usize,
    /// Whether the deletion cost of pods counts.
    pub uses_deletion_cost: bool,
    /// Whether statuses have a number of terminating pods.
    pub counts_terminating: bool,
}

/// All that is known of one ReplicaSet when it is decided on.
#[derive(Debug)]
pub struct Facts<'a> {
    /// The ReplicaSet.
    pub rs: &'a ReplicaSet,
    /// Its selector.
    pub selector: &'a Selector,
    /// Its pods.
    pub pods: Pods,
    /// The pods that decide how crowded a node is. Asked only if pods have to be sorted.
    pub related_pods: Box<dyn RelatedPods + 'a>,
    /// Pods whose deletion may already have happened: chosen before all others, in this order.
    pub unresolved: Vec<Uid>,
    /// What may be done now, by its kind: pods created, pods deleted, or nothing of both.
    pub may: Plan,
    /// What else it rests on.
    pub rules: Rules,
    /// The time of day.
    pub now: Timestamp,
}

/// The pods of a ReplicaSet.
#[derive(Clone, Debug)]
pub enum Pods {
    /// Counted by the cache. None is to be adopted, released, created or deleted.
    Counted {
        /// How many there are, in which state.
        counts: Counts,
        /// When the next one becomes available.
        next_check: Option<Duration>,
    },
    /// One by one.
    Listed {
        /// Those whose controller is the ReplicaSet.
        owned: Vec<Arc<Pod>>,
        /// Those of its namespace without a controller.
        orphans: Vec<Arc<Pod>>,
    },
}

/// What one sync does.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The active pods that it keeps, with those that it adopts; none if they were only counted.
    pub active: Vec<Arc<Pod>>,
    /// Pods to adopt.
    pub adopt: Vec<Arc<Pod>>,
    /// Pods to release.
    pub release: Vec<Arc<Pod>>,
    /// How many pods to create or delete, within the burst.
    pub plan: Plan,
    /// Whether that is done now.
    pub acts: bool,
    /// The pods to delete now, the first one first.
    pub delete: Vec<Arc<Pod>>,
    /// The numbers of its status.
    pub counts: Counts,
    /// When the next ready pod becomes available by the passing of time alone.
    pub next_check: Option<Duration>,
    /// The time of day at which it was decided.
    pub now: Timestamp,
}

impl Facts<'_> {
    /// What is to be done.
    pub fn decide(&self) -> Decision {
        self.decide_without(&HashSet::default())
    }

    /// The same, as if there were none of the pods `gone`.
    pub fn decide_without(&self, gone: &HashSet<Uid>) -> Decision {
        self.decide_as(gone, Some(self.may))
    }

    /// What would be done if everything might be done.
    pub fn decide_freely(&self) -> Decision {
        self.decide_as(&HashSet::default(), None)
    }

    fn decide_as(&self, gone: &HashSet<Uid>, may: Option<Plan>) -> Decision {
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
                Claim::Adopt => {
                    adopt.push(Arc::clone(pod));
                    active.push(Arc::clone(pod));
                }
                Claim::Release => release.push(Arc::clone(pod)),
                Claim::Ignore => {}
            }
        }
        let plan = if rs.is_terminating() {
            Plan::Nothing
        } else {
            plan(active.len(), rs.replicas, self.rules.burst_replicas)
        };
        let is_alike = |may: Plan| discriminant(&plan) == discriminant(&may);
        let acts = plan != Plan::Nothing && may.is_none_or(is_alike);
        let delete = match plan {
            // None is chosen for nothing, since that costs a sort.
            Plan::Delete(count) if acts => pods_to_delete(&active, count, &self.deletion_context()),
            Plan::Delete(_) | Plan::Create(_) | Plan::Nothing => Vec::new(),
        };
        Decision {
            counts: Counts::of_pods(rs, &active, self.count_terminating(owned), now),
            next_check: Availability::of(&active, rs.min_ready_seconds, now).next_check,
            active,
            adopt,
            release,
            plan,
            acts,
            delete,
            now,
        }
    }

    /// What the choice of pods to delete rests on.
    pub fn deletion_context(&self) -> DeletionContext<'_> {
        DeletionContext {
            related_pods: &*self.related_pods,
            unresolved: &self.unresolved,
            order: DeletionOrder {
                now: self.now,
                uses_deletion_cost: self.rules.uses_deletion_cost,
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
    /// Nothing is to be done but to report these numbers.
    fn to_report(counts: Counts, next_check: Option<Duration>, now: Timestamp) -> Self {
        Self {
            active: Vec::new(),
            adopt: Vec::new(),
            release: Vec::new(),
            plan: Plan::Nothing,
            acts: false,
            delete: Vec::new(),
            counts,
            next_check,
            now,
        }
    }
}
