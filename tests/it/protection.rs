//! Pods that a scale-down must not choose.

use std::sync::mpsc::{Receiver, channel};

use replicaset_controller::client::Request;
use replicaset_controller::stdx::thread::Thread;
use serde_json::{Value, json};

use crate::support::{
    Kind, PATIENCE, TestCluster, json_body, name, names, new_pod, new_replica_set, number_at,
    text_at,
};

const SCALE_DOWN: &str = "replicaset-controller/scale-down";

/// Rounds of the race, and pods before and after each scale-down.
const ROUNDS: usize = 4;
const BEFORE: i64 = 60;
const AFTER: i64 = 30;

/// Threads that annotate pods at the same time.
const ANNOTATORS: usize = 4;

/// A ReplicaSet that opts in, with more annotations under the prefix.
fn protecting(rs: &str, replicas: i64, more: &[(&str, &str)]) -> Value {
    let mut rs = new_replica_set(rs, replicas);
    let annotations = &mut rs["metadata"]["annotations"];
    annotations["replicaset-controller/scale-down-protection"] = json!("on");
    for (name, value) in more {
        annotations[format!("replicaset-controller/{name}")] = json!(value);
    }
    rs
}

/// An orphan with this mark; `""` for none.
fn marked(pod: &str, mark: &str) -> Value {
    let mut pod = new_pod(pod);
    if !mark.is_empty() {
        pod["metadata"]["annotations"] = json!({SCALE_DOWN: mark});
    }
    pod
}

fn mark_of(pod: &Value) -> Option<&str> {
    pod["metadata"]["annotations"][SCALE_DOWN].as_str()
}

fn block_of(cluster: &TestCluster, rs: &str) -> Option<String> {
    let status = cluster.status(rs);
    let conditions = status["conditions"].as_array().cloned();
    let mut conditions = conditions.unwrap_or_default().into_iter();
    let block = conditions.find(|it| it["type"] == "ScaleDownBlocked")?;
    Some(text_at(&block, "/reason"))
}

/// The numbers of events about `a` with these reasons.
fn n_events(cluster: &TestCluster, reason: &str) -> i64 {
    let events = cluster.events_of("a");
    let of_reason = events.iter().filter(|event| event["reason"] == reason);
    of_reason
        .map(|event| number_at(event, "/count").max(1))
        .sum()
}

#[test]
fn without_opting_in_marks_have_no_effect() {
    let mut cluster = TestCluster::start();
    for pod in ["p", "q", "r"] {
        cluster.create_pod(&marked(pod, "never"));
    }
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.start_daemon();
    cluster.stable("a");
    assert_eq!(cluster.live().len(), 1);
    assert_eq!(cluster.status("a")["conditions"], json!(null));
    for delete in cluster.recorded("delete", "pods") {
        let preconditions = json_body(&delete)["preconditions"].clone();
        assert!(preconditions["uid"].is_string(), "{preconditions}");
        assert_eq!(preconditions["resourceVersion"], json!(null));
    }
}

#[test]
fn marks_decide_before_every_other_rule() {
    let mut cluster = TestCluster::start();
    for (pod, mark) in [("p", "never"), ("q", ""), ("r", "first"), ("s", "never")] {
        cluster.create_pod(&marked(pod, mark));
    }
    cluster.create_replica_set(&protecting("a", 4, &[]));
    cluster.start_daemon();
    cluster.stable("a");
    cluster.scale("a", 3);
    cluster.stable("a");
    assert_eq!(names(&cluster.live()), ["p", "q", "s"]);
    cluster.scale("a", 0);
    cluster.eventually_eq(
        "the scale-down is blocked",
        &Some("ProtectedPods".to_owned()),
        || block_of(&cluster, "a"),
    );
    cluster.eventually_eq("only protected pods are left", &2, || {
        number_at(&cluster.status("a"), "/replicas")
    });
    cluster.holds("they stay", || names(&cluster.live()) == ["p", "s"]);
    cluster.eventually_eq("one event", &1, || n_events(&cluster, "ScaleDownBlocked"));
    // Without the annotation the pod is deleted, and with the last annotation the condition.
    let unmark = json!({"metadata": {"annotations": {SCALE_DOWN: null}}});
    cluster.merge_patch(Kind::Pods, "p", &unmark);
    cluster.eventually("one pod is deleted", || names(&cluster.live()) == ["s"]);
    cluster.merge_patch(Kind::Pods, "s", &unmark);
    cluster.stable("a");
    cluster.eventually_eq("the condition is removed", &None, || {
        block_of(&cluster, "a")
    });
    assert_eq!(n_events(&cluster, "ScaleDownBlocked"), 1);
    for delete in cluster.recorded("delete", "pods") {
        let preconditions = json_body(&delete)["preconditions"].clone();
        assert!(
            preconditions["resourceVersion"].is_string(),
            "{preconditions}"
        );
    }
}

/// A forgotten annotation costs money until the timeout, which a failover does not start again.
#[test]
fn a_block_ends_by_its_timeout() {
    let mut cluster = TestCluster::start();
    for pod in ["p", "q"] {
        cluster.create_pod(&marked(pod, "never"));
    }
    let rs = protecting("a", 1, &[("protected-timeout", "4s")]);
    cluster.create_replica_set(&rs);
    cluster.start_daemon();
    cluster.eventually("the scale-down is blocked", || {
        block_of(&cluster, "a").is_some()
    });
    cluster.stop_daemon();
    cluster.start_daemon();
    cluster.eventually_eq("one protected pod is deleted", &1, || cluster.live().len());
    cluster.stable("a");
    cluster.eventually_eq("the condition is removed", &None, || {
        block_of(&cluster, "a")
    });
    cluster.eventually_eq("one event of each", &(1, 1), || {
        let of = |reason| n_events(&cluster, reason);
        (of("ScaleDownBlocked"), of("ProtectedTimeout"))
    });
}

/// The order of the store decides. Pods of this test have no node, so a delete removes them at
/// once, and the watch shows the state in which each was deleted.
#[test]
fn no_pod_is_deleted_after_its_mark_was_stored() {
    let cluster = TestCluster::running();
    cluster.create_replica_set(&protecting("a", BEFORE, &[]));
    cluster.stable("a");
    let (events, deleted) = channel();
    let watched = cluster.watch(Kind::Pods);
    // Not joined: the thread ends when the test's stop signal closes the watch's connection.
    drop(Thread::spawn("deleted-pods", cluster.stop(), move || {
        for event in watched.filter(|event| event["type"] == "DELETED") {
            if events.send(event["object"].clone()).is_err() {
                return;
            }
        }
    }));
    let (mut n_deleted, mut n_saved) = (0, 0);
    for _ in 0..ROUNDS {
        let (deleted, saved) = race(&cluster, &deleted);
        n_deleted += deleted;
        n_saved += saved;
    }
    assert!(
        n_deleted > 0 && n_saved > 0,
        "{n_deleted} deleted, {n_saved} saved"
    );
    let conflicts = cluster.recorded("delete", "pods");
    log::info!(
        "{n_deleted} deleted, {n_saved} saved, {} deletes sent",
        conflicts.len()
    );
}

/// Scales down while half of the pods are marked, one after the other. Returns how many pods were
/// deleted, and how many marks were stored.
fn race(cluster: &TestCluster, deleted: &Receiver<Value>) -> (usize, usize) {
    let mut pods = names(&cluster.live());
    fastrand::shuffle(&mut pods);
    let half = pods.len() / 2;
    let lots: Vec<&[String]> = pods[..half].chunks(half.div_ceil(ANNOTATORS)).collect();
    let mark = json!({"metadata": {"annotations": {SCALE_DOWN: "never"}}}).to_string();
    std::thread::scope(|scope| {
        for lot in lots {
            let mark = mark.clone();
            scope.spawn(move || {
                for pod in lot {
                    let request = Request::patch(cluster.path(Kind::Pods, pod));
                    // The pod may be gone.
                    let request = request.body("application/merge-patch+json", mark.clone());
                    drop(cluster.send(&request));
                }
            });
        }
        scope.spawn(|| cluster.scale("a", AFTER));
    });
    cluster.stable("a");
    let n_deleted = usize::try_from(BEFORE - AFTER).expect("a small number");
    for _ in 0..n_deleted {
        let pod = deleted
            .recv_timeout(PATIENCE)
            .expect("an event of each deleted pod");
        assert_eq!(
            mark_of(&pod),
            None,
            "{} was deleted, though marked",
            name(&pod)
        );
    }
    let live = cluster.live();
    let saved: Vec<&Value> = live.iter().filter(|pod| mark_of(pod).is_some()).collect();
    for pod in &saved {
        let unmark = json!({"metadata": {"annotations": {SCALE_DOWN: null}}});
        cluster.merge_patch(Kind::Pods, &name(pod), &unmark);
    }
    cluster.scale("a", BEFORE);
    cluster.stable("a");
    (n_deleted, saved.len())
}
