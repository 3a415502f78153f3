//! Decisions, by tables. The cases of scaling are upstream's (kubernetes
//! `pkg/controller/deployment/{sync,rolling,recreate,progress}_test.go`).

mod rolling_world;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DeploymentCondition, DeploymentStatus};
use serde_json::{Value, json};

use super::{Step, View, Write, after_collision, after_failed_create, decide};
use crate::fenceposts::Fenceposts;
use crate::objects::{Annotations, Deployment, ReplicaSet};
use crate::status::{PROGRESSING, condition};

pub(super) const NOW: &str = "2026-01-01T01:00:00Z";

/// A change of an object's JSON.
pub(crate) type Change<'a> = &'a dyn Fn(&mut Value);

/// A Deployment `web` of three pods with the template `v9`, without surge.
pub(crate) fn deployment(changes: &[Change<'_>]) -> Deployment {
    let mut object = json!({
        "metadata": {"namespace": "default", "name": "web", "uid": "d", "generation": 1},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}},
            "template": template(9, None),
            "progressDeadlineSeconds": 600,
        },
    });
    for change in changes {
        change(&mut object);
    }
    Deployment::from_json(object.to_string().as_bytes()).expect("a Deployment")
}

fn template(version: u8, hash: Option<String>) -> Value {
    let mut template = json!({
        "metadata": {"labels": {"app": "web"}, "creationTimestamp": null},
        "spec": {"containers": [{"name": "a", "image": format!("web:{version}")}]},
    });
    if let Some(hash) = hash {
        template["metadata"]["labels"]["pod-template-hash"] = json!(hash);
    }
    template
}

pub(crate) fn scaled(
    replicas: i32,
    surge: impl Into<Value>,
    missing: impl Into<Value>,
) -> Deployment {
    let (surge, missing) = (surge.into(), missing.into());
    deployment(&[&move |it| {
        it["spec"]["replicas"] = json!(replicas);
        it["spec"]["strategy"]["rollingUpdate"] =
            json!({"maxSurge": surge, "maxUnavailable": missing});
    }])
}

/// The ReplicaSet of template `version`, created in this order. Revision and version are equal.
pub(crate) fn replica_set(version: u8, replicas: i32, available: i32) -> ReplicaSet {
    let object = json!({
        "metadata": {
            "namespace": "default", "name": format!("web-{version}"), "uid": format!("rs{version}"),
            "resourceVersion": "1", "generation": 1,
            "creationTimestamp": format!("2026-01-01T00:00:0{version}Z"),
            "labels": {"app": "web"},
            "annotations": {"deployment.kubernetes.io/revision": version.to_string()},
            "ownerReferences": [{"kind": "Deployment", "name": "web", "uid": "d", "controller": true}],
        },
        "spec": {"replicas": replicas, "template": template(version, Some(format!("h{version}")))},
        "status": {
            "replicas": available, "availableReplicas": available, "readyReplicas": available,
            "observedGeneration": 1,
        },
    });
    ReplicaSet::from_json(object.to_string().as_bytes()).expect("a ReplicaSet")
}

/// The same with the annotations of a Deployment of this size.
fn sized(mut rs: ReplicaSet, desired: i32, max: i32) -> ReplicaSet {
    for (key, n) in [("desired", desired), ("max", max)] {
        let key = format!("deployment.kubernetes.io/{key}-replicas");
        rs.annotations.insert(key, n.to_string());
    }
    rs
}

pub(crate) fn view<'a>(d: &'a Deployment, sets: &[ReplicaSet]) -> View<'a> {
    View {
        deployment: d,
        replica_sets: sets.iter().cloned().map(Arc::new).collect(),
        with_pods: BTreeSet::new(),
        counts_terminating: true,
        now: NOW.parse().expect("a time"),
    }
}

fn step(d: &Deployment, sets: &[ReplicaSet]) -> Step {
    decide(view(d, sets)).expect("a known strategy")
}

/// The new sizes of the ReplicaSets that change, by name.
fn sizes(step: &Step) -> Vec<(String, i32)> {
    let mut sizes: Vec<_> = step.writes.iter().filter_map(size).collect();
    sizes.sort();
    sizes
}

pub(super) fn size(write: &Write) -> Option<(String, i32)> {
    match write {
        Write::Create { rs, .. } => Some(("new".to_owned(), rs.replicas)),
        Write::Update { rs, replicas, .. } if rs.replicas != *replicas => {
            Some((rs.key.name.to_string(), *replicas))
        }
        _ => None,
    }
}

pub(super) fn status(step: &Step) -> Option<&DeploymentStatus> {
    step.writes.iter().find_map(|write| match write {
        Write::Status { status, .. } => Some(status),
        _ => None,
    })
}

#[track_caller]
fn progress(step: &Step) -> &DeploymentCondition {
    let status = status(step).expect("a status is written");
    condition(status, PROGRESSING).expect("the condition is there")
}

fn reason(condition: &DeploymentCondition) -> (&str, &str) {
    let reason = condition.reason.as_deref().expect("a reason");
    (condition.status.as_deref().expect("a status"), reason)
}

/// A rollout to version 9, whose ReplicaSet has `new` pods, from version 1.
#[track_caller]
fn check_roll(d: &Deployment, old: [i32; 2], new: [i32; 2], expected: &[(&str, i32)]) {
    let sets = [
        replica_set(1, old[0], old[1]),
        replica_set(9, new[0], new[1]),
    ];
    let expected: Vec<_> = expected
        .iter()
        .map(|(name, n)| ((*name).to_owned(), *n))
        .collect();
    assert_eq!(sizes(&step(d, &sets)), expected);
}

#[test]
fn the_new_replica_set_grows_as_far_as_the_surge_allows() {
    check_roll(&scaled(10, 2, 0), [10, 10], [0, 0], &[("web-9", 2)]);
    check_roll(&scaled(10, 2, 0), [5, 5], [0, 0], &[("web-9", 7)]);
    check_roll(&scaled(10, 2, 0), [10, 8], [2, 0], &[]);
    check_roll(&scaled(10, 2, 0), [2, 2], [11, 0], &[("web-9", 10)]);
    check_roll(&scaled(10, "25%", 0), [10, 10], [0, 0], &[("web-9", 3)]);
}

#[test]
fn old_replica_sets_shrink_while_enough_pods_are_available() {
    check_roll(&scaled(10, 0, 0), [10, 10], [0, 0], &[("web-1", 9)]);
    check_roll(&scaled(10, 0, 2), [10, 10], [0, 0], &[("web-1", 8)]);
    check_roll(&scaled(10, 0, "25%"), [10, 10], [0, 0], &[("web-1", 8)]);
    // Pods that are not available go first.
    check_roll(&scaled(10, 0, 2), [10, 8], [0, 0], &[("web-1", 8)]);
    check_roll(&scaled(10, 0, 2), [10, 9], [0, 0], &[("web-1", 8)]);
    check_roll(&scaled(10, 0, 2), [10, 2], [0, 0], &[("web-1", 8)]);
    // The pods of the new one that are not available count.
    check_roll(&scaled(10, 0, 2), [8, 8], [2, 0], &[]);
    // The status shows pods that an earlier scale-down ends.
    check_roll(&scaled(10, 3, 2), [8, 10], [5, 4], &[("web-1", 4)]);
}

#[test]
fn old_replica_sets_shrink_by_age() {
    let sets = [
        replica_set(1, 4, 4),
        replica_set(2, 6, 5),
        replica_set(9, 3, 3),
    ];
    let sizes = sizes(&step(&scaled(10, 3, 2), &sets));
    // One of web-2 is not available; four others may go.
    assert_eq!(sizes, [("web-1".to_owned(), 0), ("web-2".to_owned(), 5)]);
}

/// Versions and sizes before, the template's version, and sizes after.
#[track_caller]
fn check_scale(d: &Deployment, before: (i32, i32), sets: &[(u8, i32, i32)]) {
    let (desired, max) = before;
    let sizes_before = sets.iter();
    let sets_before: Vec<_> = sizes_before
        .map(|(version, size, _)| sized(replica_set(*version, *size, *size), desired, max))
        .collect();
    let expected = sets.iter().filter(|(_, before, after)| before != after);
    let expected: Vec<_> = expected
        .map(|(version, _, after)| (format!("web-{version}"), *after))
        .collect();
    assert_eq!(sizes(&step(d, &sets_before)), expected);
}

#[test]
fn a_scaled_deployment_scales_its_replica_sets_by_their_shares() {
    let of = |replicas| scaled(replicas, 0, 0);
    check_scale(&of(12), (10, 10), &[(9, 10, 12)]);
    check_scale(&of(5), (10, 10), &[(9, 10, 5)]);
    check_scale(&of(10), (5, 5), &[(1, 3, 6), (9, 2, 4)]);
    check_scale(&of(3), (5, 5), &[(1, 3, 2), (9, 2, 1)]);
    check_scale(&of(4), (9, 9), &[(1, 1, 0), (9, 8, 4)]);
    check_scale(&of(10), (7, 7), &[(1, 2, 3), (2, 3, 4), (9, 2, 3)]);
    check_scale(&of(8), (13, 13), &[(1, 3, 2), (2, 8, 5), (9, 2, 1)]);
    check_scale(&of(4), (3, 3), &[(1, 1, 1), (2, 1, 1), (9, 1, 2)]);
    check_scale(&of(2), (3, 3), &[(1, 1, 0), (2, 1, 1), (9, 1, 1)]);
    check_scale(&of(5), (4, 4), &[(1, 2, 2), (2, 2, 3)]);
    check_scale(&of(0), (6, 6), &[(1, 1, 0), (2, 2, 0), (9, 3, 0)]);
    check_scale(&scaled(20, 2, 0), (10, 12), &[(1, 6, 11), (9, 6, 11)]);
    check_scale(&scaled(50, 6, 0), (10, 13), &[(1, 8, 34), (9, 5, 22)]);
    check_scale(&of(14), (10, 10), &[(1, 3, 4), (2, 7, 10)]);
}

/// Each number is one that the API accepts.
#[test]
fn the_largest_numbers_do_not_overflow() {
    let max = i32::MAX;
    let unlimited = scaled(12, max, 0);
    // As many as the surge allows, which is no limit: none shrinks.
    let sets = [(1, 10, 10), (9, 10, 10)];
    let sets = sets.map(|(version, size, n)| sized(replica_set(version, size, n), 10, max));
    let after = sizes(&step(&unlimited, &sets));
    let [(name, size)] = &after[..] else {
        panic!("{after:?}");
    };
    assert!(name == "web-9" && *size > 10, "{after:?}");
    check_scale(&scaled(12, 0, 0), (max, max), &[(1, max, 0), (9, max, 12)]);
    let huge = [replica_set(1, max, max), replica_set(9, max, max)];
    assert_eq!(
        sizes(&step(&scaled(max, 0, 1), &huge)),
        [("web-1".to_owned(), max - 1)]
    );
    let percent = scaled(3, "9223372036854775807%", 0);
    assert_eq!(Fenceposts::of(&percent).max_surge, max);
    let mut old = replica_set(1, 0, 0);
    let last = i64::MAX.to_string();
    let revision = "deployment.kubernetes.io/revision";
    old.annotations.insert(revision.to_owned(), last.clone());
    let step = step(&scaled(3, 1, 0), &[old, replica_set(9, 3, 3)]);
    let revisions = step.writes.iter().filter_map(|write| match write {
        Write::Update { patch, .. } => Some(&patch["metadata"]["annotations"][revision]),
        _ => None,
    });
    assert_eq!(revisions.collect::<Vec<_>>(), [&json!(last)]);
}

#[test]
fn one_that_was_scaled_already_is_not_scaled_again() {
    let sets = [
        sized(replica_set(1, 1, 1), 5, 5),
        sized(replica_set(2, 1, 1), 3, 3),
        sized(replica_set(9, 2, 2), 5, 5),
    ];
    assert_eq!(
        sizes(&step(&scaled(5, 0, 0), &sets)),
        [("web-2".to_owned(), 2)]
    );
}

#[test]
fn a_saturated_replica_set_ends_the_others() {
    let paused = |available| {
        let d = deployment(&[&|it| it["spec"]["paused"] = json!(true)]);
        let new = sized(replica_set(9, 3, available), 3, 3);
        sizes(&step(&d, &[sized(replica_set(1, 1, 1), 3, 3), new]))
    };
    assert_eq!(paused(3), [("web-1".to_owned(), 0)]);
    // Four pods for three: the share of the older one is deleted.
    assert_eq!(
        paused(0),
        [("web-1".to_owned(), 1), ("web-9".to_owned(), 2)][1..]
    );
}

#[test]
fn a_new_template_gets_a_replica_set_with_its_hash() {
    let d = deployment(&[
        &|it| {
            it["metadata"]["annotations"] =
                json!({"team": "shop", "deployment.kubernetes.io/revision": "1"});
        },
        &|it| it["spec"]["strategy"]["rollingUpdate"]["maxSurge"] = json!(1),
        &|it| it["spec"]["minReadySeconds"] = json!(7),
        &|it| it["status"] = json!({"replicas": 3, "readyReplicas": 3, "availableReplicas": 3}),
    ]);
    let step = step(&d, &[replica_set(1, 3, 3)]);
    let [
        Write::Create { rs, object },
        Write::Status {
            status,
            annotations,
        },
    ] = &*step.writes
    else {
        panic!("{step:?}");
    };
    let hash = object["metadata"]["labels"]["pod-template-hash"]
        .as_str()
        .expect("a hash");
    assert_eq!(&*rs.key.name, format!("web-{hash}"));
    assert_eq!(
        object["spec"]["selector"]["matchLabels"],
        json!({"app": "web", "pod-template-hash": hash})
    );
    assert_eq!(
        object["spec"]["template"]["metadata"]["labels"]["pod-template-hash"],
        hash
    );
    assert_eq!(
        object["spec"]["template"]["spec"],
        template(9, None)["spec"]
    );
    assert_eq!(
        (
            &object["spec"]["replicas"],
            &object["spec"]["minReadySeconds"]
        ),
        (&json!(1), &json!(7))
    );
    let expected = json!({
        "team": "shop",
        "deployment.kubernetes.io/revision": "2",
        "deployment.kubernetes.io/desired-replicas": "3",
        "deployment.kubernetes.io/max-replicas": "4",
    });
    assert_eq!(object["metadata"]["annotations"], expected);
    assert_eq!(annotations["deployment.kubernetes.io/revision"], "2");
    assert_eq!(status.unavailable_replicas, Some(1));
    assert_eq!(reason(progress(&step)), ("True", "NewReplicaSetCreated"));
}

#[test]
fn another_collision_count_has_another_name() {
    let name = |count: Value| {
        let d = deployment(&[&|it| it["status"] = json!({"collisionCount": count})]);
        let step = step(&d, &[]);
        let name = step.writes.iter().find_map(|write| match write {
            Write::Create { rs, .. } => Some(rs.key.name.to_string()),
            _ => None,
        });
        name.expect("it is created")
    };
    let names: BTreeSet<String> = [json!(null), json!(1), json!(2)].map(name).into();
    assert_eq!(names.len(), 3);
    let d = deployment(&[&|it| it["status"] = json!({"collisionCount": 1})]);
    let Write::Status { status, .. } = after_collision(&d) else {
        panic!("a status");
    };
    assert_eq!(status.collision_count, Some(2));
}

#[test]
fn the_name_fits_however_long_the_deployments_is() {
    let d = deployment(&[&|it| it["metadata"]["name"] = json!("w".repeat(253))]);
    let step = step(&d, &[]);
    let Write::Create { rs, .. } = &step.writes[0] else {
        panic!("{step:?}");
    };
    assert_eq!(rs.key.name.len(), 253);
}

#[test]
fn a_template_is_equal_whatever_its_hash_and_its_nulls() {
    let step = step(&deployment(&[]), &[replica_set(9, 3, 3)]);
    assert_eq!(sizes(&step), []);
    assert_eq!(reason(progress(&step)), ("True", "NewReplicaSetAvailable"));
}

#[test]
fn an_old_revision_that_is_scaled_up_becomes_the_newest() {
    let d = deployment(&[&|it| it["spec"]["template"] = template(1, None)]);
    let step = step(&d, &[replica_set(1, 0, 0), replica_set(2, 3, 3)]);
    let Write::Update { patch, .. } = &step.writes[0] else {
        panic!("{step:?}");
    };
    let annotations = &patch["metadata"]["annotations"];
    assert_eq!(annotations["deployment.kubernetes.io/revision"], "3");
    assert_eq!(
        annotations["deployment.kubernetes.io/revision-history"],
        "1"
    );
}

#[test]
fn a_long_history_of_revisions_drops_the_oldest() {
    let mut annotations: Annotations = [
        ("deployment.kubernetes.io/revision", "9".to_owned()),
        (
            "deployment.kubernetes.io/revision-history",
            vec!["1234"; 400].join(","),
        ),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    crate::revisions::set_revision(&mut annotations, &deployment(&[]), 10);
    let history = &annotations["deployment.kubernetes.io/revision-history"];
    assert!(
        history.len() <= 2000 && history.ends_with(",1234,9"),
        "{history}"
    );
}

#[test]
fn recreate_waits_until_the_old_pods_have_ended() {
    let d = deployment(&[&|it| it["spec"]["strategy"] = json!({"type": "Recreate"})]);
    assert_eq!(
        sizes(&step(&d, &[replica_set(1, 3, 3)])),
        [("web-1".to_owned(), 0)]
    );
    assert_eq!(sizes(&step(&d, &[replica_set(1, 0, 1)])), []);
    let gone = [replica_set(1, 0, 0)];
    let mut waiting = view(&d, &gone);
    waiting.with_pods.insert("rs1".into());
    assert_eq!(sizes(&decide(waiting).expect("a known strategy")), []);
    assert_eq!(sizes(&step(&d, &gone)), [("new".to_owned(), 3)]);
}

#[test]
fn old_revisions_beyond_the_limit_are_deleted() {
    let deleted = |limit: i32, sets: &[ReplicaSet]| -> Vec<String> {
        let d = deployment(&[
            &|it| it["spec"]["revisionHistoryLimit"] = json!(limit),
            &|it| {
                it["status"] = json!({
                    "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3,
                    "observedGeneration": 1,
                });
            },
        ]);
        let step = step(&d, sets);
        let deletes = step.writes.iter().filter_map(|write| match write {
            Write::Delete(rs) => Some(rs.key.name.to_string()),
            _ => None,
        });
        deletes.collect()
    };
    let mut sets = vec![replica_set(9, 3, 3)];
    sets.extend([3, 1, 2].map(|version| replica_set(version, 0, 0)));
    assert_eq!(deleted(2, &sets), ["web-1"]);
    assert_eq!(deleted(0, &sets), ["web-1", "web-2", "web-3"]);
    assert_eq!(deleted(i32::MAX, &sets), [""; 0]);
    // One whose pods have not ended stays, and one that its controller has not seen.
    sets[2].status.replicas = 1;
    sets[3].generation = 2;
    assert_eq!(deleted(0, &sets), ["web-3"]);
}

#[test]
fn a_pause_stops_the_rollout_and_its_deadline() {
    let paused = |status: Value| {
        deployment(&[&|it| it["spec"]["paused"] = json!(true), &|it| {
            it["status"] = status.clone();
        }])
    };
    let step = |d: &Deployment| step(d, &[replica_set(1, 3, 3)]);
    let first = step(&paused(json!({})));
    assert_eq!(sizes(&first), []);
    assert_eq!(reason(progress(&first)), ("Unknown", "DeploymentPaused"));
    let resumed = deployment(&[&|it| it["status"] = json!(status(&first))]);
    let resumed = step(&resumed);
    assert_eq!(sizes(&resumed)[0], ("new".to_owned(), 0));
    assert_eq!(reason(progress(&resumed)), ("True", "NewReplicaSetCreated"));
    // A failure stays.
    let late = json!({"conditions": [
        {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"},
    ]});
    let late = step(&paused(late));
    assert_eq!(reason(progress(&late)).1, "ProgressDeadlineExceeded");
}

/// A rollout whose last progress was at this minute before one o'clock, and its step now.
fn stuck(minute: u8) -> Step {
    let since = format!("2026-01-01T00:{minute}:00Z");
    let d = deployment(&[&|it| {
        it["status"] = json!({
            "observedGeneration": 1, "replicas": 3, "readyReplicas": 3, "availableReplicas": 3,
            "unavailableReplicas": 1, "terminatingReplicas": null,
            "conditions": [
                {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"},
                {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated",
                 "lastUpdateTime": since, "lastTransitionTime": since},
            ],
        });
        it["spec"]["strategy"]["rollingUpdate"]["maxSurge"] = json!(1);
        it["metadata"]["annotations"] = json!({"deployment.kubernetes.io/revision": "9"});
    }]);
    step(&d, &[replica_set(1, 3, 3), replica_set(9, 1, 0)])
}

#[test]
fn a_rollout_without_progress_times_out() {
    let early = stuck(55);
    assert_eq!(
        (status(&early), early.next),
        (None, Some(Duration::from_secs(5 * 60 + 1)))
    );
    let late = stuck(49);
    assert_eq!(
        reason(progress(&late)),
        ("False", "ProgressDeadlineExceeded")
    );
    assert_eq!(
        progress(&late)
            .last_transition_time
            .as_ref()
            .map(|time| time.0),
        NOW.parse().ok()
    );
}

#[test]
fn progress_moves_the_deadline_but_not_the_transition() {
    let since = "2026-01-01T00:55:00Z";
    let d = deployment(&[&|it| {
        it["status"] = json!({"replicas": 3, "conditions": [
            {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated",
             "lastUpdateTime": since, "lastTransitionTime": since},
        ]});
    }]);
    let step = step(&d, &[replica_set(1, 2, 2), replica_set(9, 1, 1)]);
    let condition = progress(&step);
    assert_eq!(reason(condition), ("True", "ReplicaSetUpdated"));
    let [updated, transition] = [&condition.last_update_time, &condition.last_transition_time]
        .map(|time| time.as_ref().map(|time| time.0));
    let parsed = |text: &str| text.parse::<Timestamp>().ok();
    assert_eq!((updated, transition), (parsed(NOW), parsed(since)));
}

#[test]
fn a_failure_of_the_new_replica_set_is_copied() {
    let failing = |version: u8, reason: &str| {
        let mut rs = replica_set(version, 3, 0);
        let condition = json!([{"type": "ReplicaFailure", "status": "True", "reason": reason}]);
        rs.status.conditions = serde_json::from_value(condition).expect("conditions");
        rs
    };
    let sets = [failing(1, "Old"), failing(9, "New")];
    let step = step(&deployment(&[]), &sets);
    let failure = condition(status(&step).expect("a status"), "ReplicaFailure");
    assert_eq!(failure.and_then(|it| it.reason.as_deref()), Some("New"));
}

#[test]
fn a_failed_create_is_in_the_status_and_in_an_event() {
    let (d, rs) = (deployment(&[]), replica_set(9, 1, 0));
    let now = NOW.parse().expect("a time");
    let (write, note) = after_failed_create(&d, &rs, "exceeded quota", now);
    let Some(Write::Status { status, .. }) = write else {
        panic!("no status");
    };
    let failed = condition(&status, PROGRESSING).expect("the condition is there");
    assert_eq!(reason(failed), ("False", "ReplicaSetCreateError"));
    assert_eq!(
        note.message,
        "Failed to create new replica set \"web-9\": exceeded quota"
    );
}

#[test]
fn a_request_to_roll_back_gives_the_template_of_the_revision() {
    let roll_back = |revision: &str| {
        let d = deployment(&[&|it| {
            let annotations = json!({"deprecated.deployment.rollback.to": revision, "cause": "b"});
            it["metadata"]["annotations"] = annotations;
        }]);
        let mut old = replica_set(1, 0, 0);
        old.annotations.insert("cause".to_owned(), "a".to_owned());
        let step = step(&d, &[old.clone(), replica_set(9, 3, 3)]);
        let last = step.writes.last().cloned();
        let Some(Write::RollBack {
            template,
            annotations,
            note,
        }) = last
        else {
            panic!("{step:?}");
        };
        assert!(!annotations.contains_key("deprecated.deployment.rollback.to"));
        (
            template == Some(old.template),
            annotations["cause"].clone(),
            note.reason,
        )
    };
    assert_eq!(roll_back("0"), (true, "a".to_owned(), "DeploymentRollback"));
    assert_eq!(roll_back("1"), (true, "a".to_owned(), "DeploymentRollback"));
    assert_eq!(
        roll_back("9"),
        (false, "b".to_owned(), "DeploymentRollbackTemplateUnchanged")
    );
    assert_eq!(
        roll_back("5"),
        (false, "b".to_owned(), "DeploymentRollbackRevisionNotFound")
    );
}

#[test]
fn an_empty_selector_and_a_deletion_change_no_replica_set() {
    let d = deployment(&[&|it| it["spec"]["selector"] = json!({})]);
    let all = step(&d, &[replica_set(1, 1, 1)]);
    assert_eq!(
        (sizes(&all), all.events[0].reason),
        (vec![], "SelectingAll")
    );
    assert_eq!(status(&all).and_then(|it| it.observed_generation), Some(1));
    let d = deployment(&[&|it| it["metadata"]["deletionTimestamp"] = json!(NOW)]);
    let deleted = step(&d, &[replica_set(1, 1, 1)]);
    assert_eq!(sizes(&deleted), []);
    assert_eq!(status(&deleted).and_then(|it| it.replicas), Some(1));
}

#[test]
fn terminating_pods_are_counted_if_all_sets_count_them() {
    let of = |counts: [Option<i32>; 2]| {
        let mut sets = [replica_set(1, 3, 3), replica_set(9, 0, 0)];
        for (rs, count) in sets.iter_mut().zip(counts) {
            rs.status.terminating_replicas = count;
        }
        let step = step(&deployment(&[]), &sets);
        status(&step).expect("a status").terminating_replicas
    };
    assert_eq!(of([Some(1), Some(2)]), Some(3));
    assert_eq!(of([Some(1), None]), None);
}

/// The status update after the create of the ReplicaSet may be lost.
#[test]
fn a_rollout_is_not_complete_because_an_earlier_one_was() {
    for (of, expected) in [("web-1", true), ("web-9", false)] {
        let d = deployment(&[&|it| {
            it["spec"]["strategy"] = json!({"type": "Recreate"});
            it["status"] = json!({"conditions": [{
                "type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable",
                "message": format!("ReplicaSet \"{of}\" has successfully progressed."),
            }]});
        }]);
        let step = step(&d, &[replica_set(1, 0, 0), replica_set(9, 3, 0)]);
        let is_found = reason(progress(&step)) == ("True", "FoundNewReplicaSet");
        assert_eq!(is_found, expected, "{of}");
    }
}
