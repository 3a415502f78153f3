//! Protection: which pods a scale-down must not choose, and for how long they may block it. Pure.
//!
//! A ReplicaSet opts in by [`Policy::scale_down_protection`]; without it marks have no effect. A
//! scale-down then leaves out the pods marked `never`. If there are more of them than the
//! `spec.replicas`, the scale-down is *blocked*: the ReplicaSet keeps its surplus pods, and has a
//! condition. The block ends when `spec.replicas` reaches the number of pods, or when enough marks
//! or pods are gone. With a timeout it also ends some time after the transition time of the
//! condition: protected pods are then deleted last, until nothing is blocked any more.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::api::conditions::{
    Condition, SCALE_DOWN_BLOCKED, get_condition, remove_condition, set_condition,
};
use crate::api::{ArcStr, Pod, Policy, ReplicaSet, ReplicaSetStatus, ScaleDownMark};

pub const PROTECTED_PODS: &str = "ProtectedPods";
pub const PROTECTED_TIMEOUT: &str = "ProtectedTimeout";

const NAMED_MAX: usize = 3;

/// What the marks of pods mean to a scale-down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Marks {
    #[default]
    Ignored,
    /// Pods marked `first` are deleted first, pods marked `never` not at all.
    Respected,
    /// Pods marked `first` are deleted first, pods marked `never` last.
    NeverGoesLast,
}

impl Marks {
    /// The meaning for a ReplicaSet with this policy, whose scale-down `block` blocks.
    pub fn of(policy: &Policy, block: Option<&Block>) -> Self {
        if !policy.scale_down_protection {
            Self::Ignored
        } else if block.is_some_and(Block::is_over) {
            Self::NeverGoesLast
        } else {
            Self::Respected
        }
    }

    /// True if no scale-down may choose this pod.
    pub fn spare(self, pod: &Pod) -> bool {
        self == Self::Respected && pod.scale_down == ScaleDownMark::Never
    }

    /// The rank of this pod before every other rule: lower is deleted first.
    pub fn place_of(self, pod: &Pod) -> u8 {
        match pod.scale_down {
            _ if self == Self::Ignored => 0,
            ScaleDownMark::First => 0,
            ScaleDownMark::None | ScaleDownMark::Unreadable => 1,
            ScaleDownMark::Never => 2,
        }
    }
}

/// A scale-down that protected pods block, wholly or in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Number of protected pods beyond `spec.replicas`.
    pub surplus: usize,
    pub protected: usize,
    pub names: Vec<ArcStr>,
    /// The time of day at which the block began, in whole seconds as the API stores it.
    pub since: Timestamp,
    /// When the timeout passes; `None` without a timeout.
    pub until: Option<Timestamp>,
    /// Time until then; zero if it has passed.
    pub remaining: Option<Duration>,
}

impl Block {
    /// The block of a scale-down of `rs` with these active pods; `None` if nothing is blocked.
    pub fn of(
        rs: &ReplicaSet,
        active: &[Arc<Pod>],
        policy: &Policy,
        now: Timestamp,
    ) -> Option<Self> {
        if !policy.scale_down_protection || rs.is_terminating() {
            return None;
        }
        let is_protected = |pod: &&Arc<Pod>| pod.scale_down == ScaleDownMark::Never;
        let pods = active.iter().filter(is_protected);
        let mut names: Vec<&ArcStr> = pods.map(|pod| &pod.key.name).collect();
        let protected = names.len();
        let surplus = protected.saturating_sub(usize::try_from(rs.replicas).unwrap_or(0));
        if surplus == 0 {
            return None;
        }
        names.sort_unstable();
        names.truncate(NAMED_MAX);
        let mut stored = rs.status.conditions.iter();
        let began = stored.find(|stored| stored.status == "True" && is_block(stored));
        let began = began.and_then(|stored| stored.last_transition_time);
        // The API stores whole seconds.
        let since = began.or(Timestamp::from_second(now.as_second()).ok());
        let since = since.unwrap_or(now);
        let timeout = policy.protected_timeout;
        let until = timeout.map(|timeout| later(since, timeout));
        let left = |until: Timestamp| until.duration_since(now).max(SignedDuration::ZERO);
        Some(Self {
            surplus,
            protected,
            names: names.into_iter().cloned().collect(),
            since,
            until,
            // A clock that was set back and is corrected later is noticed after one timeout.
            remaining: until
                .map(|until| left(until).unsigned_abs())
                .min(timeout.map(|timeout| timeout.max(Duration::ZERO))),
        })
    }

    /// True if the timeout has passed, so protected pods may be deleted.
    pub fn is_over(&self) -> bool {
        self.remaining == Some(Duration::ZERO)
    }

    pub fn n_kept(&self) -> usize {
        if self.is_over() { 0 } else { self.surplus }
    }

    pub fn reason_and_message(&self, replicas: i32) -> (&'static str, String) {
        let Self {
            surplus, protected, ..
        } = self;
        let mut names = self.names.join(", ");
        if *protected > self.names.len() {
            names += ", …";
        }
        let pods = if *protected == 1 {
            "pod has"
        } else {
            "pods have"
        };
        let are = format!(
            "{protected} {pods} the annotation replicaset-controller/scale-down=never \
             ({names}), {surplus} more than spec.replicas ({})",
            replicas.max(0)
        );
        match self.until {
            Some(until) if self.is_over() => (
                PROTECTED_TIMEOUT,
                format!("{are}; deleted since the timeout passed at {until}"),
            ),
            Some(until) => (PROTECTED_PODS, format!("{are}; kept until {until}")),
            None => (PROTECTED_PODS, format!("{are}; kept")),
        }
    }
}

/// True for the condition [`SCALE_DOWN_BLOCKED`] that this daemon, and not another program, has
/// set, as its reason shows.
pub fn is_block(condition: &Condition) -> bool {
    let reasons = [PROTECTED_PODS, PROTECTED_TIMEOUT].map(Some);
    condition.type_ == SCALE_DOWN_BLOCKED && reasons.contains(&condition.reason.as_deref())
}

/// Sets or removes the condition [`SCALE_DOWN_BLOCKED`] in `status`, the calculated status of `rs`.
/// Without a block, another program's condition of this type stays. Other protected pods alone are
/// no reason for a write: the message is renewed with another number of pods, another generation or
/// another timeout.
pub fn show_block(status: &mut ReplicaSetStatus, rs: &ReplicaSet, block: Option<&Block>) {
    let conditions = &mut status.conditions;
    let Some(block) = block else {
        return conditions.retain(|condition| !is_block(condition));
    };
    let (reason, message) = block.reason_and_message(rs.replicas);
    let shown = get_condition(conditions, SCALE_DOWN_BLOCKED).and_then(|it| it.message.as_deref());
    let end_of = |message: &str| message.rsplit_once("; ").map(|(_, end)| end.to_owned());
    let ends_otherwise = shown.and_then(end_of) != end_of(&message);
    if status.replicas != rs.status.replicas
        || rs.generation != rs.status.observed_generation
        || ends_otherwise
    {
        remove_condition(conditions, SCALE_DOWN_BLOCKED);
    }
    let condition = Condition::new(SCALE_DOWN_BLOCKED, reason, message, Some(block.since));
    set_condition(conditions, condition);
}

/// A timeout that ends after the last representable time never passes.
fn later(since: Timestamp, timeout: Duration) -> Timestamp {
    let timeout = SignedDuration::try_from(timeout).ok();
    let later = timeout.and_then(|timeout| since.checked_add(timeout).ok());
    later.unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
