//! Failing creates and deletes: slow start, quotas, and the events and conditions that report them
//! (group G, N-03, K-03, K-04).

use replicaset_controller::api::Status;
use replicaset_controller::client::Request;
use replicaset_controller::devserver::Action;
use serde_json::{Value, json};

use crate::support::Kind::{ReplicaSets, ReplicationControllers};
use crate::support::{
    Kind, TestCluster, forbidden, json_body, last_part, name, new_pod, new_replica_set, number_at,
    replica_failure, text_at,
};

/// The message of the API server's error where a test makes it reject a request.
const MESSAGE: &str = "pods \"a-\" is forbidden: not today";

fn n_posts(cluster: &TestCluster) -> usize {
    cluster.recorded("create", "pods").len()
}

/// The events about `a` with this reason.
fn events_with_reason(cluster: &TestCluster, reason: &str) -> Vec<Value> {
    let mut events = cluster.events_of("a");
    events.retain(|event| event["reason"] == reason);
    events
}

#[track_caller]
fn check_no_failure(cluster: &TestCluster) {
    cluster.eventually_eq("no condition", &None, || {
        replica_failure(&cluster.status("a"))
    });
}

/// Number of status updates that set the condition `ReplicaFailure`.
fn n_failures_written(cluster: &TestCluster) -> usize {
    let updates = cluster.recorded("update", "replicasets/status");
    let has_failure = |body: &Value| replica_failure(&body["status"]).is_some();
    updates
        .iter()
        .filter(|update| has_failure(&json_body(update)))
        .count()
}

#[test]
fn k_04_a_failed_delete_is_an_event() {
    let cluster = TestCluster::running();
    cluster.create_replica_set(&new_replica_set("a", 3));
    cluster.stable("a");
    let rule = cluster.fault("delete", "pods", forbidden(MESSAGE));
    cluster.scale("a", 2);
    cluster.eventually("the event", || {
        let events = events_with_reason(&cluster, "FailedDelete");
        events.iter().any(|event| {
            event["type"] == "Warning" && event["message"] == format!("Error deleting: {MESSAGE}")
        })
    });
    assert_eq!(cluster.live().len(), 3);
    rule.remove();
    cluster.stable("a");
}

#[test]
fn g_09_k_03_a_terminating_namespace_is_no_failure() {
    let cluster = TestCluster::running();
    let status = Status::new(403, "Forbidden", "the namespace is terminating")
        .with_cause("NamespaceTerminating", "namespace it is being terminated");
    cluster.fault("create", "pods", Action::reject(status));
    cluster.create_replica_set(&new_replica_set("a", 5));
    cluster.eventually_eq("all creates", &5, || n_posts(&cluster));
    cluster.holds("no further create, and no failure", || {
        n_posts(&cluster) == 5
            && n_failures_written(&cluster) == 0
            && cluster.events_of("a").is_empty()
    });
}

/// Does the quota controller's work. Admission reads quotas from its own cache. This function first
/// sets a quota that allows no pods: once admission enforces it, a stale cache only rejects more.
fn fill_in_quota(cluster: &TestCluster) {
    let set_status = |hard: &str| {
        cluster.update_status(Kind::Quotas, "two", |quota| {
            quota["status"] = json!({"hard": {"pods": hard}, "used": {"pods": "0"}});
        });
    };
    set_status("0");
    cluster.eventually("admission enforces the quota", || {
        let probe = Request::post(cluster.collection(Kind::Pods))
            .query("dryRun", "All")
            .body("application/json", new_pod("probe").to_string());
        cluster.send(&probe).is_err()
    });
    set_status("2");
}

#[track_caller]
fn check_a_quota_is_a_condition(kind: Kind) {
    let cluster = TestCluster::running_for(kind);
    let quota = json!({"metadata": {"name": "two"}, "spec": {"hard": {"pods": "2"}}});
    cluster.create(Kind::Quotas, &quota);
    if TestCluster::is_real() {
        fill_in_quota(&cluster);
    }
    cluster.create_replica_set(&new_replica_set("a", 3));
    let failure = || replica_failure(&cluster.status("a"));
    cluster.eventually("the condition", || failure().is_some());
    let failure = failure().expect("the condition was set");
    assert_eq!(failure["reason"], json!("FailedCreate"));
    let message = text_at(&failure, "/message");
    let words = "exceeded quota: two, requested: pods=1, used: pods=2, limited: pods=2";
    assert!(message.contains(words), "{message}");
    cluster.eventually_eq("two pods", &2, || {
        number_at(&cluster.status("a"), "/replicas")
    });
    let observed = number_at(&cluster.status("a"), "/observedGeneration");
    assert_eq!(observed, 1);
    assert_eq!(cluster.live().len(), 2);
    cluster.scale("a", 2);
    cluster.stable("a");
    check_no_failure(&cluster);
    assert_eq!(cluster.live().len(), 2);
}

#[test]
fn g_10_n_03_an_exhausted_quota_sets_a_condition() {
    check_a_quota_is_a_condition(ReplicaSets);
}

#[test]
fn o_20_an_exhausted_quota_sets_a_condition() {
    check_a_quota_is_a_condition(ReplicationControllers);
}

#[test]
fn k_03_a_failed_create_is_an_event() {
    let cluster = TestCluster::running();
    let rule = cluster.fault("create", "pods", forbidden(MESSAGE));
    let rs = cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.eventually("the event", || {
        !events_with_reason(&cluster, "FailedCreate").is_empty()
    });
    rule.remove();
    let event = &events_with_reason(&cluster, "FailedCreate")[0];
    assert_eq!(event["type"], json!("Warning"));
    assert_eq!(
        event["message"],
        json!(format!("Error creating: {MESSAGE}"))
    );
    assert_eq!(event["involvedObject"]["name"], json!(name(&rs)));
    assert_eq!(event["source"]["component"], json!("replicaset-controller"));
    cluster.stable("a");
}

#[test]
fn k_04_deleting_a_pod_that_is_gone_is_no_event() {
    let cluster = TestCluster::running();
    cluster.create_replica_set(&new_replica_set("a", 3));
    cluster.stable("a");
    let hold = cluster.fault("delete", "pods", Action::Hold);
    cluster.scale("a", 1);
    cluster.eventually_eq("two deletes", &2, || {
        cluster.recorded("delete", "pods").len()
    });
    let deleted = last_part(&cluster.recorded("delete", "pods")[0]);
    cluster.kill_pod(&deleted);
    hold.remove();
    cluster.stable("a");
    cluster.eventually_eq("one event for the other pod", &1, || {
        events_with_reason(&cluster, "SuccessfulDelete").len()
    });
    cluster.holds("one pod and no failure", || {
        cluster.live().len() == 1 && events_with_reason(&cluster, "FailedDelete").is_empty()
    });
    assert_eq!(n_failures_written(&cluster), 0);
}
