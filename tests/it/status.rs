//! Group F through the API: the counts and conditions of a ReplicationController, and lost pods in
//! the status of a ReplicaSet.

use replicaset_controller::api::Status;
use replicaset_controller::devserver::{Action, Matcher, Rule};
use serde_json::{Value, json};

use crate::support::Kind::ReplicationControllers;
use crate::support::{
    Kind, TestCluster, name, new_replica_set, new_replica_set_labelled, number_at, running,
    seconds_ago, text_at,
};

/// Replicas, fully labelled, ready, available; the terminating ones are absent.
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

#[test]
fn o_15_o_04_f_13_pods_are_counted() {
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
    let cluster = TestCluster::running_for(ReplicationControllers);
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
            cluster.update(ReplicationControllers, case.name, |rs| {
                rs["spec"]["template"]["metadata"]["labels"]["more"] = json!("x");
            });
        }
    }
    let is_right = |case: &Case| {
        let status = cluster.status(case.name);
        counts(&status) == case.expected && status["terminatingReplicas"].is_null()
    };
    for case in &cases {
        cluster.eventually(&format!("{}: {:?}", case.name, case.expected), || {
            is_right(case)
        });
    }
    cluster.holds("all counts", || cases.iter().all(is_right));
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

#[test]
fn o_22_a_failed_create_is_a_condition_until_it_succeeds() {
    let cluster = TestCluster::running_for(ReplicationControllers);
    let error = Action::refuse(Status::new(403, "Forbidden", "no more on purpose"));
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
