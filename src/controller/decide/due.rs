//! What is due by the cache's tallies, before any pod is looked at. Pure.

use super::plan::{Plan, plan};
use crate::api::{ReplicaSet, Selector};
use crate::cache::PodTally;

/// What a sync would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Pods that would count: active ones that it keeps or adopts.
    pub n_active: usize,
    /// Pods that it would adopt or release.
    pub n_claims: usize,
    /// How many it would create or delete then; if none, how many if those to be adopted have gone.
    pub plan: Plan,
}

impl Default for Due {
    fn default() -> Self {
        Self {
            n_active: 0,
            n_claims: 0,
            plan: Plan::Nothing,
        }
    }
}

impl Due {
    /// Adds up what the cache has counted.
    pub fn of_tallies(
        rs: &ReplicaSet,
        selector: &Selector,
        owned: &PodTally,
        orphans: &PodTally,
        burst_replicas: usize,
    ) -> Self {
        if rs.is_terminating() {
            return Self::default();
        }
        let n_active = |tally: &PodTally, matching: bool| -> usize {
            let counted = tally.iter();
            let counted = counted.filter(|it| selector.matches(&it.labels) == matching);
            counted.map(|it| it.n_active as usize).sum()
        };
        let (n_kept, n_released) = (n_active(owned, true), n_active(owned, false));
        let n_adopted = n_active(orphans, true);
        let plan_of = |n_active| plan(n_active, rs.replicas, burst_replicas);
        Self {
            n_active: n_kept + n_adopted,
            n_claims: n_released + n_adopted,
            plan: match plan_of(n_kept + n_adopted) {
                Plan::Nothing => plan_of(n_kept),
                due => due,
            },
        }
    }
}
