//! What a ReplicaSet may opt in to beyond upstream's behaviour, as hooks of the decision. Pure.
//!
//! Each opt-in is one file below this one, and the core uses only this module: it limits creates,
//! spares or ranks the pods of a scale-down, deletes further pods, adds conditions, and says when
//! the decision changes without an event. `tests/it/tidy.rs` enforces that for the core.

pub mod failed_pods;
pub mod order;
pub mod protection;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use self::failed_pods::{BackOff, FAILED_POD_BACKOFF, OldFailedPods, report_back_off};
pub use self::order::prefer;
pub use self::protection::Marks;
/// True for a condition that only an opt-in sets, and removes.
pub use self::protection::is_block as is_own;
use self::protection::{Block, show_block};
use super::plan::{Next, Plan};
use super::status::Failure;
use crate::api::policy::Preference;
use crate::api::{Pod, Policy, ReplicaSet, ReplicaSetStatus, Selector};

/// How a ReplicaSet's opt-ins change one decision; empty without opt-ins.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    pub back_off: Option<BackOff>,
    pub block: Option<Block>,
    pub old_failed_pods: OldFailedPods,
}

impl Effects {
    pub fn of(
        policy: &Policy,
        rs: &ReplicaSet,
        selector: &Selector,
        (owned, active): (&[Arc<Pod>], &[Arc<Pod>]),
        now: Timestamp,
    ) -> Self {
        if rs.is_terminating() {
            return Self::default();
        }
        let back_off = policy.failed_pod_backoff;
        let back_off = back_off.and_then(|it| BackOff::of(it, rs, selector, (owned, active), now));
        Self {
            back_off,
            block: Block::of(rs, active, policy, now),
            old_failed_pods: OldFailedPods::of(policy, owned, selector, now),
        }
    }

    /// The plan without the creates that must wait.
    #[must_use]
    pub fn limit_creates(&self, plan: Plan) -> Plan {
        match (plan, &self.back_off) {
            (Plan::Create(_), Some(it)) if it.n_permitted == 0 => Plan::Nothing,
            (Plan::Create(count), Some(it)) => Plan::Create(count.min(it.n_permitted)),
            (plan, _) => plan,
        }
    }

    pub fn n_backed_off(&self) -> usize {
        self.back_off.as_ref().map_or(0, |it| it.n_backed_off)
    }

    pub fn n_kept(&self) -> usize {
        self.block.as_ref().map_or(0, Block::n_kept)
    }

    /// True unless an opt-in blocks a scale-down or delays creates.
    pub fn allow_convergence(&self) -> bool {
        self.block.is_none() && self.n_backed_off() == 0
    }

    /// Which pods a scale-down does not delete, or deletes first.
    pub fn marks(&self, policy: &Policy) -> Marks {
        Marks::of(policy, self.block.as_ref())
    }

    pub fn extra_deletes(&self) -> &[Arc<Pod>] {
        &self.old_failed_pods.delete
    }

    pub fn next_extra_deletes(&self) -> Option<Duration> {
        self.old_failed_pods.next_in
    }

    /// Adds conditions to `status`, the calculated status of `rs`. Returns the reason and the
    /// message of an event about pods that fail, if one is due.
    pub fn add_conditions(
        &self,
        status: &mut ReplicaSetStatus,
        rs: &ReplicaSet,
        failure: Option<&Failure>,
    ) -> Option<(&'static str, String)> {
        let event = report_back_off(status, rs, self.back_off.as_ref(), failure);
        show_block(status, rs, self.block.as_ref());
        Some((FAILED_POD_BACKOFF, event?))
    }

    /// Schedules the next sync for changes that no event announces, such as an expiring back-off. A
    /// failed sync does not postpone it.
    pub fn add_next(&self, now: Instant, next: &mut Next) {
        let at = |after: Duration| (!after.is_zero()).then(|| now + after);
        if let Some(back_off) = &self.back_off {
            match at(back_off.changes_in()) {
                Some(at) if back_off.n_backed_off > 0 => next.to_act(at),
                Some(at) => next.to_report(at),
                None => {}
            }
            if let Some(at) = at(back_off.settles_in) {
                next.to_report(at);
            }
        }
        let block = self.block.as_ref();
        if let Some(at) = block.and_then(|it| it.remaining).and_then(at) {
            next.to_act(at);
        }
    }
}

/// True if a decision needs the Failed pods themselves, not only their number.
pub fn reads_failed_pods(policy: &Policy, n_failed: impl FnOnce() -> usize) -> bool {
    let kept = policy.failed_pods_kept;
    let kept = kept.map(|kept| usize::try_from(kept).unwrap_or(usize::MAX));
    let n_ignored = policy.failed_pod_backoff.map_or(kept, |_| Some(0));
    n_ignored.is_some_and(|n_ignored| n_failed() > n_ignored)
}

/// True if a scale-down depends on the annotations of pods, so that counts do not suffice, and a
/// delete depends on the version of its pod.
pub fn respects_marks(policy: &Policy) -> bool {
    policy.scale_down_protection
}

/// True if a scale-down counts the pods of all owners on each node.
pub fn counts_all_pods(policy: &Policy) -> bool {
    policy.scale_down_order.includes(Preference::Consolidate)
}
