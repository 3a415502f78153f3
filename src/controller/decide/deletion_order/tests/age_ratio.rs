//! The metric of ages.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::api::Pod;
use crate::controller::decide::deletion_order::age_ratios;

const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);

fn pod(age_ms: i64, is_ready: bool) -> Arc<Pod> {
    Arc::new(Pod {
        creation: Some((NOW - SignedDuration::from_millis(age_ms)).into()),
        is_ready,
        ..Pod::default()
    })
}

#[track_caller]
fn check(all: &[(i64, bool)], n_chosen: usize, expected: &[f64]) {
    let all: Vec<Arc<Pod>> = all.iter().map(|(age, ready)| pod(*age, *ready)).collect();
    assert_eq!(age_ratios(&all, &all[..n_chosen], NOW), expected);
}

#[test]
fn e_26_whole_multiples_of_the_youngest_ready_pods_age() {
    check(&[(1000, true), (2999, true), (5000, true)], 2, &[1.0, 2.0]);
    check(&[(9000, true), (1000, true)], 1, &[9.0]);
    // Pods that are not ready neither count nor are counted.
    check(&[(500, false), (4000, true), (3000, true)], 2, &[1.0]);
    check(&[(500, false), (400, false)], 1, &[]);
    check(&[], 0, &[]);
}

#[test]
fn e_26_a_zero_age_yields_no_ratio() {
    check(&[(5000, true), (0, true)], 2, &[]);
    // A creation time in the future by the API server's clock.
    check(&[(4000, true), (-2000, true)], 2, &[-2.0, 1.0]);
}
