//! Group E: the comparison and the sort.

mod age_ratio;
mod choice;

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use super::{DeletionOrder, RankedPod, compare, sort_for_deletion};
use crate::api::{Pod, PodPhase, Uid};
use crate::controller::decide::optional::Marks;
use crate::controller::testing::{now, seconds_ago};

const HOUR: i64 = 3600;
const MONTH: i64 = 30 * 24 * HOUR;

/// Checks all nine criteria.
fn rules() -> DeletionOrder {
    DeletionOrder {
        now: now(),
        uses_deletion_cost: true,
        marks: Marks::Ignored,
    }
}

fn unscheduled() -> Pod {
    Pod {
        phase: PodPhase::Pending,
        ..Pod::default()
    }
}

fn scheduled(phase: PodPhase) -> Pod {
    Pod {
        node: Some("node".into()),
        phase,
        ..Pod::default()
    }
}

/// A running pod with its ready and creation times; `None` for an unset time.
fn ready(since: Option<i64>, created: Option<i64>) -> Pod {
    Pod {
        is_ready: true,
        ready_transition: since.map(seconds_ago),
        creation: created.map(seconds_ago),
        ..scheduled(PodPhase::Running)
    }
}

fn restarted(pod: Pod, restarts: i32) -> Pod {
    Pod { restarts, ..pod }
}

fn cost(deletion_cost: i32) -> Pod {
    Pod {
        deletion_cost,
        ..ready(Some(0), None)
    }
}

fn order((a, rank_a): (&Pod, usize), (b, rank_b): (&Pod, usize)) -> Ordering {
    let ranked = |pod: &Pod, rank| RankedPod {
        pod: Arc::new(pod.clone()),
        rank,
    };
    compare(&ranked(a, rank_a), &ranked(b, rank_b), rules())
}

/// Checks that `first` is deleted before `second`, with these ranks.
#[track_caller]
fn check((first, first_rank): (Pod, usize), (second, second_rank): (Pod, usize)) {
    let (a, b) = ((&first, first_rank), (&second, second_rank));
    assert_eq!(order(a, b), Ordering::Less);
    assert_eq!(order(b, a), Ordering::Greater);
}

#[track_caller]
fn check_equal(a: &Pod, b: &Pod) {
    assert_eq!(order((a, 1), (b, 1)), Ordering::Equal);
    assert_eq!(order((b, 1), (a, 1)), Ordering::Equal);
}

#[test]
fn e_01_equal_pods_are_equal_both_ways() {
    for pod in [
        unscheduled(),
        scheduled(PodPhase::Pending),
        scheduled(PodPhase::Unknown),
        scheduled(PodPhase::Running),
        ready(Some(0), None),
        ready(Some(0), Some(MONTH)),
        ready(Some(MONTH), Some(MONTH)),
        restarted(ready(Some(0), None), 9001),
    ] {
        check_equal(&pod, &pod);
    }
}

#[test]
fn e_02_ages_of_one_logarithm_are_equal() {
    check_equal(
        &ready(Some(5 * HOUR), Some(8 * HOUR)),
        &ready(Some(8 * HOUR), Some(8 * HOUR)),
    );
    let aged = |hours: i64| Pod {
        creation: Some(seconds_ago(hours * HOUR)),
        ..unscheduled()
    };
    check_equal(&aged(5), &aged(8));
}

#[test]
fn e_03_to_e_06_node_then_phase_then_readiness() {
    check((unscheduled(), 1), (scheduled(PodPhase::Pending), 2));
    check((unscheduled(), 2), (scheduled(PodPhase::Pending), 1));
    check(
        (scheduled(PodPhase::Pending), 1),
        (scheduled(PodPhase::Unknown), 2),
    );
    check(
        (scheduled(PodPhase::Unknown), 1),
        (scheduled(PodPhase::Running), 2),
    );
    check((scheduled(PodPhase::Running), 1), (ready(None, None), 1));
}

#[test]
fn an_unlisted_phase_ranks_as_pending() {
    check_equal(&scheduled(PodPhase::Pending), &scheduled(PodPhase::Other));
    check(
        (scheduled(PodPhase::Other), 1),
        (scheduled(PodPhase::Unknown), 1),
    );
}

#[test]
fn e_08_a_shorter_ready_time_comes_first_below_the_rank() {
    check((ready(Some(0), None), 1), (ready(Some(MONTH), None), 1));
    check((ready(Some(0), None), 2), (ready(Some(MONTH), None), 1));
    check((ready(None, None), 1), (ready(Some(0), None), 1));
    check((ready(Some(MONTH), None), 2), (ready(Some(0), None), 1));
}

#[test]
fn e_09_more_restarts_come_first_if_rank_and_times_are_equal() {
    let often = restarted(ready(Some(0), None), 9001);
    check((often.clone(), 1), (ready(Some(0), None), 1));
    check((ready(Some(0), None), 2), (often, 1));
    let sidecar = Pod {
        sidecar_restarts: 1,
        ..restarted(ready(Some(0), None), 3)
    };
    check(
        (sidecar.clone(), 1),
        (restarted(ready(Some(0), None), 3), 1),
    );
    check((restarted(ready(Some(0), None), 4), 1), (sidecar, 1));
}

#[test]
fn e_11_the_younger_comes_first_if_rank_is_equal() {
    let (young, old) = (ready(Some(MONTH), Some(0)), ready(Some(MONTH), Some(MONTH)));
    check((young.clone(), 1), (old.clone(), 1));
    check((old, 2), (young.clone(), 1));
    check((ready(Some(MONTH), None), 1), (young, 1));
}

#[test]
fn e_12_the_lower_cost_comes_first_whatever_the_rank() {
    check((cost(10), 2), (cost(100), 1));
    check((cost(10), 1), (cost(100), 2));
    check((cost(-5), 1), (cost(0), 2));
    // But readiness takes precedence over cost.
    let not_ready = Pod {
        deletion_cost: 1000,
        ..scheduled(PodPhase::Running)
    };
    check((not_ready, 1), (cost(0), 1));
}

#[test]
fn ages_in_the_future_come_before_all_others() {
    check((ready(Some(-HOUR), None), 1), (ready(Some(1), None), 1));
    let named = |uid: &str, pod: Pod| Pod {
        uid: Uid::new(uid),
        ..pod
    };
    let (a, b) = (
        named("a", ready(Some(-HOUR), None)),
        named("b", ready(Some(-2 * HOUR), None)),
    );
    check((a, 1), (b, 1));
}

#[test]
fn in_one_age_bucket_the_smaller_uid_comes_first() {
    let pod = |uid: &str, hours: i64, restarts| Pod {
        uid: Uid::new(uid),
        ..restarted(ready(Some(hours * HOUR), None), restarts)
    };
    check((pod("a", 8, 0), 1), (pod("b", 5, 9001), 1));
}

/// Equal ranks and costs with distant ages, so that the order is that of upstream's plain
/// comparison.
#[test]
fn e_14_nine_pods_sort_into_one_order() {
    let restarts = |pod: Pod, (restarts, sidecar_restarts)| Pod {
        restarts,
        sidecar_restarts,
        ..pod
    };
    let sorted = [
        unscheduled(),
        scheduled(PodPhase::Pending),
        scheduled(PodPhase::Unknown),
        scheduled(PodPhase::Running),
        restarts(ready(None, None), (3, 0)),
        restarts(ready(Some(0), None), (3, 0)),
        restarts(ready(Some(MONTH), None), (3, 0)),
        restarts(ready(Some(MONTH), Some(0)), (2, 1)),
        restarts(ready(Some(MONTH), Some(MONTH)), (2, 1)),
    ];
    let sorted: Vec<Pod> = sorted
        .into_iter()
        .enumerate()
        .map(|(i, pod)| named(i, pod))
        .collect();
    let mut rng = fastrand::Rng::with_seed(14);
    for _ in 0..20 {
        let mut shuffled = sorted.clone();
        rng.shuffle(&mut shuffled);
        let ranked = shuffled.into_iter().map(|pod| RankedPod {
            pod: Arc::new(pod),
            rank: 0,
        });
        let result = sort_for_deletion(ranked.collect(), rules());
        let result: Vec<Pod> = result
            .into_iter()
            .map(|ranked| (*ranked.pod).clone())
            .collect();
        assert_eq!(result, sorted);
    }
}

fn named(number: usize, pod: Pod) -> Pod {
    Pod {
        uid: format!("uid-{number}").as_str().into(),
        ..pod
    }
}

fn random_pod(rng: &mut fastrand::Rng, number: usize) -> RankedPod {
    let phases = [
        PodPhase::Pending,
        PodPhase::Running,
        PodPhase::Unknown,
        PodPhase::Other,
    ];
    // Few values and close ages, so that ties and cycles are frequent.
    let time = |rng: &mut fastrand::Rng| rng.bool().then(|| seconds_ago(rng.i64(-2..20)));
    let pod = Pod {
        uid: format!("uid-{}", rng.usize(..1000)).as_str().into(),
        node: (rng.u8(..8) > 0).then(|| "node".into()),
        phase: *rng.choice(&phases[..]).expect("there are phases"),
        is_ready: rng.u8(..8) > 0,
        ready_transition: time(rng),
        creation: time(rng),
        restarts: rng.i32(..3),
        sidecar_restarts: rng.i32(..2),
        deletion_cost: if rng.bool() { 0 } else { rng.i32(-1..2) },
        ..Pod::default()
    };
    RankedPod {
        pod: Arc::new(Pod {
            key: crate::controller::testing::key(&number.to_string()),
            ..pod
        }),
        rank: rng.usize(..2),
    }
}

#[test]
fn e_25_any_pods_sort_without_panic_and_into_a_permutation() {
    let mut rng = fastrand::Rng::with_seed(25);
    for round in 0..10_000 {
        let count = rng.usize(2..=50);
        let pods: Vec<RankedPod> = (0..count).map(|i| random_pod(&mut rng, i)).collect();
        let names = |pods: &[RankedPod]| -> Vec<String> {
            pods.iter()
                .map(|ranked| ranked.pod.key.to_string())
                .collect()
        };
        let sorted = names(&sort_for_deletion(pods.clone(), rules()));
        assert_eq!(
            sorted,
            names(&sort_for_deletion(pods.clone(), rules())),
            "round {round}"
        );
        let mut counts: HashMap<&str, i32> = HashMap::new();
        let before = names(&pods);
        for name in &before {
            *counts.entry(name).or_default() += 1;
        }
        for name in &sorted {
            *counts.entry(name).or_default() -= 1;
        }
        assert!(
            counts.values().all(|count| *count == 0),
            "round {round}: {sorted:?}"
        );
    }
}
