//! One ReplicaSet that wants much makes none wait that wants little.

use std::time::Duration;

use replicaset_controller::devserver::Action;
use replicaset_controller::manager::ManagerOptions;

use crate::support::{Setup, TestCluster, json_body, new_replica_set_labelled};

/// The names of the pods that were asked for, in the order of the requests.
fn posts(cluster: &TestCluster) -> Vec<String> {
    let recorded = cluster.recorded("create", "pods");
    let name = |body: serde_json::Value| body["metadata"]["name"].as_str().map(str::to_owned);
    recorded
        .iter()
        .filter_map(|request| name(json_body(request)))
        .collect()
}

/// While `big` is in the middle of a batch of 128, `small` is created. Its pod must be asked for after
/// a few of the others.
#[track_caller]
fn check_gets_in(cluster: &TestCluster) {
    cluster.synced();
    cluster.create_replica_set(&new_replica_set_labelled("big", 400, "big"));
    cluster.eventually("the batch of 128 is under way", || {
        posts(cluster).len() > 130
    });
    cluster.create_replica_set(&new_replica_set_labelled("small", 1, "small"));
    let n_before = posts(cluster).len();
    let is_small = |name: &String| name.starts_with("small-");
    cluster.eventually("the small one gets in", || {
        posts(cluster).iter().any(is_small)
    });
    let at = posts(cluster).iter().position(is_small);
    let n_between = at.expect("it is there").saturating_sub(n_before);
    assert!(n_between <= 40, "{n_between} pods went before it");
}

fn cluster(options: ManagerOptions) -> TestCluster {
    TestCluster::running_with(Setup {
        options,
        ..Setup::default()
    })
}

#[test]
fn a_batch_of_another_replica_set_holds_nobody_up() {
    let cluster = cluster(ManagerOptions {
        batch_parallelism: 4,
        ..Setup::default().options
    });
    let slow = cluster.fault("create", "pods", Action::Delay(Duration::from_millis(30)));
    check_gets_in(&cluster);
    slow.remove();
}

#[test]
fn the_rate_limit_is_shared_by_turns() {
    let cluster = cluster(ManagerOptions {
        kube_api_qps: 100.0,
        kube_api_burst: 10,
        ..Setup::default().options
    });
    check_gets_in(&cluster);
}
