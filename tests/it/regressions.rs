//! Regressions against a real control plane, each named by its symptom.

use std::collections::HashSet;

use serde_json::json;

use crate::support::{TestCluster, forbidden, json_body, name, new_replica_set};

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
