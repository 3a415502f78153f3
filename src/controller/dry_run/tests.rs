//! A controller in dry run, beside another writer played by the test.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::json;

use super::{DryRun, Work};
use crate::api::pod::PodFailure;
use crate::api::{Pod, PodPhase, ReplicaSet, ScaleDownMark};
use crate::controller::decide::Pods;
use crate::controller::testing::{
    Fixture, fixture, owned_pod, pod, read_replica_set, replica_set, replica_set_json, seconds_ago,
};

/// A fixture with a controller in dry run.
fn deciding(mut fixture: Fixture) -> (Fixture, Arc<DryRun>) {
    let dry_run = Arc::<DryRun>::default();
    fixture.controller = fixture.controller.only_deciding(Arc::clone(&dry_run));
    (fixture, dry_run)
}

/// What the last sync of the ReplicaSet would do, and to how many pods.
fn open(dry_run: &DryRun, rs: &ReplicaSet) -> String {
    let open = dry_run.0.lock();
    let of = |work: &Work| {
        format!(
            "{} {}",
            super::first_word(&work.text),
            work.n_pods.max(work.changed.len())
        )
    };
    open.get(&rs.key).map_or_else(String::new, of)
}

fn annotated(replicas: i32, annotations: &[(&str, &str)]) -> ReplicaSet {
    let mut object = replica_set_json("web", replicas);
    for (name, value) in annotations {
        let name = format!("replicaset-controller/{name}");
        object["metadata"]["annotations"][name] = (*value).into();
    }
    read_replica_set(&object)
}

/// A pod that failed so many seconds ago.
fn failed(name: &str, rs: &ReplicaSet, ago: i64) -> Pod {
    Pod {
        phase: PodPhase::Failed,
        creation: Some(seconds_ago(ago + 4)),
        failure: Some(Box::new(PodFailure {
            reason: "Rejected".into(),
            at: Some(seconds_ago(ago)),
        })),
        ..owned_pod(name, rs)
    }
}

#[test]
fn nothing_is_written_and_each_decision_is_counted_once() {
    let decisions = |fixture: &Fixture| {
        let decisions = &fixture.metrics.dry_run_decisions;
        decisions.with_label_values(&["create"]).get()
    };
    let rs = replica_set("web", 2);
    let (fixture, dry_run) = deciding(fixture(&rs, [owned_pod("a", &rs)]));
    for _ in 0..3 {
        fixture.sync_ok("web");
        assert_eq!(open(&dry_run, &rs), "create 1");
        assert_eq!(decisions(&fixture), 1);
    }
    fixture.deliver_pod(owned_pod("b", &rs));
    fixture.sync_ok("web");
    assert_eq!(dry_run.n_open(), 0);
    fixture.deliver_pod_deleted(owned_pod("b", &rs));
    fixture.sync_ok("web");
    assert_eq!(decisions(&fixture), 2);
    fixture.assert_counts(0, 0, 0);
    assert!(fixture.writes.status_updates().is_empty());
}

/// Only that of a ReplicationController can be changed.
#[test]
fn a_selector_that_becomes_unusable_ends_the_decision() {
    let rs = replica_set("web", 2);
    let (fixture, dry_run) = deciding(fixture(&rs, []));
    fixture.sync_ok("web");
    assert_eq!(dry_run.n_open(), 1);
    let mut object = replica_set_json("web", 2);
    let unusable = json!({"matchExpressions": [{"key": "a", "operator": "Invalid"}]});
    (
        object["spec"]["selector"],
        object["metadata"]["resourceVersion"],
    ) = (unusable, "2".into());
    fixture.cache_silently(Some(read_replica_set(&object)), []);
    fixture.sync_ok("web");
    assert_eq!(dry_run.n_open(), 0);
}

#[test]
fn protected_pods_are_not_to_be_deleted() {
    let rs = annotated(0, &[("scale-down-protection", "on")]);
    let protected = Pod {
        scale_down: ScaleDownMark::Never,
        ..owned_pod("a", &rs)
    };
    let (fixture, dry_run) = deciding(fixture(&rs, [protected, owned_pod("b", &rs)]));
    fixture.sync_ok("web");
    assert_eq!(open(&dry_run, &rs), "delete 1");
    fixture.deliver_pod_deleted(owned_pod("b", &rs));
    fixture.sync_ok("web");
    assert_eq!(open(&dry_run, &rs), "");
}

#[test]
fn dry_run_does_not_create_backed_off_pods() {
    let rs = annotated(5, &[("failed-pod-backoff", "10s..5m")]);
    let failed = ["a", "b", "c", "d"].map(|name| failed(name, &rs, 5));
    let (fixture, dry_run) = deciding(fixture(&rs, failed));
    fixture.sync_ok("web");
    assert_eq!(open(&dry_run, &rs), "create 1");
    fixture.deliver_pod(owned_pod("e", &rs));
    fixture.sync_ok("web");
    assert_eq!(open(&dry_run, &rs), "");
}

#[test]
fn dry_run_logs_old_failed_pods_and_invalid_annotations() {
    let rs = annotated(
        1,
        &[("failed-pods-kept", "0"), ("scale-down-order", "zone")],
    );
    let failed = failed("a", &rs, 8000);
    let (fixture, dry_run) = deciding(fixture(&rs, [failed.clone(), owned_pod("b", &rs)]));
    fixture.sync_ok("web");
    assert_eq!(open(&dry_run, &rs), "discard 1");
    fixture.deliver_pod_deleted(failed);
    fixture.sync_ok("web");
    assert_eq!(open(&dry_run, &rs), "");
    assert_eq!(fixture.writes.take(), []);
    assert!(fixture.writes.take_warnings().is_empty());
}

/// Work of a kind, for so many pods, which changes these of them.
fn work(kind: &str, n_pods: usize, changed: &[&str]) -> Work {
    let rs = replica_set("web", 1);
    Work {
        owner: rs.uid,
        generation: 1,
        text: format!("{kind} x"),
        n_pods,
        changed: changed
            .iter()
            .map(|name| (*name).into())
            .collect::<HashSet<_>>(),
    }
}

#[test]
fn only_more_to_do_than_before_is_a_new_decision() {
    let cases = [
        (work("create", 2, &[]), work("create", 1, &[]), true),
        (work("create", 1, &[]), work("create", 1, &[]), false),
        (work("create", 1, &[]), work("create", 2, &[]), false),
        (work("create", 1, &["a"]), work("create", 1, &[]), true),
        (work("delete", 1, &["a"]), work("create", 1, &[]), true),
        (work("delete", 2, &["a"]), work("delete", 1, &["a"]), true),
        (work("delete", 1, &["b"]), work("delete", 1, &["a"]), true),
        // One sync cannot delete them all, so each deletion changes the choice.
        (work("delete", 2, &["b"]), work("delete", 2, &["a"]), false),
        (
            work("adopt", 0, &["a", "b"]),
            work("adopt", 0, &["a"]),
            true,
        ),
        (
            work("adopt", 0, &["a"]),
            work("adopt", 0, &["a", "b"]),
            false,
        ),
        (work("release", 0, &["b"]), work("release", 0, &["a"]), true),
        (
            work("release", 0, &["a"]),
            work("release", 0, &["a"]),
            false,
        ),
    ];
    for (now, before, is_new) in cases {
        assert_eq!(now.exceeds(&before), is_new, "{now:?} after {before:?}");
    }
    let mut of_next_spec = work("create", 1, &[]);
    of_next_spec.generation = 2;
    assert!(of_next_spec.exceeds(&work("create", 1, &[])));
}

/// What the log says that a dry run would do.
fn described(rs: &ReplicaSet, owned: Vec<Pod>, orphans: Vec<Pod>) -> String {
    let fixture = fixture(rs, []);
    let selector = rs.selector.as_ref().expect("a selector");
    let listed = |pods: Vec<Pod>| pods.into_iter().map(Arc::new).collect();
    let (owned, orphans) = (listed(owned), listed(orphans));
    let facts = fixture
        .controller
        .view_of(rs, selector, Pods::Listed { owned, orphans });
    Work::of(rs, &facts.decide()).expect("work").text
}

#[test]
fn the_log_shows_what_a_dry_run_would_do() {
    let rs = replica_set("web", 2);
    let owned = |names: &[&str]| names.iter().map(|name| owned_pod(name, &rs)).collect();
    let orphan = || vec![pod("z")];
    assert_eq!(
        described(&rs, owned(&["a"]), vec![]),
        "create 1 pod: 1 of 2"
    );
    assert_eq!(described(&rs, vec![], vec![]), "create 2 pods: 0 of 2");
    let both = described(&rs, vec![], orphan());
    assert_eq!(both, "create 1 pod: 1 of 2, and adopt z");
    assert_eq!(described(&rs, owned(&["a"]), orphan()), "adopt z");
    let surplus = described(&rs, owned(&["a", "b", "c", "d"]), vec![]);
    assert!(
        surplus.starts_with("delete 2 pods: 4, not 2: "),
        "{surplus}"
    );
}

#[test]
fn an_orphan_that_ends_is_not_to_be_adopted() {
    let rs = replica_set("web", 1);
    let (fixture, dry_run) = deciding(fixture(&rs, []));
    let orphan = Pod {
        labels: owned_pod("a", &rs).labels,
        ..pod("a")
    };
    fixture.deliver_pod(orphan.clone());
    fixture.sync_ok("web");
    assert_eq!(open(&dry_run, &rs), "adopt 1");
    fixture.queued();
    fixture.deliver_pod(Pod {
        phase: PodPhase::Failed,
        resource_version: "2".into(),
        ..orphan
    });
    assert_eq!(fixture.queued(), ["default/web"]);
    fixture.sync_ok("web");
    assert_eq!(open(&dry_run, &rs), "create 1");
}
