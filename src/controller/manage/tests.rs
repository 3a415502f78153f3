//! Groups B, E and G, as far as they are about creating and deleting pods.

use serde_json::json;

use crate::api::{Pod, ReplicaSet};
use crate::controller::testing::{
    Fixture, controller_ref, creates, deletes, fixture, forbidden, lost, owned_pod, ready_pod,
    refused, replica_set, seconds_ago,
};
use crate::writes::WriteError;

#[test]
fn b_14_failed_and_skipped_creates_are_not_expected() {
    let rs = replica_set("web", 10);
    let fixture = fixture(&rs, []);
    fixture
        .writes
        .on_create(|call, _| (call >= 5).then(|| Err(forbidden())));
    fixture.sync("web").expect_err("some are refused");
    fixture.assert_counts(7, 0, 0);
    assert_eq!(fixture.open(&rs), Some((5, 0)));
}

/// "Those already observed" of the checklist: pods that came back before the answers of the batch.
#[test]
fn b_14_creates_that_came_back_already_are_not_expected() {
    let rs = replica_set("web", 3);
    let fixture = fixture(&rs, []);
    let cache = fixture.cache.clone();
    let seen = rs.clone();
    fixture.writes.on_create(move |_, name| {
        cache.pods.apply_modified(owned_pod(name, &seen));
        None
    });
    fixture.sync_ok("web");
    // Delivered to the cache only; now the handlers are told, as after a relist.
    let names = creates(&fixture);
    for name in &names[..2] {
        fixture.see_creation(&rs, name);
    }
    assert_eq!(fixture.open(&rs), Some((1, 0)));
}

/// A restarted daemon begins its names anew, and would find each of its pods by a refusal and a
/// look.
#[test]
fn names_of_pods_that_are_seen_are_not_asked_for() {
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
fn b_16_deletions_are_expected_by_identity_before_they_are_sent() {
    let rs = replica_set("web", 1);
    let pods = ["a", "b", "c"].map(|name| owned_pod(name, &rs));
    let fixture = fixture(&rs, pods.clone());
    fixture.sync_ok("web");
    assert_eq!(fixture.open(&rs), Some((0, 2)));
    let deleted = deletes(&fixture);
    let first = pods.iter().find(|pod| *pod.key.name == *deleted[0]);
    let first = first.expect("one of the three").clone();
    let going = Pod {
        resource_version: "2".into(),
        deletion: Some(seconds_ago(0)),
        ..first
    };
    fixture.deliver_pod(going.clone());
    assert_eq!(fixture.open(&rs), Some((0, 1)));
    fixture.deliver_pod_deleted(going);
    assert_eq!(fixture.open(&rs), Some((0, 1)), "counted once");
}

#[test]
fn g_03_g_04_a_refusal_ends_the_creates_after_its_batch() {
    for (wanted, accepted, calls) in [(10, 5, 7), (100, 10, 15), (10, 0, 1), (10, 10, 10)] {
        let rs = replica_set("web", wanted);
        let fixture = fixture(&rs, []);
        fixture
            .writes
            .on_create(move |call, _| (call >= accepted).then(|| Err(forbidden())));
        assert_eq!(fixture.sync("web").is_ok(), calls == 10);
        fixture.assert_counts(calls, 0, 0);
        assert_eq!(fixture.open(&rs), Some((accepted, 0)));
    }
}

/// Scales up and down in bursts, delivering what was written one by one.
#[track_caller]
fn check_bursts(burst: usize, wanted: usize) {
    let fixture = Fixture::with_burst(burst);
    let replicas = i32::try_from(wanted).expect("a small number");
    let mut rs = replica_set("web", replicas);
    fixture.cache_silently(Some(rs.clone()), []);
    let mut n_pods = 0;
    while n_pods < wanted {
        let step = burst.min(wanted - n_pods);
        fixture.sync_ok("web");
        let created = creates(&fixture);
        assert_eq!(created.len(), step);
        let (last, others) = created.split_last().expect("at least one");
        for name in others {
            fixture.deliver_pod(owned_pod(name, &rs));
        }
        assert_eq!(fixture.open(&rs), Some((1, 0)));
        fixture.sync_ok("web");
        fixture.assert_counts(0, 0, 0);
        fixture.deliver_pod(owned_pod(last, &rs));
        n_pods += step;
    }
    fixture.sync_ok("web");
    fixture.assert_counts(0, 0, 0);

    rs.replicas = 0;
    rs.resource_version = "2".into();
    fixture.cache_silently(Some(rs.clone()), []);
    fixture.deliver_bookmarks("2", "");
    fixture.writes.take();
    while n_pods > 0 {
        let step = burst.min(n_pods);
        fixture.sync_ok("web");
        let deleted = deletes(&fixture);
        assert_eq!(deleted.len(), step);
        let (last, others) = deleted.split_last().expect("at least one");
        for name in others {
            fixture.deliver_pod_deleted(owned_pod(name, &rs));
        }
        assert_eq!(fixture.open(&rs), Some((0, 1)));
        fixture.sync_ok("web");
        fixture.assert_counts(0, 0, 0);
        fixture.deliver_pod_deleted(owned_pod(last, &rs));
        n_pods -= step;
    }
    fixture.sync_ok("web");
    fixture.assert_counts(0, 0, 0);
}

#[test]
fn g_05_bursts_of_five_up_to_thirty_and_back() {
    check_bursts(5, 30);
}

#[test]
fn g_06_bursts_of_five_up_to_twelve_and_back() {
    check_bursts(5, 12);
}

#[test]
fn g_07_a_burst_that_is_never_full() {
    check_bursts(3, 2);
}

#[test]
fn g_09_a_namespace_that_goes_away_is_no_failure() {
    let rs = replica_set("web", 3);
    let fixture = fixture(&rs, []);
    fixture.writes.on_create(|_, _| {
        let status = crate::api::Status::new(403, "Forbidden", "being terminated");
        let status = status.with_cause("NamespaceTerminating", "being terminated");
        Some(Err(WriteError::Refused(status)))
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
fn g_11_a_transient_failure_is_repeated() {
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

/// The API server has a name in most refusals. Under another name each time they would be as many
/// events, of which `kubectl describe` shows ten and then no more.
#[test]
fn a_refused_creation_is_repeated_under_its_name() {
    let rs = replica_set("web", 3);
    let fixture = fixture(&rs, []);
    fixture.writes.on_create(|_, _| Some(Err(forbidden())));
    fixture.sync("web").expect_err("refused");
    let first = creates(&fixture);
    for _ in 0..3 {
        fixture.sync("web").expect_err("refused again");
        assert_eq!(creates(&fixture), first);
    }
}

/// A daemon that is killed next and started again asks for the first names of the sequence, so those must
/// be the ones that are under way.
#[test]
fn names_that_were_not_tried_come_next() {
    let rs = replica_set("web", 7);
    let twin = fixture(&rs, []);
    twin.sync_ok("web");
    let first = creates(&twin);
    let fixture = fixture(&rs, []);
    fixture
        .writes
        .on_create(|call, _| (call == 0).then(|| Err(forbidden())));
    fixture.sync("web").expect_err("the first is refused");
    assert_eq!(creates(&fixture), first[..1]);
    fixture.sync_ok("web");
    assert_eq!(creates(&fixture), first);
}

#[test]
fn g_13_all_deletes_are_sent_and_the_first_error_is_told() {
    let rs = replica_set("web", 0);
    let fixture = fixture(&rs, ["a", "b", "c", "d"].map(|name| owned_pod(name, &rs)));
    fixture.writes.on_delete(|call, _| {
        let message = format!("error {call}");
        (call % 2 == 1).then(|| Err(refused(403, "Forbidden", &message)))
    });
    let error = fixture.sync("web").expect_err("two are refused");
    assert_eq!(error.to_string(), "unable to delete pods: error 1");
    fixture.assert_counts(0, 4, 0);
    assert_eq!(fixture.open(&rs), Some((0, 2)));
}

/// DIFFERS from upstream, which expects the deletion no more and would take another pod next.
#[test]
fn a_pod_that_is_gone_already_is_waited_for_as_if_it_had_been_deleted() {
    for error in [
        refused(404, "NotFound", "gone"),
        refused(409, "Conflict", "another UID"),
    ] {
        let rs = replica_set("web", 1);
        let fixture = fixture(&rs, [owned_pod("a", &rs), ready_pod("b", &rs)]);
        fixture
            .writes
            .on_delete(move |_, _| Some(Err(error.clone())));
        fixture.sync_ok("web");
        assert_eq!(deletes(&fixture), ["a"]);
        assert_eq!(fixture.open(&rs), Some((0, 1)));
        fixture.sync_ok("web");
        fixture.assert_counts(0, 0, 0);
        fixture.deliver_pod_deleted(owned_pod("a", &rs));
        assert_eq!(fixture.open(&rs), Some((0, 0)));
    }
}

/// An admission webhook may refuse with any code.
#[test]
fn a_conflict_about_a_pod_that_is_there_is_a_refusal() {
    let rs = replica_set("web", 1);
    let fixture = fixture(&rs, [owned_pod("a", &rs), ready_pod("b", &rs)]);
    fixture
        .writes
        .set_live_pods(vec![owned_pod("a", &rs), ready_pod("b", &rs)]);
    fixture
        .writes
        .on_delete(|_, _| Some(Err(refused(409, "Conflict", "not now"))));
    let error = fixture.sync("web").expect_err("refused");
    assert_eq!(error.to_string(), "unable to delete pods: not now");
    assert_eq!(fixture.open(&rs), Some((0, 0)));
    assert_eq!(
        fixture.writes.take_warnings(),
        ["FailedDelete: Error deleting: not now"]
    );
    let conditions = fixture.writes.status_updates().remove(0).conditions;
    assert_eq!(conditions[0].reason.as_deref(), Some("FailedDelete"));
}

#[test]
fn a_conflict_that_nobody_can_explain_is_repeated_on_the_same_pod() {
    let rs = replica_set("web", 1);
    let fixture = fixture(&rs, [owned_pod("a", &rs), ready_pod("b", &rs)]);
    fixture
        .writes
        .on_delete(|_, _| Some(Err(refused(409, "Conflict", "not now"))));
    fixture.writes.on_find_pod(|_, _| Some(Err(forbidden())));
    fixture.sync("web").expect_err("the look is refused");
    assert_eq!(deletes(&fixture), ["a"]);
    assert_eq!(fixture.open(&rs), Some((0, 0)));
    // Without the delete of before, this one would go first.
    fixture.deliver_pod(Pod {
        resource_version: "2".into(),
        node: None,
        ..owned_pod("b", &rs)
    });
    fixture.writes.on_delete(|_, _| None);
    fixture.sync_ok("web");
    assert_eq!(deletes(&fixture), ["a"]);
}

#[test]
fn a_deletion_that_the_cache_shows_already_is_not_waited_for() {
    for is_found in [true, false] {
        let rs = replica_set("web", 0);
        let fixture = fixture(&rs, [owned_pod("a", &rs)]);
        let (cache, going) = (fixture.cache.clone(), owned_pod("a", &rs));
        fixture.writes.on_delete(move |_, _| {
            // The event comes between the look at the pods and the answer.
            if is_found {
                cache.pods.apply_modified(Pod {
                    resource_version: "2".into(),
                    deletion: Some(seconds_ago(0)),
                    ..going.clone()
                });
                return None;
            }
            cache.pods.apply_deleted(going.clone());
            Some(Err(refused(404, "NotFound", "gone")))
        });
        fixture.sync_ok("web");
        assert_eq!(fixture.open(&rs), Some((0, 0)));
    }
}

/// A ReplicaSet with a Deployment for its controller.
fn of_deployment(name: &str, labels: &[(&str, &str)], uid: &str) -> ReplicaSet {
    let mut object = crate::controller::testing::replica_set_json(name, 1);
    let labels: std::collections::BTreeMap<_, _> = labels.iter().copied().collect();
    object["spec"]["selector"] = json!({"matchLabels": labels});
    let mut rs = crate::controller::testing::read_replica_set(&object);
    rs.controller = Some(controller_ref("Deployment", "deployment", uid));
    rs
}

fn labelled(pod: Pod, track: &str) -> Pod {
    Pod {
        labels: [("type", "production"), ("track", track)]
            .into_iter()
            .collect(),
        ..pod
    }
}

/// Which pods are related to those of `new`, which has two pods on two nodes.
fn related(fixture: &Fixture, rs: &ReplicaSet) -> Vec<String> {
    use super::{RelatedPods, Siblings};
    let siblings = Siblings {
        controller: &fixture.controller,
        rs,
        selector: rs.selector.as_ref().expect("a valid selector"),
    };
    let pods = siblings.related_pods();
    let mut names: Vec<String> = pods.iter().map(|pod| pod.key.name.to_string()).collect();
    names.sort();
    names
}

#[test]
fn d_21_e_22_e_23_related_pods_are_those_of_the_same_controller() {
    let new = of_deployment("new", &[("track", "new")], "uid-d");
    let old = of_deployment("old", &[("track", "old")], "uid-d");
    let strange = of_deployment("strange", &[("track", "strange")], "uid-other");
    let pods = [
        labelled(owned_pod("pod1", &new), "new"),
        labelled(owned_pod("pod2", &new), "new"),
        labelled(owned_pod("pod3", &old), "old"),
        labelled(owned_pod("pod4", &strange), "strange"),
    ];
    let fixture = fixture(&new, pods);
    fixture.cache_silently(Some(strange), []);
    assert_eq!(related(&fixture, &new), ["pod1", "pod2"]);
    fixture.cache_silently(Some(old), []);
    assert_eq!(related(&fixture, &new), ["pod1", "pod2", "pod3"]);
    let orphan = |name: &str, track: &str| labelled(crate::controller::testing::pod(name), track);
    let orphans = [orphan("orphan1", "old"), orphan("orphan2", "strange")];
    fixture.cache_silently(None, orphans.clone());
    assert_eq!(
        related(&fixture, &new),
        ["orphan1", "pod1", "pod2", "pod3"],
        "an orphan counts that a sibling selects"
    );
    for orphan in orphans {
        fixture.deliver_pod_deleted(orphan);
    }
    let mut alone = new.clone();
    alone.controller = None;
    assert_eq!(related(&fixture, &alone), [""; 0]);

    // Not even in the cache itself, it still counts its own.
    let mut leaving = new;
    leaving.deletion = Some(seconds_ago(0));
    fixture.deliver_replica_set_deleted(leaving.clone());
    assert_eq!(related(&fixture, &leaving), ["pod1", "pod2", "pod3"]);
}

#[test]
fn e_22_the_node_where_the_sibling_is_gives_first() {
    let new = of_deployment("new", &[("track", "new")], "uid-d");
    let old = of_deployment("old", &[("track", "old")], "uid-d");
    let on = |pod: Pod, node: &str| Pod {
        node: Some(node.into()),
        ..pod
    };
    let pods = [
        on(labelled(ready_pod("a", &new), "new"), "node-1"),
        on(labelled(ready_pod("b", &new), "new"), "node-2"),
        on(labelled(ready_pod("r", &old), "old"), "node-2"),
    ];
    let fixture = fixture(&new, pods);
    fixture.cache_silently(Some(old), []);
    fixture.sync_ok("new");
    assert_eq!(deletes(&fixture), ["b"]);
}

#[test]
fn a_batch_of_which_nothing_was_sent_is_not_told() {
    use log::Level;
    let level = super::level_of_batch;
    assert_eq!(level(0, &Err(WriteError::Stopped)), Level::Debug);
    assert_eq!(level(1, &Err(WriteError::Stopped)), Level::Info);
    assert_eq!(level(0, &Err(forbidden())), Level::Info);
    assert_eq!(level(3, &Ok(())), Level::Info);
}
