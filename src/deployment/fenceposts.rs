//! How many pods a rolling update may have too many or too few, and how a Deployment that is scaled
//! in the middle of a rollout divides its pods among its ReplicaSets. Pure arithmetic.

use std::cmp::Reverse;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::objects::{Deployment, ReplicaSet, Strategy};
use crate::revisions::max_replicas_of;

/// The limits of a rolling update in pods; both zero for another strategy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fenceposts {
    /// Pods above `spec.replicas`.
    pub max_surge: i32,
    /// Pods below `spec.replicas` that need not be available.
    pub max_unavailable: i32,
}

impl Fenceposts {
    /// Resolves percentages: the surge is rounded up, unavailable pods are rounded down. Where both
    /// would be zero, one pod may be unavailable, since nothing could move otherwise.
    pub fn of(d: &Deployment) -> Self {
        let Strategy::RollingUpdate {
            max_surge,
            max_unavailable,
        } = &d.strategy
        else {
            return Self::default();
        };
        let max_surge = resolve(max_surge, d.replicas, true);
        let max_unavailable = match resolve(max_unavailable, d.replicas, false) {
            0 if max_surge == 0 => 1,
            n => n,
        };
        Self {
            max_surge,
            max_unavailable: max_unavailable.min(d.replicas),
        }
    }
}

/// The maximum pods of a rolling update. The numbers may be as large as the API allows: a surge of
/// [`i32::MAX`] is no limit.
pub(crate) fn max_replicas(d: &Deployment) -> i32 {
    d.replicas.saturating_add(Fenceposts::of(d).max_surge)
}

/// The sum of counts, at most [`i32::MAX`].
pub(crate) fn total(counts: impl Iterator<Item = i32>) -> i32 {
    counts.fold(0, i32::saturating_add)
}

/// An absolute number, or a percentage of `total`. Validation lets nothing else pass.
fn resolve(value: &IntOrString, total: i32, rounds_up: bool) -> i32 {
    match value {
        IntOrString::Int(n) => *n,
        IntOrString::String(text) => {
            let percent = text.strip_suffix('%').and_then(|text| text.parse().ok());
            let hundredths = percent.unwrap_or(0_i64).saturating_mul(total.into());
            let rounded = hundredths.saturating_add(if rounds_up { 99 } else { 0 }) / 100;
            i32::try_from(rounded).unwrap_or(i32::MAX)
        }
    }
}

/// The sizes of the ReplicaSets `sets`, all active, after the Deployment was scaled: each keeps its
/// share of the pods, and the largest gets what rounding leaves. Returns the order in which to
/// scale them, as indices, each with its size (kubernetes
/// `pkg/controller/deployment/sync.go:scale`).
pub fn proportional_sizes(d: &Deployment, sets: &[(i32, &ReplicaSet)]) -> Vec<(usize, i32)> {
    let max_replicas = match d.replicas {
        0 => 0,
        _ => i64::from(max_replicas(d)),
    };
    let to_add = max_replicas - sets.iter().map(|(size, _)| i64::from(*size)).sum::<i64>();
    let mut order: Vec<usize> = (0..sets.len()).collect();
    // Among equals, newer ones grow first and older ones shrink first.
    order.sort_by_key(|i| sets[*i].1.creation_order());
    if to_add > 0 {
        order.reverse();
    }
    order.sort_by_key(|i| Reverse(sets[*i].0));
    let mut left = to_add;
    let mut sizes: Vec<(usize, i64)> = Vec::new();
    for i in order {
        let (size, rs) = sets[i];
        let share = match share_of(d, size, rs) {
            _ if left == 0 => 0,
            share if to_add > 0 => share.min(left),
            share => share.max(left),
        };
        left -= share;
        sizes.push((i, i64::from(size) + share));
    }
    if let Some((_, largest)) = sizes.first_mut() {
        *largest += left;
    }
    let sizes = sizes.into_iter();
    let fits = |size: i64| i32::try_from(size.max(0)).unwrap_or(i32::MAX);
    sizes.map(|(i, size)| (i, fits(size))).collect()
}

/// By how many pods a ReplicaSet of `size` changes if it keeps its share of the Deployment.
fn share_of(d: &Deployment, size: i32, rs: &ReplicaSet) -> i64 {
    let size = i64::from(size);
    if d.replicas == 0 {
        return -size;
    }
    let max_replicas = i64::from(max_replicas(d));
    // Without the annotation the Deployment's size is the best guess.
    let before = max_replicas_of(rs).filter(|max| *max > 0);
    let before = i64::from(before.or(d.status.replicas).unwrap_or_default());
    if before == 0 {
        return 0;
    }
    // The nearest whole number; a half is rounded up.
    (2 * size * max_replicas + before) / (2 * before) - size
}
