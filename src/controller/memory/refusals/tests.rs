//! Holds and queues in the memory.

use std::sync::Arc;
use std::time::Duration;

use super::super::{Memories, Memory};
use crate::api::{ObjectKey, ReplicaSet};
use crate::controller::decide::refusal::Refusal;
use crate::controller::testing::replica_set;
use crate::stdx::clock::{Clock, FakeClock};

fn memories() -> (Memories, Arc<FakeClock>) {
    let clock = Arc::new(FakeClock::default());
    (
        Memories::new(Arc::clone(&clock) as Arc<dyn Clock>, true, 5.0),
        clock,
    )
}

fn quota(name: &str) -> Refusal {
    Refusal::Quota(name.into())
}

/// The keys that the queues bring back, with the delay in milliseconds.
fn turns(memories: &Memories, processed: Option<&ReplicaSet>) -> Vec<(String, u128)> {
    let due = memories.take_turns("default", processed.map(|rs| &rs.key));
    let of = |(key, delay): (ObjectKey, Duration)| (key.name.to_string(), delay.as_millis());
    due.into_iter().map(of).collect()
}

fn at(name: &str, delay: u128) -> (String, u128) {
    (name.to_owned(), delay)
}

/// The create of `rs` is accepted.
fn accept(memories: &Memories, rs: &ReplicaSet) {
    memories.get(&rs.key, &rs.uid, Memory::create_was_accepted);
    memories.end_hold(rs, false);
}

#[test]
fn each_quota_has_a_queue_of_its_own() {
    let (memories, clock) = memories();
    let all: Vec<ReplicaSet> = ["a", "b", "c"].map(|name| replica_set(name, 1)).into();
    memories.hold_back(&all[0], quota("cpu"), String::new());
    memories.hold_back(&all[1], quota("cpu"), String::new());
    memories.hold_back(&all[2], quota("pods"), String::new());
    assert_eq!(turns(&memories, None), [at("a", 50), at("c", 50)]);
    clock.advance(Duration::from_millis(50));
    assert!(memories.wake_queues("default", Some("pods")));
    assert!(!memories.wake_queues("default", Some("other")));
    assert!(!memories.wake_queues("elsewhere", None));
    let held_back = memories.hold_of(&all[1], true).expect("b is held back");
    let position = held_back.position.map(|it| (it.n_before, it.len));
    assert_eq!(position, Some((1, 2)));
    assert!(memories.hold_of(&all[0], true).is_none(), "a may try");
}

#[test]
fn each_accepted_create_lets_two_more_try() {
    let (memories, clock) = memories();
    let all = ["a", "b", "c", "d", "e", "f"].map(|name| replica_set(name, 1));
    for rs in &all {
        memories.hold_back(rs, quota("pods"), String::new());
    }
    assert_eq!(turns(&memories, None), [at("a", 50)]);
    clock.advance(Duration::from_millis(50));
    accept(&memories, &all[0]);
    let next = turns(&memories, Some(&all[0]));
    assert_eq!(next, [at("b", 0), at("c", 0), at("d", 50)]);
    memories.hold_back(&all[1], quota("pods"), String::new());
    assert_eq!(turns(&memories, Some(&all[1])), [], "b was refused");
    accept(&memories, &all[2]);
    let next = turns(&memories, Some(&all[2]));
    assert_eq!(next, [at("d", 0), at("e", 0), at("f", 50)]);
}

/// It may wait for its own writes, or for a worker that takes large ReplicaSets.
#[test]
fn who_does_not_try_passes_the_turn() {
    let (memories, clock) = memories();
    let (a, b) = (replica_set("a", 1), replica_set("b", 1));
    memories.hold_back(&a, quota("pods"), String::new());
    memories.hold_back(&b, quota("pods"), String::new());
    assert_eq!(turns(&memories, None), [at("a", 50)]);
    assert_eq!(turns(&memories, Some(&a)), [], "its time has not come");
    clock.advance(Duration::from_millis(50));
    assert_eq!(turns(&memories, Some(&a)), [at("b", 100)]);
    assert!(
        memories.hold_of(&a, false).is_none(),
        "a may try all the same"
    );
    clock.advance(Duration::from_millis(100));
    assert_eq!(turns(&memories, Some(&b)), [at("a", 200)]);
}

#[test]
fn the_queues_share_a_budget() {
    let (memories, _) = memories();
    let interval = || memories.lock().queues.interval();
    for n in 0..50 {
        let rs = replica_set(&format!("rs-{n}"), 1);
        memories.hold_back(&rs, quota(&format!("quota-{n}")), String::new());
    }
    assert_eq!(interval(), Duration::from_secs(10), "5 a second for 50");
    for n in 0..50 {
        memories.end_hold(&replica_set(&format!("rs-{n}"), 1), true);
    }
    assert_eq!(interval(), Duration::from_secs(1));
    let clock = Arc::new(FakeClock::default());
    let unlimited = Memories::new(clock, true, 0.0);
    unlimited.hold_back(&replica_set("a", 1), quota("pods"), String::new());
    assert_eq!(unlimited.lock().queues.interval(), Duration::from_secs(1));
}

#[test]
fn a_queue_ends_with_its_last_replica_set() {
    let (memories, _) = memories();
    let (a, b) = (replica_set("a", 1), replica_set("b", 1));
    memories.hold_back(&a, quota("pods"), String::new());
    memories.hold_back(&b, quota("pods"), String::new());
    assert_eq!(memories.n_held_back(), [2, 0, 0]);
    accept(&memories, &a);
    assert!(memories.wake_queues("default", None));
    memories.forget(&b.key, Some(&b.uid));
    assert!(!memories.wake_queues("default", None));
    assert_eq!(memories.n_held_back(), [0, 0, 0]);
}

#[test]
fn another_refusal_takes_a_replica_set_out_of_its_queue() {
    let (memories, _) = memories();
    let a = replica_set("a", 1);
    memories.hold_back(&a, quota("pods"), String::new());
    memories.hold_back(&a, quota("cpu"), String::new());
    assert!(!memories.wake_queues("default", Some("pods")));
    assert!(memories.wake_queues("default", Some("cpu")));
    memories.hold_back(&a, Refusal::Invalid, String::new());
    assert!(!memories.wake_queues("default", None));
    assert_eq!(memories.n_held_back(), [0, 0, 1]);
}

/// Otherwise a webhook that fails would dissolve the queue at once.
#[test]
fn a_try_that_meets_another_refusal_is_followed_by_a_pause() {
    let overload = || Some(Refusal::Overload { retry_after: None });
    for refusal in [overload(), None] {
        let (memories, clock) = memories();
        let all = ["a", "b", "c"].map(|name| replica_set(name, 1));
        for rs in &all {
            memories.hold_back(rs, quota("pods"), String::new());
        }
        assert_eq!(turns(&memories, None), [at("a", 50)]);
        clock.advance(Duration::from_millis(50));
        match refusal {
            Some(refusal) => drop(memories.hold_back(&all[0], refusal, String::new())),
            None => memories.end_hold(&all[0], false),
        }
        assert_eq!(turns(&memories, Some(&all[0])), [at("b", 100)]);
        clock.advance(Duration::from_millis(100));
        memories.end_hold(&all[1], true);
        let next = turns(&memories, Some(&all[1]));
        assert_eq!(next, [at("c", 0)], "b needs no pod");
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
    assert!(!memories.wake_queues("default", None));
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
