//! Group E through the API: of equal pods a scale-down deletes the one created much later.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    Kind, TestCluster, controller_reference, is_terminating, name, names, new_pod,
    new_replica_set_labelled, seconds_ago,
};

/// Creates a pod of the ReplicaSet on one node, Ready for a month.
fn create_ready_pod(cluster: &TestCluster, rs: &Value, pod: &str) {
    let app = name(rs);
    let mut pod = new_pod(&format!("{app}-{pod}"));
    pod["metadata"]["labels"] = json!({"app": app});
    pod["metadata"]["ownerReferences"] = json!([controller_reference(rs)]);
    pod["spec"]["nodeName"] = json!("n1");
    let created = cluster.create_pod(&pod);
    let since = seconds_ago(30 * 24 * 3600);
    let status = json!({
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}],
    });
    cluster.set_pod_status(&name(&created), &status);
}

#[test]
fn e_28_of_equal_pods_the_one_created_much_later_goes() {
    let mut cluster = TestCluster::start();
    // Four rounds: if the daemon ignores the age, the UID decides and could pick the right pod
    // once.
    let sets = ["e-28-0", "e-28-1", "e-28-2", "e-28-3"].map(|app| {
        let rs = cluster.create_replica_set(&new_replica_set_labelled(app, 2, app));
        create_ready_pod(&cluster, &rs, "old-1");
        create_ready_pod(&cluster, &rs, "old-2");
        rs
    });
    // Ages are compared by the base-two logarithm of their seconds. They still differ by that when
    // the daemon looks as long after this pause as the pause takes.
    cluster.waiting().pause(Duration::from_secs(30));
    for rs in &sets {
        create_ready_pod(&cluster, rs, "new");
    }
    cluster.start_daemon();
    for rs in &sets {
        let app = name(rs);
        let survivors = ["old-1", "old-2"].map(|pod| format!("{app}-{pod}"));
        cluster.eventually_eq(&app, &survivors.to_vec(), || {
            let mut pods = cluster.list(Kind::Pods, &format!("app={app}"));
            pods.retain(|pod| !is_terminating(pod));
            names(&pods)
        });
    }
    let n_created = cluster.recorded("create", "pods").len();
    assert_eq!(n_created, 0, "none lacks pods");
}
