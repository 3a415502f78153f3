//! The work of a dry run's decision: its kind, its text for the log, and whether it is new. Pure.

use std::collections::HashSet;
use std::sync::Arc;

use super::Intent;
use crate::api::{Pod, ReplicaSet, Uid};
use crate::controller::decide::Decision;
use crate::controller::decide::plan::Plan;
use crate::controller::decide::protection::Block;

/// Maximum pod names in one log line.
const NAMED_MAX: usize = 5;

/// The kind and the objects of a decision.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Create(usize),
    Delete {
        chosen: HashSet<Uid>,
        ties: HashSet<Uid>,
        surplus: usize,
    },
    Adopt(HashSet<Uid>),
    Release(HashSet<Uid>),
    /// Deletes leftovers.
    Discard(HashSet<Uid>),
}

impl Work {
    pub(super) fn of(rs: &ReplicaSet, intent: &Intent) -> Option<Self> {
        let uids = |pods: &[Arc<Pod>]| pods.iter().map(|pod| pod.uid.clone()).collect();
        let Decision {
            plan,
            active,
            adopt,
            release,
            leftovers,
            block,
            ..
        } = &intent.decision;
        let n_active = active.len();
        let wanted = usize::try_from(rs.replicas).unwrap_or(0);
        match plan {
            Plan::Create(_) => {
                let n_held_back = intent.decision.n_held_back();
                Some(Self::Create(wanted - n_active - n_held_back))
            }
            Plan::Delete(_) => Some(Self::Delete {
                chosen: uids(&intent.decision.delete),
                ties: uids(&intent.ties),
                surplus: n_active - wanted - block.as_ref().map_or(0, Block::n_kept),
            }),
            Plan::Nothing if !adopt.is_empty() => Some(Self::Adopt(uids(adopt))),
            Plan::Nothing if !release.is_empty() => Some(Self::Release(uids(release))),
            Plan::Nothing if !leftovers.delete.is_empty() => {
                Some(Self::Discard(uids(&leftovers.delete)))
            }
            Plan::Nothing => None,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Delete { .. } => "delete",
            Self::Adopt(_) => "adopt",
            Self::Release(_) => "release",
            Self::Discard(_) => "discard",
        }
    }

    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.name() == other.name()
    }

    /// How many pods are left to create, delete, adopt or release.
    pub(super) fn n_pods(&self) -> usize {
        match self {
            Self::Create(count) => *count,
            Self::Delete { surplus, .. } => *surplus,
            Self::Adopt(pods) | Self::Release(pods) | Self::Discard(pods) => pods.len(),
        }
    }

    /// True if this requires an action that `before`, of the same kind, did not.
    pub(super) fn exceeds(&self, before: &Self) -> bool {
        match (self, before) {
            (Self::Create(count), Self::Create(before)) => count > before,
            (
                Self::Delete {
                    chosen, surplus, ..
                },
                Self::Delete {
                    chosen: chosen_before,
                    ties,
                    surplus: surplus_before,
                },
            ) => {
                let is_new = |uid: &Uid| !chosen_before.contains(uid) && !ties.contains(uid);
                // With more surplus pods than one sync deletes, each deletion changes the choice.
                let is_complete = *surplus == chosen.len();
                surplus > surplus_before || (is_complete && chosen.iter().any(is_new))
            }
            (Self::Adopt(pods), Self::Adopt(before))
            | (Self::Release(pods), Self::Release(before))
            | (Self::Discard(pods), Self::Discard(before)) => !pods.is_subset(before),
            _ => true,
        }
    }

    pub(super) fn render(&self, rs: &ReplicaSet, intent: &Intent) -> String {
        let named =
            |pods: &[Arc<Pod>]| names(pods.iter().map(|p| p.key.name.to_string()).collect());
        let has = intent.decision.active.len();
        let mut text = match self {
            Self::Create(count) => {
                format!("create {}: {has} of {}", pods(*count), rs.replicas)
            }
            Self::Delete { surplus, .. } => format!(
                "delete {}: {has}, not {}: {}",
                pods(*surplus),
                rs.replicas,
                named(&intent.decision.delete)
            ),
            Self::Adopt(_) => format!("adopt {}", named(&intent.decision.adopt)),
            Self::Release(_) => format!("release {}", named(&intent.decision.release)),
            Self::Discard(_) => {
                let failed = &intent.decision.leftovers.delete;
                format!("delete Failed pods that are not kept: {}", named(failed))
            }
        };
        if !matches!(self, Self::Adopt(_)) && !intent.decision.adopt.is_empty() {
            text += ", and adopt ";
            text += &named(&intent.decision.adopt);
        }
        text
    }
}

/// Returns the first names in order, and how many follow.
pub(super) fn names(mut names: Vec<String>) -> String {
    names.sort();
    let n_more = names.len().saturating_sub(NAMED_MAX);
    names.truncate(NAMED_MAX);
    match (names.is_empty(), n_more) {
        (true, _) => "none".to_owned(),
        (_, 0) => names.join(" "),
        _ => format!("{} and {n_more} more", names.join(" ")),
    }
}

/// `1 pod`, `2 pods`.
fn pods(count: usize) -> String {
    let word = if count == 1 { "pod" } else { "pods" };
    format!("{count} {word}")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::Work;
    use crate::api::Uid;

    fn uids(names: &[&str]) -> HashSet<Uid> {
        names.iter().map(|name| Uid::from(*name)).collect()
    }

    fn delete(chosen: &[&str], ties: &[&str], surplus: usize) -> Work {
        Work::Delete {
            chosen: uids(chosen),
            ties: uids(ties),
            surplus,
        }
    }

    #[test]
    fn only_more_to_do_than_before_is_a_new_decision() {
        let cases = [
            (Work::Create(2), Work::Create(1), true),
            (Work::Create(1), Work::Create(1), false),
            (Work::Create(1), Work::Create(2), false),
            (delete(&["a"], &[], 2), delete(&["a"], &[], 1), true),
            (delete(&["b"], &[], 1), delete(&["a"], &[], 1), true),
            (delete(&["b"], &[], 1), delete(&["a"], &["b"], 1), false),
            // One sync cannot delete them all, so each deletion changes the choice.
            (delete(&["b"], &[], 2), delete(&["a"], &[], 2), false),
            (
                Work::Adopt(uids(&["a", "b"])),
                Work::Adopt(uids(&["a"])),
                true,
            ),
            (
                Work::Adopt(uids(&["a"])),
                Work::Adopt(uids(&["a", "b"])),
                false,
            ),
            (
                Work::Release(uids(&["b"])),
                Work::Release(uids(&["a"])),
                true,
            ),
            (
                Work::Release(uids(&["a"])),
                Work::Release(uids(&["a"])),
                false,
            ),
        ];
        for (now, before, is_new) in cases {
            assert_eq!(now.exceeds(&before), is_new, "{now:?} after {before:?}");
        }
    }
}
