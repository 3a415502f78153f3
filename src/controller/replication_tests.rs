//! The instance for ReplicationControllers: its differences, and the behaviour that stays the same
//! (group O).

use super::testing::{
    Fixture, controller_ref, deletes, pod, read_replica_set, ready_pod, rejected, replica_set,
    replica_set_json, seconds_ago, with_status,
};
use crate::api::workload_kind::REPLICATION_CONTROLLER;
use crate::api::{Labels, ObjectKey, Pod, ReplicaSet};

fn controllers() -> Fixture {
    Fixture::of(&REPLICATION_CONTROLLER)
}

/// A ready pod that a ReplicationController owns.
fn pod_of(name: &str, rc: &ReplicaSet) -> Pod {
    let uid = rc.uid.to_string();
    Pod {
        controller: Some(controller_ref("ReplicationController", &rc.key.name, &uid)),
        ..ready_pod(name, rc)
    }
}

/// Returns `rc` as the cache shows it later.
fn at(version: &str, mut rc: ReplicaSet) -> ReplicaSet {
    rc.resource_version = version.into();
    rc
}

#[test]
fn o_22_pods_are_created_deleted_and_left_alone() {
    for (n_pods, creates, deletes) in [(2, 0, 0), (0, 2, 0), (3, 0, 1)] {
        let (fixture, rc) = (controllers(), replica_set("web", 2));
        let pods = (0..n_pods).map(|n| pod_of(&format!("p{n}"), &rc));
        fixture.cache_silently(Some(rc.clone()), pods);
        fixture.sync_ok("web");
        fixture.assert_counts(creates, deletes, 0);
    }
}

#[test]
fn o_22_dormancy() {
    let (fixture, mut rc) = (controllers(), replica_set("web", 2));
    rc.status.replicas = 1;
    rc.status.fully_labeled_replicas = 1;
    rc.status.ready_replicas = 1;
    rc.status.available_replicas = 1;
    rc.status.observed_generation = 1;
    let right = rc.status.clone();
    fixture.cache_silently(Some(rc.clone()), [pod_of("a", &rc)]);
    fixture.sync_ok("web");
    fixture.assert_counts(1, 0, 0);
    assert_eq!(fixture.open(&rc), Some((1, 0)));
    assert_eq!(fixture.writes.status_updates(), []);

    rc.status.replicas = 0;
    fixture.cache_silently(Some(at("2", rc.clone())), []);
    fixture.sync_ok("web");
    fixture.assert_counts(1, 0, 0);
    assert_eq!(fixture.writes.status_updates().len(), 1);

    let created = fixture.writes.created().remove(0);
    fixture.see_creation(&rc, &created);
    fixture.cache_silently(Some(at("3", with_status(&rc, right))), []);
    let failure = || rejected(500, "InternalError", "fake error");
    fixture.writes.on_create(move |_, _| Some(Err(failure())));
    fixture.sync("web").expect_err("the create fails");
    fixture.assert_counts(2, 0, 0);
    assert_eq!(fixture.open(&rc), Some((0, 0)));
    // Upstream's older test counts one update here: it predates the failure condition of
    // ReplicationControllers.
    assert_eq!(fixture.writes.status_updates().len(), 2);
}

#[test]
fn o_22_orphans_are_matched_by_namespace_and_labels() {
    let fixture = controllers();
    fixture.cache_silently(Some(replica_set("web", 1)), []);
    let n_matching = |pod: &Pod| fixture.controller.replica_sets_matching(pod).len();
    assert_eq!(n_matching(&pod("a")), 1);
    let bare = Pod {
        labels: Labels::default(),
        ..pod("a")
    };
    assert_eq!(n_matching(&bare), 0);
    let elsewhere = Pod {
        key: ObjectKey::new("elsewhere", "a"),
        ..pod("a")
    };
    assert_eq!(n_matching(&elsewhere), 0);
}

#[test]
fn o_22_a_deletion_found_by_a_relist_queues_the_owner() {
    let (fixture, rc) = (controllers(), replica_set("web", 1));
    fixture.cache_silently(Some(rc.clone()), [pod_of("a", &rc)]);
    for event in fixture.cache.pods.replace(Vec::new(), &[], &"9".into()) {
        fixture.controller.handle_pod_event(&event);
    }
    assert_eq!(fixture.queued(), ["default/web"]);
}

#[test]
fn o_22_a_status_counts_the_pods_that_the_sync_listed() {
    let (fixture, rc) = (controllers(), replica_set("web", 5));
    let pods = (0..4).map(|n| pod_of(&format!("p{n}"), &rc));
    fixture.cache_silently(Some(rc.clone()), pods.collect::<Vec<_>>());
    fixture.sync_ok("web");
    fixture.assert_counts(1, 0, 0);
    let status = fixture.writes.status_updates().pop().expect("a status");
    assert_eq!((status.replicas, status.observed_generation), (4, 1));
}

#[test]
fn o_04_f_13_terminating_pods_are_not_reported() {
    let (fixture, rc) = (controllers(), replica_set("web", 1));
    let going = Pod {
        deletion: Some(seconds_ago(0)),
        ..pod_of("b", &rc)
    };
    fixture.cache_silently(Some(rc.clone()), [pod_of("a", &rc), going]);
    fixture.sync_ok("web");
    let status = fixture.writes.status_updates().pop().expect("a status");
    assert_eq!((status.replicas, status.terminating_replicas), (1, None));
}

#[test]
fn o_05_pods_of_replica_sets_concern_no_controller() {
    let (fixture, rc) = (controllers(), replica_set("web", 1));
    fixture.cache_silently(Some(rc.clone()), []);
    // With the same name, and even the same UID.
    fixture.deliver_pod(ready_pod("a", &rc));
    assert_eq!(fixture.queued(), [""; 0]);
    fixture.deliver_pod(pod_of("b", &rc));
    assert_eq!(fixture.queued(), ["default/web"]);
}

#[test]
fn pods_of_siblings_do_not_rank_pods() {
    let of_family = |name: &str| {
        let mut object = replica_set_json(name, 1);
        object["metadata"]["ownerReferences"] = serde_json::json!([{
            "apiVersion": "apps.openshift.io/v1", "kind": "DeploymentConfig", "name": "d",
            "uid": "uid-d", "controller": true,
        }]);
        read_replica_set(&object)
    };
    let (new, old) = (of_family("new"), of_family("old"));
    let on = |node: &str, restarts, pod| Pod {
        node: Some(node.into()),
        restarts,
        ..pod
    };
    let pods = [
        on("node-1", 1, pod_of("a", &new)),
        on("node-2", 0, pod_of("b", &new)),
        on("node-2", 0, pod_of("r", &old)),
    ];
    let fixture = controllers();
    fixture.cache_silently(Some(old), pods);
    fixture.cache_silently(Some(new), []);
    fixture.sync_ok("new");
    // A ReplicaSet would delete the pod on the crowded node.
    assert_eq!(deletes(&fixture), ["a"]);
}
