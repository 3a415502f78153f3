//! Group D, and the event handlers' part of groups B and C.

use std::time::Duration;

use crate::api::{Labels, ObjectKey, Pod, PodPhase, ReplicaSet};
use crate::cache::CacheEvent;
use crate::controller::testing::{
    Fixture, controller_ref, key, owned_pod, pod, read_replica_set, ready_pod, replica_set,
    replica_set_json, seconds_ago,
};
use crate::stdx::testing::thread_time;
use crate::workqueue::Priority;

/// A ReplicaSet that selects `app=name`.
fn selecting(name: &str) -> ReplicaSet {
    let mut object = replica_set_json(name, 1);
    object["spec"]["selector"] = serde_json::json!({"matchLabels": {"app": name}});
    read_replica_set(&object)
}

fn labels(app: &str) -> Labels {
    [("app", app)].into_iter().collect()
}

fn at(version: &str, pod: Pod) -> Pod {
    Pod {
        resource_version: version.into(),
        ..pod
    }
}

fn terminating(pod: Pod) -> Pod {
    Pod {
        deletion: Some(seconds_ago(0)),
        ..pod
    }
}

/// A fixture with the ReplicaSets `one` and `two` in the cache and an empty queue.
fn two() -> (Fixture, ReplicaSet, ReplicaSet) {
    let (fixture, one, two) = (Fixture::new(), selecting("one"), selecting("two"));
    fixture.cache_silently(Some(one.clone()), []);
    fixture.cache_silently(Some(two.clone()), []);
    (fixture, one, two)
}

/// Checks which keys an update of one pod enqueues.
#[track_caller]
fn check_update(fixture: &Fixture, old: Pod, new: Pod, queued: &[&str]) {
    fixture.cache_silently(None, [at("1", old)]);
    fixture.deliver_pod(at("2", new));
    assert_eq!(fixture.queued(), queued);
}

/// A new leader's live list shows it with its owner before the watch shows it as an orphan.
#[test]
fn an_adoption_settles_an_expected_create() {
    for is_terminating in [false, true] {
        let (fixture, one, _) = two();
        let mut pod = Pod {
            labels: labels("one"),
            ..owned_pod("x", &one)
        };
        let orphan = Pod {
            controller: None,
            ..pod.clone()
        };
        fixture.deliver_pod(at("1", orphan));
        fixture.expect(&one, ["x".into()], []);
        if is_terminating {
            pod = terminating(pod);
        }
        fixture.deliver_pod(at("2", pod));
        assert_eq!(fixture.open(&one), Some((0, 0)), "{is_terminating}");
    }
}

/// As after a restore of the API server's store from a backup.
/// Their back-off is as long as the outage was.
#[test]
fn failed_keys_are_synced_as_soon_as_the_api_server_is_back() {
    let fixture = Fixture::new();
    for name in ["web", "idle"] {
        fixture.deliver_replica_set(replica_set(name, 1));
    }
    fixture.queued();
    for _ in 0..15 {
        fixture.queue.add_rate_limited(key("web"));
    }
    assert_eq!(fixture.queued(), [""; 0]);
    fixture.controller.handle_recovered();
    assert_eq!(fixture.queued(), ["default/web"]);
    fixture.queue.add_rate_limited(key("web"));
    fixture.controller.stand_by();
    fixture.controller.handle_recovered();
    assert_eq!(fixture.queued(), [""; 0], "the new leader enqueues all");
}

#[test]
fn a_changed_pod_with_an_unchanged_version_is_no_resync() {
    let (fixture, one, _) = two();
    let pod = owned_pod("a", &one);
    fixture.cache_silently(None, [pod.clone()]);
    let again = Pod {
        phase: PodPhase::Failed,
        ..pod
    };
    let events = fixture
        .cache
        .pods
        .replace(vec![again.into()], &[], &"1".into());
    for event in events {
        fixture.controller.handle_pod_event(&event);
    }
    assert_eq!(fixture.queued(), ["default/one"]);
}

#[test]
fn d_01_an_added_replica_set_is_queued_and_in_the_cache() {
    let fixture = Fixture::new();
    fixture.deliver_replica_set(replica_set("web", 7));
    assert_eq!(fixture.queued(), ["default/web"]);
    let cached = fixture
        .cache
        .replica_sets
        .get(&key("web"))
        .expect("it is cached");
    assert_eq!((cached.replicas, &cached.uid), (7, &"uid-web".into()));
}

#[test]
fn d_02_every_update_of_a_replica_set_is_queued() {
    let fixture = Fixture::new();
    let rs = std::sync::Arc::new(replica_set("web", 2));
    fixture
        .controller
        .handle_replica_set_event(&CacheEvent::Updated {
            old: std::sync::Arc::clone(&rs),
            new: rs,
        });
    assert_eq!(fixture.queued(), ["default/web"]);
}

#[test]
fn a_new_generation_and_a_deletion_come_first() {
    let old = replica_set("web", 1);
    let check = |change: fn(&mut ReplicaSet), expected: [&str; 2]| {
        let fixture = Fixture::new();
        fixture.cache_silently(Some(old.clone()), [ready_pod("a", &old)]);
        let mut new = old.clone();
        new.resource_version = "9".into();
        change(&mut new);
        fixture
            .queue
            .add_with(key("other"), Priority::Low, Duration::ZERO);
        fixture.deliver_replica_set(new);
        assert_eq!(fixture.queued(), expected);
    };
    check(|_| {}, ["default/other", "default/web"]);
    check(|rs| rs.generation += 1, ["default/web", "default/other"]);
    let delete = |rs: &mut ReplicaSet| rs.deletion = Some(seconds_ago(0));
    check(delete, ["default/web", "default/other"]);
}

#[test]
fn d_03_a_deleted_replica_set_loses_its_record_and_is_queued() {
    let (fixture, rs) = (Fixture::new(), replica_set("web", 2));
    fixture.cache_silently(Some(rs.clone()), []);
    fixture.sync_ok("web");
    assert_eq!(fixture.open(&rs), Some((2, 0)));
    fixture.deliver_replica_set_deleted(rs.clone());
    assert_eq!(fixture.open(&rs), None);
    assert_eq!(fixture.queued(), ["default/web"]);
}

#[test]
fn d_04_an_added_pod_queues_its_owner_whatever_its_phase() {
    let (fixture, rs) = (Fixture::new(), replica_set("web", 2));
    fixture.cache_silently(Some(rs.clone()), []);
    fixture.expect(&rs, ["a".into(), "b".into()], []);
    fixture.deliver_pod(Pod {
        phase: PodPhase::Failed,
        ..owned_pod("a", &rs)
    });
    assert_eq!(fixture.queued(), ["default/web"]);
    assert_eq!(fixture.open(&rs), Some((1, 0)));
}

#[test]
fn d_05_an_added_orphan_queues_matches_and_observes_nothing() {
    let (fixture, one, _) = two();
    let mut twin = selecting("one");
    twin.key = key("twin");
    twin.uid = "uid-twin".into();
    fixture.cache_silently(Some(twin), []);
    fixture.expect(&one, ["a".into()], []);
    fixture.deliver_pod(Pod {
        labels: labels("one"),
        ..pod("a")
    });
    let mut queued = fixture.queued();
    queued.sort();
    assert_eq!(queued, ["default/one", "default/twin"]);
    assert_eq!(fixture.open(&one), Some((1, 0)));
}

#[test]
fn b_15_a_pod_without_controller_meets_no_creation() {
    let (fixture, rs) = (Fixture::new(), replica_set("web", 1));
    fixture.cache_silently(Some(rs.clone()), []);
    fixture.expect(&rs, ["a".into()], []);
    fixture.deliver_pod(pod("a"));
    assert_eq!(fixture.open(&rs), Some((1, 0)));
}

#[test]
fn d_06_an_update_without_a_new_version_is_ignored() {
    let (fixture, rs) = (Fixture::new(), replica_set("web", 1));
    fixture.cache_silently(Some(rs.clone()), []);
    let old = std::sync::Arc::new(terminating(owned_pod("a", &rs)));
    let new = std::sync::Arc::clone(&old);
    fixture
        .controller
        .handle_pod_event(&CacheEvent::Updated { old, new });
    assert_eq!(fixture.queued(), [""; 0]);
}

#[test]
fn d_07_new_labels_under_the_same_owner_queue_the_owner() {
    let (fixture, one, _) = two();
    let old = Pod {
        labels: labels("one"),
        ..owned_pod("a", &one)
    };
    let new = Pod {
        labels: labels("two"),
        ..old.clone()
    };
    check_update(&fixture, old, new, &["default/one"]);
}

#[test]
fn d_08_a_released_pod_queues_old_owner_and_matches_once() {
    let (fixture, _, two) = two();
    let old = Pod {
        labels: labels("two"),
        ..owned_pod("a", &two)
    };
    let new = Pod {
        controller: None,
        ..old.clone()
    };
    check_update(&fixture, old, new, &["default/two"]);
}

#[test]
fn d_09_a_released_pod_queues_old_owner_and_another_match() {
    let (fixture, one, _) = two();
    let old = Pod {
        labels: labels("two"),
        ..owned_pod("a", &one)
    };
    let new = Pod {
        controller: None,
        ..old.clone()
    };
    check_update(&fixture, old, new, &["default/one", "default/two"]);
}

#[test]
fn d_10_labels_of_another_do_not_wake_it_while_the_pod_is_owned() {
    let (fixture, _, two) = two();
    let old = Pod {
        labels: labels("one"),
        ..owned_pod("a", &two)
    };
    let new = Pod {
        labels: labels("two"),
        ..old.clone()
    };
    check_update(&fixture, old, new, &["default/two"]);
}

#[test]
fn d_12_an_orphan_with_the_same_labels_queues_nothing() {
    let (fixture, ..) = two();
    let old = Pod {
        labels: labels("one"),
        ..pod("a")
    };
    let new = Pod {
        is_ready: true,
        ..old.clone()
    };
    check_update(&fixture, old, new, &[]);
}

/// The five steps of upstream's test. Upstream's first step leaves the creation count unchanged;
/// here only the creation of that very name is observed.
#[test]
fn d_13_to_d_16_a_deletion_counts_once_and_from_its_start() {
    let (fixture, rs) = (Fixture::new(), replica_set("web", 2));
    let (first, second) = (owned_pod("first", &rs), owned_pod("second", &rs));
    fixture.cache_silently(Some(rs.clone()), []);
    let expect = |pod: &Pod| {
        fixture.expect(&rs, ["new".into()], [pod.uid.clone()]);
    };

    expect(&first);
    fixture.deliver_pod(at("1", terminating(first.clone())));
    assert_eq!(
        (fixture.queued(), fixture.open(&rs)),
        (vec!["default/web".into()], Some((1, 0)))
    );

    fixture.cache_silently(None, [at("2", first.clone())]);
    expect(&first);
    fixture.deliver_pod(at("3", terminating(first.clone())));
    assert_eq!(
        (fixture.queued(), fixture.open(&rs)),
        (vec!["default/web".into()], Some((1, 0)))
    );

    expect(&second);
    fixture.deliver_pod(at("4", terminating(first.clone())));
    assert_eq!(fixture.open(&rs), Some((1, 1)));
    fixture.deliver_pod_deleted(at("5", terminating(first)));
    assert_eq!(fixture.open(&rs), Some((1, 1)));

    fixture.cache_silently(None, [at("6", second.clone())]);
    fixture.queued();
    fixture.deliver_pod_deleted(at("7", second));
    assert_eq!(
        (fixture.queued(), fixture.open(&rs)),
        (vec!["default/web".into()], Some((1, 0)))
    );
}

#[test]
fn d_14_labels_changed_with_the_deletion_queue_both_owners() {
    let (fixture, one, two) = two();
    let old = Pod {
        labels: labels("one"),
        ..owned_pod("a", &one)
    };
    let new = terminating(Pod {
        labels: labels("two"),
        ..owned_pod("a", &two)
    });
    check_update(&fixture, old, new, &["default/two", "default/one"]);
}

#[test]
fn d_18_a_deletion_found_by_a_relist_queues_the_owner() {
    let (fixture, rs) = (Fixture::new(), replica_set("web", 1));
    let pod = owned_pod("a", &rs);
    fixture.cache_silently(Some(rs.clone()), [pod.clone()]);
    fixture.expect(&rs, [], [pod.uid.clone()]);
    for event in fixture.cache.pods.replace(Vec::new(), &[], &"9".into()) {
        fixture.controller.handle_pod_event(&event);
    }
    assert_eq!(
        (fixture.queued(), fixture.open(&rs)),
        (vec!["default/web".into()], Some((0, 0)))
    );
}

#[test]
fn d_19_a_deletion_without_a_known_owner_queues_nothing() {
    let (fixture, one, _) = two();
    let foreign = replica_set("unknown", 1);
    for pod in [
        pod("orphan"),
        owned_pod("strange", &foreign),
        owned_pod("ours", &one),
    ] {
        fixture.cache_silently(None, [pod]);
    }
    fixture.deliver_pod_deleted(pod("orphan"));
    fixture.deliver_pod_deleted(owned_pod("strange", &foreign));
    assert_eq!(fixture.queued(), [""; 0]);
    fixture.deliver_pod_deleted(owned_pod("ours", &one));
    assert_eq!(fixture.queued(), ["default/one"]);
}

#[test]
fn a_pod_adopted_and_deleted_unseen_is_expected_no_longer() {
    // Another client may change its labels before the adoption arrives.
    for label in ["web", "lost"] {
        let rs = selecting("web");
        let fixture = Fixture::new();
        let orphan = Pod {
            labels: labels(label),
            ..pod("orphan")
        };
        fixture.cache_silently(Some(rs.clone()), [orphan.clone()]);
        fixture.expect(&rs, [], [orphan.uid.clone()]);
        fixture.deliver_pod_deleted(orphan);
        assert_eq!(
            (fixture.queued(), fixture.open(&rs)),
            (vec!["default/web".into()], Some((0, 0)))
        );
    }
}

#[test]
fn d_20_a_ready_pod_requeues_its_owner_when_available() {
    for (min_ready, was_ready, again) in [(10, false, true), (0, false, false), (10, true, false)] {
        let (fixture, mut rs) = (Fixture::new(), replica_set("web", 1));
        rs.min_ready_seconds = min_ready;
        fixture.cache_silently(Some(rs.clone()), []);
        let old = Pod {
            is_ready: was_ready,
            ..owned_pod("a", &rs)
        };
        check_update(&fixture, old, ready_pod("a", &rs), &["default/web"]);
        assert_eq!(fixture.queued_after(Duration::from_millis(9_999)), [""; 0]);
        let queued = fixture.queued_after(Duration::from_millis(1));
        assert_eq!(queued, if again { vec!["default/web"] } else { vec![] });
    }
}

#[test]
fn c_27_the_owner_is_resolved_by_kind_name_namespace_and_uid() {
    let fixture = Fixture::new();
    fixture.cache_silently(Some(replica_set("web", 1)), []);
    for (kind, name, uid, namespace, queued) in [
        ("ReplicaSet", "web", "uid-web", "default", true),
        ("ReplicationController", "web", "uid-web", "default", false),
        ("ReplicaSet", "other", "uid-web", "default", false),
        ("ReplicaSet", "web", "uid-other", "default", false),
        ("ReplicaSet", "web", "uid-web", "elsewhere", false),
    ] {
        let pod = Pod {
            key: ObjectKey::new(namespace, format!("{kind}-{name}-{uid}").as_str()),
            controller: Some(controller_ref(kind, name, uid)),
            ..pod("a")
        };
        fixture.deliver_pod(pod);
        assert_eq!(
            !fixture.queued().is_empty(),
            queued,
            "{kind} {name} {uid} {namespace}"
        );
    }
}

#[test]
fn c_28_orphans_are_matched_by_namespace_and_labels() {
    let fixture = Fixture::new();
    let mut elsewhere = selecting("one");
    elsewhere.key = ObjectKey::new("elsewhere", "one");
    fixture.cache_silently(Some(elsewhere), []);
    let lookup = |labels| {
        let pod = Pod { labels, ..pod("a") };
        let found = fixture.controller.replica_sets_matching(&pod);
        found
            .iter()
            .map(|rs| rs.key.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(lookup(Labels::default()), [""; 0]);
    assert_eq!(lookup(labels("one")), [""; 0]);
    fixture.cache_silently(Some(selecting("one")), []);
    assert_eq!(lookup(labels("one")), ["default/one"]);
    assert_eq!(lookup(labels("two")), [""; 0]);
}

#[test]
fn c_29_only_the_controller_of_nine_alike_is_queued() {
    let fixture = Fixture::new();
    let all: Vec<ReplicaSet> = (1..=9)
        .map(|i| replica_set(&format!("rs-{i}"), 1))
        .collect();
    for rs in &all {
        fixture.cache_silently(Some(rs.clone()), []);
    }
    fixture.deliver_pod(owned_pod("a", &all[3]));
    assert_eq!(fixture.queued(), ["default/rs-4"]);
}

#[test]
fn c_30_an_unusable_selector_matches_no_pod() {
    for selector in [
        serde_json::json!(null),
        serde_json::json!({}),
        serde_json::json!({"matchExpressions": [{"key": "type", "operator": "Invalid"}]}),
    ] {
        let fixture = Fixture::new();
        let mut object = replica_set_json("web", 1);
        object["spec"]["selector"] = selector;
        fixture.cache_silently(Some(read_replica_set(&object)), []);
        assert!(
            fixture
                .controller
                .replica_sets_matching(&pod("a"))
                .is_empty()
        );
    }
}

#[test]
fn b_12_a_replica_set_recreated_unseen_starts_from_nothing() {
    let (fixture, old) = (Fixture::new(), replica_set("web", 1));
    fixture.cache_silently(Some(old.clone()), []);
    fixture.sync_ok("web");
    let mut new = replica_set("web", 1);
    new.uid = "uid-new".into();
    new.resource_version = "2".into();
    fixture.deliver_replica_set(new.clone());
    assert_eq!((fixture.open(&old), fixture.open(&new)), (None, None));
    assert_eq!(fixture.queued(), ["default/web"]);
    fixture.writes.take();
    fixture.sync_ok("web");
    fixture.assert_counts(1, 0, 0);
}

/// The store reports one update if a pod was deleted and recreated between two events.
#[test]
fn a_pod_recreated_unseen_is_a_deletion_and_a_creation() {
    let (fixture, rs) = (Fixture::new(), replica_set("web", 1));
    let old = owned_pod("a", &rs);
    fixture.cache_silently(Some(rs.clone()), [old.clone()]);
    fixture.expect(&rs, ["a".into()], [old.uid.clone()]);
    let new = Pod {
        uid: "uid-again".into(),
        ..at("2", old)
    };
    fixture.deliver_pod(new);
    assert_eq!(
        (fixture.queued(), fixture.open(&rs)),
        (vec!["default/web".into()], Some((0, 0)))
    );
}

#[test]
fn a_terminating_pod_recreated_unseen_is_two_deletions() {
    let (fixture, rs) = (Fixture::new(), replica_set("web", 1));
    let old = owned_pod("a", &rs);
    fixture.cache_silently(Some(rs.clone()), [old.clone()]);
    fixture.expect(&rs, [], [old.uid.clone(), "uid-again".into()]);
    fixture.deliver_pod(Pod {
        uid: "uid-again".into(),
        ..at("2", terminating(old))
    });
    assert_eq!(fixture.open(&rs), Some((0, 0)));
}

/// A settled creation must not keep its owner among the keys that can wait.
#[test]
fn a_pod_first_seen_terminating_queues_its_owner_first() {
    for is_made_anew in [false, true] {
        let (fixture, rs) = (Fixture::new(), replica_set("web", 1));
        let pod = owned_pod("a", &rs);
        fixture.cache_silently(Some(rs.clone()), is_made_anew.then(|| pod.clone()));
        fixture.expect(&rs, ["a".into()], []);
        fixture
            .queue
            .add_with(key("other"), Priority::Low, Duration::ZERO);
        fixture.deliver_pod(Pod {
            uid: "uid-again".into(),
            ..at("2", terminating(pod))
        });
        assert_eq!(fixture.open(&rs), Some((0, 0)));
        assert_eq!(fixture.queued(), ["default/web", "default/other"]);
    }
}

/// The event of its final deletion does not name the owner that waits for it.
#[test]
fn a_pod_taken_by_another_owner_is_not_expected() {
    let (fixture, one, two) = two();
    for controller in [None, owned_pod("a", &two).controller] {
        let old = owned_pod("a", &one);
        fixture.cache_silently(None, [at("1", old.clone())]);
        fixture.expect(&one, [], [old.uid.clone()]);
        fixture.deliver_pod(at("2", Pod { controller, ..old }));
        assert_eq!(fixture.open(&one), Some((0, 0)));
    }
}

/// A relist merges several updates into one.
#[test]
fn a_pod_lost_and_deleted_unseen_wakes_its_old_owner() {
    let (fixture, rs) = (Fixture::new(), replica_set("web", 1));
    fixture.cache_silently(Some(rs.clone()), []);
    let new = terminating(pod("a"));
    check_update(&fixture, owned_pod("a", &rs), new, &["default/web"]);
}

#[test]
fn an_orphan_recreated_unseen_wakes_its_adopter() {
    let fixture = Fixture::new();
    fixture.cache_silently(Some(replica_set("web", 1)), []);
    let new = Pod {
        uid: "uid-again".into(),
        ..pod("a")
    };
    check_update(&fixture, pod("a"), new, &["default/web"]);
}

/// Karpenter's burst: a new cost for every pod of a large ReplicaSet, within a minute.
#[test]
fn a_deletion_cost_takes_no_longer_in_a_large_replica_set() {
    let of_burst = |n_pods: usize| {
        let rs = replica_set("web", n_pods.try_into().expect("a few"));
        let pods: Vec<Pod> = (0..n_pods)
            .map(|n| ready_pod(&format!("web-{n}"), &rs))
            .collect();
        let fixture = Fixture::new();
        fixture.cache_silently(Some(rs), pods.iter().cloned());
        let burst = |cost: i32| {
            let with_cost = |pod: &Pod| Pod {
                deletion_cost: cost,
                resource_version: format!("{}", 100 + cost).as_str().into(),
                ..pod.clone()
            };
            let changed: Vec<Pod> = pods.iter().map(with_cost).collect();
            let began = thread_time();
            for pod in changed {
                fixture.deliver_pod(pod);
            }
            thread_time().saturating_sub(began)
        };
        // The quickest of some, since other programs take the caches of the processor.
        let quickest = (1..=5).map(burst).min().unwrap_or_default();
        assert_eq!(fixture.queued(), ["default/web"]);
        fixture.sync_ok("web");
        fixture.assert_counts(0, 0, 0);
        quickest
    };
    let (few, many) = (of_burst(200), of_burst(10_000));
    assert!(
        many < few * 50 * 10,
        "{few:?}, fifty times as many {many:?}"
    );
}
