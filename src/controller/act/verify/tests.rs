//! Expectations that the watch did not fulfil in time.

mod failover;
mod unknown;

use std::sync::Arc;
use std::time::Duration;

use crate::api::workload_kind::{REPLICA_SET, REPLICATION_CONTROLLER};
use crate::api::{Pod, PodPhase, ReplicaSet, ResourceVersion, WorkloadKind};
use crate::controller::FeatureGates;
use crate::controller::memory::history::SyncEnd;
use crate::controller::memory::positions::Resource;
use crate::controller::testing::{
    Fixture, HookedClock, Write, controller_ref, creates, fixture, lost, owned_pod, ready_pod,
    rejected, replica_set,
};
use crate::stdx::clock::Clock;
use crate::writes::{WriteError, WrittenPod};

/// A ReplicaSet with two replicas and the pod `a`, whose expectation of `b` has expired.
fn expired() -> (Fixture, ReplicaSet) {
    let rs = replica_set("web", 2);
    let fixture = fixture(&rs, [ready_pod("a", &rs)]);
    fixture.expect(&rs, ["b".into()], []);
    fixture.clock.advance(Duration::from_secs(301));
    (fixture, rs)
}

/// A pod appears while an expired expectation queries the API server.
#[test]
fn b_09_a_pod_shown_during_the_check_is_counted() {
    let (fixture, rs) = expired();
    let (cache, second) = (fixture.cache.clone(), ready_pod("b", &rs));
    fixture
        .writes
        .set_live_pods(vec![ready_pod("a", &rs), second.clone()]);
    fixture.writes.on_list_pods(move |_, _| {
        cache.pods.apply(second.clone());
        None
    });
    fixture.sync_verified("web");
    fixture.assert_counts(0, 0, 0);
    assert_eq!(fixture.writes.status_updates()[0].replicas, 2);
}

/// The watch may never show it, or shows it as the pod of another.
#[test]
fn a_pod_that_does_not_count_is_not_waited_for() {
    let rs = replica_set("web", 2);
    let failed = Pod {
        phase: PodPhase::Failed,
        ..owned_pod("b", &rs)
    };
    for other in [failed, owned_pod("c", &replica_set("other", 1))] {
        let (fixture, rs) = expired();
        let live = vec![ready_pod("a", &rs), other];
        fixture.writes.set_live_pods(live);
        fixture.sync_verified("web");
        fixture.assert_counts(1, 0, 0);
    }
}

#[test]
fn a_spec_shown_during_the_check_is_left_to_the_next_sync() {
    let (fixture, rs) = expired();
    fixture.writes.set_live_pods(vec![ready_pod("a", &rs)]);
    let (cache, changed) = (fixture.cache.clone(), {
        let mut rs = replica_set("web", 1);
        rs.resource_version = "2".into();
        rs
    });
    fixture.writes.on_list_pods(move |_, _| {
        cache.replica_sets.apply(changed.clone());
        None
    });
    assert_eq!(fixture.sync("web").expect("a sync"), SyncEnd::TooEarly);
    fixture.assert_counts(0, 0, 0);
    fixture.sync_verified("web");
    fixture.assert_counts(0, 0, 0);
}

#[test]
fn an_unmet_expectation_leads_to_a_list() {
    let rs = replica_set("web", 2);
    let fixture = fixture(&rs, []);
    fixture.sync_verified("web");
    let created = fixture.writes.created();
    fixture.clock.advance(Duration::from_mins(5));
    fixture.sync_verified("web");
    assert!(!fixture.writes.take().contains(&Write::ListPods), "not yet");

    // The cache lags: the sync creates nothing, but expects the pods again.
    fixture.clock.advance(Duration::from_millis(1));
    let live: Vec<Pod> = created.iter().map(|name| owned_pod(name, &rs)).collect();
    fixture.writes.set_live_pods(live.clone());
    fixture.sync_verified("web");
    assert!(fixture.writes.take().contains(&Write::ListPods));
    assert_eq!(fixture.open(&rs), Some((2, 0)));

    // Once the cache has caught up, the sync proceeds as usual.
    for pod in live {
        fixture.deliver_pod(pod);
    }
    fixture.sync_verified("web");
    assert_eq!(fixture.writes.take().len(), 1, "only status");
}

#[test]
fn an_expired_expectation_of_pods_that_never_were_is_dropped() {
    let rs = replica_set("web", 2);
    let fixture = fixture(&rs, []);
    fixture.sync_verified("web");
    fixture.writes.take();
    fixture.clock.advance(Duration::from_secs(301));
    fixture.sync_verified("web");
    fixture.assert_counts(2, 0, 0);
}

#[test]
fn an_expired_expectation_waits_for_deletions_to_show() {
    let rs = replica_set("web", 1);
    let pods = ["a", "b", "c"].map(|name| owned_pod(name, &rs));
    let fixture = fixture(&rs, pods.clone());
    fixture.sync_verified("web");
    assert_eq!(fixture.writes.deleted().len(), 2);
    fixture.writes.take();
    fixture.clock.advance(Duration::from_secs(301));
    let finished = Pod {
        phase: PodPhase::Failed,
        ..pods[1].clone()
    };
    fixture
        .writes
        .set_live_pods(vec![pods[2].clone(), finished.clone()]);
    fixture.sync_verified("web");
    fixture.assert_counts(0, 0, 0);
    assert_eq!(fixture.open(&rs), Some((0, 2)));
    fixture.deliver_pod_deleted(pods[0].clone());
    assert_eq!(fixture.open(&rs), Some((0, 1)));
    fixture.deliver_pod(Pod {
        resource_version: "9".into(),
        ..finished
    });
    assert_eq!(fixture.open(&rs), Some((0, 0)));
}

#[test]
fn an_expired_expectation_acts_at_once_if_the_cache_is_current() {
    let rs = replica_set("web", 1);
    let pods = ["a", "b"].map(|name| owned_pod(name, &rs));
    let fixture = fixture(&rs, pods.clone());
    fixture.sync_verified("web");
    fixture.writes.take();
    fixture.clock.advance(Duration::from_secs(301));
    fixture.writes.set_live_pods(pods.to_vec());
    fixture.sync_verified("web");
    fixture.assert_counts(0, 1, 0);
}

#[test]
fn a_pod_deleted_during_the_list_is_not_waited_for() {
    let rs = replica_set("web", 1);
    let pods = ["a", "b"].map(|name| owned_pod(name, &rs));
    let fixture = fixture(&rs, pods.clone());
    fixture.expect(&rs, [], ["uid-a".into()]);
    fixture.clock.advance(Duration::from_secs(301));
    fixture.writes.set_live_pods(pods.to_vec());
    let (cache, gone) = (fixture.cache.clone(), pods[0].clone());
    fixture.writes.on_list_pods(move |_, _| {
        cache.pods.apply_deleted(gone.clone());
        None
    });
    fixture.sync_verified("web");
    fixture.assert_counts(0, 0, 0);
    assert_eq!(fixture.open(&rs), Some((0, 0)));
}

#[test]
fn an_expectation_wakes_its_key_when_it_expires() {
    let rs = replica_set("web", 2);
    let fixture = fixture(&rs, []);
    fixture.sync_verified("web");
    assert_eq!(fixture.queued_after(Duration::from_mins(5)), [""; 0]);
    assert_eq!(
        fixture.queued_after(Duration::from_millis(1)),
        ["default/web"]
    );
}

#[test]
fn a_pod_created_and_deleted_unseen_blocks_no_sync() {
    check_came_and_went_unseen(true, SyncEnd::TooEarly);
}

/// Without the gate no sync waits for own writes, but an owner with an open expectation wakes all
/// the same.
#[test]
fn without_the_gate_a_vanished_pod_blocks_no_sync() {
    check_came_and_went_unseen(false, SyncEnd::Synced);
}

/// The watch broke, and meanwhile the created pod was stored and deleted.
#[track_caller]
fn check_came_and_went_unseen(stale_controller_consistency: bool, early: SyncEnd) {
    let fixture = Fixture::with_gates(FeatureGates {
        stale_controller_consistency,
        ..FeatureGates::default()
    });
    let rs = replica_set("web", 1);
    fixture.cache_silently(Some(rs.clone()), []);
    fixture.deliver_bookmarks("9", "9");
    fixture.writes.on_create(|call, _| {
        Some(Ok(WrittenPod {
            resource_version: ResourceVersion::new(&(20 + call).to_string()),
            ..WrittenPod::default()
        }))
    });
    fixture.sync_verified("web");
    let first = creates(&fixture);
    assert_eq!(fixture.open(&rs), Some((1, 0)));
    let relist = |version: &str| {
        let events = fixture.cache.pods.replace(vec![], &[], &version.into());
        assert!(events.is_empty());
        fixture.controller.handle_cache_advanced();
    };
    relist("19");
    assert_eq!(fixture.queued(), [""; 0], "it may be still to come");
    assert_eq!(fixture.sync("web").expect("no error"), early);
    assert_eq!(creates(&fixture), [""; 0]);
    relist("20");
    assert_eq!(fixture.queued(), ["default/web"]);
    fixture.sync_verified("web");
    let second = creates(&fixture);
    assert_eq!(second.len(), 1);
    assert_ne!(first, second);
}

/// etcd is back at an older version unnoticed by the pod watch: created pods have versions that the
/// cache has passed.
#[test]
fn a_version_of_another_history_creates_no_more_pods() {
    let rs = replica_set("web", 2);
    let fixture = fixture(&rs, []);
    fixture.deliver_bookmarks("2000", "2000");
    fixture.writes.on_create(|call, _| {
        Some(Ok(WrittenPod {
            resource_version: ResourceVersion::new(&(1600 + call).to_string()),
            ..WrittenPod::default()
        }))
    });
    fixture.sync_verified("web");
    let names = creates(&fixture);
    assert_eq!(names.len(), 2);
    let stored = names.iter().map(|name| owned_pod(name, &rs));
    fixture.writes.set_live_pods(stored.collect());
    for _ in 0..5 {
        for key in fixture.queued() {
            assert_eq!(key, "default/web");
            fixture.sync("web").expect("no error");
        }
    }
    let sent = fixture.writes.take();
    let is_list = |write: &&Write| matches!(write, Write::ListPods);
    assert_eq!(sent.iter().filter(is_list).count(), 1);
    assert_eq!(fixture.writes.created(), [""; 0]);
    assert_eq!(fixture.open(&rs), Some((2, 0)), "until they are seen");
}

/// A webhook strips owner and labels of each new pod: at most one batch in five minutes.
#[test]
fn a_created_pod_without_an_owner_is_not_recreated() {
    let rs = replica_set("web", 1);
    let fixture = fixture(&rs, []);
    fixture.writes.on_create(|_, _| {
        Some(Ok(WrittenPod {
            resource_version: "20".into(),
            ..WrittenPod::default()
        }))
    });
    fixture.sync_verified("web");
    let name = creates(&fixture).remove(0);
    let mut stripped = crate::controller::testing::pod(&name);
    stripped.labels = crate::api::Labels::default();
    stripped.resource_version = "20".into();
    fixture.deliver_pod(stripped);
    fixture.controller.handle_cache_advanced();
    for _ in fixture.queued() {
        fixture.sync("web").expect("no error");
    }
    assert_eq!(creates(&fixture), [""; 0]);
    assert_eq!(fixture.open(&rs), Some((1, 0)));
}

/// Whatever comes after the record was captured makes the ReplicaSet newer than the record.
#[test]
fn a_change_after_the_record_was_captured_is_acted_on() {
    let rs = replica_set("web", 1);
    let [mut scaled, mut recreated] = [rs.clone(), rs.clone()];
    (scaled.replicas, scaled.generation) = (2, 2);
    recreated.uid = "uid-of-another".into();
    for (mut changed, n_creates) in [(scaled, 2), (recreated, 1)] {
        let clock = Arc::new(HookedClock::default());
        let mut fixture = fixture(&rs, []);
        fixture.controller = fixture.controller_with(Arc::clone(&clock) as Arc<dyn Clock>);
        let cache = fixture.cache.clone();
        changed.resource_version = "2".into();
        clock.set(0, move || drop(cache.replica_sets.apply(changed)));
        fixture.sync_ok("web");
        fixture.assert_counts(n_creates, 0, 0);
    }
}

/// The new expectation takes its time after the cache read and before it is set.
#[test]
fn a_pod_deleted_while_being_expected_is_settled() {
    let clock = Arc::new(HookedClock::default());
    let mut fixture = Fixture::new();
    fixture.controller = fixture.controller_with(Arc::clone(&clock) as Arc<dyn Clock>);
    let (rs, pod) = (
        replica_set("web", 0),
        owned_pod("a", &replica_set("web", 0)),
    );
    fixture.cache_silently(Some(rs.clone()), [pod.clone()]);
    let selector = rs.selector.as_ref().expect("a valid selector");
    let cache = fixture.cache.clone();
    clock.set(0, move || drop(cache.pods.apply_deleted(pod)));
    let live = fixture.writer().compare_with_live(&rs, selector);
    live.expect("a response");
    assert_eq!(fixture.open(&rs), Some((0, 0)));
}

/// As after a restore of the API server's store from a backup: versions restart below the cache's.
#[test]
fn a_version_that_never_arrives_leads_to_a_list() {
    let rs = replica_set("web", 1);
    let fixture = fixture(&rs, []);
    fixture.deliver_bookmarks("1000", "1000");
    fixture.writes.on_create(|call, _| {
        Some(Ok(WrittenPod {
            resource_version: ResourceVersion::new(&(1001 + call).to_string()),
            ..WrittenPod::default()
        }))
    });
    fixture.sync_verified("web");
    let pod = owned_pod(&fixture.writes.created()[0], &rs);
    for event in fixture
        .cache
        .pods
        .replace(vec![pod.clone().into()], &[], &"500".into())
    {
        fixture.controller.handle_pod_event(&event);
    }
    fixture.deliver_pod_deleted(Pod {
        resource_version: "501".into(),
        ..pod
    });
    assert_eq!(fixture.queued(), ["default/web"]);
    fixture.writes.take();
    assert_eq!(fixture.sync("web").expect("no error"), SyncEnd::TooEarly);
    assert_eq!(
        fixture.queued_after(Duration::from_mins(5)),
        ["default/web"]
    );
    fixture.writes.set_live_replica_set(Ok(rs));
    fixture.sync_verified("web");
    let writes = fixture.writes.take();
    assert!(writes.contains(&Write::ListPods));
    assert!(writes.iter().any(|write| matches!(write, Write::Create(_))));
}

/// The ReplicaSet watch has shown nothing for five minutes, despite a write.
#[track_caller]
fn check_waits_for(kind: &'static WorkloadKind, live: Result<ReplicaSet, WriteError>) {
    let (fixture, rs) = (Fixture::of(kind), replica_set("web", 2));
    fixture.deliver_replica_set(rs.clone());
    fixture.deliver_bookmarks("10", "10");
    fixture.wrote_at(&rs, Resource::ReplicaSets, "11");
    assert_eq!(fixture.sync("web").expect("no error"), SyncEnd::TooEarly);
    fixture.clock.advance(Duration::from_mins(5));
    fixture.queued_after(Duration::ZERO);
    fixture.writes.set_live_replica_set(live);
    for _ in 0..2 {
        assert_eq!(fixture.sync("web").expect("no error"), SyncEnd::TooEarly);
        assert_eq!(
            fixture.writes.take(),
            [Write::GetReplicaSet("default/web".to_owned())]
        );
        assert_eq!(
            fixture.queued_after(Duration::from_secs(1)),
            ["default/web"]
        );
    }
    fixture.deliver_bookmarks("", "12");
    assert_eq!(
        fixture.queued(),
        ["default/web"],
        "the watch has come so far"
    );
    fixture.sync_verified("web");
    fixture.assert_counts(2, 0, 0);
}

#[test]
fn an_overdue_outdated_spec_is_not_acted_on() {
    for kind in [&REPLICA_SET, &REPLICATION_CONTROLLER] {
        let mut scaled = replica_set("web", 0);
        scaled.generation = 2;
        check_waits_for(kind, Ok(scaled));
        let mut recreated = replica_set("web", 2);
        recreated.uid = "uid-again".into();
        check_waits_for(kind, Ok(recreated));
        check_waits_for(kind, Err(rejected(404, "NotFound", "not found")));
    }
}

#[test]
fn a_failed_check_of_an_overdue_spec_is_retried() {
    let rs = replica_set("web", 2);
    let fixture = fixture(&rs, []);
    fixture.deliver_bookmarks("10", "10");
    fixture.wrote_at(&rs, Resource::ReplicaSets, "11");
    fixture.clock.advance(Duration::from_mins(5));
    fixture.writes.set_live_replica_set(Err(lost()));
    fixture.sync("web").expect_err("the GET fails");
    fixture.assert_counts(0, 0, 0);
    fixture.writes.set_live_replica_set(Ok(rs));
    fixture.sync_verified("web");
    fixture.assert_counts(2, 0, 0);
}

/// The cached pod was deleted and recreated under its name; the watch has shown neither.
#[test]
fn a_recreated_pod_is_expected_despite_its_cached_name() {
    let rs = replica_set("web", 1);
    let old = owned_pod("a", &rs);
    let fixture = fixture(&rs, [old.clone()]);
    fixture.expect(&rs, ["a".into()], []);
    fixture.clock.advance(Duration::from_secs(301));
    let new = Pod {
        uid: "uid-again".into(),
        resource_version: "3".into(),
        ..old.clone()
    };
    fixture.writes.set_live_pods(vec![new.clone()]);
    fixture.sync_verified("web");
    assert_eq!(fixture.open(&rs), Some((1, 1)));
    fixture.deliver_pod_deleted(old);
    assert_eq!(fixture.open(&rs), Some((1, 0)));
    fixture.deliver_pod(new);
    assert_eq!(fixture.open(&rs), Some((0, 0)));
    fixture.assert_counts(0, 0, 0);
}

/// An owner reference with this ReplicaSet's UID under another name: the pod is in the cache, but
/// under no owner with a cached name.
#[test]
fn an_own_pod_under_a_foreign_name_blocks_no_sync() {
    let rs = replica_set("web", 1);
    let astray = Pod {
        controller: Some(controller_ref("ReplicaSet", "other", "uid-web")),
        ..owned_pod("a", &rs)
    };
    let fixture = fixture(&rs, [astray.clone()]);
    fixture.expect(&rs, ["b".into()], []);
    fixture.clock.advance(Duration::from_secs(301));
    fixture.writes.set_live_pods(vec![astray]);
    fixture.sync_verified("web");
    fixture.assert_counts(1, 0, 0);
}
