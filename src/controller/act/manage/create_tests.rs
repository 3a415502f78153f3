//! Groups B and G, the part about creates.

use crate::api::{Pod, ReplicaSet};
use crate::controller::memory::Memory;
use crate::controller::memory::history::SyncEnd;
use crate::controller::testing::{
    Write, controller_ref, creates, fixture, key, lost, not_allowed, owned_pod, pod, rejected,
    replica_set,
};
use crate::stdx::clock::Clock;
use crate::writes::WriteError;

/// The names that a daemon chooses for the pods of `rs`; another one chooses the same.
fn names_chosen_for(rs: &ReplicaSet) -> Vec<String> {
    let twin = fixture(rs, []);
    twin.sync_ok("web");
    creates(&twin)
}

#[test]
fn b_14_failed_and_skipped_creates_are_not_expected() {
    let rs = replica_set("web", 10);
    let fixture = fixture(&rs, []);
    fixture
        .writes
        .on_create(|call, _| (call >= 5).then(|| Err(not_allowed())));
    fixture.sync("web").expect_err("some are rejected");
    fixture.assert_counts(7, 0, 0);
    assert_eq!(fixture.open(&rs), Some((5, 0)));
}

/// "Those already observed" of the checklist: the watch shows these pods before the batch's
/// responses.
#[test]
fn b_14_creates_that_came_back_already_are_not_expected() {
    let rs = replica_set("web", 3);
    let fixture = fixture(&rs, []);
    let cache = fixture.cache.clone();
    let seen = rs.clone();
    fixture.writes.on_create(move |_, name| {
        cache.pods.apply(owned_pod(name, &seen));
        None
    });
    fixture.sync_ok("web");
    // Delivered to the cache only. The handlers get the event here, as after a relist.
    let names = creates(&fixture);
    for name in &names[..2] {
        fixture.see_creation(&rs, name);
    }
    assert_eq!(fixture.open(&rs), Some((1, 0)));
}

/// A restarted daemon restarts its name sequence. Otherwise each existing pod would cost a failed
/// create and a read.
#[test]
fn names_of_cached_pods_are_not_chosen() {
    let mut rs = replica_set("web", 5);
    let before = fixture(&rs, []);
    before.sync_ok("web");
    let names = creates(&before);
    rs.replicas = 8;
    let after = fixture(&rs, names.iter().map(|name| owned_pod(name, &rs)));
    after.sync_ok("web");
    let created = after.writes.created();
    assert_eq!(created.len(), 3);
    assert!(created.iter().all(|name| !names.contains(name)));
    assert_eq!(after.writes.take().len(), 3 + 1, "creates and a status");
}

#[test]
fn g_03_g_04_a_rejection_ends_the_creates_after_its_batch() {
    for (wanted, accepted, calls) in [(10, 5, 7), (100, 10, 15), (10, 0, 1), (10, 10, 10)] {
        let rs = replica_set("web", wanted);
        let fixture = fixture(&rs, []);
        fixture
            .writes
            .on_create(move |call, _| (call >= accepted).then(|| Err(not_allowed())));
        assert_eq!(fixture.sync("web").is_ok(), calls == 10);
        fixture.assert_counts(calls, 0, 0);
        assert_eq!(fixture.open(&rs), Some((accepted, 0)));
    }
}

#[test]
fn g_09_a_terminating_namespace_is_no_failure() {
    let rs = replica_set("web", 3);
    let fixture = fixture(&rs, []);
    fixture.writes.on_create(|_, _| {
        let status = crate::api::Status::new(403, "Forbidden", "being terminated");
        let status = status.with_cause("NamespaceTerminating", "being terminated");
        Some(Err(WriteError::Rejected(status)))
    });
    fixture.sync_ok("web");
    fixture.assert_counts(3, 0, 0);
    assert_eq!(fixture.open(&rs), Some((3, 0)));
    assert_eq!(fixture.writes.status_updates()[0].conditions, []);
    fixture.writes.take();
    fixture.sync_ok("web");
    fixture.assert_counts(0, 0, 0);
}

#[test]
fn g_11_a_transient_failure_is_retried() {
    let rs = replica_set("web", 2);
    let fixture = fixture(&rs, []);
    fixture
        .writes
        .on_create(|call, _| (call == 0).then(|| Err(lost())));
    fixture.process(&rs.key);
    fixture.assert_counts(1, 0, 0);
    assert_eq!(
        fixture.queued_after(std::time::Duration::from_millis(5)),
        ["default/web"]
    );
    fixture.process(&rs.key);
    fixture.assert_counts(3, 0, 0);
}

/// Most error messages of the API server contain the name. A new name each time would cause as many
/// events, of which `kubectl describe` shows only ten.
#[test]
fn a_rejected_create_is_retried_under_its_name() {
    let rs = replica_set("web", 3);
    let fixture = fixture(&rs, []);
    fixture.writes.on_create(|_, _| Some(Err(not_allowed())));
    fixture.sync("web").expect_err("rejected");
    let first = creates(&fixture);
    for _ in 0..3 {
        fixture.sync("web").expect_err("rejected again");
        assert_eq!(creates(&fixture), first);
    }
}

/// A daemon that is killed and restarted uses the first names of the sequence, so those must be the
/// creates in progress.
#[test]
fn unsent_names_are_chosen_next() {
    let rs = replica_set("web", 7);
    let first = names_chosen_for(&rs);
    let fixture = fixture(&rs, []);
    fixture
        .writes
        .on_create(|call, _| (call == 0).then(|| Err(not_allowed())));
    fixture.sync("web").expect_err("the first is rejected");
    assert_eq!(creates(&fixture), first[..1]);
    fixture.sync_ok("web");
    assert_eq!(creates(&fixture), first);
}

/// The create of the first name was sent by a daemon that was killed, and the watch shows its pod
/// after the sync of the new daemon has listed the pods.
#[test]
fn a_pod_shown_after_the_plan_takes_up_its_create() {
    let rs = replica_set("web", 3);
    let names = names_chosen_for(&rs);
    let after = fixture(&rs, [pod("orphan")]);
    let shown = owned_pod(&names[0], &rs);
    after.writes.set_live_replica_set(Ok(rs.clone()));
    after.writes.set_live_pods(vec![shown.clone()]);
    let cache = after.cache.clone();
    after.writes.on_patch(move |_, _| {
        cache.pods.apply(shown.clone());
        None
    });
    let taken = names[0].clone();
    let exists = rejected(409, "AlreadyExists", "already exists");
    after
        .writes
        .on_create(move |_, name| (name == taken).then(|| Err(exists.clone())));
    after.sync_ok("web");
    assert_eq!(creates(&after), names[..2], "with the orphan that is three");
}

/// It has lost its owner, and has a name of this sequence.
#[test]
fn the_name_of_a_pod_adopted_by_this_sync_is_not_chosen() {
    let rs = replica_set("web", 2);
    let names = names_chosen_for(&rs);
    let after = fixture(&rs, [pod(&names[0])]);
    after.writes.set_live_replica_set(Ok(rs.clone()));
    let (cache, adopted) = (after.cache.clone(), owned_pod(&names[0], &rs));
    after.writes.on_patch(move |_, _| {
        cache.pods.apply(Pod {
            resource_version: "2".into(),
            ..adopted.clone()
        });
        None
    });
    after.sync_ok("web");
    assert_eq!(creates(&after), names[1..]);
}

#[test]
fn names_of_cached_foreign_pods_are_not_chosen() {
    let rs = replica_set("web", 2);
    let names = names_chosen_for(&rs);
    let foreign = Pod {
        key: key(&names[0]),
        controller: Some(controller_ref("StatefulSet", "db", "uid-db")),
        ..pod("foreign")
    };
    let after = fixture(&rs, [foreign]);
    after.sync_ok("web");
    let created = creates(&after);
    assert_eq!((created.len(), &created[0]), (2, &names[1]));
}

/// A webhook rejects each create, and no name that it rejects has a pod.
#[test]
fn an_event_reports_a_create_whose_names_are_all_taken() {
    let rs = replica_set("web", 1);
    let fixture = fixture(&rs, []);
    let exists = rejected(409, "AlreadyExists", "already exists");
    fixture
        .writes
        .on_create(move |_, _| Some(Err(exists.clone())));
    fixture.sync("web").expect_err("no name is free");
    assert_eq!(
        fixture.writes.take_warnings(),
        ["FailedCreate: Error creating: already exists"]
    );
    fixture.writes.on_find_pod(|_, _| Some(Err(not_allowed())));
    fixture.sync("web").expect_err("the read is rejected");
    assert_eq!(
        fixture.writes.take_warnings(),
        ["FailedCreate: Error creating: exceeded quota"]
    );
    fixture
        .writes
        .on_find_pod(|_, _| Some(Err(WriteError::Stopped)));
    fixture.sync("web").expect_err("the daemon stops");
    assert_eq!(fixture.writes.take_warnings(), [""; 0]);
}

/// The API server has answered the create, only not the read that follows.
#[test]
fn a_lost_read_leaves_no_create_under_way() {
    let rs = replica_set("web", 1);
    let fixture = fixture(&rs, []);
    let exists = rejected(409, "AlreadyExists", "already exists");
    fixture
        .writes
        .on_create(move |_, _| Some(Err(exists.clone())));
    fixture.writes.on_find_pod(|_, _| Some(Err(lost())));
    fixture.sync("web").expect_err("the read is lost");
    fixture.expect(&rs, ["z".into()], []);
    let first = |memory: &mut Memory| {
        let now = fixture.clock.now();
        memory.own_writes.creation_is_unknown("z", false, now);
        memory.own_writes.unknown_creations().swap_remove(0)
    };
    let first = fixture.controller.memories.with(&rs, first);
    assert_eq!(*first, *"z", "only this one may still arrive");
}

/// Otherwise the names that it did not try would be expected for five minutes.
#[test]
fn a_panic_in_a_batch_costs_one_query() {
    let rs = replica_set("web", 3);
    let fixture = fixture(&rs, []);
    fixture.writes.on_create(|call, _| {
        assert_eq!(call, 0, "a panic in the second create");
        None
    });
    fixture.process(&rs.key);
    let names = creates(&fixture);
    assert_eq!(names.len(), 2);
    let stored = owned_pod(&names[0], &rs);
    fixture.writes.set_live_pods(vec![stored.clone()]);
    fixture.deliver_pod(stored);
    let verified = fixture.sync("web").expect("no error");
    assert_eq!(verified, SyncEnd::TooEarly);
    assert_eq!(fixture.writes.take(), [Write::ListPods]);
    fixture.sync_ok("web");
    assert_eq!(creates(&fixture).len(), 2);
}
