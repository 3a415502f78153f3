//! Failed pods of a ReplicaSet that opts in to more than upstream does with them: replacements wait
//! ([`back_off`]), and old ones are deleted ([`leftovers`]). Pure.
//!
//! The evidence is the Failed pods themselves and the Ready pods beside them, so a restart forgets
//! nothing. Whoever deletes the Failed pods ends the wait.

pub mod back_off;
pub mod condition;
pub mod leftovers;

use std::sync::Arc;

use jiff::Timestamp;

use crate::api::{CompactTimestamp, Pod, Selector};

/// A Failed pod that was not being deleted, and when it failed.
///
/// A pod that fails while it is being deleted does not count: its kubelet reports the end of its
/// containers that way, and its replacement exists already.
#[derive(Clone, Copy, Debug)]
struct FailedPod<'a> {
    pod: &'a Arc<Pod>,
    at: Timestamp,
}

/// The Failed pods among `owned` that match the selector, the earliest first.
fn failed_pods<'a>(
    owned: &'a [Arc<Pod>],
    selector: &Selector,
    now: Timestamp,
) -> Vec<FailedPod<'a>> {
    let is_ours = |pod: &&Arc<Pod>| !pod.is_terminating() && selector.matches(&pod.labels);
    let failed = |pod: &'a Arc<Pod>| {
        let at = failed_at(pod, now)?;
        Some(FailedPod { pod, at })
    };
    let mut failed: Vec<_> = owned.iter().filter(is_ours).filter_map(failed).collect();
    failed.sort_by(|a, b| (a.at, &a.pod.key).cmp(&(b.at, &b.pod.key)));
    failed
}

/// When the pod failed; `None` if it did not, or without any time. The creation, by the API
/// server's clock, replaces a time that the node's clock puts before it or after `now`.
fn failed_at(pod: &Pod, now: Timestamp) -> Option<Timestamp> {
    let failure = pod.failure.as_ref()?;
    let created = pod.creation.map(CompactTimestamp::timestamp);
    let failed = failure.at.map(CompactTimestamp::timestamp);
    match failed.filter(|at| *at <= now) {
        Some(failed) => Some(created.map_or(failed, |created| created.max(failed))),
        None => created,
    }
}

#[cfg(test)]
mod tests;
