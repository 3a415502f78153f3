//! Failing status updates, and no status update from a cache that is older than the last update
//! (F-23, H-19, H-21).

use std::sync::Arc;
use std::time::Duration;

use replicaset_controller::devserver::{Action, Matcher, Recorded, Rule};
use serde_json::{Value, json};

use crate::support::Kind::{ReplicaSets, ReplicationControllers};
use crate::support::{Kind, TestCluster, internal_error, json_body, name, new_replica_set};

/// The delay of the lagging watch.
const LAG: Duration = Duration::from_secs(2);

fn updates(cluster: &TestCluster) -> Vec<Arc<Recorded>> {
    cluster.status_updates()
}

/// The statuses in the update requests, in order.
fn statuses_sent(cluster: &TestCluster) -> Vec<Value> {
    let updates = updates(cluster);
    let status = |update: &Arc<Recorded>| json_body(update)["status"].take();
    updates.iter().map(status).collect()
}

/// The requests for single ReplicaSets, as verb and resource; no lists or watches.
fn calls(cluster: &TestCluster) -> Vec<String> {
    let requests = cluster.faults().recorder().requests();
    let calls = requests.iter().map(|request| request.action());
    calls
        .filter(|call| call.contains("replicasets"))
        .filter(|call| !call.starts_with("watch") && !call.starts_with("list"))
        .collect()
}

#[test]
fn f_23_a_failed_update_is_retried_once_on_a_fresh_object() {
    let cluster = TestCluster::running();
    let rule = Rule::new(
        Matcher::verb("update", "replicasets/status"),
        internal_error("no updates"),
    );
    let rule = cluster.faults().add(rule.times(2));
    cluster.create_replica_set(&new_replica_set("a", 0));
    cluster.stable("a");
    assert_eq!(rule.hits(), 2);
    let (update, get) = ("update replicasets/status", "get replicasets");
    cluster.holds(
        "update, get, update, and one update in the next sync",
        || calls(&cluster) == [update, get, update, update],
    );
    let sent = statuses_sent(&cluster);
    assert_eq!(sent[0], sent[1]);
}

#[test]
fn f_23_an_update_after_a_conflict_succeeds() {
    let cluster = TestCluster::running();
    cluster.synced();
    // The test's patch overtakes the daemon's first update.
    let hold = cluster.fault("update", "replicasets/status", Action::Hold);
    cluster.create_replica_set(&new_replica_set("a", 0));
    cluster.eventually("the daemon has sent an update", || {
        !updates(&cluster).is_empty()
    });
    cluster.merge_patch(
        Kind::ReplicaSets,
        "a",
        &json!({"metadata": {"annotations": {"k": "v"}}}),
    );
    hold.remove();
    cluster.stable("a");
    let codes = || {
        let updates = updates(&cluster);
        updates
            .iter()
            .filter_map(|it| it.code())
            .collect::<Vec<_>>()
    };
    cluster.eventually("two updates", || codes() == [409, 200]);
    cluster.holds("two updates", || codes() == [409, 200]);
    let annotations = &cluster.replica_set("a")["metadata"]["annotations"];
    assert_eq!(annotations["k"], json!("v"));
}

#[track_caller]
fn check_a_lagging_watch_repeats_no_update(kind: Kind) {
    let cluster = TestCluster::running_for(kind);
    cluster.create_replica_set(&new_replica_set("a", 2));
    cluster.stable("a");
    cluster.fault("watch", kind.plural(), Action::LagWatch(LAG));
    cluster.scale("a", 5);
    let n_touches = std::cell::Cell::new(0);
    cluster.eventually_eq("the new pods", &5, || cluster.live().len());
    // Each change of a pod enqueues the ReplicaSet.
    cluster.waiting().holds_for(LAG, "five pods", || {
        n_touches.set(n_touches.get() + 1);
        let touch = json!({"metadata": {"annotations": {"n": n_touches.get().to_string()}}});
        for pod in cluster.live() {
            cluster.merge_patch(Kind::Pods, &name(&pod), &touch);
        }
        cluster.live().len() == 5
    });
    cluster.stable("a");
    let sent = statuses_sent(&cluster);
    for pair in sent.windows(2) {
        assert_ne!(pair[0], pair[1], "the same status was sent twice");
    }
    let conflicts = updates(&cluster);
    let conflicts = conflicts.iter().filter(|it| it.code() == Some(409));
    // The scale-up is the only change that the lagging cache can miss.
    assert!(conflicts.count() <= 1);
    cluster.holds("five pods", || cluster.live().len() == 5);
    assert_eq!(cluster.recorded("create", "pods").len(), 5);
}

#[test]
fn h_21_a_lagging_replica_set_watch_repeats_no_update() {
    check_a_lagging_watch_repeats_no_update(ReplicaSets);
}

#[test]
fn h_19_a_lagging_controller_watch_repeats_no_update() {
    check_a_lagging_watch_repeats_no_update(ReplicationControllers);
}
