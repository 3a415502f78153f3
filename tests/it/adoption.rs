//! Group C: adopting and releasing pods, and how the daemon handles failed patches.

use std::time::Duration;

use replicaset_controller::api::Status;
use replicaset_controller::devserver::{Action, Matcher, Rule, RuleHandle};
use serde_json::{Value, json};

use crate::support::{
    Kind, PATIENCE, Setup, TestCluster, controller_reference, controller_uid,
    foreign_controller_reference, name, new_pod, new_replica_set, number_at, owner_references, uid,
    uids,
};

const STRATEGIC_MERGE: &str = "application/strategic-merge-patch+json";

/// Rejects all patches of pods until the rule is removed.
fn reject_patches(cluster: &TestCluster, code: u16, reason: &str) -> RuleHandle {
    let error = Action::reject(Status::new(code, reason, "on purpose"));
    cluster
        .faults()
        .add(Rule::new(Matcher::verb("patch", "pods"), error))
}

/// A ReplicaSet with one pod that has just lost its label, and whose release has failed.
fn with_failing_release(code: u16, reason: &str) -> (TestCluster, RuleHandle, Value) {
    let cluster = TestCluster::running();
    cluster.create_replica_set(&new_replica_set("rs", 1));
    cluster.stable("rs");
    let rule = reject_patches(&cluster, code, reason);
    let pod = cluster.live().remove(0);
    let patch = json!({"metadata": {"labels": {"app": "other"}}});
    cluster.merge_patch(Kind::Pods, &name(&pod), &patch);
    assert!(rule.wait_for_hits(1, PATIENCE), "a release is attempted");
    (cluster, rule, pod)
}

#[test]
fn c_01_only_the_matching_orphan_is_adopted() {
    let mut cluster = TestCluster::start();
    let rs = cluster.create_replica_set(&new_replica_set("rs", 1));
    cluster.create_pod(&new_pod("p1"));
    let mut other = new_pod("p2");
    other["metadata"]["labels"] = json!({"app": "other"});
    cluster.create_pod(&other);
    cluster.start_daemon();
    cluster.stable("rs");
    assert_eq!(controller_uid(&cluster.pod("p1")), Some(uid(&rs)));
    cluster.holds("the other pod stays an orphan", || {
        owner_references(&cluster.pod("p2")).is_empty()
    });
    assert_eq!(cluster.recorded("patch", "pods").len(), 1);
    assert_eq!(cluster.recorded("create", "pods").len(), 0);
}

#[test]
fn c_04_pods_of_another_controller_are_left_alone() {
    let mut cluster = TestCluster::start();
    let rs = cluster.create_replica_set(&new_replica_set("rs", 1));
    let other = foreign_controller_reference("7c7a1f4e-6f8f-4a58-9f0e-2d8b3c1a9e10");
    for (pod, owner) in [("mine", controller_reference(&rs)), ("theirs", other)] {
        let mut pod = new_pod(pod);
        pod["metadata"]["ownerReferences"] = json!([owner]);
        cluster.create_pod(&pod);
    }
    let before = uids(&cluster.live());
    cluster.start_daemon();
    cluster.stable("rs");
    cluster.holds("the same two pods", || uids(&cluster.live()) == before);
    for verb in ["create", "patch", "delete"] {
        assert_eq!(cluster.recorded(verb, "pods").len(), 0, "{verb}");
    }
}

#[test]
fn c_05_only_the_pod_that_stops_matching_is_released() {
    let cluster = TestCluster::running();
    let rs = cluster.create_replica_set(&new_replica_set("rs", 2));
    cluster.stable("rs");
    let pods = cluster.live();
    let patch = json!({"metadata": {"labels": {"app": "other"}}});
    cluster.merge_patch(Kind::Pods, &name(&pods[0]), &patch);
    cluster.eventually("released and replaced", || {
        owner_references(&cluster.pod(&name(&pods[0]))).is_empty() && cluster.live().len() == 2
    });
    let kept = cluster.pod(&name(&pods[1]));
    assert_eq!(controller_uid(&kept), Some(uid(&rs)));
    assert_eq!(
        kept["metadata"]["resourceVersion"],
        pods[1]["metadata"]["resourceVersion"]
    );
    assert_eq!(cluster.recorded("patch", "pods").len(), 1);
}

#[test]
fn c_08_orphans_in_other_namespaces_are_left_alone() {
    let mut cluster = TestCluster::with(Setup {
        all_namespaces: true,
        ..Setup::default()
    });
    let elsewhere = format!("{}-b", cluster.namespace());
    cluster.create_namespace(&elsewhere);
    let elsewhere = cluster.in_namespace(&elsewhere);
    let rs = cluster.create_replica_set(&new_replica_set("rs", 1));
    cluster.create_pod(&new_pod("p"));
    elsewhere.create_pod(&new_pod("p"));
    cluster.start_daemon();
    cluster.stable("rs");
    assert_eq!(controller_uid(&cluster.pod("p")), Some(uid(&rs)));
    cluster.holds("the other pod stays an orphan", || {
        owner_references(&elsewhere.pod("p")).is_empty()
    });
    // A ReplicaSet in the other namespace adopts the pod, so the daemon does watch that namespace.
    let rs = elsewhere.create_replica_set(&new_replica_set("rs", 1));
    cluster.eventually("the other pod is adopted in its own namespace", || {
        controller_uid(&elsewhere.pod("p")) == Some(uid(&rs))
    });
    elsewhere.delete(Kind::ReplicaSets, "rs");
}

#[test]
fn c_10_a_release_names_the_pod_and_the_owner_by_uid() {
    let cluster = TestCluster::running();
    let rs = cluster.create_replica_set(&new_replica_set("rs", 1));
    cluster.stable("rs");
    let pod = cluster.live().remove(0);
    cluster.update(Kind::Pods, &name(&pod), |pod| {
        pod["metadata"]["labels"] = json!({"other": "x"});
    });
    cluster.eventually("released", || {
        owner_references(&cluster.pod(&name(&pod))).is_empty()
    });
    let patches = cluster.recorded("patch", "pods");
    assert_eq!(patches.len(), 1);
    assert_eq!(patches[0].request.content_type(), STRATEGIC_MERGE);
    let body = format!(
        r#"{{"metadata":{{"uid":"{}","ownerReferences":[{{"$patch":"delete","uid":"{}"}}]}}}}"#,
        uid(&pod),
        uid(&rs)
    );
    assert_eq!(patches[0].body(), body);
}

#[test]
fn c_15_an_adoption_guards_the_uid_and_keeps_other_owners() {
    let mut cluster = TestCluster::start();
    let rs = cluster.create_replica_set(&new_replica_set("rs", 1));
    let owner = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "another",
        "uid": "2b0d7bc3-3f6c-4c0c-8a8f-4b7d3c1f0a11",
    });
    let mut pod = new_pod("p");
    pod["metadata"]["ownerReferences"] = json!([owner]);
    let pod = cluster.create_pod(&pod);
    cluster.start_daemon();
    cluster.stable("rs");
    let patches = cluster.recorded("patch", "pods");
    assert_eq!(patches.len(), 1);
    assert_eq!(patches[0].request.content_type(), STRATEGIC_MERGE);
    let body: Value = serde_json::from_str(&patches[0].body()).expect("a patch is JSON");
    let expected = json!({"metadata": {
        "uid": uid(&pod),
        "ownerReferences": [controller_reference(&rs)],
    }});
    assert_eq!(body, expected);
    // A strategic merge patch inserts new list items in front.
    let mut owners = owner_references(&cluster.pod("p"));
    owners.sort_by_key(|owner| owner["kind"] != json!("ConfigMap"));
    assert_eq!(owners, [owner, controller_reference(&rs)]);
}

#[test]
fn c_17_a_23_nothing_is_created_while_adopting_fails() {
    let mut cluster = TestCluster::start();
    cluster.create_replica_set(&new_replica_set("rs", 2));
    for pod in ["p1", "p2"] {
        cluster.create_pod(&new_pod(pod));
    }
    let rule = reject_patches(&cluster, 500, "InternalError");
    cluster.start_daemon();
    assert!(
        rule.wait_for_hits(6, PATIENCE),
        "both adoptions are attempted several times"
    );
    cluster.holds("no pod is created and no status is written", || {
        let status = cluster.status("rs");
        number_at(&status, "/observedGeneration") == 0 && cluster.live().len() == 2
    });
    assert_eq!(cluster.n_writes(), cluster.recorded("patch", "pods").len());
    rule.remove();
    cluster.stable("rs");
    let live = cluster.live();
    assert_eq!(live.len(), 2);
    assert!(live.iter().all(|pod| controller_uid(pod).is_some()));
    assert_eq!(cluster.recorded("create", "pods").len(), 0);
}

#[test]
fn c_18_a_live_get_that_shows_a_deletion_prevents_adoption() {
    let mut cluster = TestCluster::start();
    let rs = cluster.create_replica_set(&new_replica_set("rs", 1));
    cluster.create_pod(&new_pod("p"));
    let deleted = Action::rewrite_json(|rs| {
        rs["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    let rule = Rule::new(Matcher::verb("get", "replicasets"), deleted);
    let rule = cluster.faults().add(rule);
    cluster.start_daemon();
    assert!(rule.wait_for_hits(3, PATIENCE), "the live get is repeated");
    assert_eq!(cluster.n_writes(), 0);
    rule.remove();
    cluster.stable("rs");
    assert_eq!(controller_uid(&cluster.pod("p")), Some(uid(&rs)));
}

#[test]
fn c_21_releasing_a_pod_that_is_gone_succeeds() {
    for (code, reason) in [(404, "NotFound"), (422, "Invalid")] {
        let (cluster, rule, pod) = with_failing_release(code, reason);
        cluster.eventually_eq("a replacement", &1, || cluster.live().len());
        cluster.stable("rs");
        // Each sync attempts the release once: the syncs for the lost label, for the new pod, and
        // for two status updates. The retries of a failed sync would be far more in this time.
        cluster.holds("at most five attempts", || rule.hits() <= 5);
        assert!(!owner_references(&cluster.pod(&name(&pod))).is_empty());
    }
}

#[test]
fn c_21_any_other_failed_release_is_retried() {
    let (cluster, rule, pod) = with_failing_release(500, "InternalError");
    assert!(rule.wait_for_hits(3, PATIENCE), "the release is retried");
    assert_eq!(cluster.live().len(), 0, "no replacement meanwhile");
    rule.remove();
    cluster.eventually("released and replaced", || {
        owner_references(&cluster.pod(&name(&pod))).is_empty() && cluster.live().len() == 1
    });
}

#[test]
fn c_22_an_orphan_that_is_gone_at_adoption_is_replaced() {
    let mut cluster = TestCluster::start();
    cluster.create_replica_set(&new_replica_set("rs", 1));
    cluster.create_pod(&new_pod("p"));
    let rule = reject_patches(&cluster, 404, "NotFound");
    cluster.start_daemon();
    cluster.stable("rs");
    cluster.eventually_eq("the orphan and its replacement", &2, || {
        cluster.live().len()
    });
    cluster.holds("two pods", || cluster.live().len() == 2);
    assert!(rule.hits() >= 1);
    assert_eq!(cluster.recorded("create", "pods").len(), 1);
    // The failed adoption excludes the orphan only from this sync: the next sync adopts it, and
    // deletes the surplus pod.
    rule.remove();
    let patch = json!({"metadata": {"labels": {"touched": "yes"}}});
    cluster.merge_patch(Kind::Pods, "p", &patch);
    cluster
        .waiting()
        .eventually("one pod", || cluster.live().len() == 1);
    cluster
        .waiting()
        .holds_for(Duration::from_millis(500), "one pod", || {
            cluster.live().len() == 1
        });
}

#[test]
fn c_18_a_live_get_that_shows_another_uid_prevents_adoption() {
    let mut cluster = TestCluster::start();
    cluster.create_replica_set(&new_replica_set("rs", 2));
    cluster.create_pod(&new_pod("p"));
    let recreated = Action::rewrite_json(|rs| rs["metadata"]["uid"] = json!("1-2-3"));
    let rule = Rule::new(Matcher::verb("get", "replicasets"), recreated);
    let rule = cluster.faults().add(rule);
    cluster.start_daemon();
    assert!(rule.wait_for_hits(3, PATIENCE), "the live get is repeated");
    assert_eq!(cluster.n_writes(), 0);
    rule.remove();
    cluster.stable("rs");
}

#[test]
fn a_recreated_replica_set_does_not_inherit_pods() {
    // A pod whose owner reference has the old UID is neither the new ReplicaSet's nor an orphan.
    let cluster = TestCluster::running();
    let rs = cluster.create_replica_set(&new_replica_set("rs", 1));
    cluster.stable("rs");
    let pod = cluster.live().remove(0);
    let options = json!({"propagationPolicy": "Background"});
    cluster.delete_with(Kind::ReplicaSets, "rs", &options);
    let other = cluster.create_replica_set(&new_replica_set("rs", 1));
    cluster.stable("rs");
    let references = owner_references(&cluster.pod(&name(&pod)));
    assert_eq!(references, [controller_reference(&rs)]);
    let is_of_the_other = |pod: &Value| controller_uid(pod) == Some(uid(&other));
    cluster.holds("one new pod beside the old one", || {
        let live = cluster.live();
        live.len() == 2 && live.iter().filter(|pod| is_of_the_other(pod)).count() == 1
    });
    assert!(cluster.recorded("patch", "pods").is_empty());
}
