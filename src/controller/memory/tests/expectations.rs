//! Group B, the part about expectations alone. Where the checklist requires counters below zero,
//! identity expectations have no counter, so these tests check the intended effect.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Rig, Satisfaction};
use crate::api::{ArcStr, ObjectKey, Uid};
use crate::controller::memory::own_writes::{ARRIVES_WITHIN, EXPECTATIONS_TIMEOUT, OwnWrites};
use crate::controller::testing::{key, replica_set};
use crate::stdx::testing::FakeClock;

fn fixture() -> (Arc<FakeClock>, Rig) {
    let rig = Rig::default();
    (Arc::clone(&rig.clock), rig)
}

fn names(count: usize) -> Vec<ArcStr> {
    (0..count).map(|i| format!("pod-{i}").into()).collect()
}

fn uids(owner: &str, count: usize) -> Vec<Uid> {
    (0..count)
        .map(|i| Uid::new(&format!("uid-{owner}-{i}")))
        .collect()
}

fn rs() -> (ObjectKey, Uid) {
    (key("web"), Uid::new("uid-web"))
}

/// Upstream counts, so it may observe 11 creations of 10. Here the eleventh matches no name.
#[test]
fn b_01_parallel_observations_affect_only_their_names() {
    let (_, expectations) = fixture();
    let (key, owner) = rs();
    expectations.expect(&key, &owner, names(10), uids("web", 30));
    std::thread::scope(|scope| {
        for name in names(11) {
            let (expectations, key, owner) = (&expectations, &key, &owner);
            scope.spawn(move || expectations.creation_seen(key, owner, &name));
        }
    });
    assert_eq!(expectations.open(&key, &owner), Some((0, 30)));
    assert_eq!(expectations.satisfaction(&key, &owner), Satisfaction::Open);
}

/// Upstream's counters of (−1, −1) do not exist here: a surplus observation leaves no debt.
#[test]
fn b_02_a_surplus_observation_leaves_no_debt() {
    let (_, expectations) = fixture();
    let (key, owner) = rs();
    expectations.expect(&key, &owner, names(10), uids("web", 30));
    for name in names(11) {
        expectations.creation_seen(&key, &owner, &name);
    }
    for uid in uids("web", 31) {
        expectations.deletion_seen(&key, &owner, &uid);
    }
    assert_eq!(expectations.open(&key, &owner), Some((0, 0)));
    assert_eq!(
        expectations.satisfaction(&key, &owner),
        Satisfaction::Satisfied
    );
    expectations.creation_seen(&key, &owner, "pod-0");
    expectations.expect_creations(&key, &owner, names(1));
    assert_eq!(expectations.satisfaction(&key, &owner), Satisfaction::Open);
}

#[test]
fn b_03_a_new_expectation_replaces_the_old_one() {
    let (_, expectations) = fixture();
    let (key, owner) = rs();
    expectations.expect(&key, &owner, names(10), uids("web", 30));
    expectations.expect(&key, &owner, names(1), uids("web", 2));
    assert_eq!(expectations.open(&key, &owner), Some((1, 2)));
    assert_eq!(expectations.satisfaction(&key, &owner), Satisfaction::Open);
    expectations.expect_creations(&key, &owner, names(3));
    assert_eq!(expectations.open(&key, &owner), Some((3, 0)));
    expectations.expect_deletions(&key, &owner, uids("web", 4));
    assert_eq!(expectations.open(&key, &owner), Some((0, 4)));
}

/// Upstream treats an expired expectation as fulfilled. Here the result differs, because the sync
/// then queries the API server instead of guessing.
#[test]
fn b_04_an_expectation_is_valid_for_five_minutes() {
    let (clock, expectations) = fixture();
    let (key, owner) = rs();
    expectations.expect_creations(&key, &owner, names(2));
    clock.advance(EXPECTATIONS_TIMEOUT);
    assert_eq!(expectations.satisfaction(&key, &owner), Satisfaction::Open);
    expectations.creation_seen(&key, &owner, "pod-0");
    clock.advance(Duration::from_nanos(1));
    assert_eq!(
        expectations.satisfaction(&key, &owner),
        Satisfaction::Expired
    );
    expectations.creation_seen(&key, &owner, "pod-1");
    assert_eq!(
        expectations.satisfaction(&key, &owner),
        Satisfaction::Satisfied
    );
}

#[test]
fn b_05_without_a_record_nothing_is_expected() {
    let (_, expectations) = fixture();
    let (key, owner) = rs();
    assert_eq!(
        expectations.satisfaction(&key, &owner),
        Satisfaction::Satisfied
    );
    assert_eq!(expectations.open(&key, &owner), None);
    expectations.creation_seen(&key, &owner, "pod-0");
    expectations.forget(&key, None);
    assert_eq!(expectations.open(&key, &owner), None);
}

#[test]
fn b_06_owners_do_not_share_deletions() {
    let (_, expectations) = fixture();
    let mut owners = ["two", "one", "none", "five"].map(|name| (key(name), Uid::new(name)));
    for (key, owner) in &owners {
        expectations.expect_deletions(key, owner, uids(&key.name, 5));
    }
    fastrand::Rng::with_seed(6).shuffle(&mut owners);
    for (key, owner) in &owners {
        assert_eq!(
            expectations.satisfaction(key, owner),
            Satisfaction::Open,
            "{key}"
        );
        for uid in uids(&key.name, 5) {
            expectations.deletion_seen(key, owner, &uid);
        }
        assert_eq!(
            expectations.satisfaction(key, owner),
            Satisfaction::Satisfied
        );
        expectations.forget(key, Some(owner));
        assert_eq!(expectations.open(key, owner), None);
    }
}

#[test]
fn b_07_unexpected_events_change_nothing() {
    let (_, expectations) = fixture();
    let (key, owner) = rs();
    expectations.expect(&key, &owner, names(2), uids("web", 2));
    for _ in 0..2 {
        expectations.deletion_seen(&key, &owner, &Uid::new("uid-web-0"));
        expectations.creation_seen(&key, &owner, "pod-0");
    }
    expectations.deletion_seen(&key, &owner, &Uid::new("uid-foreign"));
    expectations.creation_seen(&key, &owner, "foreign");
    assert_eq!(expectations.open(&key, &owner), Some((1, 1)));
}

#[test]
fn a_creation_under_another_name_is_expected_instead() {
    let (_, expectations) = fixture();
    let (key, owner) = rs();
    expectations.expect_creations(&key, &owner, names(2));
    let rename = |writes: &mut OwnWrites| writes.rename_creation(&replica_set("web", 1), "pod-1");
    let other = expectations.own_writes(&key, &owner, rename);
    expectations.creation_seen(&key, &owner, "pod-1");
    assert_eq!(expectations.open(&key, &owner), Some((2, 0)));
    expectations.creation_seen(&key, &owner, &other.expect("a record"));
    assert_eq!(expectations.open(&key, &owner), Some((1, 0)));
}

#[test]
fn another_owner_under_the_key_sees_nothing_of_the_first() {
    let (_, expectations) = fixture();
    let (key, old) = rs();
    let new = Uid::new("uid-new");
    expectations.expect(&key, &old, names(1), uids("web", 1));
    assert_eq!(
        expectations.satisfaction(&key, &new),
        Satisfaction::Satisfied
    );
    expectations.creation_seen(&key, &new, "pod-0");
    expectations.forget(&key, Some(&new));
    assert_eq!(expectations.open(&key, &old), Some((1, 1)));
    expectations.expect_creations(&key, &new, names(2));
    assert_eq!(
        (expectations.open(&key, &old), expectations.open(&key, &new)),
        (None, Some((2, 0)))
    );
    expectations.forget(&key, None);
    assert_eq!(expectations.open(&key, &new), None);
}

#[test]
fn an_unknown_delete_that_is_repeated_may_arrive_as_much_later() {
    let (mut writes, began) = (OwnWrites::default(), Instant::now());
    let pod = Uid::new("a");
    let repeated = began + ARRIVES_WITHIN;
    for at in [began, repeated] {
        writes.expect([], [pod.clone()], at);
        writes.deletion_is_unknown(&pod, at);
        writes.deletion_failed(&pod);
    }
    let unknown = writes.unknown_deletions(repeated + ARRIVES_WITHIN);
    assert_eq!(unknown, (vec![pod], 0));
}

#[test]
fn a_create_without_response_is_first_whatever_came_later() {
    let all: [ArcStr; 4] = ["a", "b", "c", "d"].map(ArcStr::from);
    for open in &all {
        let mut writes = OwnWrites::default();
        let now = Instant::now();
        writes.expect(all.iter().cloned(), [], now);
        for name in &all {
            writes.creation_is_unknown(name, name != open, now);
        }
        writes.creation_is_unknown(open, true, now);
        assert_eq!(writes.unknown_creations().first(), Some(open));
    }
}

/// The watch shows a pod long before its create times out.
#[test]
fn what_the_watch_has_shown_has_no_unknown_outcome() {
    let (mut writes, now, pod) = (OwnWrites::default(), Instant::now(), Uid::new("a"));
    writes.expect(["web-1".into()], [], now);
    writes.creation_seen("web-1");
    writes.creation_is_unknown("web-1", false, now);
    writes.expect([], [pod.clone()], now);
    writes.deletion_seen(&pod);
    writes.deletion_is_unknown(&pod, now);
    assert!(writes.is_over(now));
}
