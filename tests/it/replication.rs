//! Group O: tests of ReplicationControllers alone, and of both kinds side by side. The remaining
//! cases of the group run test bodies of other modules with the kind ReplicationController.

use std::collections::HashSet;

use replicaset_controller::api::workload_kind::{REPLICA_SET, REPLICATION_CONTROLLER};
use replicaset_controller::api::{ObjectKey, Status};
use replicaset_controller::client::Request;
use replicaset_controller::devserver::{Action, Matcher, Rule};
use serde_json::{Value, json};

use crate::support::Kind::{Pods, ReplicaSets, ReplicationControllers};
use crate::support::{
    PlainPort, Setup, TestCluster, as_controller, controller_reference, controller_uid, name,
    new_pod, new_replica_set, new_replica_set_labelled, number_at, owner_references, running,
    seconds_ago, text_at, uid, uids,
};

/// A cluster with a running daemon, and ReplicationControllers as the kind under test.
fn running_cluster() -> TestCluster {
    TestCluster::running_for(ReplicationControllers)
}

/// The pods that this owner controls.
fn pods_of(cluster: &TestCluster, owner: &Value) -> Vec<Value> {
    let mut pods = cluster.list(Pods, "");
    pods.retain(|pod| controller_uid(pod) == Some(uid(owner)));
    pods
}

#[test]
fn o_01_o_04_h_19_a_status_keeps_the_shape_of_its_kind() {
    let cluster = TestCluster::running_with(Setup::about(ReplicationControllers).in_json());
    cluster.create_replica_set(&new_replica_set("rc", 2));
    cluster.stable("rc");
    let updates = cluster.status_updates();
    assert!(!updates.is_empty());
    let namespace = cluster.namespace();
    let path = format!("/api/v1/namespaces/{namespace}/replicationcontrollers/rc/status");
    for update in updates {
        assert_eq!(update.request.path, path);
        let body: Value = serde_json::from_slice(&update.request.body).expect("JSON");
        assert_eq!(
            (&body["apiVersion"], &body["kind"]),
            (&json!("v1"), &json!("ReplicationController"))
        );
        // The update has the selector as the API server returned it.
        assert_eq!(body["spec"]["selector"], json!({"app": "conf"}));
        assert!(body["status"].get("terminatingReplicas").is_none());
    }
    assert!(cluster.recorded("update", "replicasets/status").is_empty());
}

#[test]
fn its_health_check_has_upstreams_name() {
    let cluster = TestCluster::start_for(ReplicationControllers);
    let port = PlainPort::free();
    let controllers = "--controllers=replicationcontroller-controller";
    let _process = cluster.start_process(&[controllers, &port.argument()]);
    cluster.eventually_eq("the check passes", &(200, "ok".to_owned()), || {
        port.get("/healthz/replicationcontroller-controller")
    });
}

#[test]
fn o_05_neither_kind_adopts_pods_of_the_other() {
    let cluster = running_cluster();
    let rs = cluster.create(ReplicaSets, &new_replica_set("same", 2));
    let rc = cluster.create_replica_set(&new_replica_set("same", 3));
    cluster.eventually_eq("each owner has its own pods", &(2, 3), || {
        (pods_of(&cluster, &rs).len(), pods_of(&cluster, &rc).len())
    });
    cluster.stable("same");
    for (owner, n_pods) in [(&rs, 2), (&rc, 3)] {
        let pods = pods_of(&cluster, owner);
        assert_eq!(pods.len(), n_pods);
        for pod in pods {
            assert_eq!(owner_references(&pod), [controller_reference(owner)]);
        }
    }
    // The ReplicaSet replaces its lost pod. The ReplicationController's pods stay.
    let kept = uids(&pods_of(&cluster, &rc));
    cluster.delete(Pods, &name(&pods_of(&cluster, &rs)[0]));
    cluster.eventually_eq("replaced", &2, || pods_of(&cluster, &rs).len());
    cluster.holds("five pods", || {
        cluster.live().len() == 5 && uids(&pods_of(&cluster, &rc)) == kept
    });
    assert!(cluster.recorded("patch", "pods").is_empty());
    assert!(cluster.recorded("delete", "pods").is_empty());
}

#[test]
fn b_17_owners_with_the_same_name_have_separate_expectations() {
    let cluster = running_cluster();
    cluster.synced();
    let hold = cluster.hold_watch("pods");
    let rs = cluster.create(ReplicaSets, &new_replica_set_labelled("same", 2, "rs"));
    let rc = cluster.create_replica_set(&new_replica_set_labelled("same", 3, "rc"));
    cluster.eventually_eq("all pods are created", &5, || cluster.list(Pods, "").len());
    let key = ObjectKey::new(cluster.namespace(), "same");
    let expected = |kind| {
        let controller = &cluster.daemon().instance(kind).controller;
        let facts = controller.inspector().inspect(&key).expect("it is cached");
        let memory = facts.memory.expect("the daemon runs");
        let open = memory.expectations.expect("the watch is held");
        let creations: HashSet<String> = open.creations.iter().map(ToString::to_string).collect();
        (creations, open.deletions.len())
    };
    for (kind, owner, n_pods) in [(&REPLICA_SET, &rs, 2), (&REPLICATION_CONTROLLER, &rc, 3)] {
        let own: HashSet<String> = pods_of(&cluster, owner).iter().map(name).collect();
        assert_eq!(own.len(), n_pods);
        assert_eq!(expected(kind), (own, 0), "those of its owner alone");
    }
    hold.remove();
    cluster.stable("same");
    cluster.holds("five pods", || cluster.list(Pods, "").len() == 5);
}

#[test]
fn o_17_a_changed_template_changes_fully_labelled() {
    let cluster = running_cluster();
    cluster.create_replica_set(&new_replica_set("rc", 2));
    cluster.stable("rc");
    cluster.update(ReplicationControllers, "rc", |rc| {
        rc["spec"]["template"]["metadata"]["labels"]["more"] = json!("x");
    });
    let labelled = || number_at(&cluster.status("rc"), "/fullyLabeledReplicas");
    cluster.eventually_eq("no pod has the new label", &0, labelled);
    let patch = json!({"metadata": {"labels": {"more": "x"}}});
    cluster.merge_patch(Pods, &name(&cluster.live()[0]), &patch);
    cluster.eventually_eq("one of two pods has it", &(2, 1), || {
        (number_at(&cluster.status("rc"), "/replicas"), labelled())
    });
}

#[test]
fn o_19_a_running_pod_is_ready_and_available() {
    // The test plays the kubelet, as neither server has nodes.
    let cluster = running_cluster();
    let rc = cluster.create_replica_set(&new_replica_set("rc", 1));
    cluster.stable("rc");
    let pod = cluster.live().remove(0);
    assert_eq!(owner_references(&pod), [controller_reference(&rc)]);
    cluster.set_pod_status(&name(&pod), &running(true, Some(&seconds_ago(0))));
    cluster.eventually_eq("ready, available", &(1, 1), || {
        let status = cluster.status("rc");
        let number = |member| number_at(&status, member);
        (number("/readyReplicas"), number("/availableReplicas"))
    });
}

#[test]
fn o_21_an_orphan_is_adopted_or_replaced() {
    let cluster = running_cluster();
    let pod = cluster.create_pod(&new_pod("orphan"));
    let rc = cluster.create_replica_set(&new_replica_set("rc", 1));
    cluster.eventually("one pod, controlled", || {
        let live = cluster.live();
        live.len() == 1 && controller_uid(&live[0]) == Some(uid(&rc))
    });
    // The watches of pods and of controllers are independent, so both outcomes are valid.
    let is_adopted = uid(&cluster.live()[0]) == uid(&pod);
    assert!(is_adopted || cluster.get(Pods, "orphan").is_none());
}

#[test]
fn o_24_a_watch_shows_the_lifecycle_of_a_controller() {
    let cluster = running_cluster();
    let mut events = cluster.watch(ReplicationControllers);
    let mut new = new_replica_set("rc", 1);
    new["metadata"]["labels"] = json!({"test": "life"});
    cluster.create_replica_set(&new);
    let make_ready = || {
        cluster.stable("rc");
        for pod in cluster.live() {
            cluster.set_pod_status(&name(&pod), &running(true, Some(&seconds_ago(0))));
        }
    };
    let counts = || {
        let status = cluster.status("rc");
        let number = |member| number_at(&status, member);
        (number("/replicas"), number("/readyReplicas"))
    };
    make_ready();
    cluster.eventually_eq("one is ready", &(1, 1), counts);

    let patch = json!({"metadata": {"labels": {"patched": "yes"}}});
    let patched = cluster.merge_patch(ReplicationControllers, "rc", &patch);
    assert_eq!(text_at(&patched, "/metadata/labels/patched"), "yes");

    let patch = json!({"status": {"readyReplicas": 0, "availableReplicas": 0}});
    let patched = cluster.merge_patch(ReplicationControllers, "rc/status", &patch);
    let number = |member| number_at(&patched, member);
    assert_eq!(
        (
            number("/status/replicas"),
            number("/status/readyReplicas"),
            number("/status/availableReplicas")
        ),
        (1, 0, 0)
    );
    cluster.eventually_eq("the controller corrects it", &(1, 1), counts);

    let patch = json!({"spec": {"replicas": 2}});
    cluster.merge_patch(ReplicationControllers, "rc/scale", &patch);
    cluster.eventually_eq("two pods", &2, || cluster.live().len());
    make_ready();
    cluster.eventually_eq("two are ready", &(2, 2), counts);

    cluster.update_status(ReplicationControllers, "rc", |rc| {
        rc["status"]["conditions"] = json!([{
            "type": "StatusUpdate", "status": "True", "reason": "E2E", "message": "Set by a test",
        }]);
    });
    let listed = cluster.list(ReplicationControllers, "test=life");
    assert_eq!(listed.len(), 1);
    // The default policy orphans the pods first, which needs a garbage collector.
    let options = json!({"propagationPolicy": "Background", "gracePeriodSeconds": 0});
    let request = Request::delete(cluster.collection(ReplicationControllers))
        .query("labelSelector", "test=life")
        .body("application/json", options.to_string());
    cluster.send(&request).expect("the collection is deleted");
    cluster.eventually("gone", || {
        cluster.get(ReplicationControllers, "rc").is_none()
    });

    let mut seen = Vec::new();
    for event in events.by_ref() {
        let type_ = text_at(&event, "/type");
        let is_last = type_ == "DELETED";
        seen.push(type_);
        if is_last {
            break;
        }
    }
    assert_eq!(seen.first().map(String::as_str), Some("ADDED"));
    let n_modified = seen.iter().filter(|type_| *type_ == "MODIFIED").count();
    assert!(n_modified >= 4, "{seen:?}");
    assert_eq!(seen.last().map(String::as_str), Some("DELETED"));
}

#[test]
fn o_25_a_scale_without_a_resource_version_is_accepted() {
    let cluster = running_cluster();
    cluster.create_replica_set(&new_replica_set("rc", 1));
    cluster.stable("rc");
    let path = cluster.path(ReplicationControllers, "rc/scale");
    let mut scale = cluster.send(&Request::get(&path)).expect("a scale");
    assert_eq!(number_at(&scale, "/status/replicas"), 1);
    scale["metadata"]["resourceVersion"] = json!("");
    scale["spec"]["replicas"] = json!(2);
    let request = Request::put(&path).body("application/json", scale.to_string());
    cluster.send(&request).expect("the scale is accepted");
    cluster.eventually_eq("two replicas", &2, || {
        number_at(&cluster.status("rc"), "/replicas")
    });
    assert_eq!(cluster.live().len(), 2);
}

#[test]
fn a_changed_selector_releases_pods_that_no_longer_match() {
    // Only a ReplicationController's selector can change; a ReplicaSet's is immutable.
    let cluster = running_cluster();
    let rc = cluster.create_replica_set(&new_replica_set("rc", 1));
    cluster.stable("rc");
    let pod = name(&cluster.live()[0]);
    cluster.update(ReplicationControllers, "rc", |rc| {
        rc["spec"]["selector"] = json!({"app": "other"});
        rc["spec"]["template"]["metadata"]["labels"] = json!({"app": "other"});
    });
    cluster.eventually("released and replaced", || {
        let new = cluster.list(Pods, "app=other");
        owner_references(&cluster.pod(&pod)).is_empty()
            && new.len() == 1
            && controller_uid(&new[0]) == Some(uid(&rc))
    });
}

#[test]
fn without_rights_on_controllers_replica_sets_still_sync() {
    let mut cluster = TestCluster::start();
    let status = Status::new(403, "Forbidden", "not for you");
    let reads = Matcher::verb("list", "replicationcontrollers")
        .or(Matcher::verb("watch", "replicationcontrollers"));
    let rule = Rule::new(reads, Action::reject(status));
    let rule = cluster.faults().add(rule);
    let rc = cluster.create(
        ReplicationControllers,
        &as_controller(&new_replica_set_labelled("rc", 1, "rc")),
    );
    cluster.start_daemon();
    cluster.create_replica_set(&new_replica_set("rs", 2));
    cluster.stable("rs");
    cluster.holds("the ReplicationController gets no pod", || {
        pods_of(&cluster, &rc).is_empty()
    });
    rule.remove();
    cluster.eventually_eq("with rights it gets its pod", &1, || {
        pods_of(&cluster, &rc).len()
    });
}

#[test]
fn a_disabled_controller_does_not_watch() {
    let cluster = TestCluster::start();
    let mut process = cluster.start_process(&["--controllers=replicationcontroller-controller"]);
    let rc = cluster.create(
        ReplicationControllers,
        &as_controller(&new_replica_set_labelled("rc", 1, "rc")),
    );
    cluster.create_replica_set(&new_replica_set("rs", 1));
    cluster.eventually_eq("the ReplicationController's pod", &1, || {
        pods_of(&cluster, &rc).len()
    });
    cluster.holds("the ReplicaSet gets no pod", || cluster.live().is_empty());
    let reads = Matcher::verb("list", "replicasets").or(Matcher::verb("watch", "replicasets"));
    assert_eq!(cluster.faults().n_watches(&reads), 0);
    process.kill();
}
