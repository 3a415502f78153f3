//! Draws views: a ReplicaSet of up to ten pods, in any state that the API allows, with any record.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use crate::api::conditions::{Condition, SCALE_DOWN_BLOCKED};
use crate::api::pod::PodFailure;
use crate::api::policy::FailedPodBackoff;
use crate::api::{
    ArcStr, CompactTimestamp, Labels, Pod, PodPhase, Policy, ReplicaSet, ScaleDownMark, Uid,
};
use crate::controller::decide::deletion_order::{NodeCounts, RelatedPods, count_on_node};
use crate::controller::decide::optional::protection::PROTECTED_PODS;
use crate::controller::decide::{Doubt, May};
use crate::controller::decide::{Pods, Rules, View};
use crate::controller::memory::RecordView;
use crate::controller::testing::{now, owned_pod, replica_set, seconds_ago};

/// Pods that exist in some views.
const PODS: usize = 24;

/// What all views share, so that drawing one costs little.
pub(super) struct Stock {
    rs: ReplicaSet,
    pods: Vec<Pod>,
    nodes: [ArcStr; 3],
    /// All labels of the template; those of the selector alone; others; none.
    labels: [Labels; 4],
    orders: [&'static str; 5],
    failure: PodFailure,
}

/// The parts of a view.
#[derive(Debug)]
pub(super) struct Drawn {
    pub(super) rs: ReplicaSet,
    pub(super) record: RecordView,
    pub(super) owned: Vec<Arc<Pod>>,
    pub(super) orphans: Vec<Arc<Pod>>,
    /// Pods of other ReplicaSets of the same controller.
    pub(super) others: Vec<Arc<Pod>>,
    pub(super) rules: Rules,
}

#[derive(Debug)]
struct Related<'a>(&'a Drawn);

impl RelatedPods for Related<'_> {
    fn related_pods(&self) -> Vec<Arc<Pod>> {
        self.0.related().cloned().collect()
    }

    fn active_pods_per_node(&self) -> NodeCounts {
        let mut counts = NodeCounts::default();
        for pod in self.0.related() {
            count_on_node(pod, &mut counts);
        }
        counts
    }
}

impl Drawn {
    pub(super) fn view_of(&self, pods: Pods) -> View<'_> {
        View {
            rs: &self.rs,
            selector: self.rs.selector.as_ref().expect("a valid selector"),
            record: self.record.clone(),
            pods,
            related_pods: Box::new(Related(self)),
            rules: self.rules,
            now: now(),
        }
    }

    pub(super) fn view(&self) -> View<'_> {
        self.view_of(Pods::Listed {
            owned: self.owned.clone(),
            orphans: self.orphans.clone(),
        })
    }

    pub(super) fn related(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.owned.iter().chain(&self.others)
    }
}

/// True once in `n` times.
fn one_in(n: u32, rng: &mut Rng) -> bool {
    rng.u32(..n) == 0
}

fn any<T: Copy>(of: &[T], rng: &mut Rng) -> T {
    of[rng.usize(..of.len())]
}

/// A delay that is never zero.
fn delay(rng: &mut Rng) -> Duration {
    Duration::from_millis(rng.u64(1..5_000))
}

fn time(rng: &mut Rng) -> Option<CompactTimestamp> {
    let ages = [0, 1, 3, 5, 10, 40, 600, 3_600, 90_000, -5];
    (!one_in(12, rng)).then(|| seconds_ago(any(&ages, rng)))
}

impl Stock {
    pub(super) fn new() -> Self {
        let mut rs = replica_set("web", 1);
        let all = [("type", "production"), ("tier", "front")];
        rs.template_labels = all.into_iter().collect();
        let pod = |number: usize| Pod {
            // The order of UIDs is not that of names.
            uid: Uid::new(&format!("uid-{:02}", number * 7 % PODS)),
            ..owned_pod(&format!("web-{number:02}"), &rs)
        };
        Self {
            pods: (0..PODS).map(pod).collect(),
            nodes: ["a", "b", "c"].map(Into::into),
            labels: [
                rs.template_labels.clone(),
                [("type", "production")].into_iter().collect(),
                [("type", "testing")].into_iter().collect(),
                Labels::default(),
            ],
            orders: [
                "off",
                "spread",
                "consolidate",
                "spread,consolidate",
                "consolidate,spread",
            ],
            failure: PodFailure::default(),
            rs,
        }
    }

    pub(super) fn draw(&self, seed: u64) -> Drawn {
        let rng = &mut Rng::with_seed(seed);
        let mut numbers: Vec<usize> = (0..PODS).collect();
        rng.shuffle(&mut numbers);
        let mut pods = numbers.iter().map(|number| &self.pods[*number]);
        // Half of the views have no trouble with their pods, half none with their record.
        let (has_odd_pods, has_record) = (rng.bool(), rng.bool());
        let mut some = |n_max: usize, rng: &mut Rng| -> Vec<Pod> {
            let n_pods = rng.usize(..=n_max);
            let drawn = pods.by_ref().take(n_pods);
            drawn.map(|pod| self.pod(pod, has_odd_pods, rng)).collect()
        };
        let owned = some(10, rng);
        let mut orphans = some(if has_odd_pods { 3 } else { 0 }, rng);
        for orphan in &mut orphans {
            orphan.controller = None;
        }
        let others = some(4, rng);
        let shared = |pods: Vec<Pod>| pods.into_iter().map(Arc::new).collect();
        let rs = self.replica_set(owned.len(), rng);
        let record = if has_record {
            self.record(&rs, &owned, rng)
        } else {
            RecordView::default()
        };
        Drawn {
            record,
            owned: shared(owned),
            orphans: shared(orphans),
            others: shared(others),
            rules: Rules {
                burst_replicas: any(&[1, 2, 3, 500, 500, 500], rng),
                uses_deletion_cost: !one_in(8, rng),
                counts_terminating: !one_in(8, rng),
                policy: self.policy(rng),
            },
            rs,
        }
    }

    fn pod(&self, pod: &Pod, is_odd: bool, rng: &mut Rng) -> Pod {
        let phases = [
            PodPhase::Running,
            PodPhase::Running,
            PodPhase::Pending,
            PodPhase::Unknown,
            PodPhase::Other,
            PodPhase::Failed,
            PodPhase::Succeeded,
        ];
        let phase = any(&phases[..if is_odd { 7 } else { 5 }], rng);
        let failure = || PodFailure {
            at: time(rng),
            ..self.failure.clone()
        };
        let failure = (phase == PodPhase::Failed).then(failure).map(Box::new);
        let marks = [
            ScaleDownMark::None,
            ScaleDownMark::None,
            ScaleDownMark::Never,
            ScaleDownMark::First,
            ScaleDownMark::Unreadable,
        ];
        let labels = if is_odd && one_in(4, rng) { 4 } else { 2 };
        Pod {
            labels: self.labels[rng.usize(..labels)].clone(),
            phase,
            node: (!one_in(6, rng)).then(|| self.nodes[rng.usize(..3)].clone()),
            is_ready: !one_in(3, rng),
            ready_transition: time(rng),
            creation: time(rng),
            deletion: (is_odd && one_in(6, rng)).then(|| seconds_ago(1)),
            restarts: any(&[0, 0, 0, 1, 5], rng),
            sidecar_restarts: any(&[0, 0, 1], rng),
            deletion_cost: any(&[0, 0, 0, -1, 7], rng),
            scale_down: any(&marks, rng),
            has_finalizers: one_in(8, rng),
            failure,
            ..pod.clone()
        }
    }

    fn replica_set(&self, n_owned: usize, rng: &mut Rng) -> ReplicaSet {
        let mut rs = self.rs.clone();
        let n_owned = i32::try_from(n_owned).unwrap_or(0);
        rs.replicas = match rng.u32(..8) {
            0 => any(&[-1, 600], rng),
            1 | 2 => n_owned,
            _ => rng.i32(0..12),
        };
        rs.generation = rng.i64(1..4);
        rs.min_ready_seconds = any(&[0, 0, 4, 30], rng);
        rs.deletion = one_in(20, rng).then(|| seconds_ago(3));
        if one_in(4, rng) {
            rs.status.conditions.push(Condition {
                type_: SCALE_DOWN_BLOCKED.to_owned(),
                status: "True".to_owned(),
                reason: Some(PROTECTED_PODS.to_owned()),
                last_transition_time: Some(seconds_ago(rng.i64(0..200)).timestamp()),
                ..Condition::default()
            });
        }
        rs
    }

    fn policy(&self, rng: &mut Rng) -> Policy {
        if rng.bool() {
            return Policy::default();
        }
        let backoff = FailedPodBackoff {
            first: Duration::from_secs(10),
            longest: Duration::from_mins(5),
        };
        let timeouts = [None, Some(Duration::ZERO), Some(Duration::from_mins(1))];
        Policy {
            failed_pod_backoff: one_in(3, rng).then_some(backoff),
            failed_pods_kept: one_in(3, rng).then(|| rng.u32(..3)),
            failed_pods_min_age: Duration::from_secs(rng.u64(..20)),
            scale_down_order: any(&self.orders, rng).parse().expect("a valid order"),
            scale_down_protection: rng.bool(),
            protected_timeout: any(&timeouts, rng),
        }
    }

    fn record(&self, rs: &ReplicaSet, owned: &[Pod], rng: &mut Rng) -> RecordView {
        let may = match rng.u32(..24) {
            0..2 => May::Wait(delay(rng)),
            2..4 => May::Verify(Doubt::Overdue),
            4..7 => May::Report(Some(delay(rng))),
            7..10 => May::Verify(Doubt::Unseen),
            _ => May::Act,
        };
        let mut some = |pods: &[Pod]| -> Vec<Pod> {
            let pods = pods.iter().filter(|_| one_in(6, rng));
            pods.cloned().collect()
        };
        let created = some(&self.pods);
        let (deleted, mut others) = (some(owned), some(&self.pods));
        others.retain(|pod| deleted.iter().all(|it| it.uid != pod.uid));
        others.extend(deleted);
        rng.shuffle(&mut others);
        let has_unknown = one_in(3, rng);
        let names = created.iter().filter(|_| has_unknown);
        let uids = others.iter().filter(|_| has_unknown);
        let unknown_deletions: Vec<Uid> = uids.map(|pod| pod.uid.clone()).collect();
        RecordView {
            owner: Some(rs.uid.clone()),
            may,
            is_unproven: rng.bool(),
            is_confirmed: rng.bool(),
            loss_delay: one_in(5, rng).then(|| delay(rng)),
            rejected: one_in(4, rng).then(|| (rng.i64(1..4), Some(delay(rng)))),
            spec_delay: one_in(3, rng).then(|| delay(rng)),
            unknown_creations: names.map(|pod| pod.key.name.clone()).collect(),
            n_overdue: rng.usize(..=unknown_deletions.len()),
            unknown_deletions,
            unknowns_are_compared: rng.bool(),
            ..RecordView::default()
        }
    }
}
