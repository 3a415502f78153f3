//! Group F: the counts and conditions in the status, when the daemon writes it, and the requeue
//! that counts available pods without an event.

use replicaset_controller::api::Status;
use replicaset_controller::devserver::{Action, Matcher, Rule};
use serde_json::{Value, json};

use crate::support::Kind::{ReplicaSets, ReplicationControllers};
use crate::support::{
    Kind, TestCluster, name, new_replica_set, new_replica_set_labelled, number_at, running,
    seconds_ago, text_at,
};

/// Replicas, fully labelled, ready, available; terminating is 0 in all cases here, and absent for a
/// ReplicationController.
type Counts = (i64, i64, i64, i64);

fn counts(status: &Value) -> Counts {
    let number = |member: &str| number_at(status, member);
    (
        number("/replicas"),
        number("/fullyLabeledReplicas"),
        number("/readyReplicas"),
        number("/availableReplicas"),
    )
}

/// A ReplicaSet with its pods, and the expected counts in its status.
struct Case {
    name: &'static str,
    n_pods: i64,
    min_ready_seconds: i64,
    /// For how many seconds the pods have been ready; `None` leaves them pending.
    ready_since: Option<i64>,
    /// Whether the test adds a label to the template that the pods lack.
    is_partial: bool,
    expected: Counts,
}

#[track_caller]
fn check_pods_are_counted(kind: Kind) {
    let case = |name, n_pods, min_ready_seconds, ready_since, is_partial, expected| Case {
        name,
        n_pods,
        min_ready_seconds,
        ready_since,
        is_partial,
        expected,
    };
    let cases = [
        case("f-01", 1, 0, Some(0), false, (1, 1, 1, 1)),
        case("f-02", 1, 0, Some(0), true, (1, 0, 1, 1)),
        case("f-04", 2, 0, Some(0), false, (2, 2, 2, 2)),
        case("f-05", 2, 0, Some(0), true, (2, 0, 2, 2)),
        case("f-07", 1, 0, None, false, (1, 1, 0, 0)),
        case("f-08", 1, 3600, Some(0), false, (1, 1, 1, 0)),
        case("f-10", 1, 3600, Some(7200), false, (1, 1, 1, 1)),
    ];
    let cluster = TestCluster::running_for(kind);
    for case in &cases {
        let mut rs = new_replica_set_labelled(case.name, case.n_pods, case.name);
        rs["spec"]["minReadySeconds"] = json!(case.min_ready_seconds);
        cluster.create_replica_set(&rs);
    }
    for case in &cases {
        cluster.stable(case.name);
        for pod in cluster.list(Kind::Pods, &format!("app={}", case.name)) {
            if let Some(seconds) = case.ready_since {
                let status = running(true, Some(&seconds_ago(seconds)));
                cluster.set_pod_status(&name(&pod), &status);
            }
        }
        if case.is_partial {
            cluster.update(kind, case.name, |rs| {
                rs["spec"]["template"]["metadata"]["labels"]["more"] = json!("x");
            });
        }
    }
    let is_kept = kind == ReplicaSets && cluster.keeps_terminating_replicas(cases[0].name);
    let is_right = |case: &Case| {
        let status = cluster.status(case.name);
        // An absent count differs from 0 here.
        let terminating = is_kept.then_some(0);
        counts(&status) == case.expected && status["terminatingReplicas"].as_i64() == terminating
    };
    for case in &cases {
        cluster.eventually(&format!("{}: {:?}", case.name, case.expected), || {
            is_right(case)
        });
    }
    cluster.holds("all counts", || cases.iter().all(is_right));
}

#[test]
fn f_01_f_02_f_04_f_05_f_07_f_08_f_10_pods_are_counted() {
    check_pods_are_counted(ReplicaSets);
}

#[test]
fn o_15_o_04_f_13_pods_are_counted() {
    check_pods_are_counted(ReplicationControllers);
}

/// Status, reason and message of the condition `ReplicaFailure`.
fn failure(cluster: &TestCluster) -> Option<(String, String, String)> {
    let status = cluster.status("a");
    let conditions = status["conditions"].as_array()?;
    let condition = conditions
        .iter()
        .find(|condition| condition["type"] == json!("ReplicaFailure"))?;
    let text = |pointer| text_at(condition, pointer);
    Some((text("/status"), text("/reason"), text("/message")))
}

fn failed(reason: &str, message: &str) -> (String, String, String) {
    ("True".to_owned(), reason.to_owned(), message.to_owned())
}

#[track_caller]
fn check_a_failed_create_is_a_condition(kind: Kind) {
    let cluster = TestCluster::running_for(kind);
    let error = Action::reject(Status::new(403, "Forbidden", "no more on purpose"));
    let rule = Rule::new(Matcher::verb("create", "pods"), error).after(1);
    let rule = cluster.faults().add(rule);
    cluster.create_replica_set(&new_replica_set("a", 2));
    let expected = Some(failed("FailedCreate", "no more on purpose"));
    cluster.eventually_eq("the condition", &expected, || failure(&cluster));
    cluster.eventually_eq("the pod that could be created", &1, || {
        number_at(&cluster.status("a"), "/replicas")
    });
    rule.remove();
    cluster.stable("a");
    cluster.eventually_eq("no condition", &None, || failure(&cluster));
}

#[test]
fn f_15_f_17_a_failed_create_is_a_condition_until_it_succeeds() {
    check_a_failed_create_is_a_condition(ReplicaSets);
}

#[test]
fn o_22_a_failed_create_is_a_condition_until_it_succeeds() {
    check_a_failed_create_is_a_condition(ReplicationControllers);
}

#[test]
fn f_16_f_17_a_failed_delete_is_a_condition_until_it_succeeds() {
    let cluster = TestCluster::running();
    cluster.create_replica_set(&new_replica_set("a", 3));
    cluster.stable("a");
    let error = Action::reject(Status::new(403, "Forbidden", "kept on purpose"));
    let rule = Rule::new(Matcher::verb("delete", "pods"), error);
    let rule = cluster.faults().add(rule);
    cluster.scale("a", 2);
    let message = "unable to delete pods: kept on purpose";
    let expected = Some(failed("FailedDelete", message));
    cluster.eventually_eq("the condition", &expected, || failure(&cluster));
    assert_eq!(number_at(&cluster.status("a"), "/replicas"), 3);
    rule.remove();
    cluster.stable("a");
    cluster.eventually_eq("no condition", &None, || failure(&cluster));
    assert_eq!(cluster.live().len(), 2);
}

#[track_caller]
fn check_an_unchanged_status_is_not_written(kind: Kind) {
    let cluster = TestCluster::running_for(kind);
    cluster.create_replica_set(&new_replica_set("a", 2));
    cluster.stable("a");
    let n_puts = || cluster.status_updates().len();
    // An annotation changes no field of the status.
    cluster.faults().recorder().clear();
    let patch = json!({"metadata": {"annotations": {"touched": "yes"}}});
    cluster.merge_patch(kind, "a", &patch);
    cluster.holds("no status is written", || n_puts() == 0);
    cluster.update(kind, "a", |rs| {
        rs["spec"]["template"]["metadata"]["annotations"] = json!({"k": "v"});
    });
    cluster.stable("a");
    cluster.holds("one status is written", || n_puts() == 1);
}

#[test]
fn f_21_an_unchanged_status_is_not_written() {
    check_an_unchanged_status_is_not_written(ReplicaSets);
}

#[test]
fn o_22_an_unchanged_status_is_not_written() {
    check_an_unchanged_status_is_not_written(ReplicationControllers);
}

#[test]
fn f_27_foreign_conditions_are_kept() {
    let cluster = TestCluster::running();
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.stable("a");
    let condition = json!({
        "type": "example.com/Checked", "status": "True", "reason": "Because",
        "message": "by another client", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    cluster.update_status(Kind::ReplicaSets, "a", |rs| {
        rs["status"]["conditions"] = json!([condition]);
    });
    cluster.scale("a", 2);
    cluster.stable("a");
    assert_eq!(cluster.status("a")["conditions"], json!([condition]));
    let error = Action::reject(Status::new(403, "Forbidden", "on purpose"));
    let rule = Rule::new(Matcher::verb("create", "pods"), error);
    let rule = cluster.faults().add(rule);
    cluster.scale("a", 3);
    cluster.eventually("the daemon's condition is set", || {
        failure(&cluster).is_some()
    });
    assert_eq!(cluster.status("a")["conditions"][0], condition);
    rule.remove();
    cluster.eventually("the daemon's condition is removed", || {
        failure(&cluster).is_none()
    });
    assert_eq!(cluster.status("a")["conditions"], json!([condition]));
}

#[test]
fn f_30_pods_become_available_one_by_one_without_events() {
    const MIN_READY_SECONDS: i64 = 3;
    // Less than the 2 s between the first pod and the last.
    const SLACK_MS: i64 = 1500;
    let cluster = TestCluster::running();
    let mut rs = new_replica_set("a", 4);
    rs["spec"]["minReadySeconds"] = json!(MIN_READY_SECONDS);
    cluster.create_replica_set(&rs);
    cluster.stable("a");
    let now = jiff::Timestamp::now().as_second();
    let ready_since = [now, now - 1, now - 2];
    for (pod, since) in cluster.live().iter().zip(ready_since) {
        let since = seconds_ago(jiff::Timestamp::now().as_second() - since);
        cluster.set_pod_status(&name(pod), &running(true, Some(&since)));
    }
    // Number of pods that have been ready for `minReadySeconds` and `beyond` ms.
    let n_due = |beyond: i64| {
        let due = jiff::Timestamp::now().as_millisecond() - MIN_READY_SECONDS * 1000 - beyond;
        let is_due = |since: &&i64| **since * 1000 <= due;
        i64::try_from(ready_since.iter().filter(is_due).count()).expect("a small number")
    };
    cluster.eventually_eq("three are available", &3, || {
        let least = n_due(SLACK_MS);
        let available = number_at(&cluster.status("a"), "/availableReplicas");
        let most = n_due(0);
        assert!(
            (least..=most).contains(&available),
            "{available} are available, not {least} to {most}"
        );
        available
    });
    assert_eq!(counts(&cluster.status("a")), (4, 4, 3, 3));
}

/// Kubernetes' `TestRollingUpdateAndProportionalScalingForDeploymentPodReplacement` depends on
/// this: the Deployment controller sees lost pods only in the ReplicaSet's status.
#[test]
fn the_status_shows_lost_pods_even_if_they_are_replaced_at_once() {
    const N_PODS: i64 = 100;
    let cluster = TestCluster::running();
    cluster.create_replica_set(&new_replica_set("a", N_PODS));
    cluster.stable("a");
    let mut events = cluster.watch(Kind::ReplicaSets);
    let is_ready = |pod: &Value| text_at(pod, "/status/conditions/0/status") == "True";
    // Acts as an instant kubelet.
    let make_ready = || {
        let pods = cluster.live();
        let due = pods.iter().filter(|pod| !is_ready(pod));
        let n_due = due.map(|pod| cluster.set_pod_status(&name(pod), &running(true, None)));
        n_due.count() == 0 && i64::try_from(pods.len()) == Ok(N_PODS)
    };
    cluster.eventually("all pods are ready", make_ready);
    let n_ready = || number_at(&cluster.status("a"), "/readyReplicas");
    cluster.eventually_eq("all pods are Ready in the status", &N_PODS, n_ready);
    for pod in &cluster.live()[..15] {
        cluster.delete(Kind::Pods, &name(pod));
    }
    cluster.eventually("all have been replaced", make_ready);
    cluster.eventually_eq("all pods are Ready in the status", &N_PODS, n_ready);
    let end = json!({"metadata": {"annotations": {"end": "here"}}});
    cluster.merge_patch(Kind::ReplicaSets, "a", &end);

    let mut ready_counts = Vec::new();
    let is_end = |rs: &Value| rs.pointer("/object/metadata/annotations/end").is_some();
    for event in events.by_ref().take_while(|event| !is_end(event)) {
        ready_counts.push(number_at(&event, "/object/status/readyReplicas"));
    }
    ready_counts.dedup();
    let before = ready_counts.iter().position(|ready| *ready == N_PODS);
    let after = &ready_counts[before.expect("all were ready") + 1..];
    assert!(
        after.first() < Some(&N_PODS) && after.last() == Some(&N_PODS),
        "{ready_counts:?}"
    );
}
