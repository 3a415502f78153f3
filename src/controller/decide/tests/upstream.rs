//! Upstream's order of deletion, criterion by criterion as its source has it (kubernetes
//! `pkg/controller/controller_utils.go:ActivePodsWithRanks.Less`).

use std::sync::Arc;

use super::Step;
use super::drawn::Drawn;
use crate::api::{CompactTimestamp, Pod, PodPhase};
use crate::controller::testing::now;

/// The active pods in upstream's order; `None` if that is no order, since pods are equal or form a
/// cycle.
pub(super) fn sorted(drawn: &Drawn, step: &Step) -> Option<Vec<Arc<Pod>>> {
    let pods = &step.active;
    let mut sorted = vec![None; pods.len()];
    for pod in pods {
        let n_before = pods.iter().filter(|other| less(drawn, other, pod)).count();
        let place = &mut sorted[n_before];
        if place.replace(Arc::clone(pod)).is_some() {
            return None;
        }
    }
    sorted.into_iter().collect()
}

fn less(drawn: &Drawn, a: &Pod, b: &Pod) -> bool {
    // 1. Unassigned < assigned.
    if a.node.is_some() != b.node.is_some() {
        return a.node.is_none();
    }
    // 2. PodPending < PodUnknown < PodRunning.
    if phase(a) != phase(b) {
        return phase(a) < phase(b);
    }
    // 3. Not ready < ready.
    if a.is_ready != b.is_ready {
        return !a.is_ready;
    }
    // 4. Lower pod-deletion-cost < higher.
    if drawn.rules.uses_deletion_cost && a.deletion_cost != b.deletion_cost {
        return a.deletion_cost < b.deletion_cost;
    }
    // 5. Doubled up < not doubled up.
    if rank(drawn, a) != rank(drawn, b) {
        return rank(drawn, a) > rank(drawn, b);
    }
    // 6. Been ready for empty time < less time < more time.
    if a.is_ready && b.is_ready && a.ready_transition != b.ready_transition {
        return younger(a, a.ready_transition, b, b.ready_transition);
    }
    // 7. Higher restart counts < lower restart counts, and then those of sidecars.
    if a.restarts != b.restarts {
        return a.restarts > b.restarts;
    }
    if a.sidecar_restarts != b.sidecar_restarts {
        return a.sidecar_restarts > b.sidecar_restarts;
    }
    // 8. Empty creation time < newer < older.
    a.creation != b.creation && younger(a, a.creation, b, b.creation)
}

fn phase(pod: &Pod) -> u8 {
    match pod.phase {
        PodPhase::Unknown => 1,
        PodPhase::Running => 2,
        _ => 0,
    }
}

/// Active pods of the same controller on the node of `pod`.
fn rank(drawn: &Drawn, pod: &Pod) -> usize {
    let on_node = |it: &&Arc<Pod>| it.node == pod.node && it.is_active();
    drawn.related().filter(on_node).count()
}

fn younger(
    a: &Pod,
    time_a: Option<CompactTimestamp>,
    b: &Pod,
    time_b: Option<CompactTimestamp>,
) -> bool {
    let (Some(time_a), Some(time_b)) = (time_a, time_b) else {
        return time_a.is_none();
    };
    let (a_log, b_log) = (log_age(time_a), log_age(time_b));
    if a_log == b_log {
        a.uid < b.uid
    } else {
        a_log < b_log
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "upstream computes it so"
)]
fn log_age(time: CompactTimestamp) -> i64 {
    let nanoseconds = now().duration_since(time.timestamp()).as_nanos();
    if nanoseconds <= 0 {
        return -1;
    }
    (nanoseconds as f64).log2() as i64
}
