//! What is due by the cache's tallies, before the sync reads any pod. Pure.

use super::plan::{Plan, plan};
use crate::api::{ReplicaSet, Selector};
use crate::cache::PodTally;

/// The work of a sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Active pods that the ReplicaSet keeps or adopts.
    pub n_active: usize,
    /// Pods to create or delete after the claims; if none, then those that are due if all pods to
    /// adopt are gone.
    pub plan: Plan,
}

impl Due {
    /// Sums up the cache's tallies.
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
        let n_active = |tally: &PodTally| -> usize {
            let counted = tally.iter().filter(|it| selector.matches(&it.labels));
            counted.map(|it| it.n_active as usize).sum()
        };
        let (n_kept, n_adopted) = (n_active(owned), n_active(orphans));
        let plan_of = |n_active| plan(n_active, rs.replicas, burst_replicas);
        Self {
            n_active: n_kept + n_adopted,
            // An adoption may find its pod gone. The freshness check then covers the create too.
            plan: match plan_of(n_kept + n_adopted) {
                Plan::Nothing => plan_of(n_kept),
                due => due,
            },
        }
    }
}
