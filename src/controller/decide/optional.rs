//! What a ReplicaSet may opt in to beyond upstream's behaviour, as hooks of the decision. Pure.
//!
//! Each opt-in is one file below this one, and the core knows this page only: it limits creates,
//! spares or ranks the pods of a scale-down, deletes further pods, adds conditions, and says when
//! the decision changes without an event. `tests/it/tidy.rs` enforces that for the core.

pub mod failed_pods;
pub mod order;
pub mod protection;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use self::failed_pods::{BackOff, Leftovers, report_back_off};
pub use self::order::prefer;
pub use self::protection::Marks;
use self::protection::{Block, is_block, show_block};
use super::status::Failure;
use super::step::{Next, Plan};
use crate::api::conditions::Condition;
use crate::api::policy::Preference;
use crate::api::{Pod, Policy, ReplicaSet, ReplicaSetStatus, Selector};

/// What the opt-ins of a ReplicaSet make of one decision; nothing without any.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    pub back_off: Option<BackOff>,
    pub block: Option<Block>,
    pub leftovers: Leftovers,
}

impl Effects {
    /// The opt-ins of `rs` with these pods.
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
            leftovers: Leftovers::of(policy, owned, selector, now),
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

    /// How many pods the ReplicaSet keeps beyond `spec.replicas`.
    pub fn n_kept(&self) -> usize {
        self.block.as_ref().map_or(0, Block::n_kept)
    }

    /// True if the ReplicaSet has what its spec asks for, as far as the opt-ins know.
    pub fn are_content(&self) -> bool {
        self.block.is_none() && self.n_backed_off() == 0
    }

    /// Which pods a scale-down spares or takes first.
    pub fn marks(&self, policy: &Policy) -> Marks {
        Marks::of(policy, self.block.as_ref())
    }

    /// Pods to delete that are no replicas.
    pub fn extra_deletes(&self) -> &[Arc<Pod>] {
        &self.leftovers.delete
    }

    /// Time until there are more of them.
    pub fn next_extra_deletes(&self) -> Option<Duration> {
        self.leftovers.next_in
    }

    /// Adds conditions to `status`, the calculated status of `rs`. Returns the message of an event
    /// about pods that fail, if one is due.
    pub fn show(
        &self,
        status: &mut ReplicaSetStatus,
        rs: &ReplicaSet,
        failure: Option<&Failure>,
    ) -> Option<String> {
        let event = report_back_off(status, rs, self.back_off.as_ref(), failure);
        show_block(status, rs, self.block.as_ref());
        event
    }

    /// Adds when the decision changes without an event, as seen at `now`. A failed sync does not
    /// delay that.
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

/// True if a decision about a ReplicaSet with so many Failed pods reads them.
pub fn reads_failed_pods(policy: &Policy, n_failed: impl FnOnce() -> usize) -> bool {
    let kept = policy.failed_pods_kept;
    let kept = kept.map(|kept| usize::try_from(kept).unwrap_or(usize::MAX));
    let least = policy.failed_pod_backoff.map_or(kept, |_| Some(0));
    least.is_some_and(|least| n_failed() > least)
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

/// The flags of a daemon that has written the status of `rs`, as far as it shows.
pub fn flags_of(rs: &ReplicaSet) -> Policy {
    Policy {
        scale_down_protection: rs.status.conditions.iter().any(is_block),
        ..Policy::default()
    }
}

/// True for a condition that only an opt-in sets, and removes.
pub fn is_own(condition: &Condition) -> bool {
    is_block(condition)
}
