//! What once went wrong against a real control plane, each named by what people saw.

use std::collections::HashSet;

use serde_json::json;

use crate::support::{TestCluster, forbidden, json_body, name, new_replica_set};

/// Ten events, where kube-controller-manager has one that is counted up: the API server's refusals
/// have the pod's name in them, and each try had another.
#[test]
fn a_missing_service_account_filled_the_event_list() {
    let cluster = TestCluster::running();
    let why = "pods \"a-\" is forbidden: error looking up service account";
    let rule = cluster.fault("create", "pods", forbidden(why));
    cluster.create_replica_set(&new_replica_set("a", 3));
    cluster.eventually("some tries", || {
        cluster.recorded("create", "pods").len() >= 5
    });
    let tries = cluster.recorded("create", "pods");
    let tries = tries.iter().map(|request| json_body(request));
    let names: HashSet<String> = tries.map(|pod| name(&pod)).collect();
    assert_eq!(names.len(), 1, "{names:?}");
    rule.remove();
    cluster.stable("a");
    let created: HashSet<String> = cluster.live().iter().map(name).collect();
    assert!(created.is_superset(&names), "the name that was refused");
    assert_eq!(created.len(), 3);
    cluster.eventually("the failure is over", || {
        cluster.status("a")["conditions"] == json!(null)
    });
}
