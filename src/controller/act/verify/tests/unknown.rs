//! Writes with an unknown outcome, and how the next syncs handle them.

use std::time::Duration;

use crate::api::{Pod, PodPhase, ReplicaSet, Status, Uid};
use crate::controller::memory::own_writes::OwnWrites;
use crate::controller::testing::{
    Fixture, Write, creates, deletes, fixture, lost, not_allowed, owned_pod, pod, rejected,
    replica_set, seconds_ago,
};
use crate::stdx::clock::Clock;
use crate::telemetry::metrics::controller::WriteOutcome;
use crate::writes::WriteError;

fn already_exists() -> WriteError {
    rejected(409, "AlreadyExists", "pods \"x\" already exists")
}

#[test]
fn a_create_of_unknown_outcome_is_retried_under_its_name() {
    let rs = replica_set("web", 3);
    let fixture = fixture(&rs, []);
    fixture
        .writes
        .on_create(|call, _| (call == 1).then(|| Err(lost())));
    fixture.sync("web").expect_err("one response was lost");
    let first = creates(&fixture);
    assert_eq!(first.len(), 3);
    for name in [&first[0], &first[2]] {
        fixture.deliver_pod(owned_pod(name, &rs));
    }
    fixture.sync_verified("web");
    assert_eq!(creates(&fixture), [first[1].clone()]);
}

#[test]
fn a_create_that_was_stored_after_all_counts_as_done() {
    let rs = replica_set("web", 2);
    let fixture = fixture(&rs, []);
    fixture.deliver_bookmarks("9", "9");
    fixture.writes.on_create(|_, _| Some(Err(lost())));
    fixture.sync("web").expect_err("the response was lost");
    let name = creates(&fixture).remove(0);

    let stored = Pod {
        resource_version: "11".into(),
        ..owned_pod(&name, &rs)
    };
    fixture.writes.set_live_pods(vec![stored.clone()]);
    fixture
        .writes
        .on_create(|call, _| (call == 0).then(|| Err(already_exists())));
    fixture.sync_verified("web");
    let created = fixture.writes.created();
    assert_eq!((created.len(), &created[0]), (2, &name));
    assert!(fixture.writes.take().contains(&Write::FindPod(name)));
    assert_eq!(fixture.metrics.pods_created.get(WriteOutcome::NotNeeded), 1);
    assert_eq!(fixture.open(&rs), Some((2, 0)));
    let written = fixture.written(&rs);
    assert_eq!(written.expect("a record").pods, "11".into());
    fixture.deliver_pod(stored);
    assert_eq!(fixture.open(&rs), Some((1, 0)));
}

#[test]
fn a_create_that_was_stored_and_seen_meanwhile_is_not_expected() {
    let rs = replica_set("web", 1);
    let fixture = fixture(&rs, []);
    let cache = fixture.cache.clone();
    let (seen, writes) = (rs.clone(), std::sync::Arc::downgrade(&fixture.writes));
    fixture.writes.on_create(move |_, name| {
        let pod = owned_pod(name, &seen);
        cache.pods.apply(pod.clone());
        writes
            .upgrade()
            .expect("the fixture lives")
            .set_live_pods(vec![pod]);
        Some(Err(already_exists()))
    });
    fixture.sync_verified("web");
    fixture.assert_counts(1, 0, 0);
    assert_eq!(fixture.open(&rs), Some((0, 0)));
}

#[test]
fn a_taken_name_is_retried_if_its_pod_is_unreadable() {
    // The second case: the lease expires in between.
    for error in [not_allowed(), WriteError::Stopped] {
        let mut rs = replica_set("web", 1);
        let fixture = fixture(&rs, []);
        fixture
            .writes
            .on_create(|call, _| (call == 0).then(|| Err(already_exists())));
        fixture
            .writes
            .on_find_pod(move |_, _| Some(Err(error.clone())));
        fixture.sync("web").expect_err("the read fails");
        let first = creates(&fixture);
        // Another version chooses other names, unless one of them may have created a pod.
        rs.generation = 2;
        rs.resource_version = "2".into();
        fixture.deliver_replica_set(rs);
        fixture.sync_verified("web");
        assert_eq!(creates(&fixture), first);
    }
}

#[test]
fn a_name_taken_by_a_foreign_pod_is_replaced() {
    let rs = replica_set("web", 1);
    let going = |name: &str| Pod {
        deletion: Some(seconds_ago(0)),
        ..owned_pod(name, &rs)
    };
    let strange = |name: &str| owned_pod(name, &replica_set("other", 1));
    for taken in [&going as &dyn Fn(&str) -> Pod, &strange, &|name: &str| {
        pod(name)
    }] {
        let fixture = fixture(&rs, []);
        fixture
            .writes
            .on_create(|call, _| (call == 0).then(|| Err(already_exists())));
        // A second record chooses the same names in the same order, so it predicts the taken name.
        let twin = Fixture::new();
        twin.cache_silently(Some(rs.clone()), []);
        twin.sync_ok("web");
        let name = creates(&twin).remove(0);
        fixture.writes.set_live_pods(vec![taken(&name)]);
        fixture.sync_verified("web");
        let created = creates(&fixture);
        assert_eq!((created.len(), &created[0]), (2, &name));
        assert_ne!(created[1], name);
        assert_eq!(fixture.open(&rs), Some((1, 0)));
        fixture.deliver_pod(owned_pod(&created[1], &rs));
        assert_eq!(fixture.open(&rs), Some((0, 0)));
    }
}

#[test]
fn after_eight_taken_names_the_create_fails() {
    let rs = replica_set("web", 1);
    let fixture = fixture(&rs, []);
    fixture.writes.on_create(|_, _| Some(Err(already_exists())));
    fixture.sync("web").expect_err("every name is taken");
    let mut created = creates(&fixture);
    assert_eq!(created.len(), 8);
    created.sort();
    created.dedup();
    assert_eq!(created.len(), 8, "all different");
    assert_eq!(fixture.open(&rs), Some((0, 0)));
}

#[test]
fn a_name_stays_first_until_its_outcome_is_known() {
    let rs = replica_set("web", 3);
    let fixture = fixture(&rs, []);
    fixture.writes.on_create(|_, _| Some(Err(lost())));
    fixture.sync("web").expect_err("the response was lost");
    let name = creates(&fixture).remove(0);
    // A failure of the second request proves nothing about the first.
    fixture.writes.on_create(|_, _| Some(Err(not_allowed())));
    fixture.sync("web").expect_err("rejected");
    assert_eq!(creates(&fixture), std::slice::from_ref(&name));
    // Nor does a failed read of the pod with that name.
    fixture.writes.on_create(|_, _| Some(Err(already_exists())));
    fixture.writes.on_find_pod(|_, _| Some(Err(not_allowed())));
    fixture.sync("web").expect_err("the read is rejected");
    assert_eq!(creates(&fixture), std::slice::from_ref(&name));
    fixture.writes.on_find_pod(|_, _| None);
    fixture.writes.on_create(|_, _| None);
    fixture.sync_verified("web");
    let created = creates(&fixture);
    assert_eq!((created.len(), &created[0]), (3, &name));
}

#[test]
fn names_skipped_by_slow_start_stay_first() {
    let rs = replica_set("web", 7);
    let fixture = fixture(&rs, []);
    fixture
        .writes
        .on_create(|call, _| (call >= 1).then(|| Err(lost())));
    fixture.sync("web").expect_err("two answers were lost");
    let created = creates(&fixture);
    let mut unknown = created[1..].to_vec();
    unknown.sort();
    fixture.deliver_pod(owned_pod(&created[0], &rs));
    fixture.writes.on_create(|_, _| Some(Err(not_allowed())));
    fixture.sync("web").expect_err("rejected");
    assert_eq!(creates(&fixture), unknown[..1]);
    fixture.writes.on_create(|_, _| None);
    fixture.sync_verified("web");
    assert_eq!(creates(&fixture)[..2], unknown);
}

#[test]
fn a_name_in_the_cache_is_not_retried() {
    let rs = replica_set("web", 2);
    let fixture = fixture(&rs, []);
    fixture.writes.on_create(|_, _| Some(Err(lost())));
    fixture.sync("web").expect_err("the response was lost");
    let name = creates(&fixture).remove(0);
    fixture.deliver_pod(owned_pod(&name, &rs));
    fixture.writes.on_create(|_, _| None);
    fixture.sync_verified("web");
    let created = creates(&fixture);
    assert_eq!(created.len(), 1);
    assert_ne!(created[0], name);
}

/// The store shows a pod before the handler observes its creation.
#[test]
fn a_create_that_the_cache_shows_is_not_unknown_any_more() {
    let rs = replica_set("web", 1);
    let fixture = fixture(&rs, []);
    fixture.writes.on_create(|_, _| Some(Err(lost())));
    fixture.sync("web").expect_err("the response was lost");
    let name = creates(&fixture).remove(0);
    let is_unknown = || {
        let writer = fixture.writer();
        writer.own_writes(&rs, |writes| {
            writes.unknown_creations().iter().any(|it| **it == *name)
        })
    };
    assert!(is_unknown());
    fixture.cache_silently(
        None,
        [Pod {
            phase: PodPhase::Failed,
            ..owned_pod(&name, &rs)
        }],
    );
    fixture.writes.on_create(|_, _| None);
    fixture.sync_verified("web");
    assert_ne!(creates(&fixture), std::slice::from_ref(&name));
    assert!(!is_unknown());
}

#[test]
fn fewer_wanted_pods_keep_the_other_unknown_names_for_later() {
    let mut rs = replica_set("web", 3);
    let fixture = fixture(&rs, []);
    fixture
        .writes
        .on_create(|call, _| (call >= 1).then(|| Err(lost())));
    fixture.sync("web").expect_err("two answers were lost");
    let created = creates(&fixture);
    let mut unknown = created[1..].to_vec();
    unknown.sort();
    fixture.deliver_pod(owned_pod(&created[0], &rs));
    let live = vec![owned_pod(&created[0], &rs)];
    fixture.writes.set_live_pods(live);
    rs.replicas = 2;
    rs.resource_version = "2".into();
    fixture.deliver_replica_set(rs.clone());
    fixture.writes.on_create(|_, _| None);
    fixture.sync_verified("web");
    assert_eq!(creates(&fixture), unknown[..1]);
    fixture.deliver_pod(owned_pod(&unknown[0], &rs));
    rs.replicas = 3;
    rs.resource_version = "3".into();
    fixture.deliver_replica_set(rs);
    fixture.sync_verified("web");
    assert_eq!(creates(&fixture), unknown[1..]);
}

/// The outcome is unknown despite this response.
fn unknown_despite(code: u16, reason: &str) -> WriteError {
    let status = Status::new(code, reason, "etcdserver: request timed out");
    WriteError::Unknown {
        message: status.to_string(),
        status: Some(status),
    }
}

/// A create that had no response may still arrive; with the other one it would be one too many. A
/// time-out is the response of a server that has given up waiting for the one that creates.
#[test]
fn a_create_without_a_response_is_retried_before_answered_ones() {
    let time_out = unknown_despite(504, "Timeout");
    let cases = [
        (1, lost()),
        (2, lost()),
        (1, time_out.clone()),
        (2, time_out),
    ];
    for (answered, open) in cases {
        let mut rs = replica_set("web", 3);
        let fixture = fixture(&rs, []);
        fixture.writes.on_create(move |call, _| {
            let failed = unknown_despite(500, "InternalError");
            (call >= 1).then(|| {
                Err(if call == answered {
                    failed
                } else {
                    open.clone()
                })
            })
        });
        fixture.sync("web").expect_err("one failed, one was lost");
        let created = creates(&fixture);
        fixture.deliver_pod(owned_pod(&created[0], &rs));
        let live = vec![owned_pod(&created[0], &rs)];
        fixture.writes.set_live_pods(live);
        rs.replicas = 2;
        rs.resource_version = "2".into();
        fixture.deliver_replica_set(rs);
        fixture.writes.on_create(|_, _| None);
        // Creates are backed off after a time-out.
        fixture.clock.advance(Duration::from_mins(2));
        fixture.sync_verified("web");
        assert_eq!(creates(&fixture), [created[3 - answered].clone()]);
    }
}

#[test]
fn a_delete_of_unknown_outcome_is_retried_on_its_pod() {
    let rs = replica_set("web", 1);
    let fixture = fixture(&rs, [owned_pod("a", &rs), owned_pod("b", &rs)]);
    fixture.writes.on_delete(|_, _| Some(Err(lost())));
    fixture.sync("web").expect_err("the response was lost");
    assert_eq!(fixture.open(&rs), Some((0, 0)));
    let name = deletes(&fixture).remove(0);
    // Without the first delete, the sync would choose another pod here.
    let other = if name == "a" { "b" } else { "a" };
    fixture.deliver_pod(Pod {
        resource_version: "2".into(),
        deletion_cost: -1,
        ..owned_pod(other, &rs)
    });
    fixture.writes.on_delete(|_, _| Some(Err(not_allowed())));
    fixture.sync("web").expect_err("rejected");
    assert_eq!(deletes(&fixture), std::slice::from_ref(&name));
    fixture.writes.on_delete(|_, _| None);
    fixture.sync_verified("web");
    assert_eq!(deletes(&fixture), [name]);
    assert_eq!(fixture.open(&rs), Some((0, 1)));
}

/// Deletes of unknown outcome that are remembered.
fn unknown_deletions(fixture: &Fixture, rs: &ReplicaSet) -> (Vec<Uid>, usize) {
    let now = fixture.clock.now();
    let writes = |writes: &mut OwnWrites| writes.unknown_deletions(now);
    fixture.writer().own_writes(rs, writes)
}

/// Otherwise a later scale-down would prefer a pod that a restore from a backup brings back.
#[test]
fn a_delete_that_succeeds_at_last_is_not_unknown_any_more() {
    let rs = replica_set("web", 1);
    let fixture = fixture(&rs, [owned_pod("a", &rs), owned_pod("b", &rs)]);
    fixture.writes.on_delete(|_, _| Some(Err(lost())));
    fixture.sync("web").expect_err("the response was lost");
    let (unknown, n_over) = unknown_deletions(&fixture, &rs);
    assert_eq!((unknown.len(), n_over), (1, 0));
    fixture.writes.on_delete(|_, _| None);
    fixture.sync_verified("web");
    assert_eq!(fixture.open(&rs), Some((0, 1)));
    assert_eq!(unknown_deletions(&fixture, &rs), (Vec::new(), 0));
}

/// As after a list that lacks the pod: the event of its deletion may name another owner.
#[test]
fn a_delete_of_unknown_outcome_is_dropped_with_its_pod() {
    let rs = replica_set("web", 1);
    let pods = ["a", "b", "c"].map(|name| owned_pod(name, &rs));
    let fixture = fixture(&rs, pods);
    fixture.writes.on_delete(|_, _| Some(Err(lost())));
    fixture.sync("web").expect_err("two responses were lost");
    let gone = deletes(&fixture).remove(0);
    fixture.cache.pods.apply_deleted(owned_pod(&gone, &rs));
    fixture.writes.on_delete(|_, _| None);
    fixture.sync_verified("web");
    assert_ne!(deletes(&fixture), [gone]);
    assert_eq!(unknown_deletions(&fixture, &rs), (Vec::new(), 0));
}

/// A fixture of three pods, scaled down to one. The responses to both deletes were lost; returns
/// all pods and the names of those two.
fn two_unknown_deletions() -> (Fixture, ReplicaSet, [Pod; 3], Vec<String>) {
    let rs = replica_set("web", 1);
    let pods = ["a", "b", "c"].map(|name| owned_pod(name, &rs));
    let fixture = fixture(&rs, pods.clone());
    fixture.writes.on_delete(|_, _| Some(Err(lost())));
    fixture.sync("web").expect_err("two answers were lost");
    let unknown = deletes(&fixture);
    (fixture, rs, pods, unknown)
}

#[test]
fn an_unknown_deletion_that_is_not_needed_now_is_remembered() {
    let (fixture, mut rs, pods, mut unknown) = two_unknown_deletions();
    unknown.sort();
    let kept = pods
        .iter()
        .find(|pod| !unknown.iter().any(|name| **name == *pod.key.name));
    fixture.deliver_pod(Pod {
        resource_version: "2".into(),
        deletion_cost: -1,
        ..kept.expect("one of three").clone()
    });
    fixture.writes.on_delete(|_, _| None);
    fixture.writes.set_live_pods(pods.to_vec());
    let mut repeated = Vec::new();
    for (replicas, version) in [(2, "2"), (1, "3")] {
        rs.replicas = replicas;
        rs.resource_version = version.into();
        fixture.deliver_replica_set(rs.clone());
        fixture.deliver_bookmarks(version, "");
        fixture.sync_verified("web");
        let deleted = deletes(&fixture);
        assert_eq!(deleted.len(), 1);
        fixture.deliver_pod_deleted(owned_pod(&deleted[0], &rs));
        repeated.extend(deleted);
    }
    repeated.sort();
    assert_eq!(repeated, unknown);
}

/// The query came when the delete could still take effect. Since then another pod is deleted first.
#[test]
fn a_delete_that_has_become_overdue_is_queried_again() {
    let (fixture, mut rs, pods, unknown) = two_unknown_deletions();
    let is_kept = |pod: &&Pod| !unknown.iter().any(|name| **name == *pod.key.name);
    let kept = pods.iter().find(is_kept).expect("one of three");
    let cheap = Pod {
        resource_version: "2".into(),
        deletion_cost: -1,
        ..kept.clone()
    };
    fixture.deliver_pod(cheap.clone());
    fixture.writes.on_delete(|_, _| None);
    fixture.writes.set_live_pods(pods.to_vec());
    rs.replicas = 2;
    rs.resource_version = "2".into();
    fixture.deliver_replica_set(rs.clone());
    fixture.deliver_bookmarks("2", "");
    fixture.sync_verified("web");
    let gone = deletes(&fixture).remove(0);
    fixture.deliver_pod_deleted(owned_pod(&gone, &rs));
    fixture.clock.advance(Duration::from_hours(3));
    let mut live: Vec<Pod> = pods
        .into_iter()
        .filter(|pod| *pod.key.name != *gone)
        .collect();
    live.retain(|pod| pod.key.name != cheap.key.name);
    live.push(cheap.clone());
    fixture.writes.set_live_pods(live);
    rs.replicas = 1;
    rs.resource_version = "3".into();
    fixture.deliver_replica_set(rs);
    fixture.deliver_bookmarks("3", "");
    fixture.sync_verified("web");
    assert_eq!(deletes(&fixture), [&*cheap.key.name]);
}

/// A fixture of three pods, scaled down to two and back up to three. The response to its only
/// delete was lost; returns the name of that pod. Another pod is deleted first afterwards.
fn unneeded_unknown_deletion() -> (Fixture, ReplicaSet, String) {
    let mut rs = replica_set("web", 2);
    let fixture = fixture(&rs, ["a", "b", "c"].map(|name| owned_pod(name, &rs)));
    fixture.writes.on_delete(|_, _| Some(Err(lost())));
    fixture.sync("web").expect_err("the response was lost");
    let unknown = deletes(&fixture).remove(0);
    fixture.writes.on_delete(|_, _| None);
    rs.replicas = 3;
    rs.resource_version = "2".into();
    fixture.cache_silently(Some(rs.clone()), []);
    fixture.sync_verified("web");
    fixture.assert_counts(0, 0, 0);
    let other = if unknown == "b" { "a" } else { "b" };
    let cheap = Pod {
        resource_version: "2".into(),
        deletion_cost: -1,
        ..owned_pod(other, &rs)
    };
    let pods = ["a", "b", "c"].map(|name| owned_pod(name, &rs));
    fixture.writes.set_live_pods(pods.to_vec());
    rs.replicas = 2;
    rs.resource_version = "3".into();
    fixture.cache_silently(Some(rs.clone()), [cheap]);
    fixture.writes.take();
    (fixture, rs, unknown)
}

#[test]
fn a_deletion_that_cannot_happen_any_more_is_not_preferred() {
    let (fixture, rs, unknown) = unneeded_unknown_deletion();
    fixture.clock.advance(Duration::from_hours(3));
    fixture.sync_verified("web");
    let other = if unknown == "b" { "a" } else { "b" };
    assert_eq!(deletes(&fixture), [other]);
    let remembered = unknown_deletions(&fixture, &rs);
    assert_eq!(remembered, (Vec::new(), 0), "one LIST is enough");
}

#[test]
fn a_deletion_that_may_still_happen_is_preferred() {
    let (fixture, _, unknown) = unneeded_unknown_deletion();
    fixture.clock.advance(Duration::from_mins(5));
    fixture.sync_verified("web");
    assert_eq!(deletes(&fixture), [unknown]);
}

/// The cache may lag by hours, and so show a pod that was deleted long ago.
/// The pod to be adopted makes one too many, and would go first.
#[test]
fn a_delete_that_may_still_happen_precedes_an_adopted_pod() {
    let rs = replica_set("web", 2);
    let fixture = fixture(&rs, ["a", "b", "c"].map(|name| owned_pod(name, &rs)));
    fixture.writes.on_delete(|_, _| Some(Err(lost())));
    fixture.sync("web").expect_err("the response was lost");
    let unknown = deletes(&fixture);
    fixture.writes.on_delete(|_, _| None);
    let other = if unknown == ["a"] { "b" } else { "a" };
    fixture.deliver_pod_deleted(owned_pod(other, &rs));
    fixture.deliver_pod(Pod {
        deletion_cost: -1,
        ..pod("orphan")
    });
    fixture.writes.set_live_replica_set(Ok(rs));
    fixture.sync_verified("web");
    assert_eq!(deletes(&fixture), unknown);
}

#[test]
fn an_old_unseen_deletion_is_expected() {
    let (fixture, rs, unknown) = unneeded_unknown_deletion();
    fixture.clock.advance(Duration::from_hours(3));
    let mut live = ["a", "b", "c"].map(|name| owned_pod(name, &rs)).to_vec();
    live.retain(|pod| *pod.key.name != *unknown);
    fixture.writes.set_live_pods(live);
    fixture
        .writes
        .on_delete(|_, _| Some(Err(rejected(404, "NotFound", "gone"))));
    fixture.sync_verified("web");
    assert_eq!(deletes(&fixture), [""; 0]);
    assert_eq!(fixture.open(&rs), Some((0, 1)));
}

/// One of two lost creates succeeded, and the pod of the other has failed. If only one more pod is
/// needed, it is the one that is there.
#[test]
fn with_too_many_unknown_names_stored_pods_come_first() {
    let mut rs = replica_set("web", 3);
    let fixture = fixture(&rs, []);
    fixture
        .writes
        .on_create(|call, _| (call >= 1).then(|| Err(lost())));
    fixture.sync("web").expect_err("two answers were lost");
    let created = creates(&fixture);
    let last = created[1..].iter().max().expect("two names").clone();
    fixture.deliver_pod(owned_pod(&created[0], &rs));
    rs.replicas = 2;
    rs.resource_version = "2".into();
    fixture.deliver_replica_set(rs.clone());
    let stored = Pod {
        resource_version: "3".into(),
        ..owned_pod(&last, &rs)
    };
    let other = created[1..].iter().min().expect("two names");
    let failed = Pod {
        phase: PodPhase::Failed,
        ..owned_pod(other, &rs)
    };
    fixture
        .writes
        .set_live_pods(vec![owned_pod(&created[0], &rs), failed, stored]);
    fixture.writes.on_create(|_, _| Some(Err(already_exists())));
    fixture.sync_verified("web");
    assert_eq!(creates(&fixture), [""; 0]);
    assert_eq!(fixture.open(&rs), Some((1, 0)));
}

#[test]
fn a_pod_that_arrives_while_names_are_chosen_counts() {
    let mut rs = replica_set("web", 3);
    let fixture = fixture(&rs, []);
    fixture
        .writes
        .on_create(|call, _| (call >= 1).then(|| Err(lost())));
    fixture.sync("web").expect_err("two answers were lost");
    let created = creates(&fixture);
    fixture.deliver_pod(owned_pod(&created[0], &rs));
    rs.replicas = 2;
    rs.resource_version = "2".into();
    fixture.deliver_replica_set(rs.clone());
    let stored = Pod {
        resource_version: "3".into(),
        ..owned_pod(&created[1], &rs)
    };
    let live = vec![owned_pod(&created[0], &rs), stored.clone()];
    fixture.writes.set_live_pods(live);
    let cache = fixture.cache.clone();
    fixture.writes.on_list_pods(move |_, _| {
        cache.pods.apply(stored.clone());
        None
    });
    fixture.sync_verified("web");
    fixture.assert_counts(0, 0, 0);
}

#[test]
fn with_too_many_unknown_deletes_gone_pods_come_first() {
    let (fixture, mut rs, pods, unknown) = two_unknown_deletions();
    let gone = unknown.iter().max().expect("two names").clone();
    rs.replicas = 2;
    rs.resource_version = "2".into();
    fixture.deliver_replica_set(rs.clone());
    fixture.deliver_bookmarks("2", "");
    let live = pods.iter().filter(|pod| *pod.key.name != *gone);
    fixture.writes.set_live_pods(live.cloned().collect());
    fixture
        .writes
        .on_delete(|_, _| Some(Err(rejected(404, "NotFound", "gone"))));
    fixture.sync_verified("web");
    assert_eq!(deletes(&fixture), [""; 0]);
    assert_eq!(fixture.open(&rs), Some((0, 1)));
}

/// A pod that appears after the sync listed the pods is neither created again nor replaced.
#[test]
fn an_unknown_create_that_shows_up_during_the_sync_counts() {
    let rs = replica_set("web", 2);
    let fixture = fixture(&rs, []);
    fixture.writes.on_create(|_, _| Some(Err(lost())));
    fixture.sync("web").expect_err("the response was lost");
    let stored = owned_pod(&creates(&fixture)[0], &rs);
    // The sync lists its pods and releases one, and meanwhile another one arrives.
    let mut leaving = owned_pod("leaving", &rs);
    leaving.labels = [("type", "test")].into_iter().collect();
    fixture.cache_silently(None, [leaving]);
    fixture.writes.set_live_pods(vec![stored.clone()]);
    let (cache, name) = (fixture.cache.clone(), stored.key.name.clone());
    fixture.writes.on_patch(move |_, _| {
        cache.pods.apply(stored.clone());
        None
    });
    let taken = name.clone();
    fixture
        .writes
        .on_create(move |_, name| (*name == *taken).then(|| Err(already_exists())));
    fixture.sync_verified("web");
    let created = creates(&fixture);
    assert_eq!((created.len(), &*created[0]), (2, &*name));
    assert_eq!(fixture.open(&rs), Some((1, 0)), "only the other one is new");
}
