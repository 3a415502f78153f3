//! Opt-ins for Failed pods: replacements in back-off, and deletion of old Failed pods. The test
//! plays the kubelet. The whole ten minutes are in `controller/sync/tests/failing_node.rs`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{
    Kind, TestCluster, json_body, name, names, new_pod, new_replica_set, replica_failure,
    seconds_ago, text_at, uid,
};

const REASON: &str = "FailedPodBackoff";

/// A ReplicaSet with annotations under the controller's prefix.
fn opting_in(replicas: i64, annotations: &[(&str, &str)]) -> Value {
    let mut rs = new_replica_set("a", replicas);
    for (name, value) in annotations {
        rs["metadata"]["annotations"][format!("replicaset-controller/{name}")] = json!(value);
    }
    // No scheduler assigns the pods.
    rs["spec"]["template"]["spec"]["nodeName"] = json!("node-1");
    rs
}

/// What a kubelet writes into the status of a pod that it rejects.
fn rejection() -> Value {
    json!({
        "phase": "Failed", "reason": "OutOfcpu", "startTime": seconds_ago(0),
        "message": "Pod was rejected: Node didn't have enough resource: cpu, requested: 100, \
                    used: 3950, capacity: 4000",
    })
}

fn is_pending(pod: &Value) -> bool {
    text_at(pod, "/status/phase") == "Pending"
}

fn is_failed(pod: &Value) -> bool {
    text_at(pod, "/status/phase") == "Failed"
}

fn pass(cluster: &TestCluster, time: Duration) {
    cluster.waiting().holds_for(time, "time passes", || true);
}

/// A node that rejects every pod until this is true.
fn reject_all_until(cluster: &TestCluster, is_over: impl Fn() -> bool) {
    while !is_over() {
        for pod in cluster.live().iter().filter(|pod| is_pending(pod)) {
            cluster.set_pod_status(&name(pod), &rejection());
        }
        pass(cluster, Duration::from_millis(20));
    }
}

/// The node runs every pod from now on; all are Ready at once.
fn run_all(cluster: &TestCluster) {
    for pod in cluster.live().iter().filter(|pod| is_pending(pod)) {
        let ready = json!({
            "phase": "Running",
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": seconds_ago(0)},
            ],
        });
        cluster.set_pod_status(&name(pod), &ready);
    }
}

#[test]
fn a_node_that_rejects_pods_gets_few_until_it_has_recovered() {
    let cluster = TestCluster::running();
    cluster.create_replica_set(&opting_in(5, &[("failed-pod-backoff", "1s..4s")]));
    let began = Instant::now();
    // Probes are due after 1, 3, 7 and 11 s.
    let n_created = || cluster.recorded("create", "pods").len();
    reject_all_until(&cluster, || n_created() >= 9);
    assert!(began.elapsed() > Duration::from_secs(7));
    cluster.eventually("the last one is rejected", || {
        reject_all_until(&cluster, || !cluster.live().iter().any(is_pending));
        let condition = replica_failure(&cluster.status("a")).unwrap_or_default();
        text_at(&condition, "/message").contains("last one on node-1")
    });
    let condition = replica_failure(&cluster.status("a")).expect("a condition");
    assert_eq!(text_at(&condition, "/reason"), REASON);
    let message = text_at(&condition, "/message");
    assert!(
        message.contains("the last one on node-1 (OutOfcpu)"),
        "{message}"
    );
    // One event and one status write for each step.
    cluster.eventually("an event about the step", || {
        let events = cluster.events_of("a");
        events.iter().any(|it| text_at(it, "/message") == message)
    });
    let events = cluster.events_of("a");
    let n_events = events
        .iter()
        .filter(|it| text_at(it, "/reason") == REASON)
        .count();
    // Each step needs another failed pod. On a slow machine the first five are several steps.
    let n_created = n_created();
    assert!((2..=n_created).contains(&n_events), "{n_events}");

    cluster.eventually("all pods run", || {
        run_all(&cluster);
        let live = cluster.live();
        live.iter()
            .filter(|pod| text_at(pod, "/status/phase") == "Running")
            .count()
            == 5
    });
    cluster.eventually("no condition", || {
        replica_failure(&cluster.status("a")).is_none()
    });
    assert!(cluster.recorded("delete", "pods").is_empty());
}

#[test]
fn a_restarted_daemon_waits_on_and_repeats_no_event() {
    let mut cluster = TestCluster::running();
    cluster.create_replica_set(&opting_in(2, &[("failed-pod-backoff", "10m..1h")]));
    reject_all_until(&cluster, || replica_failure(&cluster.status("a")).is_some());
    cluster.eventually("an event", || {
        cluster
            .events_of("a")
            .iter()
            .any(|it| text_at(it, "/reason") == REASON)
    });
    let (pods, version) = (names(&cluster.live()), cluster.replica_set("a"));
    // One write shows each daemon that an API server before 1.35 drops the field.
    let is_dropped = !cluster.keeps_terminating_replicas("a");
    cluster.stop_daemon();
    cluster.faults().recorder().clear();
    cluster.start_daemon();
    cluster.synced();
    cluster.holds("the daemon writes nothing", || {
        let n_writes_max = usize::from(is_dropped);
        cluster.n_writes() <= n_writes_max && cluster.recorded("create", "events").is_empty()
    });
    assert_eq!(names(&cluster.live()), pods);
    assert_eq!(
        text_at(&cluster.replica_set("a"), "/metadata/resourceVersion"),
        text_at(&version, "/metadata/resourceVersion")
    );
}

#[test]
fn old_failed_pods_are_deleted_with_uid_and_version() {
    let mut cluster = TestCluster::start();
    let annotations = [("failed-pods-kept", "1"), ("failed-pods-min-age", "1s")];
    let rs = cluster.create_replica_set(&opting_in(0, &annotations));
    let add = |pod: &str, ago: i64, finalizers: &[&str]| {
        let mut object = new_pod(pod);
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": uid(&rs),
            "controller": true, "blockOwnerDeletion": true,
        }]);
        object["metadata"]["finalizers"] = json!(finalizers);
        cluster.create_pod(&object);
        let failed = json!({"phase": "Failed", "reason": "Evicted", "conditions": [
            {"type": "Ready", "status": "False", "lastTransitionTime": seconds_ago(ago)},
        ]});
        cluster.set_pod_status(pod, &failed)
    };
    // A pod never failed before its creation, so the names decide the order within a second.
    let oldest = add("f1", 0, &[]);
    add("f2", 0, &["example.com/held"]);
    pass(&cluster, Duration::from_millis(1100));
    add("f3", 0, &[]);
    pass(&cluster, Duration::from_millis(1100));
    add("f4", 0, &[]);
    cluster.start_daemon();
    cluster.eventually_eq(
        "the newest one and the one with a finalizer",
        &vec!["f2".to_owned(), "f4".to_owned()],
        || {
            let pods = cluster.list(Kind::Pods, "");
            names(&pods.into_iter().filter(is_failed).collect::<Vec<_>>())
        },
    );
    let deletes = cluster.recorded("delete", "pods");
    let first = json_body(deletes.first().expect("a delete"));
    assert_eq!(
        first["preconditions"],
        json!({
            "uid": uid(&oldest),
            "resourceVersion": text_at(&oldest, "/metadata/resourceVersion"),
        })
    );
    assert_eq!(deletes.len(), 2);
    let events = cluster.events_of("a");
    assert!(
        events
            .iter()
            .all(|it| text_at(it, "/reason") != "SuccessfulDelete")
    );
    assert_eq!(replica_failure(&cluster.status("a")), None);
    // Its owner removes the finalizer of the other one: then one of two is kept.
    cluster.merge_patch(Kind::Pods, "f2", &json!({"metadata": {"finalizers": null}}));
    cluster.eventually_eq("the newest one", &vec!["f4".to_owned()], || {
        names(&cluster.list(Kind::Pods, ""))
    });
}
