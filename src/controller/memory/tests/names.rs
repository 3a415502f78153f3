//! The names of pods: new ones and returned ones.

use std::collections::HashSet;
use std::time::Instant;

use parking_lot::Mutex;

use crate::api::{ArcStr, ReplicaSet};
use crate::controller::memory::own_writes::{OwnWrites, Returned, take as take_not_taken};
use crate::controller::testing::replica_set;
use crate::writes::pod_body::{ALPHABET, N_SUFFIXES, suffix};

/// Returns `web` as stored under this version.
fn at(version: &str) -> ReplicaSet {
    let mut rs = replica_set("web", 1);
    rs.resource_version = version.into();
    rs
}

/// The names of one ReplicaSet, shared by several threads.
#[derive(Default)]
struct Names(Mutex<OwnWrites>);

impl Names {
    fn take(&self, rs: &ReplicaSet, count: usize, is_taken: impl Fn(&str) -> bool) -> Vec<ArcStr> {
        take_not_taken(
            Vec::new(),
            count,
            |more| self.with(|it| it.choose_names(rs, more)),
            is_taken,
        )
    }

    fn with<R>(&self, change: impl FnOnce(&mut OwnWrites) -> R) -> R {
        change(&mut self.0.lock())
    }
}

/// Records that the create of this name failed.
fn give_back(names: &Names, name: &ArcStr, why: Returned) {
    names.with(|it| {
        it.expect([name.clone()], [], Instant::now());
        it.creation_failed(name, Some(why));
    });
}

fn take(names: &Names, rs: &ReplicaSet, count: usize) -> Vec<ArcStr> {
    names.take(rs, count, |_| false)
}

#[test]
fn names_look_as_the_api_server_would_choose_them() {
    let long = "x".repeat(70);
    for (name, prefix) in [("web", "web-"), (&*long, &*"x".repeat(58))] {
        let rs = replica_set(name, 1);
        for pod in take(&Names::default(), &rs, 50) {
            let suffix = pod.strip_prefix(prefix).expect("the prefix");
            assert_eq!(suffix.len(), 5, "{pod}");
            assert!(suffix.bytes().all(|c| ALPHABET.contains(&c)), "{pod}");
        }
    }
}

#[test]
fn a_name_is_given_once_and_never_if_taken() {
    let (names, rs) = (Names::default(), replica_set("web", 1));
    let mut seen = HashSet::new();
    for _ in 0..10 {
        for name in names.take(&rs, 100, |name| name.ends_with('b')) {
            assert!(!name.ends_with('b') && seen.insert(name.clone()), "{name}");
        }
    }
}

#[test]
fn parallel_takers_get_different_names() {
    let (names, rs) = (Names::default(), replica_set("web", 1));
    let taken: Vec<Vec<ArcStr>> = std::thread::scope(|scope| {
        let take = || take(&names, &rs, 50);
        let takers: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
        let join = |taker: std::thread::ScopedJoinHandle<'_, _>| taker.join().expect("names");
        takers.into_iter().map(join).collect()
    });
    let different: HashSet<_> = taken.iter().flatten().collect();
    assert_eq!(different.len(), 200);
}

#[test]
fn a_name_given_back_comes_first_unless_it_is_taken_meanwhile() {
    let (names, rs) = (Names::default(), replica_set("web", 1));
    let first = take(&names, &rs, 3);
    give_back(&names, &first[2], Returned::Untried);
    give_back(&names, &first[0], Returned::Rejected);
    assert_eq!(take(&names, &rs, 1), [first[0].clone()]);
    let second = take(&names, &rs, 2);
    assert_eq!(second[0], first[2]);
    assert!(!first.contains(&second[1]), "given out once");
    give_back(&names, &second[1], Returned::Rejected);
    let third = names.take(&rs, 1, |name| *name == *second[1]);
    assert!(!first.contains(&third[0]) && !second.contains(&third[0]));
}

/// A restarted daemon knows only the version, and must choose the same names.
#[test]
fn unsent_names_end_with_their_version_and_rejected_ones_stay() {
    let names = Names::default();
    let first = take(&names, &at("7000"), 3);
    give_back(&names, &first[0], Returned::Rejected);
    // The first names of a version are the last ones of the versions before it.
    give_back(&names, &first[2], Returned::Untried);
    let second = take(&names, &at("7001"), 2);
    assert_eq!(second[0], first[0]);
    assert_eq!(second[1..], take(&Names::default(), &at("7001"), 1));
}

#[test]
fn a_restarted_daemon_sends_the_same_names() {
    let rs = at("7000");
    let before = take(&Names::default(), &rs, 20);
    let stored = [&before[0], &before[1], &before[4]];
    let is_stored = |name: &str| stored.iter().any(|stored| ***stored == *name);
    let after = Names::default().take(&rs, 17, is_stored);
    assert!(
        after.iter().all(|name| before.contains(name)),
        "{after:?} of {before:?}"
    );
}

/// Each stored pod and each status takes a version of its own.
#[test]
fn no_name_returns_however_often_the_daemon_is_restarted() {
    let (mut version, mut seen) = (7_000_u64, HashSet::new());
    for count in (0..500).map(|n| n % 70) {
        for name in take(&Names::default(), &at(&version.to_string()), count) {
            assert!(seen.insert(name.clone()), "{name} at {version}");
        }
        version += count as u64 + 1;
    }
}

#[test]
fn a_new_version_keeps_only_rejected_names() {
    let mut names = OwnWrites::default();
    let first = names.choose_names(&at("7000"), 2);
    names.forget_versions_before(&"7000".into());
    assert!(!names.is_over(Instant::now()), "the same version continues");
    names.expect(first[..1].iter().cloned(), [], Instant::now());
    names.creation_failed(&first[0], Some(Returned::Rejected));
    names.forget_versions_before(&"7001".into());
    assert_eq!(names.choose_names(&at("7001"), 1), first[..1]);
    names.forget_versions_before(&"7002".into());
    assert!(names.is_over(Instant::now()));
}

#[test]
fn a_version_that_is_no_number_has_names_too() {
    let names = take(&Names::default(), &at("abc"), 50);
    let different: HashSet<_> = names.iter().collect();
    assert_eq!(different.len(), 50);
    assert_eq!(take(&Names::default(), &at("abc"), 50), names);
}

#[test]
fn all_suffixes_are_used_before_one_comes_again() {
    let mut seen = HashSet::new();
    let n_tried = 200_000;
    let uid = "uid".into();
    // The last and the first suffixes of a cycle.
    for index in N_SUFFIXES - n_tried / 2..N_SUFFIXES + n_tried / 2 {
        assert!(seen.insert(suffix(&uid, index)), "{index}");
    }
    assert_eq!(suffix(&uid, 3), suffix(&uid, N_SUFFIXES + 3));
}
