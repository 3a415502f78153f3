//! Regressions against a real control plane, each named by its symptom.

use std::collections::HashSet;

use serde_json::json;

use crate::support::{TestCluster, forbidden, json_body, name, new_replica_set, status_error};

/// The API server's error message contains the pod's name. If each retry used a new name, each
/// would record a new event, where kube-controller-manager has a single event with a count.
#[test]
fn a_missing_service_account_filled_the_event_list() {
    let cluster = TestCluster::running();
    let message = "pods \"a-\" is forbidden: error looking up service account";
    let rule = cluster.fault("create", "pods", forbidden(message));
    cluster.create_replica_set(&new_replica_set("a", 3));
    cluster.eventually("five creates", || {
        cluster.recorded("create", "pods").len() >= 5
    });
    let creates = cluster.recorded("create", "pods");
    let pods = creates.iter().map(|request| json_body(request));
    let names: HashSet<String> = pods.map(|pod| name(&pod)).collect();
    assert_eq!(names.len(), 1, "{names:?}");
    rule.remove();
    cluster.stable("a");
    let created: HashSet<String> = cluster.live().iter().map(name).collect();
    assert!(created.is_superset(&names), "the rejected name is used");
    assert_eq!(created.len(), 3);
    cluster.eventually("the condition is removed", || {
        cluster.status("a")["conditions"] == json!(null)
    });
}

/// One of six foreground deletions logged a warning that looked like a failure.
#[test]
fn a_sync_that_lost_against_a_deletion_warned() {
    if TestCluster::is_real() {
        return;
    }
    let cluster = TestCluster::start();
    let process = cluster.start_process(&["-v"]);
    let gone = status_error(404, "NotFound", "replicasets.apps \"a\" not found");
    cluster.fault("update", "replicasets/status", gone);
    cluster.create_replica_set(&new_replica_set("a", 1));
    let line = "sync failed, next attempt in";
    cluster.eventually("the sync fails", || process.log().contains(line));
    let log = process.log();
    let lines = log.lines().filter(|it| it.contains(line));
    let warnings: Vec<&str> = lines.filter(|it| !it.contains(" DEBUG ")).collect();
    assert!(warnings.is_empty(), "{warnings:?}");
}
