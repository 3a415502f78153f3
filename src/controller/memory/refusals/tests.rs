//! Holds and lines in the memory.

use std::sync::Arc;
use std::time::Duration;

use super::super::{Memories, Memory};
use crate::api::ReplicaSet;
use crate::controller::decide::refusal::Refusal;
use crate::controller::testing::replica_set;
use crate::stdx::clock::{Clock, FakeClock};

fn memories() -> (Memories, Arc<FakeClock>) {
    let clock = Arc::new(FakeClock::default());
    (
        Memories::new(Arc::clone(&clock) as Arc<dyn Clock>, true),
        clock,
    )
}

fn quota(name: &str) -> Refusal {
    Refusal::Quota(name.into())
}

/// The names of the ReplicaSets that may try now.
fn turns(memories: &Memories) -> Vec<String> {
    let due = memories.take_turns("default", None);
    let due = due.iter().filter(|(_, delay)| delay.is_zero());
    due.map(|(key, _)| key.name.to_string()).collect()
}

/// The create of `rs` is accepted.
fn accept(memories: &Memories, rs: &ReplicaSet) {
    memories.get(&rs.key, &rs.uid, Memory::create_was_accepted);
    memories.end_hold(rs, false);
}

#[test]
fn each_quota_has_a_line_of_its_own() {
    let (memories, clock) = memories();
    let all: Vec<ReplicaSet> = ["a", "b", "c"].map(|name| replica_set(name, 1)).into();
    memories.hold_back(&all[0], quota("cpu"), String::new());
    memories.hold_back(&all[1], quota("cpu"), String::new());
    memories.hold_back(&all[2], quota("pods"), String::new());
    clock.advance(Duration::from_millis(50));
    assert_eq!(turns(&memories), ["a", "c"]);
    assert!(memories.wake_lines("default", Some("pods")));
    assert!(!memories.wake_lines("default", Some("other")));
    assert!(!memories.wake_lines("elsewhere", None));
    let place = memories
        .hold_of(&all[1], true)
        .expect("b is held back")
        .place;
    assert_eq!(place.map(|place| (place.n_before, place.len)), Some((1, 2)));
    assert!(memories.hold_of(&all[0], true).is_none(), "a may try");
}

#[test]
fn a_line_ends_with_its_last_replica_set() {
    let (memories, _) = memories();
    let (a, b) = (replica_set("a", 1), replica_set("b", 1));
    memories.hold_back(&a, quota("pods"), String::new());
    memories.hold_back(&b, quota("pods"), String::new());
    assert_eq!(memories.n_held_back(), [2, 0, 0]);
    accept(&memories, &a);
    assert!(memories.wake_lines("default", None));
    memories.forget(&b.key, Some(&b.uid));
    assert!(!memories.wake_lines("default", None));
    assert_eq!(memories.n_held_back(), [0, 0, 0]);
}

#[test]
fn another_refusal_takes_a_replica_set_out_of_its_line() {
    let (memories, _) = memories();
    let a = replica_set("a", 1);
    memories.hold_back(&a, quota("pods"), String::new());
    memories.hold_back(&a, quota("cpu"), String::new());
    assert!(!memories.wake_lines("default", Some("pods")));
    assert!(memories.wake_lines("default", Some("cpu")));
    memories.hold_back(&a, Refusal::Invalid, String::new());
    assert!(!memories.wake_lines("default", None));
    assert_eq!(memories.n_held_back(), [0, 0, 1]);
}

#[test]
fn a_probe_of_one_quota_that_another_refuses_is_no_probe_there() {
    let (memories, clock) = memories();
    for name in ["a", "b", "c", "d", "e"] {
        memories.hold_back(&replica_set(name, 1), quota("cpu"), String::new());
    }
    let other = replica_set("x", 1);
    memories.hold_back(&other, quota("pods"), String::new());
    clock.advance(Duration::from_millis(50));
    assert_eq!(turns(&memories), ["a", "x"]);
    accept(&memories, &replica_set("a", 1));
    assert_eq!(turns(&memories), ["b", "c"]);
    memories.hold_back(&other, quota("cpu"), String::new());
    accept(&memories, &replica_set("b", 1));
    assert_eq!(turns(&memories), ["d", "e"], "the line still doubles");
}

/// Otherwise a webhook that fails would dissolve the line at once.
#[test]
fn a_probe_that_meets_another_refusal_takes_the_turn_along() {
    let overload = || Some(Refusal::Overload { retry_after: None });
    for refusal in [overload(), None] {
        let (memories, clock) = memories();
        let all = ["a", "b", "c"].map(|name| replica_set(name, 1));
        for rs in &all {
            memories.hold_back(rs, quota("pods"), String::new());
        }
        clock.advance(Duration::from_millis(50));
        assert_eq!(turns(&memories), ["a"]);
        match refusal {
            Some(refusal) => drop(memories.hold_back(&all[0], refusal, String::new())),
            None => memories.end_hold(&all[0], false),
        }
        assert_eq!(turns(&memories), [""; 0]);
        clock.advance(Duration::from_millis(100));
        assert_eq!(turns(&memories), ["b"]);
        memories.end_hold(&all[1], true);
        assert_eq!(turns(&memories), ["c"], "b needs no pod");
    }
}

#[test]
fn a_recreated_replica_set_inherits_no_hold() {
    let (memories, clock) = memories();
    let (old, mut new) = (replica_set("a", 1), replica_set("a", 1));
    new.uid = "another".into();
    memories.hold_back(&old, quota("pods"), String::new());
    memories.with(&new.key, &new.uid, |memory| {
        assert_eq!(memory.held_back(1, clock.now()), None);
    });
    assert!(!memories.wake_lines("default", None));
}

#[test]
fn refusals_between_accepted_creates_are_no_row() {
    let (memories, _) = memories();
    let rs = replica_set("a", 1);
    let overload = || Refusal::Overload { retry_after: None };
    let waits = [1, 2, 3].map(|_| memories.hold_back(&rs, overload(), String::new()));
    assert!(waits[0] < waits[1] && waits[1] < waits[2], "{waits:?}");
    memories.get(&rs.key, &rs.uid, Memory::create_was_accepted);
    assert_eq!(memories.hold_back(&rs, overload(), String::new()), waits[0]);
    let held_back = memories.hold_of(&rs, false).expect("it waits");
    assert_eq!(held_back.n_refusals, 1);
}
