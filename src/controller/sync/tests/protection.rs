//! Scale-downs that respect marks: what a whole sync sends, waits for and reports.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::api::conditions::{SCALE_DOWN_BLOCKED, get_condition};
use crate::api::{Pod, ReplicaSet, ScaleDownMark};
use crate::controller::memory::history::SyncEnd;
use crate::controller::testing::{
    Fixture, Write, deletes, fixture, now, read_replica_set, ready_pod, rejected, replica_set_json,
};

/// `default/web` with this many replicas and these annotations, whose spec was observed.
fn protecting(replicas: i32, annotations: &[(&str, &str)]) -> ReplicaSet {
    let mut object = replica_set_json("web", replicas);
    object["status"]["observedGeneration"] = json!(1);
    object["metadata"]["annotations"]["replicaset-controller/scale-down-protection"] = json!("on");
    for (name, value) in annotations {
        object["metadata"]["annotations"][format!("replicaset-controller/{name}")] = json!(value);
    }
    read_replica_set(&object)
}

fn marked(name: &str, rs: &ReplicaSet) -> Pod {
    Pod {
        scale_down: ScaleDownMark::Never,
        ..ready_pod(name, rs)
    }
}

fn at(version: &str, pod: Pod) -> Pod {
    Pod {
        resource_version: version.into(),
        ..pod
    }
}

fn conflict() -> crate::writes::WriteError {
    rejected(409, "Conflict", "the ResourceVersion differs")
}

/// `rs` with another spec at this version.
fn scaled(rs: &ReplicaSet, replicas: i32, version: &str) -> ReplicaSet {
    let mut rs = rs.clone();
    rs.replicas = replicas;
    rs.generation += 1;
    rs.resource_version = version.into();
    rs
}

/// Delivers the last written status, as the watch does.
#[track_caller]
fn deliver_status(fixture: &Fixture, rs: &ReplicaSet, version: &str) -> ReplicaSet {
    let status = fixture.writes.status_updates().pop().expect("a status");
    let mut rs = rs.clone();
    rs.status = status;
    rs.resource_version = version.into();
    fixture.writes.take();
    fixture.deliver_replica_set(rs.clone());
    rs
}

#[test]
fn only_with_protection_deletes_name_a_version() {
    let rs = protecting(1, &[]);
    let off = protecting(1, &[("scale-down-protection", "off")]);
    for (rs, version) in [(rs, Some("7".to_owned())), (off, None)] {
        let pods = ["a", "b"].map(|name| at("7", ready_pod(name, &rs)));
        let fixture = fixture(&rs, pods);
        fixture.sync_ok("web");
        assert_eq!(fixture.writes.take_delete_versions(), [version]);
    }
}

#[test]
fn a_pod_with_a_new_version_only_is_deleted_in_it() {
    let rs = protecting(1, &[]);
    let fixture = fixture(&rs, [marked("a", &rs), ready_pod("b", &rs)]);
    fixture
        .writes
        .set_live_pods(vec![at("5", ready_pod("b", &rs))]);
    fixture
        .writes
        .on_delete(|call, _| (call == 0).then(|| Err(conflict())));
    fixture.sync_ok("web");
    assert_eq!(deletes(&fixture), ["b", "b"]);
    let versions = [Some("1".to_owned()), Some("5".to_owned())];
    assert_eq!(fixture.writes.take_delete_versions(), versions);
    assert_eq!(fixture.writes.take_warnings(), [""; 0]);
    assert_eq!(fixture.open(&rs), Some((0, 1)));
}

/// The race of an annotation against a scale-down: the mark was stored first.
#[test]
fn a_pod_marked_in_the_last_moment_stays() {
    let rs = protecting(1, &[]);
    let younger = Pod {
        ready_transition: Some(now().into()),
        ..ready_pod("b", &rs)
    };
    let fixture = fixture(&rs, [ready_pod("a", &rs), younger.clone()]);
    let saved = Pod {
        scale_down: ScaleDownMark::Never,
        ..at("5", younger)
    };
    fixture.writes.set_live_pods(vec![saved.clone()]);
    fixture
        .writes
        .on_delete(|_, name| (name == "b").then(|| Err(conflict())));
    fixture.sync_ok("web");
    assert_eq!(deletes(&fixture), ["b"]);
    assert_eq!(fixture.writes.take_warnings(), [""; 0]);
    assert_eq!(fixture.open(&rs), Some((0, 0)));
    assert_eq!(fixture.queued(), [""; 0]);
    // No choice from the old cache.
    assert_eq!(fixture.sync("web").expect("no error"), SyncEnd::TooEarly);
    assert_eq!(fixture.writes.take(), []);
    fixture.deliver_pod(saved);
    assert_eq!(fixture.queued(), ["default/web"]);
    fixture.sync_ok("web");
    assert_eq!(deletes(&fixture), ["a"]);
}

/// After a restore of etcd, which the watch may never notice: no event shows the stored version.
#[test]
fn a_choice_that_an_unshown_version_rejects_backs_off() {
    let rs = protecting(1, &[]);
    let younger = Pod {
        ready_transition: Some(now().into()),
        ..at("7", ready_pod("b", &rs))
    };
    for stored in ["5", "9"] {
        let fixture = fixture(&rs, [at("7", ready_pod("a", &rs)), younger.clone()]);
        fixture.deliver_bookmarks("10", "10");
        let saved = Pod {
            scale_down: ScaleDownMark::Never,
            ..at(stored, younger.clone())
        };
        fixture.writes.set_live_pods(vec![saved.clone()]);
        fixture
            .writes
            .on_delete(|_, name| (name == "b").then(|| Err(conflict())));
        fixture.sync("web").expect_err("the cache does not show it");
        assert_eq!(deletes(&fixture), ["b"]);
        assert_eq!(fixture.open(&rs), Some((0, 0)));
    }
}

/// The event of the change came between the choice and the conflict.
#[test]
fn a_choice_that_the_cache_has_overtaken_is_made_again() {
    let rs = protecting(1, &[]);
    let younger = Pod {
        ready_transition: Some(now().into()),
        ..at("7", ready_pod("b", &rs))
    };
    let fixture = fixture(&rs, [at("7", ready_pod("a", &rs)), younger.clone()]);
    let saved = Pod {
        scale_down: ScaleDownMark::Never,
        ..at("9", younger)
    };
    fixture.writes.set_live_pods(vec![saved.clone()]);
    let cache = fixture.cache.clone();
    fixture.writes.on_delete(move |_, name| {
        (name == "b").then(|| {
            cache.pods.apply(saved.clone());
            Err(conflict())
        })
    });
    fixture.sync_ok("web");
    fixture.sync_ok("web");
    assert_eq!(deletes(&fixture), ["b", "a"]);
}

/// An admission webhook may reject with any code, and something may change the pod all the time.
#[test]
fn no_conflict_is_answered_for_ever() {
    let rs = protecting(0, &[]);
    let fixture = fixture(&rs, [ready_pod("a", &rs)]);
    fixture.writes.on_delete(|_, _| Some(Err(conflict())));
    fixture.writes.set_live_pods(vec![ready_pod("a", &rs)]);
    fixture.sync("web").expect_err("an unchanged pod");
    assert_eq!(deletes(&fixture), ["a"]);
    assert_eq!(fixture.writes.take_warnings().len(), 1);
    assert_eq!(fixture.open(&rs), Some((0, 0)));

    let pod = ready_pod("a", &rs);
    fixture.writes.on_find_pod(move |call, _| {
        let version = (call + 2).to_string();
        Some(Ok(Some(at(&version, pod.clone()))))
    });
    fixture
        .sync("web")
        .expect_err("a pod that changes all the time");
    assert_eq!(deletes(&fixture), ["a"; 4]);
    assert_eq!(fixture.writes.take_warnings().len(), 1);
    assert_eq!(fixture.open(&rs), Some((0, 0)));
}

/// Two pods, of which `a` is marked `first` at version 10, and a scale-down at version 11.
fn marked_before_the_order(annotation: &str) -> (Fixture, ReplicaSet, Pod) {
    let before = protecting(2, &[("scale-down-protection", annotation)]);
    let younger = Pod {
        ready_transition: Some(now().into()),
        ..ready_pod("b", &before)
    };
    let fixture = fixture(&before, [ready_pod("a", &before), younger.clone()]);
    fixture.deliver_bookmarks("9", "9");
    let rs = scaled(&before, 1, "11");
    fixture.deliver_replica_set(rs.clone());
    fixture.queued();
    let first = Pod {
        scale_down: ScaleDownMark::First,
        ..at("10", ready_pod("a", &rs))
    };
    fixture.writes.set_live_pods(vec![first.clone(), younger]);
    (fixture, rs, first)
}

const SETTLED: Duration = Duration::from_millis(25);

#[track_caller]
fn waits(fixture: &Fixture, requests: &[Write]) {
    assert_eq!(fixture.sync("web").expect("no error"), SyncEnd::TooEarly);
    assert_eq!(fixture.writes.take(), requests);
}

#[test]
fn the_choice_waits_for_pods_as_new_as_the_order() {
    let (fixture, _, first) = marked_before_the_order("on");
    waits(&fixture, &[]);
    fixture.deliver_pod(first);
    fixture.deliver_bookmarks("11", "");
    assert_eq!(fixture.queued(), ["default/web"]);
    fixture.sync_ok("web");
    assert_eq!(deletes(&fixture), ["a"]);
}

/// As after a restore of etcd: the ReplicaSet is back at a generation that a status has observed.
#[test]
fn a_spec_that_went_back_ends_the_wait_for_the_order() {
    let (fixture, rs, first) = marked_before_the_order("on");
    fixture.cache_silently(None, [first]);
    waits(&fixture, &[]);
    let mut back = scaled(&rs, 1, "12");
    back.status.observed_generation = back.generation;
    fixture.deliver_replica_set(back);
    fixture.sync_ok("web");
    assert_eq!(deletes(&fixture), ["a"]);
}

#[test]
fn without_protection_the_choice_continues_after_the_wait() {
    let (fixture, _, _) = marked_before_the_order("off");
    waits(&fixture, &[]);
    fixture.queued_after(SETTLED);
    fixture.sync_ok("web");
    assert_eq!(deletes(&fixture), ["b"]);
}

/// The pod watch lags for longer than a choice waits. The API server has the mark.
#[test]
fn a_scale_down_to_zero_respects_a_mark_that_is_not_shown() {
    let before = protecting(1, &[]);
    let fixture = fixture(&before, [ready_pod("a", &before)]);
    fixture.deliver_bookmarks("9", "9");
    let saved = at("10", marked("a", &before));
    fixture.writes.set_live_pods(vec![saved.clone()]);
    fixture.writes.on_delete(|_, _| Some(Err(conflict())));
    let rs = scaled(&before, 0, "11");
    fixture.deliver_replica_set(rs);
    waits(&fixture, &[]);
    fixture.queued_after(SETTLED);
    fixture.sync_ok("web");
    assert_eq!(deletes(&fixture), ["a"], "on condition of its version");
    fixture.deliver_pod(saved);
    fixture.sync_ok("web");
    assert_eq!(deletes(&fixture), [""; 0]);
}

#[test]
fn a_block_is_reported_once_and_ends_with_its_cause() {
    let rs = protecting(1, &[]);
    let fixture = fixture(&rs, ["a", "b", "c"].map(|name| marked(name, &rs)));
    fixture.sync_ok("web");
    fixture.assert_counts(0, 0, 0);
    let warnings = fixture.writes.take_warnings();
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].starts_with("ScaleDownBlocked: 3 pods have"),
        "{warnings:?}"
    );
    let rs = deliver_status(&fixture, &rs, "2");
    let condition = get_condition(&rs.status.conditions, SCALE_DOWN_BLOCKED);
    assert!(condition.is_some());
    // More syncs write nothing, and neither does a successor that knows nothing of the first.
    fixture.sync_ok("web");
    let successor = fixture.controller_with(Arc::clone(&fixture.clock) as Arc<_>);
    let outcome = successor.sync(&rs.key);
    assert_eq!(outcome.expect("no error"), SyncEnd::Synced);
    assert_eq!(fixture.writes.take(), []);
    assert_eq!(fixture.writes.take_warnings(), [""; 0]);
    assert_eq!(fixture.controller.inspector().n_kept_by_protection(), 2);

    fixture.queued();
    fixture.deliver_pod(at("3", ready_pod("b", &rs)));
    assert_eq!(fixture.queued(), ["default/web"]);
    fixture.sync_ok("web");
    assert_eq!(deletes(&fixture), ["b"]);
    fixture.deliver_pod_deleted(at("4", ready_pod("b", &rs)));
    fixture.deliver_pod(at("5", ready_pod("c", &rs)));
    fixture.sync_ok("web");
    let rs = deliver_status(&fixture, &rs, "6");
    assert!(rs.status.conditions.is_empty());
    assert_eq!(fixture.controller.inspector().n_kept_by_protection(), 0);
}

#[test]
fn the_timeout_ends_a_block_even_after_a_restart() {
    let rs = protecting(1, &[("protected-timeout", "60s")]);
    let fixture = fixture(&rs, ["a", "b"].map(|name| marked(name, &rs)));
    fixture.sync_ok("web");
    let rs = deliver_status(&fixture, &rs, "2");
    fixture.writes.take_warnings();
    fixture.queued();
    assert_eq!(fixture.queued_after(Duration::from_secs(59)), [""; 0]);
    // The successor computes the rest from the condition.
    let successor = fixture.controller_with(Arc::clone(&fixture.clock) as Arc<_>);
    let sync = || successor.sync(&rs.key);
    sync().expect("no error");
    fixture.assert_counts(0, 0, 0);
    assert_eq!(
        fixture.queued_after(Duration::from_secs(1)),
        ["default/web"]
    );
    sync().expect("no error");
    assert_eq!(fixture.writes.deleted().len(), 1);
    let warnings = fixture.writes.take_warnings();
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].starts_with("ProtectedTimeout: "),
        "{warnings:?}"
    );
    let rs = deliver_status(&fixture, &rs, "3");
    assert_eq!(rs.status.conditions.len(), 1, "until the pod is gone");
}

#[test]
fn the_timeout_is_noticed_while_deletes_are_rejected() {
    let rs = protecting(1, &[("protected-timeout", "60s")]);
    let pods = [marked("a", &rs), marked("b", &rs), ready_pod("c", &rs)];
    let fixture = fixture(&rs, pods);
    fixture
        .writes
        .on_delete(|_, _| Some(Err(rejected(403, "Forbidden", "no"))));
    fixture.sync("web").expect_err("rejected");
    fixture.queued();
    assert_eq!(
        fixture.queued_after(Duration::from_mins(1)),
        ["default/web"]
    );
}

#[test]
fn a_blocked_replica_set_has_not_converged() {
    let before = protecting(3, &[]);
    let fixture = fixture(&before, ["a", "b", "c"].map(|name| marked(name, &before)));
    let rs = scaled(&before, 2, "2");
    fixture.deliver_bookmarks("2", "");
    fixture.deliver_replica_set(rs.clone());
    fixture.sync_ok("web");
    assert_eq!(fixture.metrics.converge.get_sample_count(), 0);
    deliver_status(&fixture, &rs, "3");
    fixture.deliver_pod_deleted(at("4", marked("a", &rs)));
    fixture.sync_ok("web");
    assert_eq!(fixture.metrics.converge.get_sample_count(), 1);
}

#[test]
fn unreadable_marks_are_reported_once_per_generation() {
    let rs = protecting(1, &[]);
    let unreadable = |name: &str| Pod {
        scale_down: ScaleDownMark::Unreadable,
        ..ready_pod(name, &rs)
    };
    let fixture = fixture(&rs, ["a", "b"].map(unreadable));
    fixture
        .writes
        .on_delete(|_, _| Some(Err(rejected(403, "Forbidden", "no"))));
    let n_warnings = || {
        let warnings = fixture.writes.take_warnings();
        let is_mistake = |warning: &&String| warning.starts_with("InvalidAnnotation: ");
        warnings.iter().filter(is_mistake).count()
    };
    fixture.sync("web").expect_err("rejected");
    assert_eq!(n_warnings(), 1);
    fixture.sync("web").expect_err("rejected");
    assert_eq!(n_warnings(), 0);
    let next = scaled(&rs, 1, "2");
    fixture.cache_silently(Some(next), []);
    fixture.deliver_bookmarks("2", "");
    fixture.sync("web").expect_err("rejected");
    assert_eq!(n_warnings(), 1);
}

#[test]
fn a_block_stays_while_deletes_are_open() {
    let rs = protecting(1, &[]);
    let mut pods: Vec<Pod> = ["a", "b"].map(|name| marked(name, &rs)).into();
    pods.extend(["c", "d"].map(|name| ready_pod(name, &rs)));
    let fixture = fixture(&rs, pods);
    fixture.sync_ok("web");
    assert_eq!(fixture.writes.deleted().len(), 2);
    let rs = deliver_status(&fixture, &rs, "5");
    assert!(get_condition(&rs.status.conditions, SCALE_DOWN_BLOCKED).is_some());
    // The watch has shown neither delete, so this sync only counts.
    assert_eq!(fixture.open(&rs), Some((0, 2)));
    fixture.sync_ok("web");
    assert_eq!(fixture.writes.status_updates(), []);
}
