//! Group C: the patch of an adoption, and pods of a ReplicaSet that was recreated.

use serde_json::{Value, json};

use crate::support::{
    Kind, TestCluster, controller_reference, controller_uid, name, new_pod, new_replica_set,
    owner_references, uid,
};

const STRATEGIC_MERGE: &str = "application/strategic-merge-patch+json";

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
