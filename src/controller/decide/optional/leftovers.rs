//! `failed-pods-kept`: Failed pods that are deleted because newer ones are enough. Pure.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::failed_pods;
use crate::api::policy::FailedPodBackoff;
use crate::api::{Pod, Policy, Selector};

/// The Failed pods of a ReplicaSet that are more than it keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Pods to delete now, the earliest failure first.
    pub delete: Vec<Arc<Pod>>,
    /// Time until the next one may be deleted, if one will.
    pub next_in: Option<Duration>,
}

impl Leftovers {
    /// Chooses among the pods that a ReplicaSet with this policy owns. Pods with finalizers are
    /// neither counted nor chosen, and no pod is chosen that the back-off still reads.
    pub fn of(policy: &Policy, owned: &[Arc<Pod>], selector: &Selector, now: Timestamp) -> Self {
        let Some(n_kept) = policy.failed_pods_kept else {
            return Self::default();
        };
        let mut failed = failed_pods(owned, selector, now);
        failed.retain(|failed| !failed.pod.has_finalizers);
        let n_kept = usize::try_from(n_kept).unwrap_or(usize::MAX);
        failed.truncate(failed.len().saturating_sub(n_kept));
        let evidence = policy.failed_pod_backoff.map(FailedPodBackoff::window);
        let min_age = evidence.map_or(policy.failed_pods_min_age, |window| {
            window.max(policy.failed_pods_min_age)
        });
        let remaining = |at: Timestamp| {
            let age = now.duration_since(at);
            let min_age = jiff::SignedDuration::try_from(min_age);
            let remaining = min_age
                .unwrap_or(jiff::SignedDuration::MAX)
                .saturating_sub(age);
            (remaining > jiff::SignedDuration::ZERO).then(|| remaining.unsigned_abs())
        };
        let is_due = |at: Timestamp| remaining(at).is_none();
        let n_due = failed.iter().take_while(|it| is_due(it.at)).count();
        Self {
            next_in: failed.get(n_due).and_then(|next| remaining(next.at)),
            delete: failed
                .iter()
                .take(n_due)
                .map(|it| Arc::clone(it.pod))
                .collect(),
        }
    }
}
