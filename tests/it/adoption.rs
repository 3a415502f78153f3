//! Taking pods over and giving them back: groups C and parts of M.

use serde_json::{Value, json};

use crate::support::{
    TestCluster, controller_reference, new_pod, new_replica_set, owner_references, plain_reference,
};

/// A pod with these references is there before the daemon starts; these it must have in the end.
#[track_caller]
fn check_adoption(before: impl Fn(&Value) -> Value, after: impl Fn(&Value) -> Value) {
    let mut cluster = TestCluster::start();
    let rs = cluster.create_replica_set(&new_replica_set("rs", 1));
    let mut pod = new_pod("p");
    pod["metadata"]["ownerReferences"] = before(&rs);
    cluster.create_pod(&pod);
    cluster.start_daemon();
    cluster.stable("rs");
    let expected = after(&rs);
    cluster.eventually_eq("the references", &expected, || {
        json!(owner_references(&cluster.pod("p")))
    });
    cluster.holds("one pod, the same references", || {
        cluster.live().len() == 1 && json!(owner_references(&cluster.pod("p"))) == expected
    });
}

#[test]
fn m_01_an_owner_becomes_the_controller() {
    check_adoption(
        |rs| json!([plain_reference(rs)]),
        |rs| json!([controller_reference(rs)]),
    );
}

#[test]
fn m_02_an_orphan_is_adopted() {
    check_adoption(|_| json!([]), |rs| json!([controller_reference(rs)]));
}

#[test]
fn m_03_a_reference_of_the_controller_is_not_completed() {
    let reference = |rs: &Value| {
        let mut reference = plain_reference(rs);
        reference["controller"] = json!(true);
        json!([reference])
    };
    check_adoption(reference, reference);
}
