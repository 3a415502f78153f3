//! A controller in dry run, beside another writer played by the test.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::work::Work;
use super::{Comparison, Intent, Shadow, WINDOW};
use crate::api::pod::PodFailure;
use crate::api::{Pod, PodPhase, ReplicaSet, ReplicaSetStatus, ScaleDownMark};
use crate::controller::decide::Pods;
use crate::controller::testing::{
    Fixture, fixture, owned_pod, pod, read_replica_set, replica_set, replica_set_json, seconds_ago,
};
use crate::stdx::clock::Clock;

/// A fixture with a controller in dry run.
fn shadowed(mut fixture: Fixture) -> (Fixture, Arc<Shadow>) {
    let clock = Arc::clone(&fixture.clock) as Arc<dyn Clock>;
    let metrics = fixture.metrics.other_writers.clone();
    let shadow = Arc::new(Shadow::new(clock, metrics));
    fixture.controller = fixture.controller.only_deciding(Arc::clone(&shadow));
    (fixture, shadow)
}

#[track_caller]
fn check(shadow: &Shadow, what: &'static str, verdict: Comparison) {
    let counts = shadow.counts();
    let of_pods: Vec<_> = counts
        .keys()
        .filter(|(what, _)| *what != "status")
        .collect();
    assert_eq!(of_pods, [&(what, verdict)], "{shadow}");
}

#[test]
fn nothing_is_written_and_the_same_creations_agree() {
    let rs = replica_set("web", 2);
    let (fixture, shadow) = shadowed(fixture(&rs, [owned_pod("a", &rs)]));
    fixture.sync_ok("web");
    assert!(shadow.counts().is_empty());
    fixture.deliver_pod(owned_pod("b", &rs));
    fixture.sync_ok("web");
    check(&shadow, "create", Comparison::Agree);
    fixture.assert_counts(0, 0, 0);
}

#[test]
fn another_number_of_creations_disagrees() {
    let rs = replica_set("web", 1);
    let (fixture, shadow) = shadowed(fixture(&rs, []));
    fixture.sync_ok("web");
    fixture.deliver_pod(owned_pod("a", &rs));
    fixture.deliver_pod(owned_pod("b", &rs));
    fixture.sync_ok("web");
    check(&shadow, "create", Comparison::Disagree);
}

#[test]
fn the_set_of_deleted_pods_is_compared() {
    for (victim, verdict) in [("a", Comparison::Agree), ("b", Comparison::Disagree)] {
        let rs = replica_set("web", 1);
        // The pod without a node goes first.
        let unassigned = Pod {
            node: None,
            ..owned_pod("a", &rs)
        };
        let (fixture, shadow) = shadowed(fixture(&rs, [unassigned, owned_pod("b", &rs)]));
        fixture.sync_ok("web");
        fixture.deliver_pod_deleted(owned_pod(victim, &rs));
        fixture.sync_ok("web");
        check(&shadow, "delete", verdict);
    }
}

#[test]
fn tied_pods_are_interchangeable() {
    let rs = replica_set("web", 1);
    let (fixture, shadow) = shadowed(fixture(&rs, [owned_pod("a", &rs), owned_pod("b", &rs)]));
    fixture.sync_ok("web");
    let decided = fixture.controller.inspect(&rs.key).expect("in the cache");
    for pod in decided.owned.iter().skip(1) {
        fixture.deliver_pod_deleted((**pod).clone());
    }
    fixture.sync_ok("web");
    check(&shadow, "delete", Comparison::Agree);
}

#[test]
fn a_spec_that_changes_meanwhile_is_not_compared() {
    let rs = replica_set("web", 2);
    let (fixture, shadow) = shadowed(fixture(&rs, []));
    fixture.sync_ok("web");
    let mut changed = replica_set_json("web", 0);
    changed["metadata"]["generation"] = 2.into();
    changed["metadata"]["resourceVersion"] = "2".into();
    fixture.deliver_replica_set(read_replica_set(&changed));
    fixture.sync_ok("web");
    check(&shadow, "create", Comparison::NotCompared);
}

#[test]
fn a_writer_that_does_nothing_disagrees_once_after_the_window() {
    let rs = replica_set("web", 2);
    let (fixture, shadow) = shadowed(fixture(&rs, []));
    fixture.sync_ok("web");
    assert_eq!(fixture.queued_after(WINDOW), ["default/web"]);
    for _ in 0..3 {
        fixture.clock.advance(WINDOW);
        fixture.sync_ok("web");
    }
    assert_eq!(
        shadow.counts().get(&("create", Comparison::Disagree)),
        Some(&1)
    );
}

/// At 20 requests a second a thousand pods take 50 s.
#[test]
fn a_writer_that_goes_on_has_the_window_for_each_part() {
    let rs = replica_set("web", 6);
    let (fixture, shadow) = shadowed(fixture(&rs, []));
    for name in ["a", "b", "c", "d", "e", "f"] {
        fixture.sync_ok("web");
        fixture
            .clock
            .advance(WINDOW.saturating_sub(Duration::from_millis(1)));
        fixture.deliver_pod(owned_pod(name, &rs));
    }
    fixture.sync_ok("web");
    check(&shadow, "create", Comparison::Agree);
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
fn protected_pods_are_not_to_be_deleted() {
    let rs = annotated(0, &[("scale-down-protection", "on")]);
    let protected = Pod {
        scale_down: ScaleDownMark::Never,
        ..owned_pod("a", &rs)
    };
    let (fixture, shadow) = shadowed(fixture(&rs, [protected, owned_pod("b", &rs)]));
    fixture.sync_ok("web");
    fixture.deliver_pod_deleted(owned_pod("b", &rs));
    fixture.sync_ok("web");
    check(&shadow, "delete", Comparison::Agree);
}

#[test]
fn pods_that_a_back_off_holds_back_are_not_to_be_created() {
    let rs = annotated(5, &[("failed-pod-backoff", "10s..5m")]);
    let others = ["e", "f", "g"];
    for (n_created, verdict) in [(1, Comparison::Agree), (3, Comparison::Disagree)] {
        let failed = ["a", "b", "c", "d"].map(|name| failed(name, &rs, 5));
        let (fixture, shadow) = shadowed(fixture(&rs, failed));
        fixture.sync_ok("web");
        for name in &others[..n_created] {
            fixture.deliver_pod(owned_pod(name, &rs));
        }
        fixture.sync_ok("web");
        check(&shadow, "create", verdict);
    }
}

/// Two pods are to be created at once, and a probe 10 s after the failures.
#[test]
fn a_probe_by_the_other_writer_is_not_compared() {
    let rs = annotated(5, &[("failed-pod-backoff", "10s..5m")]);
    for (seconds, verdict) in [(4_u32, Comparison::Disagree), (5, Comparison::NotCompared)] {
        let failed = ["a", "b", "c"].map(|name| failed(name, &rs, 5));
        let (fixture, shadow) = shadowed(fixture(&rs, failed));
        fixture.sync_ok("web");
        fixture.clock.advance(Duration::from_secs(seconds.into()));
        for name in ["e", "f", "g"] {
            fixture.deliver_pod(Pod {
                creation: Some(seconds_ago(-i64::from(seconds))),
                ..owned_pod(name, &rs)
            });
        }
        fixture.sync_ok("web");
        check(&shadow, "create", verdict);
    }
}

#[test]
fn pods_that_end_by_themselves_are_not_compared() {
    let rs = replica_set("web", 1);
    let (fixture, shadow) = shadowed(fixture(&rs, ["a", "b"].map(|name| owned_pod(name, &rs))));
    fixture.sync_ok("web");
    fixture.deliver_pod(failed("b", &rs, 0));
    fixture.sync_ok("web");
    check(&shadow, "delete", Comparison::NotCompared);
}

#[test]
fn creations_that_a_later_failure_holds_back_are_not_compared() {
    let rs = annotated(2, &[("failed-pod-backoff", "10s..5m")]);
    let (fixture, shadow) = shadowed(fixture(&rs, []));
    fixture.sync_ok("web");
    fixture.deliver_pod(owned_pod("a", &rs));
    fixture.deliver_pod(failed("b", &rs, 0));
    fixture.sync_ok("web");
    check(&shadow, "create", Comparison::NotCompared);
}

#[test]
fn leftovers_and_mistakes_are_told_and_nothing_is_written() {
    let rs = annotated(
        1,
        &[("failed-pods-kept", "0"), ("scale-down-order", "zone")],
    );
    let failed = failed("a", &rs, 8000);
    let (fixture, shadow) = shadowed(fixture(&rs, [failed.clone(), owned_pod("b", &rs)]));
    fixture.sync_ok("web");
    fixture.deliver_pod_deleted(failed);
    fixture.sync_ok("web");
    check(&shadow, "discard", Comparison::Agree);
    assert_eq!(fixture.writes.take(), []);
    assert!(fixture.writes.take_warnings().is_empty());
}

#[test]
fn an_orphan_that_is_adopted_agrees() {
    let rs = replica_set("web", 1);
    let (fixture, shadow) = shadowed(fixture(&rs, [pod("a")]));
    fixture.sync_ok("web");
    let adopted = Pod {
        resource_version: "2".into(),
        ..owned_pod("a", &rs)
    };
    fixture.deliver_pod(adopted);
    fixture.sync_ok("web");
    check(&shadow, "adopt", Comparison::Agree);
    fixture.assert_counts(0, 0, 0);
}

#[test]
fn what_other_work_interrupts_is_not_compared() {
    let rs = replica_set("web", 1);
    let (fixture, shadow) = shadowed(fixture(&rs, [pod("a")]));
    fixture.sync_ok("web");
    let mut larger = replica_set_json("web", 2);
    larger["metadata"]["resourceVersion"] = "2".into();
    fixture.deliver_replica_set(read_replica_set(&larger));
    fixture.sync_ok("web");
    check(&shadow, "adopt", Comparison::NotCompared);
}

/// Another writer has no such condition.
#[test]
fn a_back_off_is_no_disagreement_on_the_status() {
    let mut rs = annotated(1, &[("failed-pod-backoff", "10s..5m")]);
    rs.status.observed_generation = 1;
    let (fixture, shadow) = shadowed(fixture(&rs, [failed("a", &rs, 5)]));
    for _ in 0..3 {
        fixture.sync_ok("web");
        fixture.clock.advance(WINDOW);
    }
    assert!(
        !shadow
            .counts()
            .contains_key(&("status", Comparison::Disagree))
    );
}

#[test]
fn an_orphan_that_comes_later_exceeds_a_decision_once() {
    let rs = replica_set("web", 3);
    let (fixture, shadow) = shadowed(fixture(&rs, [pod("a")]));
    fixture.sync_ok("web");
    let exceed = |names: &[&str]| {
        let state = shadow.lock();
        let episode = &state.episodes[&rs.key];
        let adopts = names.iter().map(|name| pod(name).uid).collect();
        episode.is_exceeded_by(&episode.latest, &adopts)
    };
    assert!(!exceed(&["a"]) && exceed(&["a", "b"]));
    fixture.deliver_pod(pod("b"));
    fixture.sync_ok("web");
    assert!(!exceed(&["a", "b"]) && exceed(&["c"]));
}

/// An API server without `terminatingReplicas` drops it from every status, and the writer's
/// conditions are in any order.
#[test]
fn the_status_of_the_other_writer_agrees() {
    let (fixture, shadow) = shadowed(fixture(&replica_set("web", 0), []));
    let mut rs = replica_set("web", 1);
    rs.generation = 2;
    rs.resource_version = "2".into();
    fixture.deliver_replica_set(rs.clone());
    fixture.deliver_pod(owned_pod("a", &rs));
    fixture.sync_ok("web");
    let mut object = replica_set_json("web", 1);
    object["status"]["conditions"] = ["ReplicaFailure", "Other"]
        .map(|type_| json!({"type": type_, "status": "True"}))
        .into();
    rs.resource_version = "3".into();
    rs.status = ReplicaSetStatus {
        replicas: 1,
        fully_labeled_replicas: 1,
        observed_generation: 2,
        conditions: read_replica_set(&object).status.conditions,
        ..ReplicaSetStatus::default()
    };
    fixture.deliver_replica_set(rs);
    fixture.sync_ok("web");
    let agreed = [(("status", Comparison::Agree), 1)];
    assert_eq!(shadow.counts(), agreed.into(), "{shadow}");
}

/// What the log says that a dry run would do.
fn told(rs: &ReplicaSet, owned: Vec<Pod>, orphans: Vec<Pod>) -> String {
    let (fixture, _) = shadowed(fixture(rs, []));
    let selector = rs.selector.as_ref().expect("a selector");
    let listed = |pods: Vec<Pod>| pods.into_iter().map(Arc::new).collect();
    let (owned, orphans) = (listed(owned), listed(orphans));
    let facts = fixture
        .controller
        .facts(rs, selector, Pods::Listed { owned, orphans });
    let intent = Intent {
        decision: facts.decide(),
        ties: Vec::new(),
        ended: Vec::new(),
        status: None,
    };
    let work = Work::of(rs, &intent).expect("work");
    work.render(rs, &intent)
}

#[test]
fn the_log_says_what_a_dry_run_would_do() {
    let rs = replica_set("web", 2);
    let owned = |names: &[&str]| names.iter().map(|name| owned_pod(name, &rs)).collect();
    let orphan = || vec![pod("z")];
    assert_eq!(told(&rs, owned(&["a"]), vec![]), "create 1 pod: 1 of 2");
    assert_eq!(told(&rs, vec![], vec![]), "create 2 pods: 0 of 2");
    let both = told(&rs, vec![], orphan());
    assert_eq!(both, "create 1 pod: 1 of 2, and adopt z");
    assert_eq!(told(&rs, owned(&["a"]), orphan()), "adopt z");
    let surplus = told(&rs, owned(&["a", "b", "c", "d"]), vec![]);
    assert!(
        surplus.starts_with("delete 2 pods: 4, not 2: "),
        "{surplus}"
    );
}
