//! Pods that fail as fast as they are replaced: a node that rejects them, a container that cannot even
//! begin. As upstream, each is replaced at once (kubernetes/kubernetes#72593), so that thousands of them
//! may pile up; the log says so, once a minute for one ReplicaSet.
//!
//! Watch threads note; one lock, held for the length of a map operation.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::ReplicaSetController;
use crate::api::{ObjectKey, Pod, PodPhase, ReplicaSet};
use crate::stdx::clock::Clock;
use crate::stdx::hash::HashMap;

/// How long failures are counted together, and the least time between two warnings.
const PERIOD: Duration = Duration::from_mins(1);

/// Fewer failures than this within [`PERIOD`] are not warned of, and neither are up to as many as
/// there are replicas: a node may have taken all of them along. More than the second number are,
/// however many replicas.
const TOLD_FROM: usize = 10;
const TOLD_FROM_MAX: usize = 100;

/// ReplicaSets that are remembered before those whose time is over are forgotten.
const SWEEP_AT_LEAST: usize = 64;

/// How many pods of which ReplicaSets have failed within [`PERIOD`].
#[derive(Debug)]
pub(super) struct FailingPods {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    recent: HashMap<ObjectKey, Recent>,
    /// Twice as many as the last sweep has left, so that the cost of a sweep is spread over as many
    /// newcomers.
    sweep_at: usize,
}

#[derive(Debug)]
struct Recent {
    since: Instant,
    n_failed: usize,
}

impl FailingPods {
    /// None has failed.
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            state: Mutex::default(),
        }
    }

    /// Counts a pod of `rs`; how many have failed within which time, if this one calls for a
    /// warning.
    fn count(&self, rs: &ReplicaSet) -> Option<(usize, Duration)> {
        let now = self.clock.now();
        let age = |recent: &Recent| now.saturating_duration_since(recent.since);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.recent.len() >= state.sweep_at.max(SWEEP_AT_LEAST) {
            state.recent.retain(|_, recent| age(recent) < PERIOD);
            state.sweep_at = 2 * state.recent.len();
        }
        let begin = || Recent {
            since: now,
            n_failed: 0,
        };
        let recent = state.recent.entry(rs.key.clone()).or_insert_with(begin);
        if age(recent) >= PERIOD {
            *recent = begin();
        }
        recent.n_failed += 1;
        let replicas = usize::try_from(rs.replicas).unwrap_or(0);
        let told_at = (replicas + 1).clamp(TOLD_FROM, TOLD_FROM_MAX);
        (recent.n_failed == told_at).then(|| (told_at, age(recent)))
    }
}

impl ReplicaSetController {
    /// Notes what the step of a pod of `rs` from `old` to `new` says.
    pub(super) fn note_failure(&self, rs: &ReplicaSet, old: &Pod, new: &Pod) {
        if new.phase != PodPhase::Failed || old.phase == PodPhase::Failed {
            return;
        }
        // The leader counts this pod, and a sum over all replicas must not have it twice.
        if self.take_over.stands_by() {
            return;
        }
        self.metrics.pods_failed.inc();
        if let Some((count, within)) = self.failing_pods.count(rs) {
            log::warn!(
                object:% = self.kind.named(&rs.key);
                "{count} pods have failed within {:.0} s, and each is replaced at once: kubectl -n {} \
                 describe pod {}",
                within.as_secs_f64().max(1.0),
                new.key.namespace,
                new.key.name
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{PERIOD, SWEEP_AT_LEAST, TOLD_FROM, TOLD_FROM_MAX};
    use crate::api::{Pod, PodPhase};
    use crate::controller::testing::{Fixture, owned_pod, replica_set};

    #[test]
    fn pods_that_fail_at_once_are_told_of_once_a_minute() {
        let fixture = Fixture::new();
        let failing = &fixture.controller.failing_pods;
        let told = |replicas: i32, n: usize| {
            let rs = replica_set("web", replicas);
            (0..n).filter(|_| failing.count(&rs).is_some()).count()
        };
        assert_eq!(told(2, TOLD_FROM - 1), 0);
        assert_eq!(told(2, 1_000), 1);
        fixture.clock.advance(PERIOD);
        assert_eq!(told(2, 1_000), 1, "the storm goes on");
        fixture.clock.advance(PERIOD);
        assert_eq!(told(50, 50), 0, "as many as there are replicas");
        assert_eq!(told(50, 1), 1);
        fixture.clock.advance(PERIOD);
        assert_eq!(told(5_000, TOLD_FROM_MAX), 1);
        fixture.clock.advance(Duration::from_secs(59));
        assert_eq!(told(5_000, TOLD_FROM_MAX), 0);
    }

    #[test]
    fn failures_are_swept_only_when_twice_as_many_are_known() {
        let fixture = Fixture::new();
        let failing = &fixture.controller.failing_pods;
        let n_known_with = |n: usize| {
            failing.count(&replica_set(&n.to_string(), 1));
            let state = failing.state.lock().expect("no panic before");
            state.recent.len()
        };
        let n_live = SWEEP_AT_LEAST + 1;
        assert_eq!((0..n_live).map(n_known_with).last(), Some(n_live));
        fixture.clock.advance(PERIOD);
        assert_eq!(n_known_with(0), n_live, "none was swept");
        let others = n_live..=2 * SWEEP_AT_LEAST;
        let n_known = others.map(n_known_with).last();
        assert_eq!(n_known, Some(n_live), "the old are gone");
    }

    /// A pod of one ReplicaSet fails, and is seen again.
    fn one_fails(fixture: &Fixture) {
        let rs = replica_set("web", 1);
        fixture.deliver_replica_set(rs.clone());
        fixture.deliver_pod(owned_pod("a", &rs));
        for version in ["2", "3"] {
            fixture.deliver_pod(Pod {
                resource_version: version.into(),
                phase: PodPhase::Failed,
                restarts: i32::from(version == "3"),
                ..owned_pod("a", &rs)
            });
        }
    }

    #[test]
    fn each_pod_that_fails_is_counted_once() {
        let fixture = Fixture::new();
        one_fails(&fixture);
        assert_eq!(fixture.metrics.pods_failed.get(), 1);
    }

    #[test]
    fn a_standby_counts_no_pods_that_fail() {
        let fixture = Fixture::new();
        fixture.controller.stand_by();
        one_fails(&fixture);
        assert_eq!(fixture.metrics.pods_failed.get(), 0);
    }
}
