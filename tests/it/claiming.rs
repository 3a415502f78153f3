//! Adoption and release as requests, and what their refusals mean (group C, A-23).

use std::time::Duration;

use replicaset_controller::devserver::Action;
use serde_json::{Value, json};

use crate::support::{
    Kind, TestCluster, controller_reference, controller_uid, internal_error, name, names, new_pod,
    new_replica_set, owner_references, refusal, uid,
};

const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";

/// How long the API server refuses, where that is to have consequences.
const REFUSAL_TIME: Duration = Duration::from_secs(2);

fn n_patches(cluster: &TestCluster) -> usize {
    cluster.recorded("patch", "pods").len()
}

/// A running daemon, a stable ReplicaSet `rs` of one pod, and that pod.
fn stable_one() -> (TestCluster, Value, Value) {
    let cluster = TestCluster::running();
    let rs = cluster.create_replica_set(&new_replica_set("rs", 1));
    cluster.stable("rs");
    let pod = cluster.live().remove(0);
    (cluster, rs, pod)
}

/// Changes the pod's label, so that it is to be released.
fn estrange(cluster: &TestCluster, pod: &Value) {
    let labels = json!({"metadata": {"labels": {"app": null, "other": "x"}}});
    cluster.merge_patch(Kind::Pods, &name(pod), &labels);
}

#[test]
fn c_10_a_release_takes_away_one_reference_of_one_pod() {
    let (cluster, rs, pod) = stable_one();
    estrange(&cluster, &pod);
    cluster.eventually("it is released", || {
        owner_references(&cluster.pod(&name(&pod))).is_empty()
    });
    let patches = cluster.recorded("patch", "pods");
    assert_eq!(patches.len(), 1);
    assert_eq!(patches[0].request.content_type(), STRATEGIC_MERGE_PATCH);
    let expected = format!("{}/{}", cluster.collection(Kind::Pods), name(&pod));
    assert_eq!(patches[0].request.path, expected);
    let (pod, rs) = (uid(&pod), uid(&rs));
    let expected = format!(
        r#"{{"metadata":{{"uid":"{pod}","ownerReferences":[{{"$patch":"delete","uid":"{rs}"}}]}}}}"#
    );
    assert_eq!(patches[0].body(), expected);
}

#[test]
fn c_15_an_adoption_adds_one_reference_to_one_pod() {
    let mut cluster = TestCluster::start();
    let rs = cluster.create_replica_set(&new_replica_set("rs", 1));
    let other = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "1-2-3",
    });
    let mut pod = new_pod("p");
    pod["metadata"]["ownerReferences"] = json!([other]);
    let pod = cluster.create_pod(&pod);
    cluster.start_daemon();
    cluster.stable("rs");
    let patches = cluster.recorded("patch", "pods");
    assert_eq!(patches.len(), 1);
    assert_eq!(patches[0].request.content_type(), STRATEGIC_MERGE_PATCH);
    let (pod_uid, rs_uid) = (uid(&pod), uid(&rs));
    let expected = format!(
        "{{\"metadata\":{{\"ownerReferences\":[{{\"apiVersion\":\"apps/v1\",\
         \"kind\":\"ReplicaSet\",\"name\":\"rs\",\"uid\":\"{rs_uid}\",\"controller\":true,\
         \"blockOwnerDeletion\":true}}],\"uid\":\"{pod_uid}\"}}}}"
    );
    assert_eq!(patches[0].body(), expected);
    let mut references = owner_references(&cluster.pod("p"));
    references.sort_by_key(|reference| reference["kind"] == "ReplicaSet");
    assert_eq!(references, [other, controller_reference(&rs)]);
    let reads = cluster.recorded("get", "replicasets");
    assert_eq!(reads.len(), 1, "the live check before an adoption");
}

#[test]
fn a_23_c_17_while_adoptions_fail_nothing_else_is_done() {
    let mut cluster = TestCluster::start();
    let rs = cluster.create_replica_set(&new_replica_set("rs", 2));
    cluster.create_pod(&new_pod("p1"));
    cluster.create_pod(&new_pod("p2"));
    let rule = cluster.fault("patch", "pods", internal_error("no patches"));
    cluster.start_daemon();
    cluster.eventually("both were tried, and again", || n_patches(&cluster) >= 4);
    cluster
        .waiting()
        .holds_for(REFUSAL_TIME, "only patches are sent", || {
            cluster.n_writes() == n_patches(&cluster)
        });
    rule.remove();
    cluster.stable("rs");
    cluster.holds("the two pods", || {
        names(&cluster.list(Kind::Pods, "")) == ["p1", "p2"]
    });
    for pod in ["p1", "p2"] {
        assert_eq!(controller_uid(&cluster.pod(pod)), Some(uid(&rs)));
    }
}

#[test]
fn a_23_while_a_release_fails_nothing_else_is_done() {
    let (cluster, _, pod) = stable_one();
    let n_before = cluster.n_writes();
    let rule = cluster.fault("patch", "pods", internal_error("no patches"));
    estrange(&cluster, &pod);
    cluster.eventually("it is tried, and again", || n_patches(&cluster) >= 2);
    cluster
        .waiting()
        .holds_for(REFUSAL_TIME, "only patches are sent", || {
            cluster.n_writes() == n_before + n_patches(&cluster)
        });
    rule.remove();
    cluster.eventually("released and replaced", || {
        owner_references(&cluster.pod(&name(&pod))).is_empty() && cluster.live().len() == 1
    });
}

#[test]
fn c_18_a_replica_set_that_is_going_adopts_nothing_even_if_the_cache_says_otherwise() {
    let mut cluster = TestCluster::start();
    let rs = cluster.create_replica_set(&new_replica_set("rs", 2));
    cluster.create_pod(&new_pod("p"));
    let going = Action::rewrite_json(|rs| {
        rs["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    });
    let rule = cluster.fault("get", "replicasets", going);
    cluster.start_daemon();
    cluster.eventually("it is asked, and again", || rule.hits() >= 3);
    cluster.holds("nothing is written", || cluster.n_writes() == 0);
    rule.remove();
    cluster.stable("rs");
    assert_eq!(controller_uid(&cluster.pod("p")), Some(uid(&rs)));
    assert_eq!(cluster.live().len(), 2);
}

#[test]
fn c_18_a_replica_set_of_another_uid_is_not_the_one_that_adopts() {
    let mut cluster = TestCluster::start();
    cluster.create_replica_set(&new_replica_set("rs", 2));
    cluster.create_pod(&new_pod("p"));
    let recreated = Action::rewrite_json(|rs| rs["metadata"]["uid"] = json!("1-2-3"));
    let rule = cluster.fault("get", "replicasets", recreated);
    cluster.start_daemon();
    cluster.eventually("it is asked, and again", || rule.hits() >= 3);
    cluster.holds("nothing is written", || cluster.n_writes() == 0);
    rule.remove();
    cluster.stable("rs");
}

/// A release that is refused like this is done; the replacement comes.
#[track_caller]
fn check_release_is_done(refused: Action) {
    let (cluster, _, pod) = stable_one();
    let rule = cluster.fault("patch", "pods", refused);
    estrange(&cluster, &pod);
    cluster.eventually_eq("the replacement", &1, || cluster.live().len());
    cluster.stable("rs");
    // Each sync tries once more as long as the cache shows the reference. A sync that fails would
    // come back by itself, again and again.
    let n_patches_then = n_patches(&cluster);
    cluster.holds("no sync fails", || {
        n_patches(&cluster) <= n_patches_then + 1
    });
    assert!(rule.hits() > 0);
}

#[test]
fn c_21_a_pod_that_is_gone_needs_no_release() {
    let gone = refusal(404, "NotFound", "pods \"p\" not found");
    check_release_is_done(gone);
}

#[test]
fn c_21_a_pod_that_has_no_such_reference_needs_no_release() {
    let invalid = refusal(422, "Invalid", "Pod \"p\" is invalid");
    check_release_is_done(invalid);
}

#[test]
fn c_22_an_orphan_that_is_gone_is_replaced() {
    let mut cluster = TestCluster::start();
    cluster.create_replica_set(&new_replica_set("rs", 1));
    cluster.create_pod(&new_pod("p"));
    let gone = refusal(404, "NotFound", "pods \"p\" not found");
    let rule = cluster.fault("patch", "pods", gone);
    cluster.start_daemon();
    cluster.eventually_eq("the replacement", &2, || cluster.live().len());
    cluster.stable("rs");
    cluster.holds("no more", || cluster.live().len() == 2);
    assert!(rule.hits() > 0);
    assert!(owner_references(&cluster.pod("p")).is_empty());
}

#[test]
fn an_owner_that_is_recreated_does_not_inherit_pods() {
    // What names the old ReplicaSet by its UID is neither the new one's nor an orphan.
    let (cluster, rs, pod) = stable_one();
    let options = json!({"propagationPolicy": "Background"});
    cluster.delete_with(Kind::ReplicaSets, "rs", &options);
    let other = cluster.create_replica_set(&new_replica_set("rs", 1));
    cluster.stable("rs");
    let references = owner_references(&cluster.pod(&name(&pod)));
    assert_eq!(references, [controller_reference(&rs)]);
    let is_of_the_other = |pod: &Value| controller_uid(pod) == Some(uid(&other));
    cluster.holds("one new pod beside the old", || {
        let live = cluster.live();
        live.len() == 2 && live.iter().filter(|pod| is_of_the_other(pod)).count() == 1
    });
    assert_eq!(n_patches(&cluster), 0);
}
