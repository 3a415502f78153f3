//! Kinds of rejection, waits, and queues in the memory.

use std::sync::Arc;
use std::time::Duration;

use super::super::{Memories, Memory};
use super::{DENIED_WAIT_MAX, LIVELY, OVERLOAD_WAIT_MAX, PACE, PAUSE_MAX, Rejection};
use crate::api::{ObjectKey, ReplicaSet, Status};
use crate::controller::testing::replica_set;
use crate::stdx::HashSet;
use crate::stdx::clock::Clock;
use crate::stdx::testing::FakeClock;
use crate::writes::WriteError;

const SECOND: Duration = Duration::from_secs(1);

fn memories() -> (Memories, Arc<FakeClock>) {
    let clock = Arc::new(FakeClock::default());
    (
        Memories::new(Arc::clone(&clock) as Arc<dyn Clock>, true, Arc::default()),
        clock,
    )
}

fn quota(name: &str) -> Rejection {
    Rejection::Quota(name.into())
}

/// A create of `rs` is rejected.
fn reject(memories: &Memories, rs: &ReplicaSet, rejection: Rejection) {
    memories.with(rs, |_| {});
    memories.creates_tried(rs, Some((rejection, String::new())));
}

/// Its wait.
fn wait(memories: &Memories, rs: &ReplicaSet) -> Option<Duration> {
    memories.backed_off(rs).map(|it| it.remaining)
}

/// The keys that the queues bring back, with the delay in milliseconds.
fn turns(memories: &Memories, processed: &ReplicaSet) -> Vec<(String, u128)> {
    let due = memories.turns("default", &processed.key);
    let of = |(key, delay): (ObjectKey, Duration)| (key.name.to_string(), delay.as_millis());
    due.into_iter().map(of).collect()
}

fn at(name: &str, delay: u128) -> (String, u128) {
    (name.to_owned(), delay)
}

/// The creates of `rs` are accepted.
fn accept(memories: &Memories, rs: &ReplicaSet) {
    memories.get(rs, Memory::create_was_accepted);
    memories.creates_tried(rs, None);
}

/// True if a ReplicaSet waits for this quota, or for any.
fn waits(memories: &Memories, namespace: &str, quota: Option<&str>) -> bool {
    memories.wake(namespace, quota);
    let state = memories.state.lock();
    let mut queues = state.queues.iter();
    queues.any(|(it, queue)| {
        let is_it = *it.namespace == *namespace && quota.is_none_or(|quota| *it.name == *quota);
        is_it && !queue.waiting.is_empty()
    })
}

#[test]
fn each_quota_has_a_queue_of_its_own() {
    let (memories, clock) = memories();
    let all: Vec<ReplicaSet> = ["a", "b", "c"].map(|name| replica_set(name, 1)).into();
    reject(&memories, &all[0], quota("cpu"));
    reject(&memories, &all[1], quota("cpu"));
    reject(&memories, &all[2], quota("pods"));
    let mut due = turns(&memories, &all[1]);
    due.sort();
    assert_eq!(due, [at("a", 1500), at("c", 1500)]);
    clock.advance(PACE);
    assert!(waits(&memories, "default", Some("pods")));
    assert!(!waits(&memories, "default", Some("other")));
    assert!(!waits(&memories, "elsewhere", None));
    let backed_off = memories.backed_off(&all[1]).expect("b is backed off");
    let position = backed_off.position.map(|it| (it.n_before, it.len));
    assert_eq!(position, Some((1, 2)));
    assert!(memories.backed_off(&all[0]).is_none(), "a may try");
}

/// ReplicaSets `a`, `b` and `c` in the queue of one quota; the pause of `a` is over.
fn queue_whose_head_may_try() -> (Memories, Arc<FakeClock>, [ReplicaSet; 3]) {
    let (memories, clock) = memories();
    let all = ["a", "b", "c"].map(|name| replica_set(name, 1));
    for rs in &all {
        reject(&memories, rs, quota("pods"));
    }
    assert_eq!(turns(&memories, &all[2]), [at("a", 1500)]);
    clock.advance(PACE);
    (memories, clock, all)
}

#[test]
fn each_accepted_create_lets_the_next_one_try() {
    let (memories, _, all) = queue_whose_head_may_try();
    accept(&memories, &all[0]);
    assert_eq!(turns(&memories, &all[0]), [at("b", 0)]);
    accept(&memories, &all[1]);
    assert_eq!(turns(&memories, &all[1]), [at("c", 0)]);
    reject(&memories, &all[2], quota("pods"));
    assert_eq!(turns(&memories, &all[2]), [at("c", 1500)]);
}

#[test]
fn an_accepted_create_shortens_the_delays_again() {
    let (memories, clock, all) = queue_whose_head_may_try();
    clock.advance(LIVELY);
    accept(&memories, &all[0]);
    assert_eq!(turns(&memories, &all[0]), [at("b", 0)]);
    reject(&memories, &all[1], quota("pods"));
    assert_eq!(turns(&memories, &all[1]), [at("c", 1500)]);
}

#[test]
fn a_rejection_after_an_accepted_create_is_the_first() {
    let (memories, clock) = memories();
    let rs = replica_set("a", 2);
    reject(&memories, &rs, Rejection::Invalid);
    clock.advance(SECOND);
    memories.get(&rs, Memory::create_was_accepted);
    reject(&memories, &rs, Rejection::Invalid);
    let found = memories.backed_off(&rs).expect("it waits");
    assert_eq!((found.n_rejections, found.since), (1, Duration::ZERO));
}

/// A new generation tries at once. The work queue may have brought the key back meanwhile, so its
/// sync must ask for the turn, and not for the end of the new wait.
#[test]
fn who_is_rejected_again_before_its_turn_still_has_it() {
    let (memories, clock) = memories();
    let mut rs = replica_set("a", 1);
    reject(&memories, &rs, quota("pods"));
    assert_eq!(turns(&memories, &rs), [at("a", 1500)]);
    clock.advance(SECOND);
    rs.generation += 1;
    reject(&memories, &rs, quota("pods"));
    assert_eq!(turns(&memories, &rs), [], "it is on its way");
    let wait = memories.with(&rs, |memory| memory.rejected(clock.now()));
    assert_eq!(
        wait,
        Some((rs.generation, Some(Duration::from_millis(500))))
    );
}

/// It may wait for its own writes, or for a worker that takes large ReplicaSets.
#[test]
fn who_does_not_try_passes_the_turn() {
    let (memories, clock) = memories();
    let (a, b) = (replica_set("a", 1), replica_set("b", 1));
    reject(&memories, &a, quota("pods"));
    reject(&memories, &b, quota("pods"));
    assert_eq!(turns(&memories, &b), [at("a", 1500)]);
    assert_eq!(turns(&memories, &a), [], "its time has not come");
    clock.advance(PACE);
    assert_eq!(turns(&memories, &a), [at("b", 1500)]);
    assert!(memories.backed_off(&a).is_none(), "a may try all the same");
    clock.advance(PACE);
    assert_eq!(turns(&memories, &b), [at("a", 1500)]);
}

#[test]
fn pauses_grow_to_30_s_unless_something_may_free_quota() {
    let (memories, clock) = memories();
    let a = replica_set("a", 1);
    reject(&memories, &a, quota("pods"));
    let next = || {
        let due = turns(&memories, &a);
        let delay = due.first().expect("a turn").1;
        clock.advance(Duration::from_millis(u64::try_from(delay).expect("short")));
        reject(&memories, &a, quota("pods"));
        delay
    };
    let pauses: Vec<u128> = (0..9).map(|_| next()).collect();
    assert_eq!(
        pauses,
        [1500, 1500, 1500, 1500, 1500, 1500, 1500, 30_000, 30_000]
    );
    turns(&memories, &a);
    clock.advance(PAUSE_MAX / 2);
    let woken = memories.wake("default", None);
    assert_eq!(woken, [(a.key.clone(), Duration::ZERO)]);
    reject(&memories, &a, quota("pods"));
    for _ in 0..3 {
        memories.wake("default", None);
    }
    assert_eq!(wait(&memories, &a), Some(PACE), "however often");
}

#[test]
fn the_queues_share_a_budget() {
    let (memories, _) = memories();
    let pace = || super::pace(memories.state.lock().queues.len());
    for n in 0..50 {
        let rs = replica_set(&format!("rs-{n}"), 1);
        reject(&memories, &rs, quota(&format!("quota-{n}")));
    }
    assert_eq!(pace(), 10 * SECOND, "5 a second for 50");
    for n in 0..50 {
        let rs = replica_set(&format!("rs-{n}"), 1);
        memories.creates_not_needed(&rs);
        turns(&memories, &rs);
    }
    assert_eq!(pace(), PACE);
}

#[test]
fn a_queue_ends_with_its_last_replica_set() {
    let (memories, _) = memories();
    let (a, b) = (replica_set("a", 1), replica_set("b", 1));
    reject(&memories, &a, quota("pods"));
    reject(&memories, &b, quota("pods"));
    assert_eq!(memories.totals().rejected, [2, 0, 0, 0]);
    accept(&memories, &a);
    assert!(waits(&memories, "default", None));
    memories.forget(&b.key, Some(&b.uid));
    assert!(!waits(&memories, "default", None));
    assert_eq!(memories.totals().rejected, [0, 0, 0, 0]);
    assert!(memories.state.lock().queues.is_empty());
}

#[test]
fn another_rejection_takes_a_replica_set_out_of_its_queue() {
    let (memories, _) = memories();
    let a = replica_set("a", 1);
    reject(&memories, &a, quota("pods"));
    reject(&memories, &a, quota("cpu"));
    assert!(!waits(&memories, "default", Some("pods")));
    assert!(waits(&memories, "default", Some("cpu")));
    reject(&memories, &a, Rejection::Invalid);
    assert!(!waits(&memories, "default", None));
    assert_eq!(memories.totals().rejected, [0, 0, 1, 0]);
}

/// Otherwise a webhook that fails would dissolve the queue at once.
#[test]
fn a_try_that_meets_another_rejection_is_followed_by_a_pause() {
    let overload = || Some(Rejection::Overload { retry_after: None });
    for rejection in [overload(), None] {
        let (memories, clock, all) = queue_whose_head_may_try();
        match rejection {
            Some(rejection) => reject(&memories, &all[0], rejection),
            None => memories.creates_tried(&all[0], None),
        }
        assert_eq!(turns(&memories, &all[0]), [at("b", 1500)]);
        clock.advance(PACE);
        memories.creates_not_needed(&all[1]);
        let next = turns(&memories, &all[1]);
        assert_eq!(next, [at("c", 0)], "b needs no pod");
    }
}

#[test]
fn a_recreated_replica_set_inherits_no_wait() {
    let (memories, clock) = memories();
    let (old, mut new) = (replica_set("a", 1), replica_set("a", 1));
    new.uid = "another".into();
    reject(&memories, &old, quota("pods"));
    memories.with(&new, |memory| {
        assert_eq!(memory.rejected(clock.now()), None);
    });
    assert!(!waits(&memories, "default", None));
}

#[test]
fn a_wait_ends_with_its_time_or_a_generation() {
    let (memories, clock) = memories();
    let rs = replica_set("web", 1);
    reject(&memories, &rs, Rejection::Invalid);
    let until = wait(&memories, &rs).expect("it waits");
    let of = |generation| {
        let now = clock.now();
        let wait = memories.get(&rs, |memory| memory.rejected(now)).flatten();
        wait.filter(|(of, _)| *of == generation)
            .and_then(|(_, wait)| wait)
    };
    assert_eq!((of(1), of(2)), (Some(until), None));
    clock.advance(until);
    assert_eq!(of(1), None);
}

#[test]
fn only_rejections_of_one_kind_count_together() {
    let (memories, clock) = memories();
    let rs = replica_set("web", 1);
    let overload = || Rejection::Overload { retry_after: None };
    let row = |rejection| {
        reject(&memories, &rs, rejection);
        let backed_off = memories.backed_off(&rs).expect("it waits");
        (
            backed_off.n_rejections,
            backed_off.since,
            backed_off.remaining,
        )
    };
    let (_, _, first) = row(overload());
    clock.advance(SECOND);
    let (n, since, second) = row(overload());
    assert_eq!((n, since), (2, SECOND));
    assert!(second > first);
    let (n, since, _) = row(Rejection::Invalid);
    assert_eq!((n, since), (1, Duration::ZERO));
}

#[test]
fn rejections_between_accepted_creates_are_no_row() {
    let (memories, _) = memories();
    let rs = replica_set("a", 1);
    let reject = || {
        reject(&memories, &rs, Rejection::Overload { retry_after: None });
        wait(&memories, &rs)
    };
    let waits = [reject(), reject(), reject()];
    assert!(waits[0] < waits[1] && waits[1] < waits[2], "{waits:?}");
    memories.get(&rs, Memory::create_was_accepted);
    assert_eq!(reject(), waits[0]);
    let backed_off = memories.backed_off(&rs).expect("it waits");
    assert_eq!(backed_off.n_rejections, 1);
}

/// The kind of the error as writes report it: from 500 on, its outcome is unknown.
fn of(code: u16, reason: &str, message: &str) -> Option<Rejection> {
    let status = Status::new(code, reason, message);
    Rejection::of(&match code {
        500.. => WriteError::Unknown {
            message: message.to_owned(),
            status: Some(status),
        },
        _ => WriteError::Rejected(status),
    })
}

#[test]
fn each_rejection_has_its_kind() {
    let overload = Some(Rejection::Overload { retry_after: None });
    let (quota, denied) = (Some(Rejection::Quota("q".into())), Some(Rejection::Denied));
    let exceeded = "pods \"a\" is forbidden: exceeded quota: q, requested: pods=1";
    for (code, reason, message, expected) in [
        (403, "Forbidden", exceeded, quota),
        (
            403,
            "Forbidden",
            "error looking up service account",
            denied.clone(),
        ),
        (403, "Forbidden", "violates PodSecurity", denied.clone()),
        (
            400,
            "BadRequest",
            "admission webhook \"a\" denied the request",
            denied.clone(),
        ),
        (413, "RequestEntityTooLarge", "", denied),
        (404, "NotFound", "", None),
        (
            422,
            "Invalid",
            "spec.containers: Required",
            Some(Rejection::Invalid),
        ),
        (429, "TooManyRequests", "", overload.clone()),
        (503, "ServiceUnavailable", "", overload.clone()),
        (504, "Timeout", "", overload),
        (500, "InternalError", "etcd", None),
        (409, "AlreadyExists", "", None),
    ] {
        assert_eq!(of(code, reason, message), expected, "{code} {message}");
    }
    assert_eq!(
        Rejection::of(&WriteError::unknown("connection reset")),
        None
    );
    assert_eq!(Rejection::of(&WriteError::Stopped), None);
}

#[test]
fn an_overload_waits_for_retry_after_or_at_most_30_s() {
    let uid = "uid".into();
    let wait = |seconds: Option<u64>, n| {
        let retry_after = seconds.map(Duration::from_secs);
        Rejection::Overload { retry_after }.wait(&uid, n)
    };
    for n in 1..40 {
        let without = wait(None, n);
        let least = Duration::from_millis(5) * (1 << (n - 1).min(16));
        let longest = OVERLOAD_WAIT_MAX * 2 / 3;
        assert!(without >= least.min(longest), "{n}: {without:?}");
        assert!(
            without <= (least * 3 / 2).min(OVERLOAD_WAIT_MAX),
            "{n}: {without:?}"
        );
        let with = wait(Some(7), n);
        assert!(with >= Duration::from_secs(7) && with <= OVERLOAD_WAIT_MAX);
    }
    for (seconds, obeyed) in [(30, 30), (60, 60), (61, 60), (u64::MAX / 2, 60)] {
        let waits = [1, 2, 3].map(|n| wait(Some(seconds), n));
        let obeyed = obeyed * SECOND..=obeyed * SECOND * 3 / 2;
        assert!(waits.iter().all(|it| obeyed.contains(it)), "{waits:?}");
        assert!(waits[0] != waits[1] && waits[1] != waits[2], "{waits:?}");
    }
    for seconds in [1, 19, 20, 25, 29, 30, 60] {
        let retry_after = Some(Duration::from_secs(seconds));
        let rejection = Rejection::Overload { retry_after };
        let owners = (0..100).map(|owner| owner.to_string().as_str().into());
        let waits: HashSet<Duration> = owners.map(|owner| rejection.wait(&owner, 1)).collect();
        assert!(waits.len() > 90, "{seconds}: {} times for 100", waits.len());
    }
}

#[test]
fn a_rejected_pod_is_tried_at_least_every_5_min() {
    let uid = "uid".into();
    for (rejection, first_ms, most_in_an_hour) in
        [(Rejection::Invalid, 1000, 30), (Rejection::Denied, 5, 40)]
    {
        let mut at = Duration::ZERO;
        let mut tries = Vec::new();
        for n in 1..50 {
            let wait = rejection.wait(&uid, n);
            assert!(wait <= DENIED_WAIT_MAX, "{n}: {wait:?}");
            at += wait;
            tries.push(at);
        }
        let first = Duration::from_millis(first_ms);
        assert!((first..=2 * first).contains(&tries[0]), "{tries:?}");
        // A policy is lifted after 10 s.
        let next = tries.iter().find(|it| it.as_secs() >= 10).expect("a try");
        assert!(next.as_secs() < 30, "{tries:?}");
        let in_an_hour = tries.iter().filter(|it| it.as_secs() < 3600).count();
        assert!((15..=most_in_an_hour).contains(&in_an_hour), "{tries:?}");
    }
}
