//! Rejected creates, with the handlers, the queue and a manual clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::api::{Pod, PodPhase, ReplicaSet, RetryBackoff, Status};
use crate::controller::testing::{
    Fixture, Write, key, owned_pod, pod, read_replica_set, rejected, replica_set, replica_set_json,
};
use crate::stdx::clock::Clock;
use crate::writes::WriteError;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn exceeded() -> WriteError {
    let message = "pods \"x\" is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, \
        limited: pods=2";
    rejected(403, "Forbidden", message)
}

/// A ReplicaSet created in this second of 2026.
fn created_at(name: &str, second: u32, replicas: i32) -> ReplicaSet {
    let mut object = replica_set_json(name, replicas);
    object["metadata"]["creationTimestamp"] = json!(format!("2026-01-01T00:00:{second:02}Z"));
    object["spec"]["selector"]["matchLabels"] = json!({"app": name});
    object["spec"]["template"]["metadata"]["labels"] = json!({"app": name});
    read_replica_set(&object)
}

/// A quota for this many more pods of the fixture's ReplicaSets.
fn with_quota(free: usize) -> (Fixture, Arc<AtomicUsize>) {
    quota_of(Fixture::new(), free)
}

fn quota_of(fixture: Fixture, free: usize) -> (Fixture, Arc<AtomicUsize>) {
    let free = Arc::new(AtomicUsize::new(free));
    let left = Arc::clone(&free);
    fixture.writes.on_create(move |_, _| {
        let take = |n: usize| n.checked_sub(1);
        let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.is_err().then(|| Err(exceeded()))
    });
    (fixture, free)
}

/// Works on all queued keys.
fn work(fixture: &Fixture) {
    while let Some(key) = fixture.queue.try_get() {
        fixture.process(&key);
    }
}

/// Lets this time pass, in steps of 10 ms, and works.
fn pass(fixture: &Fixture, time: Duration) {
    let end = fixture.clock.now() + time;
    while fixture.clock.now() < end {
        fixture.clock.advance(10 * MS);
        fixture.queue.advance(fixture.clock.now());
        work(fixture);
    }
}

/// Takes the ReplicaSets whose pods were tried since the last call, in order.
fn tried(fixture: &Fixture) -> Vec<String> {
    let created = fixture.writes.created();
    fixture.writes.take();
    let owner = |name: &String| name.rsplit_once('-').map(|(owner, _)| owner.to_owned());
    created.iter().filter_map(owner).collect()
}

/// Another ReplicaSet's pod, which leaves the cluster.
fn end_a_pod(fixture: &Fixture) {
    fixture.cache_silently(None, [pod("foreign")]);
    fixture.deliver_pod_deleted(pod("foreign"));
}

#[test]
fn a_full_quota_costs_one_request_in_30_s_however_many_wait() {
    let (fixture, _) = with_quota(0);
    for name in ["a", "b", "c", "d"] {
        fixture.deliver_replica_set(created_at(name, 1, 3));
    }
    work(&fixture);
    assert_eq!(tried(&fixture), ["a", "b", "c", "d"], "each finds out once");
    pass(&fixture, 60 * SECOND);
    tried(&fixture);
    pass(&fixture, 300 * SECOND);
    let probes = tried(&fixture);
    assert_eq!(probes.len(), 10, "{probes:?}");
    assert_ne!(probes[0], probes[1], "of another ReplicaSet each time");
    let fixture_writes = fixture.writes.take();
    assert_eq!(fixture_writes, [], "and no status");
}

#[test]
fn a_key_without_a_permit_brings_the_next_turn() {
    let (fixture, free) = quota_of(Fixture::with_held_permit().0, 0);
    fixture.deliver_replica_set(created_at("a", 1, 3));
    fixture.deliver_replica_set(created_at("b", 2, 3));
    work(&fixture);
    free.store(100, Ordering::Relaxed);
    end_a_pod(&fixture);
    let mut large = created_at("a", 1, 100);
    large.resource_version = "2".into();
    fixture.cache_silently(Some(large), []);
    tried(&fixture);
    for _ in 0..400 {
        work(&fixture);
        fixture.clock.advance(10 * MS);
        fixture.queue.advance(fixture.clock.now());
    }
    assert_eq!(tried(&fixture), ["b"; 3]);
}

#[test]
fn each_replica_set_tries_after_1000_s_at_the_latest() {
    let (fixture, _) = with_quota(0);
    let names: Vec<String> = (0..60).map(|i| format!("rs-{i:02}")).collect();
    for name in &names {
        fixture.deliver_replica_set(created_at(name, 1, 1));
    }
    work(&fixture);
    tried(&fixture);
    pass(&fixture, 1001 * SECOND);
    let mut probed = tried(&fixture);
    probed.sort();
    probed.dedup();
    assert_eq!(probed, names);
}

#[test]
fn one_takes_at_once_the_quota_that_a_pod_frees() {
    let (fixture, free) = with_quota(0);
    for (name, second) in [("young", 30), ("old", 10), ("middle", 20)] {
        fixture.deliver_replica_set(created_at(name, second, 1));
    }
    work(&fixture);
    pass(&fixture, 100 * SECOND);
    tried(&fixture);
    free.store(1, Ordering::Relaxed);
    end_a_pod(&fixture);
    work(&fixture);
    assert_eq!(free.load(Ordering::Relaxed), 0, "at once");
    assert!(tried(&fixture).len() <= 3);
}

/// A hazard: pods of Jobs end all the time in front of a full quota.
#[test]
fn pods_that_come_and_go_cost_two_rejected_creates_in_3_s() {
    for is_watched in [false, true] {
        let (fixture, free) = with_quota(0);
        for i in 0..40 {
            fixture.deliver_replica_set(created_at(&format!("rs-{i:02}"), 1, 1));
        }
        work(&fixture);
        pass(&fixture, 100 * SECOND);
        set_watched(&fixture, is_watched);
        tried(&fixture);
        for _ in 0..600 {
            end_a_pod(&fixture);
            if is_watched {
                quota_changes(&fixture, "few");
                quota_changes(&fixture, "few");
            }
            pass(&fixture, 100 * MS);
        }
        let n_tried = tried(&fixture).len();
        assert!((36..=41).contains(&n_tried), "{n_tried} in a minute");
        free.store(40, Ordering::Relaxed);
        pass(&fixture, 3 * SECOND);
        assert_eq!(free.load(Ordering::Relaxed), 0, "no event was lost");
    }
}

/// A hazard: most of them need more than is free.
#[test]
fn events_now_and_then_let_each_replica_set_try() {
    let (fixture, _) = with_quota(0);
    let names: Vec<String> = (0..20).map(|i| format!("rs-{i:02}")).collect();
    for name in &names {
        fixture.deliver_replica_set(created_at(name, 1, 1));
    }
    work(&fixture);
    pass(&fixture, 100 * SECOND);
    tried(&fixture);
    for _ in 0..20 {
        end_a_pod(&fixture);
        pass(&fixture, 3 * SECOND);
    }
    let mut tried = tried(&fixture);
    tried.sort();
    tried.dedup();
    assert_eq!(tried, names);
}

#[test]
fn watched_quotas_trigger_retries_by_their_status_alone() {
    let (fixture, _) = with_quota(0);
    fixture.deliver_replica_set(created_at("web", 1, 1));
    work(&fixture);
    pass(&fixture, 100 * SECOND);
    set_watched(&fixture, true);
    tried(&fixture);
    end_a_pod(&fixture);
    work(&fixture);
    assert_eq!(tried(&fixture), [""; 0]);
    quota_changes(&fixture, "few");
    work(&fixture);
    assert_eq!(tried(&fixture), ["web"]);
}

#[test]
fn late_quota_release_is_used_within_2_s() {
    for late in [20, 90, 400, 900, 8000] {
        let (fixture, free) = with_quota(0);
        fixture.deliver_replica_set(created_at("web", 1, 1));
        work(&fixture);
        pass(&fixture, 100 * SECOND);
        end_a_pod(&fixture);
        pass(&fixture, late * MS);
        free.store(1, Ordering::Relaxed);
        pass(&fixture, 2 * SECOND);
        assert_eq!(free.load(Ordering::Relaxed), 0, "after {late} ms");
    }
}

#[test]
fn possibly_freed_quota_triggers_a_retry() {
    type Sign = fn(&Fixture);
    let signs: [(&str, Sign); 5] = [
        ("the quota changes", |it| quota_changes(it, "few")),
        ("a pod is gone", end_a_pod),
        ("a pod ends", |fixture| {
            fixture.cache_silently(None, [pod("foreign")]);
            let ended = PodPhase::Succeeded;
            fixture.deliver_pod(Pod {
                phase: ended,
                resource_version: "2".into(),
                ..pod("foreign")
            });
        }),
        ("a ReplicaSet shrinks", |fixture| {
            fixture.cache_silently(Some(replica_set("big", 9)), []);
            let mut small = replica_set("big", 0);
            small.resource_version = "2".into();
            fixture.deliver_replica_set(small);
        }),
        ("a ReplicaSet is deleted", |fixture| {
            fixture.cache_silently(Some(replica_set("big", 0)), []);
            fixture.deliver_replica_set_deleted(replica_set("big", 0));
        }),
    ];
    for (what, sign) in signs {
        let (fixture, _) = with_quota(0);
        fixture.deliver_replica_set(created_at("web", 1, 1));
        work(&fixture);
        pass(&fixture, 100 * SECOND);
        tried(&fixture);
        sign(&fixture);
        work(&fixture);
        assert_eq!(tried(&fixture), ["web"], "{what}");
    }
}

/// The watch shows that a quota has changed.
fn quota_changes(fixture: &Fixture, name: &str) {
    fixture.controller.handle_quota_change("default", name);
}

fn set_watched(fixture: &Fixture, is_watched: bool) {
    let is_open = &fixture.controller.memories.quota_watch.is_open;
    is_open.store(is_watched, Ordering::Relaxed);
}

/// A hazard: each created pod changes the quota's status, and thousands wait for such changes.
#[test]
fn a_watched_quota_costs_no_request_more_than_an_unwatched_one() {
    let n_tried = |is_watched: bool| {
        let (fixture, free) = with_quota(0);
        for i in 0..200 {
            fixture.deliver_replica_set(created_at(&format!("rs-{i:03}"), 1, 1));
        }
        work(&fixture);
        pass(&fixture, 100 * SECOND);
        tried(&fixture);
        free.store(50, Ordering::Relaxed);
        // Both notice free quota in the same way.
        end_a_pod(&fixture);
        let (mut used, mut n_tried) = (0, 0);
        for _ in 0..6000 {
            pass(&fixture, 10 * MS);
            n_tried += tried(&fixture).len();
            let now = 50 - free.load(Ordering::Relaxed);
            if is_watched {
                (used..now).for_each(|_| quota_changes(&fixture, "few"));
            }
            used = now;
        }
        assert_eq!(used, 50);
        n_tried
    };
    let watched = n_tried(true);
    assert_eq!(watched, n_tried(false));
    assert!(
        watched < 150,
        "{watched} requests for 50 places in a minute"
    );
}

#[test]
fn the_first_rejection_of_a_quota_starts_the_watch() {
    for (code, reason) in [(422, "Invalid"), (429, "TooManyRequests")] {
        let fixture = Fixture::new();
        let reject = move |_, _: &_| Some(Err(rejected(code, reason, "no")));
        fixture.writes.on_create(reject);
        fixture.deliver_replica_set(created_at("web", 1, 1));
        work(&fixture);
        assert!(!fixture.controller.memories.quota_watch.is_needed.is_set());
    }
    let (fixture, _) = with_quota(0);
    fixture.deliver_replica_set(created_at("web", 1, 1));
    work(&fixture);
    assert!(fixture.controller.memories.quota_watch.is_needed.is_set());
}

#[test]
fn nothing_else_wakes_it() {
    let (fixture, _) = with_quota(0);
    let web = created_at("web", 1, 2);
    fixture.deliver_replica_set(web.clone());
    work(&fixture);
    tried(&fixture);
    pass(&fixture, 100 * SECOND);
    tried(&fixture);
    let mut annotated = web;
    annotated.resource_version = "2".into();
    fixture.deliver_replica_set(annotated);
    quota_changes(&fixture, "another");
    fixture.deliver_pod(pod("new"));
    fixture.deliver_pod(Pod {
        is_ready: true,
        resource_version: "3".into(),
        ..pod("new")
    });
    work(&fixture);
    assert_eq!(tried(&fixture), Vec::<String>::new());
}

#[test]
fn a_new_generation_tries_at_once() {
    for (error, name) in [
        (exceeded(), "quota"),
        (rejected(422, "Invalid", "no"), "invalid"),
    ] {
        let fixture = Fixture::new();
        fixture
            .writes
            .on_create(move |_, _| Some(Err(error.clone())));
        let mut web = created_at("web", 1, 1);
        fixture.deliver_replica_set(web.clone());
        work(&fixture);
        tried(&fixture);
        (web.generation, web.replicas, web.resource_version) = (2, 2, "2".into());
        fixture.deliver_replica_set(web);
        work(&fixture);
        assert_eq!(tried(&fixture), ["web"], "{name}");
    }
}

/// As a policy that is lifted: nothing else starts a sync.
#[test]
fn an_invalid_pod_is_tried_again_soon_and_then_every_5_min() {
    for (outage, late) in [(10, 20), (60, 60)] {
        let (fixture, is_lifted) = (Fixture::new(), Arc::new(AtomicBool::new(false)));
        let lifted = Arc::clone(&is_lifted);
        fixture.writes.on_create(move |_, _| {
            let is_rejected = !lifted.load(Ordering::Relaxed);
            is_rejected.then(|| Err(rejected(422, "Invalid", "no")))
        });
        fixture.deliver_replica_set(created_at("web", 1, 5));
        work(&fixture);
        pass(&fixture, outage * SECOND);
        let n_tried = tried(&fixture).len();
        assert!((4..=7).contains(&n_tried), "{n_tried}");
        is_lifted.store(true, Ordering::Relaxed);
        pass(&fixture, late * SECOND);
        assert_eq!(tried(&fixture).len(), 5, "after {outage} s");
    }
    let fixture = Fixture::new();
    fixture
        .writes
        .on_create(|_, _| Some(Err(rejected(422, "Invalid", "no"))));
    fixture.deliver_replica_set(created_at("web", 1, 5));
    work(&fixture);
    pass(&fixture, 3600 * SECOND);
    let n_tried = tried(&fixture).len();
    assert!((15..=30).contains(&n_tried), "{n_tried} in an hour");
}

/// As a webhook for everything that does not respond: the status fails, too, and has its own
/// back-off.
#[test]
fn a_failing_status_delays_no_create() {
    let (fixture, is_over) = (Fixture::new(), Arc::new(AtomicBool::new(false)));
    let over = Arc::clone(&is_over);
    let fails = move || {
        let error = rejected(500, "InternalError", "failed calling webhook \"all\"");
        (!over.load(Ordering::Relaxed)).then_some(error)
    };
    let status_fails = fails.clone();
    fixture.writes.on_create(move |_, _| fails().map(Err));
    fixture
        .writes
        .on_update_status(move |_, _| status_fails().map(Err));
    fixture.deliver_replica_set(created_at("web", 1, 1));
    work(&fixture);
    pass(&fixture, 300 * SECOND);
    tried(&fixture);
    is_over.store(true, Ordering::Relaxed);
    pass(&fixture, 30 * SECOND);
    assert_eq!(tried(&fixture), ["web"]);
}

#[test]
fn the_back_off_of_an_overload_ends_with_the_outage() {
    let fixture = Fixture::new();
    let is_out = Arc::new(AtomicBool::new(true));
    let fails = Arc::clone(&is_out);
    fixture.writes.on_create(move |_, _| {
        let error = rejected(503, "ServiceUnavailable", "no upstream");
        fails.load(Ordering::Relaxed).then_some(Err(error))
    });
    fixture.deliver_replica_set(replica_set("web", 1));
    pass(&fixture, Duration::from_mins(2));
    assert!(tried(&fixture).len() > 5);
    is_out.store(false, Ordering::Relaxed);
    work(&fixture);
    assert_eq!(tried(&fixture), [""; 0]);
    fixture.controller.handle_recovered();
    work(&fixture);
    assert_eq!(tried(&fixture), ["web"]);
}

#[test]
fn an_overload_is_waited_for_as_long_as_retry_after() {
    let fixture = Fixture::new();
    let status = json!({
        "code": 429, "reason": "TooManyRequests", "message": "later",
        "details": {"retryAfterSeconds": 4},
    });
    let status = Status::from_body(429, status.to_string().as_bytes());
    fixture
        .writes
        .on_create(move |_, _| Some(Err(WriteError::Rejected(status.clone()))));
    let web = created_at("web", 1, 5);
    fixture.deliver_replica_set(web.clone());
    work(&fixture);
    tried(&fixture);
    // An event of its pods starts a sync, which creates nothing.
    fixture.deliver_pod(owned_pod("web-other", &web));
    pass(&fixture, 3990 * MS);
    assert_eq!(tried(&fixture), Vec::<String>::new());
    pass(&fixture, 2 * SECOND + 10 * MS);
    assert_eq!(tried(&fixture), ["web"]);
}

/// client-go retries ten times without its callers' notice.
#[test]
fn the_first_requests_for_another_try_are_not_reported() {
    for (replicas, n_pods, event) in [
        (1, 0, "FailedCreate: Error creating: later"),
        (0, 2, "FailedDelete: Error deleting: later"),
    ] {
        let fixture = Fixture::new();
        let busy = Status::new(429, "TooManyRequests", "later").or_retry_after(Some(1));
        let rejected = WriteError::Rejected(busy.clone());
        let later = move |_: usize, _: &str| Some(Err(rejected.clone()));
        fixture.writes.on_create(later);
        let rejected = WriteError::Rejected(busy);
        let later = move |_: usize, _: &str| Some(Err(rejected.clone()));
        fixture.writes.on_delete(later);
        let mut web = replica_set("web", replicas);
        (web.status.replicas, web.status.fully_labeled_replicas) = (n_pods, n_pods);
        web.status.terminating_replicas = Some(0);
        web.status.observed_generation = web.generation;
        let pods = (0..n_pods).map(|i| owned_pod(&format!("web-{i}"), &web));
        fixture.cache_silently(None, pods);
        fixture.deliver_replica_set(web);
        let mut n_syncs = 0;
        while n_syncs < 10 {
            assert_eq!(fixture.writes.take_warnings(), [""; 0], "after {n_syncs}");
            assert_eq!(fixture.writes.status_updates(), [], "after {n_syncs}");
            fixture.writes.take();
            pass(&fixture, 10 * MS);
            let (n_creates, n_deletes, _) = fixture.writes.counts();
            n_syncs += usize::from(n_creates + n_deletes > 0);
        }
        pass(&fixture, 5 * SECOND);
        assert_eq!(
            fixture.writes.take_warnings().first().map(|it| &**it),
            Some(event)
        );
        let status = fixture.writes.status_updates().pop().expect("a status");
        assert_eq!(status.conditions.len(), 1);
    }
}

#[test]
fn rejected_creates_search_for_a_gang_once_per_generation() {
    let (fixture, _) = with_quota(0);
    fixture.writes.serve_workloads();
    let mut web = created_at("web", 1, 3);
    let n_searches = || {
        let writes = fixture.writes.take();
        let searches = writes.iter().filter(|it| **it == Write::FindGang).count();
        let is_create = |it: &&Write| matches!(it, Write::Create(_));
        assert!(
            writes.iter().filter(is_create).count() > 1,
            "it was tried again"
        );
        searches
    };
    fixture.deliver_replica_set(web.clone());
    work(&fixture);
    pass(&fixture, 100 * SECOND);
    assert_eq!(n_searches(), 1);
    (web.generation, web.resource_version) = (2, "9".into());
    fixture.deliver_replica_set(web);
    work(&fixture);
    pass(&fixture, 100 * SECOND);
    assert_eq!(n_searches(), 1);
}

/// A hazard: upstream tries, fails and keeps the condition, so a sync that does not try must not
/// remove it.
#[test]
fn the_condition_stays_while_creates_are_backed_off() {
    let (fixture, _) = with_quota(1);
    let web = created_at("web", 1, 3);
    fixture.deliver_replica_set(web.clone());
    work(&fixture);
    let statuses = fixture.writes.status_updates();
    let written = statuses.last().expect("a status").clone();
    assert_eq!(written.conditions.len(), 1);
    let name = fixture.writes.created()[0].clone();
    fixture.writes.take();
    let mut shown = web.clone();
    (shown.status, shown.resource_version) = (written, "5".into());
    fixture.deliver_replica_set(shown.clone());
    let labels = [("app", "web")].into_iter().collect();
    let created = Pod {
        labels,
        resource_version: "6".into(),
        ..owned_pod(&name, &web)
    };
    fixture.deliver_pod(created.clone());
    work(&fixture);
    fixture.deliver_pod(Pod {
        is_ready: true,
        resource_version: "7".into(),
        ..created.clone()
    });
    work(&fixture);
    for status in fixture.writes.status_updates() {
        assert_eq!(status.conditions, shown.status.conditions);
        assert_eq!(status.replicas, 1);
    }
    assert!(
        !fixture.writes.status_updates().is_empty(),
        "the new counts are written"
    );
    // The cache does not show the condition, as after a failed write: it is written again.
    fixture.writes.take();
    shown.status.conditions.clear();
    shown.resource_version = "8".into();
    fixture.deliver_replica_set(shown);
    work(&fixture);
    let again = fixture.writes.status_updates();
    let condition = &again.last().expect("a status").conditions[0];
    assert_eq!(condition.reason.as_deref(), Some("FailedCreate"));
    assert!(
        condition
            .message
            .as_deref()
            .is_some_and(|it| it.contains("exceeded quota: few"))
    );
}

#[test]
fn the_condition_ends_when_pods_are_accepted_or_not_needed() {
    for shrinks in [false, true] {
        let (fixture, free) = with_quota(0);
        let mut web = created_at("web", 1, 1);
        fixture.deliver_replica_set(web.clone());
        work(&fixture);
        web.status = fixture.writes.status_updates().pop().expect("a status");
        web.resource_version = "5".into();
        if shrinks {
            (web.replicas, web.generation) = (0, 2);
        } else {
            free.store(1, Ordering::Relaxed);
        }
        fixture.writes.take();
        fixture.deliver_replica_set(web);
        pass(&fixture, 60 * SECOND);
        let last = fixture.writes.status_updates().pop().expect("a status");
        assert_eq!(last.conditions, [], "shrinks: {shrinks}");
        assert_eq!(
            fixture.controller.inspector().totals().rejected,
            [0, 0, 0, 0]
        );
    }
}

#[test]
fn an_unclassified_error_ends_the_back_off() {
    let (fixture, _) = with_quota(0);
    fixture.deliver_replica_set(created_at("a", 1, 1));
    work(&fixture);
    let n_backed_off = || fixture.controller.memories.totals().rejected;
    assert_eq!(n_backed_off(), [1, 0, 0, 0]);
    fixture
        .writes
        .on_create(|_, _| Some(Err(rejected(404, "NotFound", "no such namespace"))));
    pass(&fixture, 2 * SECOND);
    assert_eq!(n_backed_off(), [0, 0, 0, 0]);
    assert!(fixture.queue.num_requeues(&key("a")) > 0);
}

/// Its creates are answered, but none is accepted.
#[test]
fn a_terminating_namespace_does_not_trigger_a_quota_retry() {
    let (fixture, _) = with_quota(0);
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        fixture.deliver_replica_set(created_at(name, 1, 1));
    }
    work(&fixture);
    tried(&fixture);
    fixture.writes.on_create(|_, _| {
        let status = Status::new(403, "Forbidden", "being terminated");
        let status = status.with_cause("NamespaceTerminating", "being terminated");
        Some(Err(WriteError::Rejected(status)))
    });
    end_a_pod(&fixture);
    pass(&fixture, 2 * SECOND);
    let tried = tried(&fixture);
    assert!((1..=3).contains(&tried.len()), "{tried:?}");
}

#[test]
fn deletes_continue_while_creates_are_backed_off() {
    let (fixture, _) = with_quota(0);
    let mut web = created_at("web", 1, 2);
    let labels: crate::api::Labels = [("app", "web")].into_iter().collect();
    fixture.cache_silently(
        None,
        [Pod {
            labels,
            ..owned_pod("web-a", &web)
        }],
    );
    fixture.deliver_replica_set(web.clone());
    work(&fixture);
    (web.replicas, web.resource_version) = (0, "2".into());
    fixture.writes.take();
    fixture.deliver_replica_set(web);
    work(&fixture);
    assert_eq!(fixture.writes.deleted(), ["web-a"]);
}

/// A hazard: 10,000 rejected ReplicaSets must not use up the bucket of all retries.
#[test]
fn rejected_replica_sets_take_no_token_of_the_shared_bucket() {
    let fixture = Fixture::new();
    fixture.writes.on_create(|_, name| {
        let error = if name.starts_with("healthy") {
            WriteError::unknown("connection reset")
        } else {
            exceeded()
        };
        Some(Err(error))
    });
    for i in 0..500 {
        fixture.deliver_replica_set(created_at(&format!("rs-{i}"), 1, 1));
    }
    work(&fixture);
    fixture.deliver_replica_set(created_at("healthy", 1, 1));
    work(&fixture);
    let due_in = fixture.queue.state_of(&key("healthy")).due_in;
    assert_eq!(due_in, Some(5 * MS));
}

/// A hazard: a daemon that stops leading keeps its queues, and no timer of theirs may be lost.
#[test]
fn a_standby_triggers_no_retry_and_a_new_leader_does() {
    let (fixture, free) = with_quota(0);
    fixture.deliver_replica_set(created_at("web", 1, 1));
    work(&fixture);
    fixture.controller.stand_by();
    fixture.writes.take();
    free.store(1, Ordering::Relaxed);
    end_a_pod(&fixture);
    assert_eq!(fixture.queued(), Vec::<String>::new());
    fixture.controller.failover();
    fixture.writes.set_live_versions("1", "1");
    fixture.controller.enqueue_all();
    pass(&fixture, 2 * SECOND);
    assert_eq!(free.load(Ordering::Relaxed), 0);
}

/// As kube-controller-manager: 5 ms, doubled, whatever the rejection is.
#[test]
fn upstreams_retry_delays_can_be_chosen() {
    let fixture = Fixture::with_retry_backoff(RetryBackoff::Kcm);
    fixture.writes.on_create(|_, _| Some(Err(exceeded())));
    fixture.deliver_replica_set(created_at("web", 1, 1));
    work(&fixture);
    for failures in 1..8 {
        assert_eq!(tried(&fixture), ["web"]);
        let state = fixture.queue.state_of(&key("web"));
        assert_eq!(state.due_in, Some(5 * MS * (1 << (failures - 1))));
        fixture.clock.advance(state.due_in.expect("checked"));
        fixture.queue.advance(fixture.clock.now());
        work(&fixture);
    }
    assert_eq!(
        fixture.controller.inspector().totals().rejected,
        [0, 0, 0, 0]
    );
}

#[test]
fn a_failed_status_does_not_replace_the_reported_rejection() {
    let (fixture, _) = with_quota(0);
    let web = created_at("web", 1, 1);
    fixture.writes.on_update_status(|_, _| {
        let error = rejected(503, "ServiceUnavailable", "no status now");
        Some(Err(error))
    });
    fixture.deliver_replica_set(web);
    work(&fixture);
    fixture.writes.take();
    fixture.writes.on_update_status(|_, _| None);
    pass(&fixture, Duration::from_millis(20));
    let statuses = fixture.writes.status_updates();
    let conditions = &statuses.last().expect("a status").conditions;
    let message = conditions[0].message.as_deref().unwrap_or_default();
    assert!(message.contains("exceeded quota: few"), "{message}");
}
