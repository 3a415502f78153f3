//! The order of keys, the length of waits, and that the last counts always reach the status.

use std::time::Duration;

use crate::api::{Pod, PodPhase, ReplicaSet, ReplicaSetStatus};
use crate::controller::memory::Memory;
use crate::controller::testing::{
    Fixture, key, lost, not_allowed, owned_pod, pod, ready_pod, replica_set, seconds_ago,
    with_status,
};

use crate::stdx::clock::Clock;
use crate::workqueue::Priority;

const MS: Duration = Duration::from_millis(1);

fn at(version: usize, pod: Pod) -> Pod {
    Pod {
        resource_version: version.to_string().as_str().into(),
        ..pod
    }
}

/// `name` with this many pods, all existing and not Ready, and a matching status.
fn settled(fixture: &Fixture, name: &str, n_pods: i32) -> ReplicaSet {
    let rs = replica_set(name, n_pods);
    let status = ReplicaSetStatus {
        replicas: n_pods,
        fully_labeled_replicas: n_pods,
        terminating_replicas: Some(0),
        observed_generation: 1,
        ..ReplicaSetStatus::default()
    };
    let rs = with_status(&rs, status);
    let pods = (0..n_pods).map(|n| owned_pod(&format!("{name}-{n}"), &rs));
    fixture.cache_silently(Some(rs.clone()), pods);
    rs
}

fn paced() -> Fixture {
    Fixture::with_status_interval(Duration::from_secs(1))
}

/// Syncs all waiting keys, and shows the cache the written statuses. Returns the Ready count of
/// each status.
fn statuses(fixture: &Fixture) -> Vec<i32> {
    syncs(fixture).into_iter().flatten().collect()
}

/// The same for each sync; a sync may write no status.
fn syncs(fixture: &Fixture) -> Vec<Vec<i32>> {
    let mut syncs = Vec::new();
    while let Some(key) = fixture.queue.try_get() {
        fixture.process(&key);
        let updates = fixture.writes.status_updates();
        fixture.writes.take();
        syncs.push(updates.iter().map(|status| status.ready_replicas).collect());
        for status in updates {
            let rs = fixture.cache.replica_sets.get(&key).expect("it is there");
            let mut rs = with_status(&rs, status);
            rs.resource_version = format!("{}", 5000 + rs.status.ready_replicas)
                .as_str()
                .into();
            fixture.deliver_replica_set(rs);
        }
    }
    syncs
}

/// Returns `rs` from the cache.
fn cached(fixture: &Fixture, rs: &ReplicaSet) -> ReplicaSet {
    let cached = fixture.cache.replica_sets.get(&rs.key);
    cached.expect("it is there").as_ref().clone()
}

fn turn_ready(fixture: &Fixture, rs: &ReplicaSet, n: usize) {
    let name = format!("{}-{n}", rs.key.name);
    fixture.deliver_pod(at(1000 + n, ready_pod(&name, rs)));
}

fn pass(fixture: &Fixture, time: Duration) {
    fixture.clock.advance(time);
    fixture.queue.advance(fixture.clock.now());
}

/// Objects of the first list come one by one, so until its end each ReplicaSet seems to lack pods.
#[test]
fn pods_of_the_initial_list_do_not_raise_priority() {
    let fixture = Fixture::before_the_first_list();
    let rs = replica_set("b", 2);
    fixture.deliver_replica_set(replica_set("a", 2));
    fixture.deliver_replica_set(rs.clone());
    fixture.deliver_pod(owned_pod("b-1", &rs));
    assert_eq!(fixture.queued(), ["default/a", "default/b"]);
}

#[test]
fn a_burst_of_ready_pods_costs_few_status_writes() {
    let fixture = paced();
    let rs = settled(&fixture, "web", 100);
    let mut done = Vec::new();
    for n in 0..100 {
        turn_ready(&fixture, &rs, n);
        done.extend(syncs(&fixture));
        pass(&fixture, 3 * MS);
        done.extend(syncs(&fixture));
    }
    // 100 pods cause a delay of 100 ms.
    let written: Vec<i32> = done.concat();
    assert_eq!(written, [1, 34, 68, 100]);
    assert!(done.len() <= 2 * written.len(), "{} syncs", done.len());
    pass(&fixture, Duration::from_secs(1));
    assert_eq!(statuses(&fixture), [0; 0], "nothing was owed any more");
}

#[test]
fn stalled_counts_are_written_after_the_pause() {
    let fixture = paced();
    let rs = settled(&fixture, "web", 100);
    for n in 0..50 {
        turn_ready(&fixture, &rs, n);
        let expected: &[i32] = if n == 0 { &[1] } else { &[] };
        assert_eq!(statuses(&fixture), expected);
    }
    pass(&fixture, 99 * MS);
    assert_eq!(statuses(&fixture), [0; 0]);
    pass(&fixture, MS);
    assert_eq!(statuses(&fixture), [50]);
}

#[test]
fn without_an_interval_every_change_is_written() {
    let fixture = Fixture::new();
    let rs = settled(&fixture, "web", 100);
    for n in 0..20 {
        turn_ready(&fixture, &rs, n);
        let ready = i32::try_from(n + 1).expect("a few pods");
        assert_eq!(statuses(&fixture), [ready]);
    }
}

/// `web` with 100 desired and existing pods, 50 of them Ready, and a matching status, written just
/// now.
fn just_written(fixture: &Fixture) -> ReplicaSet {
    let rs = settled(fixture, "web", 100);
    for n in 0..50 {
        turn_ready(fixture, &rs, n);
    }
    assert_eq!(statuses(fixture), [50]);
    let now = fixture.clock.now();
    let next = |memory: &mut Memory| memory.next_status;
    let next = fixture.controller.memories.get(&rs, next);
    assert!(next.flatten().is_some_and(|next| next > now));
    rs
}

/// Returns the status after `event` directly follows a status write: replicas, fully labelled,
/// ready, available, terminating.
#[track_caller]
fn check_is_written_at_once(min_ready_seconds: i32, event: &dyn Fn(&Fixture), expected: [i32; 5]) {
    let fixture = paced();
    let rs = just_written(&fixture);
    if min_ready_seconds > 0 {
        let mut slow = fixture.cache.replica_sets.get(&rs.key).expect("a web");
        let slow = std::sync::Arc::make_mut(&mut slow);
        slow.min_ready_seconds = min_ready_seconds;
        slow.resource_version = "5999".into();
        fixture.cache_silently(Some(slow.clone()), []);
        assert_eq!(statuses(&fixture), [0; 0]);
    }
    event(&fixture);
    let key = fixture.queue.try_get().expect("it is queued at once");
    fixture.process(&key);
    let status = fixture.writes.status_updates().pop().expect("a status");
    let written = [
        status.replicas,
        status.fully_labeled_replicas,
        status.ready_replicas,
        status.available_replicas,
        status.terminating_replicas.expect("it is counted"),
    ];
    assert_eq!(written, expected);
}

#[test]
fn every_loss_is_written_at_once() {
    let rs = &replica_set("web", 100);
    let gone = |fixture: &Fixture| fixture.deliver_pod_deleted(ready_pod("web-7", rs));
    let going = |fixture: &Fixture| {
        fixture.deliver_pod(Pod {
            deletion: Some(seconds_ago(0)),
            ..at(2000, ready_pod("web-7", rs))
        });
    };
    let unready = |fixture: &Fixture| fixture.deliver_pod(at(2000, owned_pod("web-7", rs)));
    // Other pods become Ready at the same moment: more pods are Ready, but fewer exist.
    let mixed = |fixture: &Fixture| {
        turn_ready(fixture, rs, 60);
        turn_ready(fixture, rs, 61);
        gone(fixture);
    };
    for min_ready_seconds in [0, 60] {
        let check = |event: &dyn Fn(&Fixture), expected| {
            check_is_written_at_once(min_ready_seconds, event, expected);
        };
        check(&gone, [99, 99, 49, 49, 0]);
        check(&going, [99, 99, 49, 49, 1]);
        check(&unready, [100, 100, 49, 49, 0]);
        check(&mixed, [99, 99, 51, 51, 0]);
    }
}

/// The status reports 50 available pods. 60 are Ready when one of the 50 fails.
#[test]
fn a_lower_available_count_is_written_despite_more_ready() {
    let rs = &replica_set("web", 100);
    let event = |fixture: &Fixture| {
        for n in 50..60 {
            let mut pod = ready_pod(&format!("web-{n}"), rs);
            pod.ready_transition = Some(seconds_ago(0));
            fixture.deliver_pod(at(1000 + n, pod));
        }
        while let Some(key) = fixture.queue.try_get() {
            fixture.process(&key);
        }
        assert_eq!(fixture.writes.status_updates(), [], "more ready can wait");
        fixture.deliver_pod(at(2000, owned_pod("web-7", rs)));
    };
    check_is_written_at_once(60, &event, [100, 100, 59, 49, 0]);
}

#[test]
fn a_lost_pod_is_replaced_and_reported_at_once() {
    let fixture = paced();
    let rs = settled(&fixture, "web", 100);
    turn_ready(&fixture, &rs, 0);
    assert_eq!(statuses(&fixture), [1]);
    turn_ready(&fixture, &rs, 1);
    fixture.deliver_pod_deleted(owned_pod("web-7", &rs));
    let key = fixture.queue.try_get().expect("it is queued at once");
    fixture.process(&key);
    fixture.assert_counts(1, 0, 0);
    let reported = fixture.writes.status_updates();
    let reported = reported.iter().map(|it| (it.replicas, it.ready_replicas));
    assert_eq!(reported.collect::<Vec<_>>(), [(99, 2)]);
}

/// Deletes are still expected, so nothing may be created or deleted; still, the lost pod must be
/// reported.
#[test]
fn a_scale_down_reports_each_loss_first() {
    let fixture = paced();
    let rs = just_written(&fixture);
    let mut scaled = cached(&fixture, &rs);
    scaled.replicas = 98;
    scaled.resource_version = "5999".into();
    fixture.deliver_replica_set(scaled.clone());
    fixture.deliver_bookmarks("7000", "");
    let key = fixture.queue.try_get().expect("it is queued");
    fixture.process(&key);
    let deleted = fixture.writes.deleted();
    assert_eq!(deleted.len(), 2);
    fixture.writes.take();
    assert_eq!(fixture.queued(), [""; 0]);
    let other = settled(&fixture, "other", 1);
    turn_ready(&fixture, &other, 0);
    for (n, name) in deleted.iter().enumerate() {
        fixture.deliver_pod(Pod {
            deletion: Some(seconds_ago(0)),
            ..at(8000 + n, owned_pod(name, &rs))
        });
        let key = fixture.queue.try_get().expect("it is queued at once");
        assert_eq!(key, rs.key, "before what only gets better");
        fixture.process(&key);
        let reported = fixture.writes.status_updates().remove(0);
        fixture.writes.take();
        let n = i32::try_from(n).expect("one of two");
        assert_eq!(
            (reported.replicas, reported.terminating_replicas),
            (99 - n, Some(1 + n))
        );
        // The cache shows it, so the next sync may start.
        let mut echo = with_status(&scaled, reported);
        echo.resource_version = format!("{}", 6000 + n).as_str().into();
        fixture.cache_silently(Some(echo), []);
    }
}

/// The event precedes the cached copy of the last status, from which it takes away.
#[test]
fn a_loss_is_found_once_the_cache_shows_the_status() {
    let fixture = paced();
    let rs = settled(&fixture, "web", 100);
    for n in 0..50 {
        turn_ready(&fixture, &rs, n);
    }
    fixture.sync_ok("web");
    let reported = fixture.writes.status_updates().remove(0);
    assert_eq!(reported.ready_replicas, 50);
    fixture.deliver_pod(at(2000, owned_pod("web-7", &rs)));
    assert_eq!(fixture.queued(), ["default/web"]);
    let other = settled(&fixture, "other", 1);
    turn_ready(&fixture, &other, 0);
    let mut echo = with_status(&rs, reported);
    echo.resource_version = "5000".into();
    fixture.deliver_replica_set(echo);
    assert_eq!(fixture.queued(), ["default/web", "default/other"]);
    fixture.sync_ok("web");
    let reported = fixture.writes.status_updates().pop().expect("a status");
    assert_eq!(reported.ready_replicas, 49);
}

#[test]
fn a_new_generation_ignores_the_status_pause() {
    let fixture = paced();
    let rs = just_written(&fixture);
    turn_ready(&fixture, &rs, 50);
    let mut changed = cached(&fixture, &rs);
    changed.generation = 2;
    changed.resource_version = "5999".into();
    fixture.deliver_replica_set(changed);
    let key = fixture.queue.try_get().expect("it is queued at once");
    fixture.process(&key);
    let reported = fixture.writes.status_updates().pop().expect("a status");
    assert_eq!(
        (reported.observed_generation, reported.ready_replicas),
        (2, 51)
    );
}

#[test]
fn a_failure_ignores_the_status_pause() {
    let fixture = paced();
    let rs = settled(&fixture, "web", 100);
    turn_ready(&fixture, &rs, 0);
    assert_eq!(statuses(&fixture), [1]);
    fixture.writes.on_create(|_, _| Some(Err(lost())));
    fixture.deliver_pod_deleted(owned_pod("web-7", &rs));
    let key = fixture.queue.try_get().expect("it is queued at once");
    fixture.process(&key);
    let reported = fixture.writes.status_updates();
    assert_eq!((reported.len(), reported[0].conditions.len()), (1, 1));
}

#[test]
fn lost_pods_and_changes_precede_status() {
    let fixture = paced();
    let [a, b, c] = ["a", "b", "c"].map(|name| settled(&fixture, name, 3));
    turn_ready(&fixture, &a, 0);
    turn_ready(&fixture, &b, 0);
    fixture.deliver_pod(Pod {
        phase: PodPhase::Failed,
        ..at(2000, owned_pod("b-1", &b))
    });
    let mut scaled = c.clone();
    scaled.replicas = 4;
    scaled.resource_version = "2".into();
    fixture.deliver_replica_set(scaled);
    assert_eq!(fixture.queued(), ["default/b", "default/c", "default/a"]);
}

#[test]
fn with_open_expectations_pods_are_only_counted() {
    let fixture = paced();
    let rs = replica_set("web", 3);
    fixture.cache_silently(Some(rs.clone()), []);
    fixture.sync_ok("web");
    assert_eq!(fixture.open(&rs), Some((3, 0)));
    let names = fixture.writes.created();
    fixture.deliver_pod(at(10, owned_pod(&names[0], &rs)));
    fixture.deliver_replica_set(settled(&paced(), "other", 0));
    assert_eq!(
        fixture.queued(),
        ["default/other"],
        "the status was written 0 ms ago"
    );
    fixture.deliver_pod(at(11, owned_pod(&names[1], &rs)));
    fixture.deliver_pod(at(12, owned_pod(&names[2], &rs)));
    assert_eq!(fixture.queued(), ["default/web"], "the last one has come");
}

#[test]
fn an_unchanged_pod_wakes_only_a_failed_key() {
    let fixture = paced();
    let rs = settled(&fixture, "web", 3);
    fixture.deliver_pod(at(50, owned_pod("web-0", &rs)));
    assert_eq!(fixture.queued(), [""; 0]);
    fixture.queue.add_rate_limited(key("web"));
    fixture.deliver_pod(at(51, owned_pod("web-0", &rs)));
    assert_eq!(fixture.queued(), ["default/web"]);
}

#[test]
fn after_the_first_lists_keys_with_work_come_first() {
    let fixture = paced();
    for name in ["a", "b", "c", "d", "e"] {
        fixture
            .queue
            .add_with(key(name), Priority::Low, Duration::ZERO);
        settled(&fixture, name, 2);
    }
    let b = settled(&fixture, "b", 2);
    fixture.cache.pods.apply_deleted(owned_pod("b-1", &b));
    // The status of these two is outdated, and one depends on the time.
    let d = settled(&fixture, "d", 2);
    fixture.cache_silently(None, [at(9, ready_pod("d-0", &d))]);
    let mut e = settled(&fixture, "e", 2);
    e.min_ready_seconds = 3;
    e.generation = 2;
    e.resource_version = "8".into();
    fixture.cache_silently(Some(e.clone()), [at(9, ready_pod("e-0", &e))]);
    fixture.cache_silently(None, [at(9, pod("orphan"))]);
    fixture.controller.enqueue_all();
    let everybody = fixture.queued();
    assert_eq!(everybody.len(), 5, "the orphan concerns all");

    fixture.cache.pods.apply_deleted(pod("orphan"));
    for name in ["a", "d", "e", "b", "c"] {
        fixture
            .queue
            .add_with(key(name), Priority::Low, Duration::ZERO);
    }
    fixture.controller.enqueue_all();
    let queued = fixture.queued();
    let names = [
        "default/b",
        "default/a",
        "default/d",
        "default/e",
        "default/c",
    ];
    assert_eq!(queued, names);
}

#[test]
fn availability_by_time_follows_lost_pods() {
    let fixture = paced();
    let mut slow = settled(&fixture, "slow", 2);
    slow.min_ready_seconds = 3;
    slow.resource_version = "8".into();
    fixture.cache_silently(Some(slow.clone()), []);
    let web = settled(&fixture, "web", 2);
    fixture.deliver_pod(at(9, ready_pod("slow-0", &slow)));
    statuses(&fixture);
    pass(&fixture, Duration::from_secs(4));
    fixture.deliver_pod_deleted(owned_pod("web-1", &web));
    assert_eq!(fixture.queued(), ["default/web", "default/slow"]);
}

#[test]
fn tallies_and_pods_give_the_same_counts() {
    let fixture = paced();
    let rs = settled(&fixture, "web", 6);
    let states = [
        ready_pod("web-0", &rs),
        Pod {
            phase: PodPhase::Failed,
            ..ready_pod("web-1", &rs)
        },
        Pod {
            deletion: Some(seconds_ago(1)),
            ..ready_pod("web-2", &rs)
        },
        Pod {
            labels: [("type", "production"), ("more", "labels")]
                .into_iter()
                .collect(),
            ..ready_pod("web-3", &rs)
        },
        pod("orphan"),
        Pod {
            labels: [("type", "other")].into_iter().collect(),
            ..owned_pod("web-4", &rs)
        },
    ];
    for (n, state) in states.into_iter().enumerate() {
        fixture.cache_silently(None, [at(100 + n, state)]);
        fixture.controller.check_tally_counts(&rs.key);
    }
    fixture.cache.pods.apply_deleted(pod("orphan"));
    fixture.controller.check_tally_counts(&rs.key);
}

#[test]
fn a_rejected_create_is_reported_at_once() {
    let fixture = paced();
    fixture.cache_silently(Some(replica_set("web", 2)), []);
    fixture.writes.on_create(|_, _| Some(Err(not_allowed())));
    fixture.sync("web").expect_err("rejected");
    let statuses = fixture.writes.status_updates();
    assert_eq!(statuses.len(), 1);
    assert_eq!(statuses[0].conditions.len(), 1);
}
