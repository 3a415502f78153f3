//! Reports and tables from hand-written facts.

mod deployments;
mod remedies;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::model::{Report, Sources};
use super::report::report;
use super::{HTML_ROWS_MAX, Row, Table};
use crate::api::conditions::{Condition, REPLICA_FAILURE};
use crate::api::workload_kind::REPLICA_SET;
use crate::api::{Pod, ReplicaSet, ScaleDownMark};
use crate::controller::decide::Rules;
use crate::controller::decide::deletion_order::{NodeCounts, count_on_node};
use crate::controller::memory::own_writes::OpenExpectations;
use crate::controller::memory::positions::Versions;
use crate::explain::inspect::{RecordFacts, ReplicaSetFacts};
use crate::workqueue::KeyState;

const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// A ReplicaSet `shop/web` with these replicas and conditions.
fn facts(replicas: i32, conditions: &serde_json::Value, pods: Vec<Pod>) -> ReplicaSetFacts {
    let object = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u-web", "generation": 1},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}},
        },
        "status": {"replicas": 0, "observedGeneration": 1, "conditions": conditions},
    });
    let rs = ReplicaSet::from_answer(&REPLICA_SET, object.to_string().as_bytes());
    let rs = rs.expect("a readable ReplicaSet");
    let (owned, orphans) = pods
        .into_iter()
        .map(Arc::new)
        .partition(|p| p.controller.is_some());
    ReplicaSetFacts {
        kind: &REPLICA_SET,
        rules: Rules::by_default(&REPLICA_SET, &rs),
        replica_set: Arc::new(rs),
        owned,
        orphans,
        related: Vec::new(),
        neighbours: Vec::new(),
        per_node: NodeCounts::default(),
        memory: None,
    }
}

/// A running pod of the ReplicaSet with the given fields.
fn pod(name: &str, metadata: &serde_json::Value, status: &serde_json::Value) -> Pod {
    let mut object = json!({
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("u-{name}"), "labels": {"app": "web"},
            "creationTimestamp": "2025-12-31T23:00:00Z",
            "ownerReferences":
                [{"kind": "ReplicaSet", "name": "web", "uid": "u-web", "controller": true}],
        },
        "spec": {"nodeName": "node-1"},
        "status": {"phase": "Running"},
    });
    for (part, fields) in [("metadata", metadata), ("status", status)] {
        for (field, value) in fields.as_object().into_iter().flatten() {
            object[part][field] = value.clone();
        }
    }
    let pod = Pod::from_answer(object.to_string().as_bytes());
    pod.expect("a readable pod")
}

fn running(name: &str) -> Pod {
    pod(name, &json!({}), &json!({}))
}

/// A pod that has been Ready for an hour.
fn ready(name: &str) -> Pod {
    let conditions = json!([
        {"type": "Ready", "status": "True", "lastTransitionTime": "2025-12-31T23:00:00Z"},
    ]);
    pod(name, &json!({}), &json!({"conditions": conditions}))
}

fn memory() -> RecordFacts {
    RecordFacts {
        expectations: None,
        unresolved_creations: Vec::new(),
        unresolved_deletions: Vec::new(),
        waits_for: None,
        cached: Versions::default(),
        last_sync: None,
        last_error: None,
        backed_off: None,
        other_writer: None,
        gang_workload: None,
        quotas_are_watched: false,
        queue: KeyState::default(),
    }
}

#[track_caller]
fn check(report: &Report, expected: &[&str]) {
    let text = report.to_string();
    for expected in expected {
        assert!(
            text.contains(expected),
            "{expected:?} is missing in:\n{text}"
        );
    }
}

#[test]
fn a_replica_set_in_its_desired_state_has_no_findings() {
    let facts = facts(1, &json!([]), vec![ready("web-1")]);
    let report = report(&facts, &Sources::default(), NOW);
    check(
        &report,
        &[
            "desired 1, active 1, ready 1, available 1 (owns 1 pods)",
            "Converged: 1 of 1 pods are available.",
            "Next sync: no action",
        ],
    );
    assert!(report.findings.is_empty());
}

#[test]
fn an_exceeded_quota_comes_with_its_remedy() {
    let message = "pods \"web-x\" is forbidden: exceeded quota: small, requested: pods=1, used: \
                   pods=2, limited: pods=2";
    let condition = json!([{
        "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message,
    }]);
    let facts = facts(3, &condition, vec![running("web-1"), running("web-2")]);
    let report = report(&facts, &Sources::default(), NOW);
    check(
        &report,
        &[
            "exceeded quota: small",
            "fix: raise the quota",
            "kubectl -n shop describe quota",
            "Next sync: create 1 pod",
            "ReplicaFailure=True FailedCreate",
        ],
    );
}

#[test]
fn a_protected_pod_more_than_desired_is_no_matching_count() {
    let kept = Pod {
        scale_down: ScaleDownMark::Never,
        ..running("web-1")
    };
    let mut facts = facts(0, &json!([]), vec![kept]);
    facts.rules.policy.scale_down_protection = true;
    check(
        &report(&facts, &Sources::default(), NOW),
        &["1 pod has the annotation", "\n  - 0 of 1 available: "],
    );
}

#[test]
fn pods_that_block_a_scale_down_are_named() {
    let marked = |name: &str, scale_down| Pod {
        scale_down,
        ..ready(name)
    };
    let pods = vec![
        marked("web-1", ScaleDownMark::Never),
        marked("web-2", ScaleDownMark::Never),
        marked("web-3", ScaleDownMark::First),
    ];
    let mut facts = facts(1, &json!([]), pods);
    facts.rules.policy.scale_down_protection = true;
    let blocked = report(&facts, &Sources::default(), NOW);
    check(
        &blocked,
        &[
            "protected pods have blocked the scale-down since 2026-01-01T00:00:00Z: 2 pods have",
            "(web-1, web-2), 1 more than spec.replicas (1); kept",
            "kubectl -n shop annotate pod web-1 replicaset-controller/scale-down-",
            "annotate replicaset web replicaset-controller/protected-timeout=30m",
            "Next sync: delete 1 pod",
            "web-3  scale-down: annotated scale-down=first, unlike web-1",
        ],
    );
    facts.rules.policy.protected_timeout = Some(Duration::from_mins(30));
    let limited = report(&facts, &Sources::default(), NOW);
    check(&limited, &["; kept until 2026-01-01T00:30:00Z"]);
    facts.owned.pop();
    let rest = report(&facts, &Sources::default(), NOW);
    check(
        &rest,
        &[
            "Next sync: no action",
            "Not deleted by a scale-down (scale-down=never): web-1",
        ],
    );
    // Without protection the marks mean nothing.
    facts.rules.policy.scale_down_protection = false;
    assert_eq!(report(&facts, &Sources::default(), NOW).next.count, 1);
}

#[test]
fn what_a_flag_of_the_daemon_does_is_read_from_the_conditions() {
    let blocked =
        json!([{"type": "ScaleDownBlocked", "status": "True", "reason": "ProtectedPods"}]);
    let never = Pod {
        scale_down: ScaleDownMark::Never,
        ..ready("web-1")
    };
    let protecting = facts(0, &blocked, vec![never]);
    let protecting = report(&protecting, &Sources::default(), NOW);
    check(
        &protecting,
        &["Next sync: no action", "1 more than spec.replicas (0)"],
    );
    let waits = json!([{
        "type": "ReplicaFailure", "reason": "FailedPodBackoff", "message": "2 pods have failed",
    }]);
    let mut of_daemon = facts(1, &waits, Vec::new());
    of_daemon.memory = Some(memory());
    let of_daemon = report(&of_daemon, &Sources::default(), NOW);
    assert!(
        !of_daemon.to_string().contains("a flag of the daemon"),
        "{of_daemon}"
    );
    let waiting = report(&facts(1, &waits, Vec::new()), &Sources::default(), NOW);
    check(
        &waiting,
        &[
            "a flag of the daemon backs off replacements of Failed pods: 2 pods have failed",
            "use --server",
        ],
    );
    assert!(
        !waiting
            .to_string()
            .contains("nothing in the API explains the delay"),
        "{waiting}"
    );
}

#[test]
fn the_start_is_that_of_the_earliest_finding() {
    let since = |facts: &ReplicaSetFacts| report(facts, &Sources::default(), NOW).since;
    let at = |text: &str| Some(text.parse::<Timestamp>().expect("a time"));
    assert_eq!(since(&facts(1, &json!([]), vec![ready("web-1")])), None);
    assert_eq!(since(&facts(2, &json!([]), Vec::new())), None);
    let lost = json!([
        {"type": "Ready", "status": "False", "lastTransitionTime": "2025-12-31T23:30:00Z"},
    ]);
    let lost = pod("web-1", &json!({}), &json!({"conditions": lost}));
    let failure = json!([{
        "type": "ReplicaFailure", "status": "True", "lastTransitionTime": "2025-12-31T21:00:00Z",
    }]);
    let both = [&json!([]), &failure].map(|it| facts(2, it, vec![lost.clone()]));
    assert_eq!(since(&both[0]), at("2025-12-31T23:30:00Z"));
    assert_eq!(since(&both[1]), at("2025-12-31T21:00:00Z"));
}

#[test]
fn annotations_without_effect_are_a_problem() {
    let mut facts = facts(1, &json!([]), vec![ready("web-1")]);
    let rs = Arc::make_mut(&mut facts.replica_set);
    rs.opt_ins = [("replicaset-controller/scale-down-oder", "spread")]
        .into_iter()
        .collect();
    let found = report(&facts, &Sources::default(), NOW);
    check(
        &found,
        &["ignoring the annotation replicaset-controller/scale-down-oder"],
    );
}

#[test]
fn open_expectations_block_the_sync() {
    let mut facts = facts(2, &json!([]), vec![running("web-1")]);
    facts.memory = Some(RecordFacts {
        expectations: Some(OpenExpectations {
            creations: vec!["web-new".into()],
            deletions: Vec::new(),
            age: Duration::from_secs(42),
        }),
        ..memory()
    });
    let report = report(&facts, &Sources::default(), NOW);
    check(
        &report,
        &[
            "1 creates (web-new) and 0 deletes sent 42.0 s ago",
            "but not yet: the watch has not confirmed 1 creates and 0 deletes",
            "expectations: 42.0 s old; to be created: web-new; to be deleted: none",
        ],
    );
    assert_eq!(report.source, "daemon");
}

#[test]
fn a_back_off_shows_the_next_try() {
    let mut facts = facts(2, &json!([]), vec![]);
    facts.memory = Some(RecordFacts {
        queue: KeyState {
            due_in: Some(Duration::from_secs(40)),
            n_failures: 13,
            ..KeyState::default()
        },
        ..memory()
    });
    let report = report(&facts, &Sources::default(), NOW);
    check(
        &report,
        &["in back-off after 13 failures; next attempt in 40.0 s"],
    );
}

#[test]
fn a_terminating_namespace_is_a_finding() {
    let facts = facts(2, &json!([]), vec![]);
    let sources = Sources {
        namespace_is_terminating: Some(true),
        ..Sources::default()
    };
    check(
        &report(&facts, &sources, NOW),
        &[
            "the namespace shop is being terminated",
            "use another namespace",
        ],
    );
}

#[test]
fn inactive_pods_have_a_reason() {
    let pods = vec![
        running("web-1"),
        pod("web-done", &json!({}), &json!({"phase": "Succeeded"})),
        pod(
            "web-stray",
            &json!({"labels": {"app": "other"}}),
            &json!({}),
        ),
        pod("web-orphan", &json!({"ownerReferences": []}), &json!({})),
        pod(
            "web-stuck",
            &json!({"deletionTimestamp": "2025-12-31T23:00:00Z"}),
            &json!({}),
        ),
    ];
    let facts = facts(2, &json!([]), pods);
    let sources = Sources {
        finalizers: [("u-web-stuck".into(), vec!["example.com/hold".to_owned()])]
            .into_iter()
            .collect(),
        ..Sources::default()
    };
    let report = report(&facts, &sources, NOW);
    check(
        &report,
        &[
            "adopt web-orphan, release web-stray",
            "web-done: phase Succeeded",
            "web-stray: its labels do not match",
            "web-stuck: terminating, grace period until 2025-12-31T23:00:00Z; finalizer \
             example.com/hold is present",
            "pod web-stuck is stuck",
        ],
    );
    assert_eq!((report.owned, report.active), (4, 2));
}

#[test]
fn deletions_name_the_deciding_rule() {
    let ready = json!({"conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2025-12-31T23:10:00Z"},
    ]});
    let cheap = json!({"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-5"}});
    let pods = vec![
        pod(
            "web-keep",
            &json!({}),
            &json!({"phase": "Running", "conditions": ready["conditions"]}),
        ),
        pod("web-cheap", &cheap, &ready),
        running("web-unready"),
    ];
    let facts = facts(1, &json!([]), pods);
    let report = report(&facts, &Sources::default(), NOW);
    check(
        &report,
        &[
            "Next sync: delete 2 pods",
            "web-unready  not-ready: not Ready, unlike web-keep",
            "web-cheap  deletion-cost: deletion cost -5, web-keep 0",
        ],
    );
    let order: Vec<_> = report.deletion_order.iter().map(|d| &*d.pod).collect();
    assert_eq!(order, ["web-unready", "web-cheap", "web-keep"]);
    let json = serde_json::to_value(&report).expect("JSON");
    assert_eq!(json["next"]["pods"][1]["rule"], "deletion-cost");
}

/// The lists themselves are cut, both in JSON and, shorter, in the text.
#[test]
fn what_a_cut_list_leaves_out_is_counted() {
    let names = (0..505).map(|n| format!("web-{n:03}"));
    let pods = names.map(|name| ready(&name)).collect();
    let mut facts = facts(5, &json!([]), pods);
    facts.rules.burst_replicas = 500;
    let creations = (0..200).map(|n| format!("web-new-{n:03}").into());
    let uids = facts.owned.iter().map(|pod| pod.uid.clone());
    facts.memory = Some(RecordFacts {
        expectations: Some(OpenExpectations {
            creations: creations.collect(),
            deletions: uids.take(150).collect(),
            age: Duration::from_secs(1),
        }),
        unresolved_creations: vec!["web-lost".into(); 120],
        ..memory()
    });
    let delete = report(&facts, &Sources::default(), NOW);
    check(
        &delete,
        &[
            "Next sync: delete 500 pods, but not yet: ",
            "web-009 and 90 more  equal to web-500\n  … and 400 more\n",
            "web-new-009 and 190 more; to be deleted: ",
            "web-009 and 140 more\n",
            "web-lost and 110 more\n",
        ],
    );
    let json = serde_json::to_value(&delete).expect("JSON");
    for (list, total) in [
        ("/next/pods", 500),
        ("/deletionOrder", 505),
        ("/memory/expectedCreations", 200),
        ("/memory/expectedDeletions", 150),
        ("/memory/unresolved", 120),
    ] {
        let named = json.pointer(list).and_then(|list| list.as_array());
        assert_eq!(named.map(Vec::len), Some(100), "{list}");
        assert_eq!(json.pointer(&format!("{list}Total")), Some(&json!(total)));
    }

    let mut rs = ReplicaSet::clone(&facts.replica_set);
    rs.replicas = 505;
    facts.replica_set = Arc::new(rs);
    facts.memory = None;
    check(
        &report(&facts, &Sources::default(), NOW),
        &[
            "A scale-down would delete, in this order:",
            "  … and 405 more\n",
        ],
    );
}

#[test]
fn preferences_of_a_scale_down_are_explained() {
    let on = |name, node: &str| Pod {
        node: Some(node.into()),
        ..ready(name)
    };
    let pods = vec![
        on("web-a", "node-1"),
        on("web-b", "node-1"),
        on("web-c", "node-2"),
        on("web-d", "node-3"),
        on("web-e", "node-3"),
        on("web-f", "node-3"),
    ];
    let mut facts = facts(2, &json!([]), pods);
    for pod in &facts.owned {
        count_on_node(pod, &mut facts.per_node);
    }
    for (order, lines) in [
        (
            "consolidate",
            &[
                "web-c  consolidate: the last pod on node-2",
                "web-a  consolidate: one of the last 2 pods on node-1, all of which are deleted",
                "web-d  consolidate: node-3 has 3 active pods; nodes with fewer pods are emptied first",
            ][..],
        ),
        (
            "spread, consolidate",
            &[
                "web-d  spread: 3 pods are in node node-3, and no other domain has more pods to \
               delete; node-3 has 3",
            ],
        ),
    ] {
        facts.rules.policy.scale_down_order = order.parse().expect("an order");
        let report = report(&facts, &Sources::default(), NOW);
        check(&report, &["Next sync: delete 4 pods"]);
        check(&report, lines);
    }

    let mut rs = ReplicaSet::clone(&facts.replica_set);
    rs.replicas = 6;
    facts.replica_set = Arc::new(rs);
    facts.rules.policy.scale_down_order = "consolidate".parse().expect("an order");
    let report = report(&facts, &Sources::default(), NOW);
    check(
        &report,
        &[
            "A scale-down would delete, in this order:",
            "web-c  consolidate: the last pod on node-2",
            "web-f  deleted last",
        ],
    );
}

#[test]
fn foreign_text_is_escaped() {
    let message = "rejected\n\u{1b}[2J\u{1b}]0;title\u{7}\nIt has what it wants. \
                   forbidden: User \"\u{1b}[3J\" cannot create";
    let conditions = json!([{
        "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message,
    }]);
    let facts = facts(1, &conditions, Vec::new());
    let report = report(&facts, &Sources::default(), NOW);
    let text = report.to_string();
    assert!(!text.contains(['\u{1b}', '\u{7}']), "{text}");
    assert!(text.contains("rejected\\n\\u{1b}[2J"), "{text}");
    assert!(!text.contains("\nIt has what it wants."), "{text}");
}

/// The reasons of the pods with these UIDs.
fn reasons(reasons: &[(&str, &str)]) -> Sources {
    let reasons = reasons.iter();
    let reasons = reasons.map(|(uid, reason)| ((*uid).into(), (*reason).to_owned()));
    Sources {
        reasons: reasons.collect(),
        ..Sources::default()
    }
}

#[test]
fn unavailable_pods_are_grouped_by_reason() {
    let unscheduled = |name: &str| Pod {
        node: None,
        ..pod(name, &json!({}), &json!({"phase": "Pending"}))
    };
    let pods = vec![
        unscheduled("web-1"),
        unscheduled("web-2"),
        pod("web-3", &json!({}), &json!({"phase": "Pending"})),
        running("web-4"),
    ];
    let facts = facts(4, &json!([]), pods);
    let sources = reasons(&[
        ("u-web-1", "Unschedulable"),
        ("u-web-2", "Unschedulable"),
        ("u-web-3", "ImagePullBackOff"),
        ("u-web-4", "CrashLoopBackOff"),
    ]);
    check(
        &report(&facts, &sources, NOW),
        &[
            "pod count matches; 0 of 4 available: 2 Pending, no node (Unschedulable); 1 Pending, \
             not Running yet (ImagePullBackOff); 1 Running, not Ready (CrashLoopBackOff)",
            "fix: kubectl -n shop describe pod web-1",
        ],
    );
}

#[test]
fn pods_below_min_ready_seconds_are_a_finding() {
    let mut facts = facts(2, &json!([]), vec![ready("web-1"), ready("web-2")]);
    let rs = Arc::make_mut(&mut facts.replica_set);
    rs.min_ready_seconds = 7_200;
    check(
        &report(&facts, &Sources::default(), NOW),
        &["0 of 2 available: 2 Ready for less than minReadySeconds (7200 s)"],
    );
}

#[test]
fn pods_that_fail_as_fast_as_replaced_are_a_finding() {
    let failed = |n: u32| {
        let created = format!("2025-12-31T23:59:{:02}Z", 40 + n);
        let metadata = json!({"creationTimestamp": created});
        pod(&format!("web-{n}"), &metadata, &json!({"phase": "Failed"}))
    };
    let looping = facts(2, &json!([]), (0..10).map(failed).collect());
    let sources = reasons(&[("u-web-9", "OutOfpods")]);
    let looping_report = report(&looping, &sources, NOW);
    check(
        &looping_report,
        &[
            "10 pods that were created within 9 s failed, reason OutOfpods, on node-1; each is \
             replaced immediately",
            "fix: kubectl -n shop describe pod web-9",
        ],
    );
    assert!(
        !looping_report
            .to_string()
            .contains("nothing in the API explains the delay"),
        "{looping_report}"
    );
    let mut waiting = looping.clone();
    let rs = Arc::make_mut(&mut waiting.replica_set);
    rs.opt_ins = [("replicaset-controller/failed-pod-backoff", "20s..5m")]
        .into_iter()
        .collect();
    let message = Some("a message that the finding replaces".to_owned());
    rs.status.conditions = vec![Condition {
        type_: REPLICA_FAILURE.to_owned(),
        reason: Some("FailedPodBackoff".to_owned()),
        message,
        ..Condition::default()
    }];
    waiting.rules = Rules::by_default(&REPLICA_SET, rs);
    let report = report(&waiting, &sources, NOW);
    check(
        &report,
        &[
            "10 pods have failed, the last one on node-1 (no reason given); current round since \
             2025-12-31T23:59:40Z; 2 replacement pods are delayed; the next is created at \
             2026-01-01T00:00:09Z, one every 20 s",
            "fix: kubectl -n shop describe pod web-9; the back-off ends when one pod is Ready or \
             the Failed pods are deleted: kubectl -n shop delete pods -l app=web \
             --field-selector status.phase=Failed",
            "2 of them are delayed because earlier pods failed",
        ],
    );
    assert_eq!(report.findings.len(), 1, "{report}");
}

#[test]
fn few_failed_pods_are_no_finding_and_those_not_kept_are_named() {
    let failed = |n: u32| pod(&format!("web-{n}"), &json!({}), &json!({"phase": "Failed"}));
    let few = facts(2, &json!([]), (0..4).map(failed).collect());
    let text = report(&few, &Sources::default(), NOW).to_string();
    assert!(!text.contains("created within"), "{text}");
    let mut keeps_one = few.clone();
    keeps_one.rules.policy.failed_pods_kept = Some(1);
    let text = report(&keeps_one, &Sources::default(), NOW).to_string();
    assert!(text.contains("delete 3 old Failed pods"), "{text}");
}

#[test]
fn the_reason_of_a_row_is_the_first_finding_or_the_next_step() {
    let reason = |facts: &ReplicaSetFacts| {
        let report = report(facts, &Sources::default(), NOW);
        (!report.has_converged()).then(|| report.reason())
    };
    assert_eq!(reason(&facts(1, &json!([]), vec![ready("a")])), None);
    let message = "exceeded quota: two";
    let condition = json!([{"type": "ReplicaFailure", "status": "True", "message": message}]);
    let rejected = reason(&facts(2, &condition, vec![ready("a")]));
    let (why, fix) = rejected.expect("it lacks a pod");
    assert_eq!(why, format!("the last attempt failed: {message}"));
    assert!(fix.is_some_and(|it| it.contains("quota")));

    let mut known = facts(2, &json!([]), vec![ready("a")]);
    known.memory = Some(memory());
    let next = "next sync: create 1 pod".to_owned();
    assert_eq!(reason(&known), Some((next, None)));
    let mut orphan = ready("b");
    orphan.controller = None;
    known.orphans = vec![Arc::new(orphan)];
    let next = "next sync: adopt b".to_owned();
    assert_eq!(
        reason(&known),
        Some((next, None)),
        "although no pod is missing"
    );
}

#[test]
fn pods_that_no_rule_separates_share_a_line_by_name() {
    let younger = pod(
        "web-0",
        &json!({"creationTimestamp": "2025-12-31T23:30:00Z"}),
        &json!({}),
    );
    let equal = |names: [&str; 3]| names.map(running).into_iter().chain([younger.clone()]);
    // As a cache and the API server list them.
    let of = |replicas, names| {
        let facts = facts(replicas, &json!([]), equal(names).collect());
        report(&facts, &Sources::default(), NOW)
    };
    let (names, listed) = (["web-3", "web-1", "web-2"], ["web-1", "web-2", "web-3"]);
    assert_eq!(of(4, names).to_string(), of(4, listed).to_string());
    check(
        &of(4, names),
        &["web-1, web-2, web-3  equal, in any order; deleted last"],
    );
    let one = of(1, names);
    assert_eq!(one.to_string(), of(1, listed).to_string());
    check(&one, &["web-1, web-2  equal to web-3"]);
}

#[test]
fn siblings_and_overlapping_selectors_are_named() {
    let set = |name: &str, replicas: i32, owner: &str| {
        let mut rs = (*facts(replicas, &json!([]), Vec::new()).replica_set).clone();
        rs.key = crate::api::ObjectKey::new("shop", name);
        rs.uid = name.into();
        rs.status.replicas = replicas;
        if owner.is_empty() {
            return Arc::new(rs);
        }
        rs.template_labels = crate::api::Labels::default();
        rs.controller = Some(Arc::new(crate::api::ControllerRef {
            kind: "Deployment".into(),
            name: owner.into(),
            uid: owner.into(),
        }));
        Arc::new(rs)
    };
    let mut facts = facts(0, &json!([]), Vec::new());
    facts.replica_set = set("web-2", 0, "web");
    facts.neighbours = vec![
        set("web-1", 3, "web"),
        set("web-0", 0, "web"),
        set("other", 0, "api"),
        set("twin", 1, ""),
    ];
    check(
        &report(&facts, &Sources::default(), NOW),
        &[
            "ReplicaSet shop/web-2 of Deployment web\n",
            "  same owner: web-1, desired 3, replicas 3\n  same owner: 1 more, scaled to 0\n",
            "its selector also matches pods of rs/twin\n",
        ],
    );
}

fn row(kind: &str, namespace: &str, name: &str, reason: &str) -> Row {
    Row {
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        owner: (kind == "ReplicaSet").then(|| "Deployment/web".to_owned()),
        desired: 3,
        active: 2,
        ready: 1,
        available: 0,
        reason: reason.to_owned(),
        fix: None,
        since: None,
        next: "create 1 pod".to_owned(),
    }
}

#[test]
fn both_kinds_are_in_one_table_by_namespace_and_name() {
    let mut table = Table::of("ReplicaSet", 10);
    table.not_converged = vec![row("ReplicaSet", "shop", "web", "no quota")];
    let mut other = Table::of("ReplicationController", 2);
    other.not_converged = vec![row(
        "ReplicationController",
        "a",
        "old",
        "a\nforged\u{1b}[2K",
    )];
    table.merge(other);
    let expected = "\
NAMESPACE   NAME     OWNER            DESIRED   ACTIVE   READY   AVAILABLE   REASON
a           rc/old   -                3         2        1       0           a\\nforged\\u{1b}[2K
shop        rs/web   Deployment/web   3         2        1       0           no quota

2 of 12 ReplicaSets and ReplicationControllers have not converged
";
    assert_eq!(table.to_string(), expected);
    let json = serde_json::to_string(&table).expect("text keys");
    let read: Table = serde_json::from_str(&json).expect("a table");
    assert_eq!(read, table);
}

#[test]
fn a_browser_sees_the_table_and_runs_none_of_it() {
    let now: jiff::Timestamp = "2026-01-01T00:10:00Z".parse().expect("a time");
    let mut table = Table::of("ReplicaSet", 10);
    let reason = "<script>alert(\"a & b\")</script>\u{202e}";
    table.not_converged = vec![Row {
        fix: Some("<b>raise it</b>".to_owned()),
        since: "2026-01-01T00:08:30Z".parse().ok(),
        ..row("ReplicaSet", "shop", "web", reason)
    }];
    let html = table.html(now);
    for part in [
        "<h2>1 of 10 ReplicaSets has not converged</h2>",
        "<a href=\"/debug/replicasets/shop/web\">rs/web</a>",
        "title=\"2026-01-01T00:08:30Z\">1m 30s</time>",
        "&lt;script&gt;alert(&quot;a &amp; b&quot;)&lt;/script&gt;\\u{202e}",
        "<p>&lt;b&gt;raise it&lt;/b&gt;</p>",
        "<td>create 1 pod</td>",
    ] {
        assert!(html.contains(part), "no {part} in {html}");
    }
    assert!(!html.contains("<script") && !html.contains("<b>"), "{html}");
    let many = vec![row("ReplicaSet", "shop", "web", "no quota"); HTML_ROWS_MAX + 3];
    table.not_converged = many;
    assert!(table.html(now).contains("<p>and 3 more</p>"));
    let all = Table::of("ReplicaSet", 4).html(now);
    assert_eq!(all, "<h2>4 of 4 ReplicaSets have converged</h2>\n");
}

#[test]
fn an_empty_table_is_explained() {
    let mut table = Table::of("ReplicaSet", 0);
    assert_eq!(table.to_string(), "no ReplicaSets found\n");
    table.merge(Table::of("ReplicaSet", 4));
    assert_eq!(table.to_string(), "4 of 4 ReplicaSets have converged\n");
}
