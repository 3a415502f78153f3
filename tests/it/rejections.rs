//! Rejected creates: how long they are backed off, and what ends the back-off.

use std::time::Duration;

use replicaset_controller::api::Status;
use replicaset_controller::client::Request;
use replicaset_controller::devserver::Action;
use serde_json::json;

use crate::support::{
    Kind, PlainPort, TestCluster, new_pod, new_replica_set, new_replica_set_labelled, number_at,
    replica_failure,
};

const QUOTA: &str = "few";

fn n_posts(cluster: &TestCluster) -> usize {
    cluster.recorded("create", "pods").len()
}

/// Creates a quota of this many pods, and waits until admission enforces it. On a real API server
/// the test does the quota controller's work: [`set_used`] reports to admission what was freed.
fn create_quota(cluster: &TestCluster, pods: usize) {
    let quota = json!({"metadata": {"name": QUOTA}, "spec": {"hard": {"pods": pods.to_string()}}});
    cluster.create(Kind::Quotas, &quota);
    if !TestCluster::is_real() {
        return;
    }
    // No pod is allowed at first: a stale cache of the admission then only rejects more.
    set_usage(cluster, 0, 0);
    cluster.eventually("admission enforces the quota", || {
        let probe = Request::post(cluster.collection(Kind::Pods))
            .query("dryRun", "All")
            .body("application/json", new_pod("probe").to_string());
        cluster.send(&probe).is_err()
    });
    set_usage(cluster, pods, 0);
}

fn set_usage(cluster: &TestCluster, hard: usize, used: usize) {
    cluster.update_status(Kind::Quotas, QUOTA, |quota| {
        quota["status"] = json!({
            "hard": {"pods": hard.to_string()}, "used": {"pods": used.to_string()},
        });
    });
}

/// Gives the daemon's account the right to watch the quotas of its namespace, which the stock role
/// does not hold. The dev server knows no rights.
fn grant_watch(cluster: &TestCluster) {
    if !TestCluster::is_real() {
        return;
    }
    let (name, user) = ("quotas", "replicaset-controller");
    let group = "rbac.authorization.k8s.io";
    let rules = json!([
        {"apiGroups": [""], "resources": ["resourcequotas"], "verbs": ["watch"]},
    ]);
    let role = json!({"metadata": {"name": name}, "rules": rules});
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    });
    let namespace = cluster.namespace();
    for (resource, object) in [("roles", role), ("rolebindings", binding)] {
        let path = format!("/apis/{group}/v1/namespaces/{namespace}/{resource}");
        let request = Request::post(path).body("application/json", object.to_string());
        cluster
            .send(&request)
            .expect("an administrator may do this");
    }
    let review = json!({"spec": {"user": user, "resourceAttributes": {
        "namespace": namespace, "verb": "watch", "resource": "resourcequotas",
    }}});
    cluster.eventually("the right is given", || {
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let request = Request::post(path).body("application/json", review.to_string());
        let answer = cluster
            .send(&request)
            .expect("an administrator may do this");
        answer["status"]["allowed"] == json!(true)
    });
}

/// Raises the quota's limit, of which this many are used.
fn raise_quota(cluster: &TestCluster, pods: usize, used: usize) {
    cluster.update(Kind::Quotas, QUOTA, |quota| {
        quota["spec"]["hard"]["pods"] = json!(pods.to_string());
    });
    if TestCluster::is_real() {
        set_usage(cluster, pods, used);
    }
}

/// Waits until the daemon has reported that a create for this ReplicaSet was rejected.
fn until_rejected(cluster: &TestCluster, name: &str) {
    cluster.eventually("the condition", || {
        replica_failure(&cluster.status(name)).is_some()
    });
}

fn replicas(cluster: &TestCluster, name: &str) -> i64 {
    number_at(&cluster.status(name), "/replicas")
}

#[test]
fn the_quota_that_a_pod_frees_is_used() {
    let cluster = TestCluster::running();
    create_quota(&cluster, 2);
    cluster.create_replica_set(&new_replica_set_labelled("full", 2, "full"));
    cluster.stable("full");
    for name in ["a-old", "b-young"] {
        cluster.create_replica_set(&new_replica_set_labelled(name, 1, name));
        until_rejected(&cluster, name);
    }
    // The pauses of the queue have grown.
    cluster
        .waiting()
        .holds_for(Duration::from_secs(4), "no pod", || {
            replicas(&cluster, "a-old") == 0
        });
    cluster.scale("full", 1);
    cluster.stable("full");
    if TestCluster::is_real() {
        set_usage(&cluster, 2, 1);
    }
    cluster.eventually("one of them has its pod", || {
        replicas(&cluster, "a-old") + replicas(&cluster, "b-young") == 1
    });
    let (first, second) = match replicas(&cluster, "a-old") {
        0 => ("b-young", "a-old"),
        _ => ("a-old", "b-young"),
    };
    cluster.eventually("no condition", || {
        replica_failure(&cluster.status(first)).is_none()
    });
    assert_eq!(replicas(&cluster, second), 0);
    assert!(replica_failure(&cluster.status(second)).is_some());
}

#[test]
fn a_raised_quota_is_seen_at_once() {
    let cluster = TestCluster::running();
    grant_watch(&cluster);
    create_quota(&cluster, 0);
    cluster.create_replica_set(&new_replica_set("a", 1));
    until_rejected(&cluster, "a");
    // The next try is due after 4.5 s.
    cluster
        .waiting()
        .holds_for(Duration::from_millis(3500), "no pod", || {
            replicas(&cluster, "a") == 0
        });
    let n_before = n_posts(&cluster);
    raise_quota(&cluster, 1, 0);
    cluster.eventually("a pod", || !cluster.list(Kind::Pods, "").is_empty());
    // On the real API server admission may see the quota later than the daemon does.
    assert!(n_posts(&cluster) - n_before <= 4);
    cluster.stable("a");
    assert_eq!(cluster.recorded("watch", "resourcequotas").len(), 1);
}

#[test]
fn no_quota_is_read_before_one_rejects() {
    let cluster = TestCluster::running();
    grant_watch(&cluster);
    create_quota(&cluster, 3);
    cluster.create_replica_set(&new_replica_set("a", 3));
    cluster.stable("a");
    let reads = || cluster.recorded("watch", "resourcequotas").len();
    cluster.holds("no request for quotas", || reads() == 0);
    cluster.scale("a", 4);
    cluster.eventually("the quotas are watched", || reads() == 1);
}

/// As with the stock role, which grants no right to read quotas.
#[test]
fn without_the_right_probes_find_a_raised_quota() {
    let cluster = TestCluster::start();
    create_quota(&cluster, 0);
    let denied = Status::new(403, "Forbidden", "cannot watch resource \"resourcequotas\"");
    let _rule = cluster.fault("watch", "resourcequotas", Action::reject(denied));
    let port = PlainPort::free();
    let process = cluster.start_process(&["--leader-elect=false", &port.argument()]);
    cluster.create_replica_set(&new_replica_set("a", 1));
    until_rejected(&cluster, "a");
    cluster.eventually("the log says so", || {
        process.log().contains("quotas are not watched")
    });
    raise_quota(&cluster, 1, 0);
    cluster.stable("a");
    let log = process.log();
    assert_eq!(log.matches("resourcequotas").count(), 1, "{log}");
    assert!(!log.contains("WARN  [watch-quotas]"), "{log}");
    assert_eq!(cluster.recorded("watch", "resourcequotas").len(), 1);
    let (code, body) = port.get("/healthz");
    assert_eq!(code, 200, "{body}");
    let (_, metrics) = port.get("/metrics");
    assert!(!metrics.contains("resourcequotas"), "{metrics}");
}

/// Nine tries within 1.3 s logged nine pairs of lines.
#[test]
fn a_rejection_is_one_warning_until_its_reason_changes() {
    if TestCluster::is_real() {
        return;
    }
    let cluster = TestCluster::start();
    let process = cluster.start_process(&["-v"]);
    let reject = |why: &str| {
        let message = format!("pods \"a-bcdfg\" is forbidden: violates PodSecurity {why}");
        let status = Status::new(403, "Forbidden", &message);
        cluster.fault("create", "pods", Action::reject(status))
    };
    let rule = reject("\"baseline\"");
    cluster.create_replica_set(&new_replica_set("a", 2));
    let lines = |level: &str| -> Vec<String> {
        let log = process.log();
        let is_its = |line: &&str| line.contains("PodSecurity") && line.contains(level);
        log.lines().filter(is_its).map(str::to_owned).collect()
    };
    cluster.eventually("further tries", || lines("DEBUG").len() >= 4);
    let warnings = lines("WARN");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("created 0 of 2 pods, next attempt in "),
        "{warnings:?}"
    );
    rule.remove();
    let _rule = reject("\"restricted\"");
    cluster.eventually("another reason", || {
        lines("WARN").iter().any(|it| it.contains("restricted"))
    });
    cluster.eventually("the condition has the newest error", || {
        let failure = replica_failure(&cluster.status("a"));
        failure.is_some_and(|it| it.to_string().contains("restricted"))
    });
    assert!(
        !process.log().contains("INFO  created 0 of"),
        "in the warning"
    );
}

#[test]
fn the_log_names_the_quota_and_the_position_in_its_queue() {
    let cluster = TestCluster::start();
    create_quota(&cluster, 0);
    let process = cluster.start_process(&[]);
    cluster.create_replica_set(&new_replica_set_labelled("a", 3, "a"));
    cluster.eventually("the log names the position", || {
        let log = process.log();
        log.contains("quota \"few\" is full (used: pods=0, limited: pods=0); 3 pods missing; ")
            && log.contains("number 1 of 1 waiting for this quota; next attempt in ")
    });
}
