//! Group F: the contents of a status, and when the sync writes it.

mod availability;

use std::sync::Arc;
use std::time::Duration;

use log::Level;
use serde_json::json;

use super::carry_over;
use crate::api::conditions::{Condition, REPLICA_FAILURE, SCALE_DOWN_BLOCKED};
use crate::api::{Pod, PodPhase, ReplicaSet, ReplicaSetStatus, Status};
use crate::controller::decide::plan::{LARGE, Plan};
use crate::controller::decide::status::{Availability, Counts};
use crate::controller::decide::status::{Failure, calculate_status};
use crate::controller::memory::Memory;
use crate::controller::testing::{
    Fixture, Write, key, now, owned_pod, ready_pod, rejected, replica_set, seconds_ago, with_status,
};
use crate::stdx::clock::Clock;
use crate::stdx::escape::bounded;
use crate::writes::WriteError;

/// A ReplicaSet with this `minReadySeconds`; with `partial` its template has one label more than
/// the pods.
fn rs(min_ready_seconds: i32, partial: bool) -> ReplicaSet {
    let mut rs = replica_set("web", 2);
    rs.min_ready_seconds = min_ready_seconds;
    if partial {
        rs.template_labels = [("type", "production"), ("more", "yes")]
            .into_iter()
            .collect();
    }
    rs
}

fn ready_since(seconds: i64) -> Pod {
    Pod {
        ready_transition: Some(seconds_ago(seconds)),
        ..ready_pod("a", &replica_set("web", 2))
    }
}

fn pending() -> Pod {
    Pod {
        phase: PodPhase::Pending,
        ..owned_pod("a", &replica_set("web", 2))
    }
}

fn going(name: &str, rs: &ReplicaSet) -> Pod {
    Pod {
        deletion: Some(seconds_ago(0)),
        ..owned_pod(name, rs)
    }
}

fn calculate(rs: &ReplicaSet, pods: &[Pod], failure: Option<(Plan, String)>) -> ReplicaSetStatus {
    let active: Vec<Arc<Pod>> = pods.iter().cloned().map(Arc::new).collect();
    let failure = failure.map(|(plan, message)| Failure {
        plan,
        message,
        at: now(),
    });
    let available = Availability::of(&active, rs.min_ready_seconds, now()).n_available;
    let counts = Counts::of_pods(rs, &active, available, None);
    calculate_status(rs, &counts, failure.as_ref())
}

/// Checks replicas, fully labelled, ready, available.
#[track_caller]
fn check(rs: &ReplicaSet, pods: &[Pod], expected: [i32; 4]) {
    let status = calculate(rs, pods, None);
    let counts = [
        status.replicas,
        status.fully_labeled_replicas,
        status.ready_replicas,
        status.available_replicas,
    ];
    assert_eq!(counts, expected);
}

#[test]
fn f_01_to_f_05_f_07_to_f_10_counts() {
    let (full, partial, slow) = (rs(0, false), rs(0, true), rs(3600, false));
    check(&full, &[ready_since(60)], [1, 1, 1, 1]);
    check(&partial, &[ready_since(60)], [1, 0, 1, 1]);
    check(&full, &[ready_since(60), ready_since(60)], [2, 2, 2, 2]);
    check(&partial, &[ready_since(60), ready_since(60)], [2, 0, 2, 2]);
    check(&full, &[pending()], [1, 1, 0, 0]);
    check(&slow, &[ready_since(0)], [1, 1, 1, 0]);
    check(&slow, &[ready_since(3600)], [1, 1, 1, 1]);
    check(&slow, &[ready_since(7200)], [1, 1, 1, 1]);
}

/// For F-03 and F-11 with the feature off, see the API server that drops the field, below.
#[test]
fn f_03_f_04_f_12_terminating_pods_are_counted_from_zero() {
    for (n_going, expected) in [(0, 0), (2, 2)] {
        let (fixture, rs) = (Fixture::new(), replica_set("web", 1));
        let pods = (0..n_going).map(|i| going(&format!("going-{i}"), &rs));
        fixture.cache_silently(Some(rs.clone()), pods.chain([ready_pod("a", &rs)]));
        fixture.sync_ok("web");
        let status = &fixture.writes.status_updates()[0];
        assert_eq!(status.terminating_replicas, Some(expected));
        assert_eq!((status.replicas, status.available_replicas), (1, 1));
    }
}

#[test]
fn only_owned_matching_unfinished_pods_count_as_terminating() {
    let (fixture, rs) = (Fixture::new(), replica_set("web", 0));
    let finished = Pod {
        phase: PodPhase::Failed,
        ..going("finished", &rs)
    };
    let relabelled = Pod {
        labels: [("type", "test")].into_iter().collect(),
        ..going("relabelled", &rs)
    };
    let strange = going("strange", &replica_set("other", 0));
    let orphan = Pod {
        controller: None,
        ..going("orphan", &rs)
    };
    let pods = [finished, relabelled, strange, orphan, going("counted", &rs)];
    fixture.cache_silently(Some(rs), pods);
    fixture.sync_ok("web");
    assert_eq!(
        fixture.writes.status_updates()[0].terminating_replicas,
        Some(1)
    );
    fixture.assert_counts(0, 0, 0);
}

/// F-03, F-11: an API server without the field drops it, and the sync does not write it again.
#[test]
fn f_11_a_dropped_terminating_count_is_not_rewritten() {
    let (fixture, rs) = (Fixture::new(), replica_set("web", 1));
    fixture.cache_silently(Some(rs.clone()), [ready_pod("a", &rs), going("b", &rs)]);
    let stored = Arc::new(parking_lot::Mutex::new(rs));
    let server = Arc::clone(&stored);
    let writes = Arc::clone(&fixture.writes);
    fixture.writes.on_update_status(move |rs, status| {
        let mut kept = status.clone();
        kept.terminating_replicas = None;
        let updated = with_status(rs, kept);
        *server.lock() = updated.clone();
        Some(Ok(updated))
    });
    fixture.sync_ok("web");
    assert_eq!(writes.status_updates().len(), 1);
    for version in ["2", "3"] {
        let mut echo = stored.lock().clone();
        echo.resource_version = version.into();
        fixture.deliver_replica_set(echo);
        fixture.sync_ok("web");
    }
    assert_eq!(writes.status_updates().len(), 1, "no loop");
}

/// During an upgrade one API server may drop the field and the next one keep it.
#[test]
fn the_next_write_detects_a_kept_terminating_count() {
    let (fixture, rs) = (Fixture::new(), replica_set("web", 2));
    fixture.cache_silently(Some(rs.clone()), [ready_pod("a", &rs), going("b", &rs)]);
    fixture.cache_silently(None, [ready_pod("c", &rs)]);
    fixture.writes.on_update_status(|rs, status| {
        let mut kept = status.clone();
        kept.terminating_replicas = None;
        Some(Ok(with_status(rs, kept)))
    });
    fixture.sync_ok("web");
    let mut dropped = fixture.writes.status_updates().remove(0);
    dropped.terminating_replicas = None;
    fixture.writes.on_update_status(|_, _| None);
    let mut echo = with_status(&rs, dropped);
    echo.resource_version = "2".into();
    fixture.cache_silently(Some(echo.clone()), []);
    fixture.writes.take();
    fixture.sync_ok("web");
    assert_eq!(fixture.writes.take(), [], "only this number is missing");

    echo.generation = 2;
    echo.resource_version = "3".into();
    fixture.cache_silently(Some(echo.clone()), []);
    fixture.sync_ok("web");
    let terminating = || {
        let updates = fixture.writes.status_updates();
        fixture.writes.take();
        updates.iter().map(|it| it.terminating_replicas).collect()
    };
    let written: Vec<Option<i32>> = terminating();
    assert_eq!(written, [Some(1)], "sent with what is due");

    // Another ReplicaSet has no number yet; at this point it is worth a write.
    let mut other = with_status(&echo, echo.status.clone());
    other.resource_version = "4".into();
    other.status.observed_generation = 2;
    fixture.cache_silently(Some(other), []);
    fixture.sync_ok("web");
    let written: Vec<Option<i32>> = terminating();
    assert_eq!(written, [Some(1)]);
}

fn failure(reason: &str, message: &str) -> Condition {
    Condition {
        type_: REPLICA_FAILURE.to_owned(),
        status: "True".to_owned(),
        last_transition_time: Some(now()),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        ..Condition::default()
    }
}

fn other() -> Condition {
    Condition {
        type_: "Other".to_owned(),
        status: "True".to_owned(),
        ..Condition::default()
    }
}

#[test]
fn f_15_to_f_17_f_19_the_failure_condition() {
    let create = failure("FailedCreate", "E");
    let delete = failure("FailedDelete", "unable to delete pods: E");
    let failed = |plan, message: &str| Some((plan, message.to_owned()));
    for (before, failed, after) in [
        (vec![], failed(Plan::Create(1), "E"), vec![create.clone()]),
        (
            vec![],
            failed(Plan::Delete(1), "unable to delete pods: E"),
            vec![delete.clone()],
        ),
        (vec![create.clone()], None, vec![]),
        (vec![], None, vec![]),
        // A newer error replaces an older one. F-27: foreign conditions always stay.
        (
            vec![other(), create.clone()],
            failed(Plan::Delete(1), "unable to delete pods: E"),
            vec![other(), delete],
        ),
        (
            vec![other()],
            failed(Plan::Create(1), "E"),
            vec![other(), create.clone()],
        ),
        (vec![create, other()], None, vec![other()]),
    ] {
        let mut rs = replica_set("web", 2);
        rs.status.conditions = before;
        assert_eq!(calculate(&rs, &[], failed).conditions, after);
    }
}

/// A hazard: a status write for each try.
#[test]
fn the_condition_has_the_newest_rejection() {
    let quota =
        "pods \"web-bcdfg\" is forbidden: exceeded quota: few, requested: pods=1, used: pods=2";
    for (stored, newest, is_news) in [
        ("denied: first", "denied: second", true),
        (
            quota,
            &quota.replace("bcdfg", "hjklm").replace("=2", "=7"),
            false,
        ),
        (quota, &quota.replace("few", "other"), true),
        (
            "pod web-bcdfg, request 0f3e-11",
            "pod web-hjklm, request aa71-c2",
            false,
        ),
        ("", "denied", true),
    ] {
        let mut rs = replica_set("web", 2);
        let mut known = failure("FailedCreate", stored);
        known.last_transition_time = "2025-01-01T00:00:00Z".parse().ok();
        rs.status.conditions = vec![known.clone()];
        let failed = Some((Plan::Create(1), newest.to_owned()));
        let expected = Condition {
            message: Some(if is_news { newest } else { stored }.to_owned()),
            ..known
        };
        assert_eq!(calculate(&rs, &[], failed).conditions, [expected]);
    }
}

#[test]
fn the_text_of_the_condition_is_kept_and_bounded() {
    assert_eq!(bounded("a\n\u{1b}[2Kb"), "a\n\u{1b}[2Kb");
    for long in ["ä".repeat(9000), "\n".repeat(1025)] {
        let text = bounded(&long);
        assert!(text.len() <= 1024 && text.ends_with('…'), "{}", text.len());
        assert_eq!(bounded(&text), text, "it is stored as it is");
    }
    let fixture = Fixture::new();
    fixture
        .writes
        .on_create(|_, _| Some(Err(rejected(403, "Forbidden", &"no\n".repeat(9000)))));
    fixture.deliver_replica_set(replica_set("web", 2));
    fixture.process(&key("web"));
    let status = fixture.writes.status_updates().pop().expect("a status");
    let message = status.conditions[0].message.as_deref().unwrap_or_default();
    assert!(
        message.len() <= 1024 && message.starts_with("no\nno"),
        "{message}"
    );
}

#[test]
fn f_15_f_16_errors_of_a_sync_become_the_condition() {
    for (pods, message) in [(1, "E"), (3, "unable to delete pods: E")] {
        let (fixture, rs) = (Fixture::new(), replica_set("web", 2));
        let pods = (0..pods).map(|i| ready_pod(&format!("p{i}"), &rs));
        fixture.cache_silently(Some(rs.clone()), pods);
        fixture
            .writes
            .on_create(|_, _| Some(Err(rejected(405, "MethodNotAllowed", "E"))));
        fixture
            .writes
            .on_delete(|_, _| Some(Err(rejected(405, "MethodNotAllowed", "E"))));
        let error = fixture.sync("web").expect_err("rejected");
        assert_eq!(error.to_string(), message);
        let status = fixture.writes.status_updates().pop().expect("a status");
        assert_eq!(status.conditions[0].message.as_deref(), Some(message));

        // F-17: without an error the condition is removed.
        fixture.writes.on_create(|_, _| None);
        fixture.writes.on_delete(|_, _| None);
        let mut failed = with_status(&rs, status);
        failed.resource_version = "2".into();
        fixture.cache_silently(Some(failed), []);
        fixture.sync_ok("web");
        assert_eq!(
            fixture
                .writes
                .status_updates()
                .pop()
                .expect("a status")
                .conditions,
            []
        );
    }
}

/// A ReplicaSet with two ready pods and a matching status.
fn settled() -> (Fixture, ReplicaSet) {
    let (fixture, mut rs) = (Fixture::new(), replica_set("web", 2));
    rs.status = ReplicaSetStatus {
        replicas: 2,
        fully_labeled_replicas: 2,
        ready_replicas: 2,
        available_replicas: 2,
        terminating_replicas: Some(0),
        observed_generation: 1,
        ..ReplicaSetStatus::default()
    };
    fixture.cache_silently(Some(rs.clone()), [ready_pod("a", &rs), ready_pod("b", &rs)]);
    (fixture, rs)
}

#[test]
fn f_21_a_status_is_written_only_if_something_changed() {
    let (fixture, mut rs) = settled();
    fixture.sync_ok("web");
    assert_eq!(fixture.writes.take(), []);
    rs.generation = 2;
    rs.resource_version = "2".into();
    fixture.cache_silently(Some(rs), []);
    fixture.sync_ok("web");
    let updates = fixture.writes.status_updates();
    assert_eq!(
        updates
            .iter()
            .map(|status| status.observed_generation)
            .collect::<Vec<_>>(),
        [2]
    );
    assert_eq!(fixture.writes.take().len(), 1);
}

#[test]
fn f_22_absent_and_zero_terminating_replicas_differ() {
    let (fixture, mut rs) = settled();
    rs.status.terminating_replicas = None;
    rs.resource_version = "2".into();
    fixture.cache_silently(Some(rs), []);
    fixture.sync_ok("web");
    let updates = fixture.writes.status_updates();
    assert_eq!(updates.len(), 1);
    assert_eq!(updates[0].terminating_replicas, Some(0));
}

fn update(fixture: &Fixture, rs: &ReplicaSet, replicas: i32) -> Result<(), String> {
    let status = ReplicaSetStatus {
        replicas,
        ..ReplicaSetStatus::default()
    };
    let updated = fixture
        .writer()
        .update_replica_set_status(&Arc::new(rs.clone()), status);
    updated.map(drop).map_err(|error| error.to_string())
}

#[test]
fn f_23_a_failing_update_is_tried_twice_with_a_read_in_between() {
    let (fixture, rs) = (Fixture::new(), replica_set("web", 1));
    let mut live = rs.clone();
    live.status.replicas = 3;
    fixture.writes.set_live_replica_set(Ok(live));
    fixture
        .writes
        .on_update_status(|_, _| Some(Err(rejected(500, "InternalError", "fake error"))));
    assert_eq!(update(&fixture, &rs, 10), Err("fake error".to_owned()));
    let computed = Write::UpdateStatus(ReplicaSetStatus {
        replicas: 10,
        ..ReplicaSetStatus::default()
    });
    let get = Write::GetReplicaSet("default/web".to_owned());
    assert_eq!(fixture.writes.take(), [computed.clone(), get, computed]);
}

/// An old revision that adopts a pod.
#[test]
fn a_settled_replica_set_is_read_before_its_status_is_written() {
    let (fixture, mut rs) = (Fixture::new(), replica_set("web", 0));
    rs.status.observed_generation = rs.generation;
    fixture.writes.set_live_replica_set(Ok(rs.clone()));
    let rs = rs.for_cache();
    fixture.cache_silently(Some(rs.clone()), [ready_pod("a", &rs)]);
    fixture.sync_ok("web");
    let writes = fixture.writes.take();
    let get = Write::GetReplicaSet("default/web".to_owned());
    let [.., first, Write::UpdateStatus(status)] = &writes[..] else {
        panic!("{writes:?}");
    };
    assert_eq!((first, status.replicas), (&get, 1));
}

#[test]
fn f_25_a_failing_read_ends_it() {
    let (fixture, rs) = (Fixture::new(), replica_set("web", 1));
    fixture
        .writes
        .set_live_replica_set(Err(rejected(500, "InternalError", "the read")));
    fixture
        .writes
        .on_update_status(|_, _| Some(Err(rejected(409, "Conflict", "the update"))));
    assert_eq!(update(&fixture, &rs, 10), Err("the read".to_owned()));
    assert_eq!(fixture.writes.status_updates().len(), 1);
}

/// DIFFERS from upstream, which writes the counts of the old object into the new one.
#[test]
fn the_second_update_never_changes_another_object() {
    let (fixture, rs) = (Fixture::new(), replica_set("web", 1));
    let mut another = rs.clone();
    another.uid = "uid-new".into();
    fixture.writes.set_live_replica_set(Ok(another));
    fixture
        .writes
        .on_update_status(|_, _| Some(Err(rejected(409, "Conflict", "changed"))));
    assert_eq!(update(&fixture, &rs, 10), Err("changed".to_owned()));
    assert_eq!(fixture.writes.status_updates().len(), 1);
}

#[test]
fn an_update_that_loses_the_race_against_a_deletion_is_normal() {
    let rs = replica_set("web", 1);
    let mut another = rs.clone();
    another.uid = "uid-new".into();
    let gone = || rejected(404, "NotFound", "it is gone");
    for (live, update, level) in [
        (Err(gone()), gone(), Level::Debug),
        (Ok(another), gone(), Level::Debug),
        (Ok(rs.clone()), gone(), Level::Debug),
        (
            Ok(rs.clone()),
            rejected(409, "Conflict", "changed"),
            Level::Warn,
        ),
    ] {
        let fixture = Fixture::new();
        fixture.writes.set_live_replica_set(live);
        let answer = move |_: &_, _: &_| Some(Err(update.clone()));
        fixture.writes.on_update_status(answer);
        let status = ReplicaSetStatus {
            replicas: 10,
            ..ReplicaSetStatus::default()
        };
        let rs = Arc::new(rs.clone());
        let updated = fixture.writer().update_replica_set_status(&rs, status);
        assert_eq!(updated.expect_err("it is rejected").level(), level);
    }
}

#[test]
fn a_status_that_must_wait_is_not_sent_again_at_once() {
    let (fixture, rs) = (Fixture::new(), replica_set("web", 1));
    fixture.writes.on_update_status(|_, _| {
        let busy = Status::new(429, "TooManyRequests", "later").or_retry_after(Some(9));
        Some(Err(WriteError::Rejected(busy)))
    });
    let status = ReplicaSetStatus::default();
    let rs = Arc::new(rs);
    let updated = fixture.writer().update_replica_set_status(&rs, status);
    updated.expect_err("the server is busy");
    assert_eq!(fixture.writes.take().len(), 1);
}

/// DIFFERS from upstream, which writes the conditions of its first read.
#[test]
fn f_27_foreign_status_fields_survive_the_second_update() {
    let (fixture, mut rs) = (Fixture::new(), replica_set("web", 1));
    rs.status.conditions = vec![failure("FailedCreate", "old")];
    let mut live = rs.clone();
    let foreign_block = Condition {
        type_: SCALE_DOWN_BLOCKED.to_owned(),
        ..other()
    };
    live.status.conditions.push(foreign_block.clone());
    live.status.conditions.push(other());
    live.status.other.insert("future".to_owned(), json!(1));
    live.status.unknown = b"future".to_vec();
    live.resource_version = "9".into();
    fixture.writes.set_live_replica_set(Ok(live));
    fixture.writes.on_update_status(|rs, _| {
        let is_stale = rs.resource_version == "1".into();
        is_stale.then(|| Err(rejected(409, "Conflict", "changed")))
    });
    assert_eq!(update(&fixture, &rs, 10), Ok(()));
    let second = fixture.writes.status_updates().pop().expect("two updates");
    assert_eq!(second.replicas, 10);
    assert_eq!(second.conditions, [foreign_block, other()]);
    assert_eq!(second.other.get("future"), Some(&json!(1)));
    assert_eq!(second.unknown, b"future");
}

#[test]
fn a_second_update_renews_the_text_of_own_conditions() {
    for reason in ["FailedCreate", "FailedPodBackoff"] {
        let with = |message| ReplicaSetStatus {
            conditions: vec![failure(reason, message)],
            ..ReplicaSetStatus::default()
        };
        let carried = carry_over(&with("old"), with("new"));
        assert_eq!(carried.conditions, [failure(reason, "new")]);
    }
}

#[test]
fn f_26_a_status_counts_the_pods_that_the_sync_listed() {
    let (fixture, mut rs) = (Fixture::new(), rs(0, true));
    rs.replicas = 5;
    let pods = (0..4).map(|i| Pod {
        labels: if i < 2 {
            rs.template_labels.clone()
        } else {
            pending().labels
        },
        ..ready_pod(&format!("p{i}"), &rs)
    });
    let pods: Vec<Pod> = pods.collect();
    fixture.cache_silently(Some(rs), pods);
    fixture.sync_ok("web");
    fixture.assert_counts(1, 0, 0);
    let status = fixture.writes.status_updates().pop().expect("a status");
    let counts = (
        status.replicas,
        status.fully_labeled_replicas,
        status.observed_generation,
    );
    assert_eq!(counts, (4, 2, 1));
}

/// However many pods it creates.
#[test]
fn a_new_generation_is_written_at_once() {
    for replicas in [LARGE - 1, LARGE] {
        let fixture = Fixture::with_status_interval(Duration::from_secs(1));
        let rs = replica_set("web", replicas.try_into().expect("a few"));
        fixture.cache_silently(Some(rs), []);
        fixture.sync_ok("web");
        assert_eq!(fixture.writes.created().len(), replicas);
        assert_eq!(fixture.writes.status_updates().len(), 1);
    }
}

/// Be it a scale-up or a scale-down.
#[test]
fn the_pause_after_a_status_counts_the_pods_there_or_desired() {
    for (replicas, n_pods) in [(100, 3), (3, 100)] {
        let fixture = Fixture::with_status_interval(Duration::from_secs(1));
        let rs = Arc::new(replica_set("web", replicas));
        let status = ReplicaSetStatus {
            replicas: n_pods,
            ..ReplicaSetStatus::default()
        };
        let updated = fixture.writer().update_replica_set_status(&rs, status);
        updated.expect("it is stored");
        let now = fixture.clock.now();
        let next = |memory: &mut Memory| memory.next_status;
        let next = fixture.controller.memories.get(&rs, next);
        assert_eq!(next.flatten(), Some(now + Duration::from_millis(100)));
    }
}

/// Be it slow, or waiting for the rate limit.
#[test]
fn the_pause_after_a_status_is_four_times_its_write() {
    for (taken, pause) in [(0, 3), (20, 80), (400, 1000)] {
        let fixture = Fixture::with_status_interval(Duration::from_secs(1));
        let (clock, taken) = (Arc::clone(&fixture.clock), Duration::from_millis(taken));
        fixture.writes.on_update_status(move |_, _| {
            clock.advance(taken);
            None
        });
        let rs = Arc::new(replica_set("web", 3));
        let status = ReplicaSetStatus::default();
        let updated = fixture.writer().update_replica_set_status(&rs, status);
        updated.expect("it is stored");
        let next = |memory: &mut Memory| memory.next_status;
        let next = fixture.controller.memories.get(&rs, next);
        let expected = fixture.clock.now() + Duration::from_millis(pause);
        assert_eq!(next.flatten(), Some(expected));
    }
}

#[test]
fn f_29_a_replica_set_under_deletion_gets_its_status() {
    let (fixture, mut rs) = (Fixture::new(), replica_set("web", 5));
    rs.deletion = Some(seconds_ago(0));
    fixture.cache_silently(Some(rs.clone()), [ready_pod("a", &rs)]);
    fixture.sync_ok("web");
    fixture.assert_counts(0, 0, 0);
    assert_eq!(fixture.writes.status_updates()[0].replicas, 1);
}
