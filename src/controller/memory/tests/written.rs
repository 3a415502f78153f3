//! Group H, the part about the record alone.

use std::sync::Arc;
use std::time::Duration;

use super::Rig;
use crate::api::{ObjectKey, Uid};
use crate::controller::decide::{Doubt, May};
use crate::controller::memory::own_writes::EXPECTATIONS_TIMEOUT;
use crate::controller::memory::positions::{Resource, Versions};
use crate::controller::testing::key;
use crate::stdx::testing::thread_time;

const READY: (Option<Resource>, May) = (None, May::Act);
const OVERDUE: (Option<Resource>, May) = (Some(Resource::Pods), May::Verify(Doubt::Overdue));

/// The pod cache lags, and the sync waits at most this long.
fn too_early(delay: Duration) -> (Option<Resource>, May) {
    (Some(Resource::Pods), May::Wait(delay))
}

fn versions(pods: &str, replica_sets: &str) -> Versions {
    Versions {
        pods: pods.into(),
        replica_sets: replica_sets.into(),
    }
}

fn store() -> Rig {
    Rig::default()
}

fn rs() -> (ObjectKey, Uid) {
    (key("web"), Uid::new("uid-web"))
}

/// Records these writes: first pods, then ReplicaSets.
fn written(pods: &[&str], replica_sets: &[&str]) -> Rig {
    let store = store();
    let (key, owner) = rs();
    for version in pods {
        store.wrote_at(&key, &owner, Resource::Pods, &(*version).into());
    }
    for version in replica_sets {
        store.wrote_at(&key, &owner, Resource::ReplicaSets, &(*version).into());
    }
    store
}

#[track_caller]
fn check_ready(store: &Rig, cached: &Versions, ready: bool) {
    let (key, owner) = rs();
    let readiness = store.may(&key, &owner, || cached.clone());
    assert_eq!(readiness == READY, ready, "{cached:?}");
}

#[test]
fn h_01_the_highest_version_counts() {
    let (key, owner) = rs();
    for (writes, highest) in [
        (&["5"][..], "5"),
        (&["5", "10"], "10"),
        (&["5", "10", "8"], "10"),
        (&["9", "10"], "10"),
        (&["10", "", "ten", "010"], "10"),
    ] {
        assert_eq!(
            written(writes, &[]).written(&key, &owner),
            Some(versions(highest, ""))
        );
    }
}

#[test]
fn h_02_resources_are_kept_apart() {
    let (key, owner) = rs();
    let store = written(&["10"], &["7"]);
    assert_eq!(store.written(&key, &owner), Some(versions("10", "7")));
}

#[test]
fn h_03_without_writes_all_is_ready() {
    check_ready(&store(), &versions("1", "1"), true);
}

#[test]
fn h_04_a_cache_without_a_version_never_blocks() {
    check_ready(&written(&["10"], &["10"]), &versions("", ""), true);
}

#[test]
fn h_05_ready_from_the_written_version_on() {
    for (cached, ready) in [("5", false), ("10", true), ("15", true)] {
        check_ready(&written(&["10"], &[]), &versions(cached, "1"), ready);
        check_ready(&written(&[], &["10"]), &versions("1", cached), ready);
    }
}

#[test]
fn h_06_both_caches_must_reach_their_versions() {
    let store = written(&["10"], &["20"]);
    check_ready(&store, &versions("10", "19"), false);
    check_ready(&store, &versions("9", "20"), false);
    check_ready(&store, &versions("10", "20"), true);
}

#[test]
fn h_07_versions_that_do_not_compare_never_block() {
    let (key, owner) = rs();
    for version in ["", "ten", "010", "0"] {
        let store = written(&[version], &[version]);
        assert_eq!(store.written(&key, &owner), None, "{version}");
        check_ready(&store, &versions("1", "1"), true);
        check_ready(&written(&["10"], &[]), &versions(version, "1"), true);
    }
}

#[test]
fn h_10_another_uid_replaces_the_record() {
    let (key, old) = rs();
    let new = Uid::new("uid-new");
    let store = written(&["10"], &["10"]);
    store.wrote_at(&key, &new, Resource::Pods, &"5".into());
    assert_eq!(store.written(&key, &old), None);
    assert_eq!(store.written(&key, &new), Some(versions("5", "")));
    check_ready(&store, &versions("5", "1"), true);
}

/// Upstream returns the record itself; here every write takes the lock.
#[test]
fn h_11_parallel_writers_make_one_record() {
    let (key, owner) = rs();
    let store = store();
    std::thread::scope(|scope| {
        for version in 1..=50 {
            let (store, key, owner) = (&store, &key, &owner);
            let version = version.to_string();
            let write =
                move || store.wrote_at(key, owner, Resource::Pods, &version.as_str().into());
            scope.spawn(write);
        }
    });
    assert_eq!(store.written(&key, &owner), Some(versions("50", "")));
}

#[test]
fn h_12_a_later_write_is_read_back() {
    let (key, owner) = rs();
    assert_eq!(
        written(&["10", "20"], &[]).written(&key, &owner),
        Some(versions("20", ""))
    );
}

#[test]
fn h_13_a_record_is_cleared_by_uid() {
    let (web, owner) = rs();
    let store = written(&["10"], &[]);
    store.wrote_at(&key("other"), &owner, Resource::Pods, &"3".into());
    store.forget(&key("unknown"), Some(&owner));
    store.forget(&web, Some(&Uid::new("uid-wrong")));
    assert!(store.written(&web, &owner).is_some());
    store.forget(&web, Some(&owner));
    assert_eq!(store.written(&web, &owner), None);
    assert!(store.written(&key("other"), &owner).is_some());
    store.forget(&key("other"), None);
    assert_eq!(store.written(&key("other"), &owner), None);
}

#[test]
fn h_14_a_ready_answer_drops_the_record() {
    let (key, owner) = rs();
    let store = written(&["10"], &[]);
    check_ready(&store, &versions("9", "1"), false);
    assert!(store.written(&key, &owner).is_some());
    check_ready(&store, &versions("11", "1"), true);
    assert_eq!(store.written(&key, &owner), None);
    check_ready(&store, &versions("1", "1"), true);
}

#[test]
fn only_a_waiting_key_is_woken_and_only_once() {
    let store = written(&["10"], &[]);
    assert_eq!(store.advanced(|| versions("10", "1")), []);
    check_ready(&store, &versions("9", "1"), false);
    assert_eq!(store.advanced(|| versions("9", "1")), []);
    assert_eq!(store.advanced(|| versions("10", "1")), [key("web")]);
    assert_eq!(store.advanced(|| versions("11", "1")), []);
    check_ready(&store, &versions("11", "1"), true);
}

#[test]
fn a_key_whose_wait_is_over_is_not_woken_by_its_next_write() {
    let (key, owner) = rs();
    let store = written(&["10"], &[]);
    check_ready(&store, &versions("9", "1"), false);
    check_ready(&store, &versions("11", "1"), true);
    store.wrote_at(&key, &owner, Resource::Pods, &"20".into());
    assert_eq!(store.advanced(|| versions("20", "1")), []);
}

#[test]
fn a_record_replaced_while_waiting_wakes_no_key() {
    let (key, owner) = rs();
    let store = written(&["10"], &[]);
    check_ready(&store, &versions("9", "1"), false);
    // The code that clears or replaces a record enqueues the key itself.
    store.forget(&key, Some(&owner));
    assert_eq!(store.advanced(|| versions("10", "1")), []);
}

/// The cache may reach the version between the check and the registration of the key. No event
/// reports that afterwards.
#[test]
fn a_version_reached_during_the_check_is_not_missed() {
    let store = written(&["10"], &[]);
    let reads = std::cell::Cell::new(9);
    let cached = || {
        let version = reads.get();
        reads.set(version + 1);
        versions(&version.to_string(), "1")
    };
    let (key, owner) = rs();
    let readiness = store.may(&key, &owner, cached);
    assert_eq!(readiness, READY);
    assert_eq!(reads.get(), 11, "read twice");
    assert_eq!(store.advanced(|| versions("10", "1")), []);
}

#[test]
fn another_owners_writes_are_not_waited_for() {
    let (store, (key, _)) = (written(&["10"], &[]), rs());
    let owner = Uid::new("uid-of-the-next-one");
    let readiness = store.may(&key, &owner, || versions("9", "1"));
    assert_eq!(readiness, READY);
    assert_eq!(store.advanced(|| versions("10", "1")), []);
}

#[test]
fn a_version_expires_like_an_expectation() {
    let store = store();
    let clock = Arc::clone(&store.clock);
    let (key, owner) = rs();
    store.wrote_at(&key, &owner, Resource::Pods, &"10".into());
    let check = |version: &str, readiness| {
        assert_eq!(
            store.may(&key, &owner, || versions(version, "1")),
            readiness
        );
    };
    check("9", too_early(EXPECTATIONS_TIMEOUT));
    let minute = Duration::from_mins(1);
    clock.advance(minute);
    check("9", too_early(4 * minute));
    // A lower version changes nothing, a higher one does.
    store.wrote_at(&key, &owner, Resource::Pods, &"8".into());
    check("9", too_early(4 * minute));
    store.wrote_at(&key, &owner, Resource::Pods, &"11".into());
    check("10", too_early(5 * minute));
    clock.advance(EXPECTATIONS_TIMEOUT);
    check("10", OVERDUE);
    check("11", READY);
}

/// An event that wakes no key costs the same however many keys wait.
#[test]
fn waking_does_not_visit_every_waiting_key() {
    let with_waiting = |n_keys: u32| {
        let store = store();
        for n in 0..n_keys {
            let (key, owner) = (key(&format!("rs-{n}")), Uid::new(&format!("uid-{n}")));
            let version = (1_000_000 + n).to_string();
            store.wrote_at(&key, &owner, Resource::Pods, &(*version).into());
            store.may(&key, &owner, || versions("5", "5"));
        }
        let began = thread_time();
        for n in 10..2_000 {
            assert!(store.advanced(|| versions(&n.to_string(), "5")).is_empty());
        }
        (store, thread_time().saturating_sub(began))
    };
    let ((_, few), (store, many)) = (with_waiting(100), with_waiting(10_000));
    assert!(many < few * 10, "{few:?}, a hundred times as many {many:?}");
    assert_eq!(store.advanced(|| versions("1000002", "5")).len(), 3);
    assert_eq!(store.advanced(|| versions("1009999", "5")).len(), 9_997);
}

/// A key waits for both caches, in either order.
#[test]
fn a_key_waiting_for_both_caches_wakes_with_the_later() {
    for first in [("10", "15"), ("5", "20")] {
        let store = written(&["10"], &["20"]);
        let (key, owner) = rs();
        store.may(&key, &owner, || versions("5", "15"));
        assert!(store.advanced(|| versions(first.0, first.1)).is_empty());
        // The key also waits for writes made meanwhile.
        store.wrote_at(&key, &owner, Resource::Pods, &"11".into());
        assert!(store.advanced(|| versions("10", "20")).is_empty());
        assert_eq!(store.advanced(|| versions("11", "20")), [key]);
        assert!(store.advanced(|| versions("12", "21")).is_empty());
    }
}
