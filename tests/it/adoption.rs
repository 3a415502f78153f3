//! Group C: whose pods are taken over and given back.

use serde_json::json;

use crate::support::{
    Kind, Setup, TestCluster, controller_reference, controller_uid, foreign_controller_reference,
    name, new_pod, new_replica_set, owner_references, uid, uids,
};

#[test]
fn c_01_only_the_orphan_that_matches_is_adopted() {
    let mut cluster = TestCluster::start();
    let rs = cluster.create_replica_set(&new_replica_set("rs", 1));
    cluster.create_pod(&new_pod("p1"));
    let mut other = new_pod("p2");
    other["metadata"]["labels"] = json!({"app": "other"});
    cluster.create_pod(&other);
    cluster.start_daemon();
    cluster.stable("rs");
    assert_eq!(controller_uid(&cluster.pod("p1")), Some(uid(&rs)));
    cluster.holds("the other is left alone", || {
        owner_references(&cluster.pod("p2")).is_empty()
    });
    assert_eq!(cluster.recorded("patch", "pods").len(), 1);
    assert_eq!(cluster.recorded("create", "pods").len(), 0);
}

#[test]
fn c_04_pods_of_another_controller_are_left_alone() {
    let mut cluster = TestCluster::start();
    let rs = cluster.create_replica_set(&new_replica_set("rs", 1));
    let stranger = foreign_controller_reference("7c7a1f4e-6f8f-4a58-9f0e-2d8b3c1a9e10");
    for (pod, owner) in [("mine", controller_reference(&rs)), ("theirs", stranger)] {
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
    cluster.holds("the other is left alone", || {
        owner_references(&elsewhere.pod("p")).is_empty()
    });
    // With its own ReplicaSet it is adopted, so the daemon does look there.
    let rs = elsewhere.create_replica_set(&new_replica_set("rs", 1));
    cluster.eventually("adopted in its own namespace", || {
        controller_uid(&elsewhere.pod("p")) == Some(uid(&rs))
    });
    elsewhere.delete(Kind::ReplicaSets, "rs");
}
