//! Group M: the cases of upstream's integration tests, which run against a real API server without
//! scheduler, kubelet and garbage collector. Upstream repeats some for ReplicationControllers
//! (group O); here the same test body runs for both kinds.

use std::sync::Arc;

use replicaset_controller::devserver::Recorded;
use serde_json::{Value, json};

use crate::support::Kind::{ReplicaSets, ReplicationControllers};
use crate::support::{
    Access, Kind, Setup, TestCluster, container_statuses, controller_reference, controller_uid,
    foreign_controller_reference, is_terminating, json_body, name, names, new_pod, new_replica_set,
    number_at, owner_references, plain_reference, running, seconds_ago, text_at, uid, uids,
};

/// A finalizer that only the test removes.
const HOLD: &str = "example.com/hold";

/// Starts the daemon beside a pod with the owner references `before`, and checks that the pod ends
/// up with the owner references `after`.
#[track_caller]
fn check_adoption(kind: Kind, before: impl Fn(&Value) -> Value, after: impl Fn(&Value) -> Value) {
    let mut cluster = TestCluster::start_for(kind);
    let rs = cluster.create_replica_set(&new_replica_set("rs", 1));
    let mut pod = new_pod("p");
    pod["metadata"]["ownerReferences"] = before(&rs);
    cluster.create_pod(&pod);
    cluster.start_daemon();
    cluster.stable("rs");
    let expected = after(&rs);
    cluster.eventually_eq("the owner references", &expected, || {
        json!(owner_references(&cluster.pod("p")))
    });
    cluster.holds("one pod, the same references", || {
        cluster.live().len() == 1 && json!(owner_references(&cluster.pod("p"))) == expected
    });
}

#[track_caller]
fn check_an_owner_becomes_the_controller(kind: Kind) {
    check_adoption(
        kind,
        |rs| json!([plain_reference(rs)]),
        |rs| json!([controller_reference(rs)]),
    );
}

#[test]
fn m_01_an_owner_becomes_the_controller() {
    check_an_owner_becomes_the_controller(ReplicaSets);
}

#[test]
fn o_06_an_owner_becomes_the_controller() {
    check_an_owner_becomes_the_controller(ReplicationControllers);
}

#[track_caller]
fn check_an_orphan_is_adopted(kind: Kind) {
    check_adoption(kind, |_| json!([]), |rs| json!([controller_reference(rs)]));
}

#[test]
fn m_02_an_orphan_is_adopted() {
    check_an_orphan_is_adopted(ReplicaSets);
}

#[test]
fn o_07_an_orphan_is_adopted() {
    check_an_orphan_is_adopted(ReplicationControllers);
}

#[test]
fn m_03_an_existing_controller_reference_is_not_completed() {
    let reference = |rs: &Value| {
        let mut reference = plain_reference(rs);
        reference["controller"] = json!(true);
        json!([reference])
    };
    check_adoption(ReplicaSets, reference, reference);
    check_adoption(ReplicationControllers, reference, reference);
}

#[test]
fn o_09_a_plain_owner_does_not_replace_another_controller() {
    for kind in [ReplicaSets, ReplicationControllers] {
        let mut cluster = TestCluster::start_for(kind);
        let rs = cluster.create_replica_set(&new_replica_set("rs", 1));
        let other = foreign_controller_reference("7c7a1f4e-6f8f-4a58-9f0e-2d8b3c1a9e10");
        let references = [other, plain_reference(&rs)];
        let mut pod = new_pod("p");
        pod["metadata"]["ownerReferences"] = json!(references);
        cluster.create_pod(&pod);
        cluster.start_daemon();
        cluster.stable("rs");
        cluster.holds("one new pod, and the other unchanged", || {
            cluster.live().len() == 2 && owner_references(&cluster.pod("p")) == references
        });
        assert_eq!(cluster.recorded("patch", "pods").len(), 0);
    }
}

#[test]
fn m_05_the_selector_cannot_be_changed() {
    let cluster = TestCluster::start();
    cluster.create_replica_set(&new_replica_set("rs", 0));
    let result = cluster.try_update(Kind::ReplicaSets, "rs", "rs", |rs| {
        rs["spec"]["selector"]["matchLabels"] = json!({"app": "other"});
        rs["spec"]["template"]["metadata"]["labels"] = json!({"app": "other"});
    });
    let error = result.expect_err("the selector is immutable");
    assert_eq!(error.code(), 422);
    for words in ["Invalid value", "field is immutable"] {
        assert!(error.message().contains(words), "{error}");
    }
}

#[track_caller]
fn check_pods_follow_replicas(kind: Kind) {
    let cluster = TestCluster::running_for(kind);
    cluster.create_replica_set(&new_replica_set("rs", 2));
    cluster.stable("rs");
    for replicas in [3, 0, 2] {
        cluster.scale("rs", replicas);
        cluster.stable("rs");
        let n_pods = usize::try_from(replicas).expect("a small number");
        cluster.eventually_eq("pods as replicas", &n_pods, || cluster.live().len());
    }
    let before = (
        uids(&cluster.live()),
        number_at(&cluster.replica_set("rs"), "/metadata/generation"),
    );
    let updated = cluster.update(kind, "rs", |rs| {
        rs["spec"]["template"]["metadata"]["annotations"] = json!({"k": "v"});
    });
    assert!(number_at(&updated, "/metadata/generation") > before.1);
    cluster.stable("rs");
    assert_eq!(uids(&cluster.live()), before.0, "no pod is replaced");
}

#[test]
fn m_06_m_07_f_28_pods_and_generation_follow_the_spec() {
    check_pods_follow_replicas(ReplicaSets);
}

#[test]
fn o_10_pods_follow_replicas_and_generations_are_observed() {
    check_pods_follow_replicas(ReplicationControllers);
}

#[track_caller]
fn check_terminating_and_failed_pods_are_replaced(kind: Kind) {
    let cluster = TestCluster::running_for(kind);
    cluster.create_replica_set(&new_replica_set("rs", 2));
    cluster.stable("rs");
    let before = cluster.live();
    let [terminating, failed] = before.as_slice() else {
        panic!("two pods, not {before:?}");
    };
    cluster.update(Kind::Pods, &name(terminating), |pod| {
        pod["metadata"]["finalizers"] = json!([HOLD]);
    });
    cluster.delete(Kind::Pods, &name(terminating));
    cluster.set_pod_status(&name(failed), &json!({"phase": "Failed"}));
    cluster.eventually_eq("four pods", &4, || cluster.live().len());
    cluster.holds("four pods", || cluster.live().len() == 4);
    for pod in &before {
        assert_eq!(uid(&cluster.pod(&name(pod))), uid(pod));
    }
    let is_kept = kind == ReplicaSets && cluster.keeps_terminating_replicas("rs");
    let one = is_kept.then_some(1);
    cluster.eventually_eq("two replicas, one terminating", &(2, one), || {
        let status = cluster.status("rs");
        let terminating = status["terminatingReplicas"].as_i64();
        (number_at(&status, "/replicas"), terminating)
    });
    cluster.update(Kind::Pods, &name(terminating), |pod| {
        pod["metadata"]["finalizers"] = json!([]);
    });
    cluster.eventually_eq("no pod is terminating", &one.map(|_| 0), || {
        cluster.status("rs")["terminatingReplicas"].as_i64()
    });
    let has_terminating =
        |update: &Arc<Recorded>| !json_body(update)["status"]["terminatingReplicas"].is_null();
    let updates = cluster.status_updates();
    assert_eq!(updates.iter().all(has_terminating), kind == ReplicaSets);
    assert_eq!(updates.iter().any(has_terminating), kind == ReplicaSets);
}

#[test]
fn m_08_a_07_terminating_and_failed_pods_are_replaced_at_once() {
    check_terminating_and_failed_pods_are_replaced(ReplicaSets);
}

#[test]
fn o_11_o_04_f_13_terminating_and_failed_pods_are_replaced() {
    check_terminating_and_failed_pods_are_replaced(ReplicationControllers);
}

/// Scales down from two pods with these deletion costs to one, after five restarts of the first
/// pod, and checks which pod survives.
#[track_caller]
fn check_deletion_cost(costs: Option<[&str; 2]>, survivor: usize) {
    let cluster = TestCluster::running();
    cluster.create_replica_set(&new_replica_set("rs", 2));
    cluster.stable("rs");
    let pods = cluster.live();
    for (i, restarts) in [5, 0].into_iter().enumerate() {
        let pod = name(&pods[i]);
        if let Some(costs) = costs {
            cluster.update(Kind::Pods, &pod, |pod| {
                pod["metadata"]["annotations"] =
                    json!({"controller.kubernetes.io/pod-deletion-cost": costs[i]});
            });
        }
        let statuses = json!({"containerStatuses": container_statuses(restarts)});
        let pod = cluster.set_pod_status(&pod, &statuses);
        cluster.caught_up_with(Kind::Pods, &pod);
    }
    cluster.scale("rs", 1);
    let expected = vec![uid(&pods[survivor])];
    cluster.eventually_eq("the survivor", &expected, || uids(&cluster.live()));
}

#[test]
fn m_09_e_27_the_cheaper_pod_is_first_despite_fewer_restarts() {
    check_deletion_cost(Some(["1000", "100"]), 0);
}

#[test]
fn m_10_e_27_with_equal_costs_more_restarts_decide() {
    check_deletion_cost(Some(["100", "100"]), 1);
}

#[test]
fn m_11_e_27_without_costs_more_restarts_decide() {
    check_deletion_cost(None, 1);
}

#[track_caller]
fn check_two_with_one_selector(kind: Kind) {
    let cluster = TestCluster::running_for(kind);
    for (replica_set, replicas) in [("rs-1", 1), ("rs-2", 2)] {
        cluster.create_replica_set(&new_replica_set(replica_set, replicas));
        cluster.stable(replica_set);
    }
    let expected = uids(&cluster.live());
    assert_eq!(expected.len(), 3);
    cluster.holds("the same three pods and two statuses", || {
        let status = |name| number_at(&cluster.status(name), "/replicas");
        uids(&cluster.live()) == expected && (status("rs-1"), status("rs-2")) == (1, 2)
    });
}

#[test]
fn m_13_two_replica_sets_share_a_selector_without_conflict() {
    check_two_with_one_selector(ReplicaSets);
}

#[test]
fn o_12_two_controllers_share_a_selector_without_conflict() {
    check_two_with_one_selector(ReplicationControllers);
}

#[track_caller]
fn check_release_and_adoption(kind: Kind) {
    let cluster = TestCluster::running_for(kind);
    let rs = cluster.create_replica_set(&new_replica_set("rs", 1));
    cluster.stable("rs");
    let pod = name(&cluster.live()[0]);
    assert_eq!(controller_uid(&cluster.pod(&pod)), Some(uid(&rs)));
    let labels = |labels: Value| {
        cluster.update(Kind::Pods, &pod, |pod| {
            pod["metadata"]["labels"] = labels.clone();
        });
    };
    labels(json!({"other": "x"}));
    cluster.eventually("released and replaced", || {
        controller_uid(&cluster.pod(&pod)).is_none() && cluster.live().len() == 1
    });
    labels(json!({"app": "conf"}));
    cluster.eventually("one pod, controlled", || {
        let live = cluster.live();
        live.len() == 1 && controller_uid(&live[0]) == Some(uid(&rs))
    });
}

#[test]
fn m_14_a_pod_that_stops_matching_is_released_and_adopted_again() {
    check_release_and_adoption(ReplicaSets);
}

#[test]
fn o_13_a_pod_that_stops_matching_is_released_and_adopted_again() {
    check_release_and_adoption(ReplicationControllers);
}

#[track_caller]
fn check_adoption_beside_another_owner(kind: Kind) {
    let cluster = TestCluster::running_for(kind);
    let rs = cluster.create_replica_set(&new_replica_set("rs", 1));
    cluster.stable("rs");
    let pod = name(&cluster.live()[0]);
    let foreign = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "foreign",
        "uid": "5e3ccfcb-3c3e-4b0e-9d55-2e2a1f1f3d6a", "controller": false,
    });
    cluster.update(Kind::Pods, &pod, |pod| {
        pod["metadata"]["ownerReferences"] = json!([foreign]);
    });
    cluster.eventually_eq(
        "adopted beside the other owner",
        &(Some(uid(&rs)), 2),
        || {
            let pod = cluster.pod(&pod);
            (controller_uid(&pod), owner_references(&pod).len())
        },
    );
    cluster.eventually_eq("one pod", &1, || cluster.live().len());
}

#[test]
fn m_15_a_pod_with_a_foreign_plain_owner_is_adopted() {
    check_adoption_beside_another_owner(ReplicaSets);
}

#[test]
fn o_13_a_pod_with_a_foreign_plain_owner_is_adopted() {
    check_adoption_beside_another_owner(ReplicationControllers);
}

#[track_caller]
fn check_ready_and_available_pods(kind: Kind) {
    let cluster = TestCluster::running_for(kind);
    let mut rs = new_replica_set("rs", 3);
    rs["spec"]["minReadySeconds"] = json!(3600);
    cluster.create_replica_set(&rs);
    cluster.stable("rs");
    assert_eq!(number_at(&cluster.status("rs"), "/availableReplicas"), 0);
    let pods = cluster.live();
    let (now, earlier) = (seconds_ago(0), seconds_ago(7200));
    for (pod, is_ready, since) in [(0, false, &now), (1, true, &now), (2, true, &earlier)] {
        cluster.set_pod_status(&name(&pods[pod]), &running(is_ready, Some(since)));
    }
    cluster.eventually_eq("replicas, ready, available", &(3, 2, 1), || {
        let status = cluster.status("rs");
        let number = |member: &str| number_at(&status, member);
        (
            number("/replicas"),
            number("/readyReplicas"),
            number("/availableReplicas"),
        )
    });
}

#[test]
fn m_17_ready_and_available_pods_are_counted() {
    check_ready_and_available_pods(ReplicaSets);
}

#[test]
fn o_15_ready_and_available_pods_are_counted() {
    check_ready_and_available_pods(ReplicationControllers);
}

#[track_caller]
fn check_scale_subresource(kind: Kind) {
    let cluster = TestCluster::running_for(kind);
    cluster.create_replica_set(&new_replica_set("rs", 1));
    cluster.stable("rs");
    for replicas in [3, 0] {
        let scale = cluster.change_scale("rs", replicas);
        assert_eq!(number_at(&scale, "/spec/replicas"), replicas);
        assert_eq!(text_at(&scale, "/status/selector"), "app=conf");
        cluster.stable("rs");
        let n_pods = usize::try_from(replicas).expect("a small number");
        cluster.eventually_eq("pods as replicas", &n_pods, || cluster.live().len());
    }
}

#[test]
fn m_18_the_scale_subresource_scales() {
    check_scale_subresource(ReplicaSets);
}

#[test]
fn o_16_the_scale_subresource_scales() {
    check_scale_subresource(ReplicationControllers);
}

#[track_caller]
fn check_three_orphans(kind: Kind) {
    let mut cluster = TestCluster::start_for(kind);
    let rs = cluster.create_replica_set(&new_replica_set("rs", 2));
    for pod in ["p-1", "p-2", "p-3"] {
        cluster.create_pod(&new_pod(pod));
    }
    cluster.start_daemon();
    cluster.stable("rs");
    cluster.eventually("two pods, controlled", || {
        let live = cluster.live();
        let is_controlled = |pod: &Value| controller_uid(pod) == Some(uid(&rs));
        live.len() == 2 && live.iter().all(is_controlled)
    });
    cluster.holds("two pods", || cluster.live().len() == 2);
    assert_eq!(cluster.recorded("create", "pods").len(), 0);
    assert_eq!(cluster.recorded("delete", "pods").len(), 1);
}

#[test]
fn m_19_of_three_orphans_two_are_adopted_and_one_is_deleted() {
    check_three_orphans(ReplicaSets);
}

#[test]
fn o_17_of_three_orphans_two_are_adopted_and_one_is_deleted() {
    check_three_orphans(ReplicationControllers);
}

#[test]
fn m_21_a_05_c_02_a_terminating_replica_set_writes_only_status() {
    let cluster = TestCluster::running();
    let mut rs = new_replica_set("rs", 2);
    rs["metadata"]["finalizers"] = json!([HOLD]);
    cluster.create_replica_set(&rs);
    cluster.stable("rs");
    cluster.delete(Kind::ReplicaSets, "rs");
    let rs = cluster.replica_set("rs");
    assert!(is_terminating(&rs));
    assert_eq!(rs["metadata"]["finalizers"], json!([HOLD]));
    cluster.caught_up_with(Kind::ReplicaSets, &rs);
    cluster.delete(Kind::Pods, &name(&cluster.live()[0]));
    for orphan in ["orphan-1", "orphan-2"] {
        cluster.create_pod(&new_pod(orphan));
    }
    let n_creates = cluster.recorded("create", "pods").len();
    cluster.holds("no pod is replaced or adopted", || {
        cluster.live().len() == 3
            && ["orphan-1", "orphan-2"]
                .iter()
                .all(|orphan| owner_references(&cluster.pod(orphan)).is_empty())
    });
    cluster.eventually_eq("the status is still updated", &1, || {
        number_at(&cluster.status("rs"), "/replicas")
    });
    assert_eq!(cluster.recorded("create", "pods").len(), n_creates);
    assert_eq!(cluster.recorded("patch", "pods").len(), 0);
    cluster.update(Kind::ReplicaSets, "rs", |rs| {
        rs["metadata"]["finalizers"] = json!([]);
    });
    cluster.eventually("gone", || cluster.get(Kind::ReplicaSets, "rs").is_none());
}

#[test]
fn m_22_f_12_terminating_pods_are_counted_until_they_are_gone() {
    let cluster = TestCluster::running();
    let mut rs = new_replica_set("rs", 5);
    rs["spec"]["template"]["spec"]["nodeName"] = json!("fake-node");
    rs["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(15);
    cluster.create_replica_set(&rs);
    cluster.stable("rs");
    let is_kept = cluster.keeps_terminating_replicas("rs");
    let terminating = |status: &Value| status["terminatingReplicas"].as_i64();
    assert_eq!(terminating(&cluster.status("rs")), is_kept.then_some(0));
    let pods = cluster.live();
    for pod in &pods {
        cluster.set_pod_status(&name(pod), &running(true, Some(&seconds_ago(0))));
    }
    for (n_terminating, pod) in (1..).zip(&pods[..3]) {
        cluster.delete(Kind::Pods, &name(pod));
        let n_pods = 5 + n_terminating;
        cluster.eventually_eq("replaced", &n_pods, || cluster.live().len());
        let n_terminating = i64::try_from(n_terminating).expect("a small number");
        let expected = (5, is_kept.then_some(n_terminating));
        cluster.eventually_eq("replicas, terminating", &expected, || {
            let status = cluster.status("rs");
            (number_at(&status, "/replicas"), terminating(&status))
        });
    }
    let n_writes = cluster.recorded("update", "replicasets/status").len();
    cluster.holds("no status is written", || {
        cluster.recorded("update", "replicasets/status").len() == n_writes
    });
    for pod in &pods[..3] {
        cluster.kill_pod(&name(pod));
    }
    cluster.eventually_eq("no pod is terminating", &is_kept.then_some(0), || {
        terminating(&cluster.status("rs"))
    });
}

#[track_caller]
fn check_release_and_replacement(kind: Kind) {
    let cluster = TestCluster::running_for(kind);
    for pod in ["p1", "p2"] {
        let pod = cluster.create_pod(&new_pod(pod));
        cluster.caught_up_with(Kind::Pods, &pod);
    }
    let rs = cluster.create_replica_set(&new_replica_set("rs", 2));
    cluster.stable("rs");
    for pod in ["p1", "p2"] {
        assert_eq!(controller_uid(&cluster.pod(pod)), Some(uid(&rs)));
    }
    let patch = json!({"metadata": {"labels": {"app": null}}});
    cluster.merge_patch(Kind::Pods, "p2", &patch);
    cluster.eventually("released and replaced", || {
        owner_references(&cluster.pod("p2")).is_empty() && cluster.list(Kind::Pods, "").len() == 3
    });
    assert_eq!(controller_uid(&cluster.pod("p1")), Some(uid(&rs)));
}

#[test]
fn m_23_a_pod_without_its_label_is_released_and_replaced() {
    check_release_and_replacement(ReplicaSets);
}

#[test]
fn o_23_a_pod_without_its_label_is_released_and_replaced() {
    check_release_and_replacement(ReplicationControllers);
}

#[track_caller]
fn check_pods_are_events(kind: Kind) {
    let cluster = TestCluster::running_for(kind);
    let rs = cluster.create_replica_set(&new_replica_set("a", 2));
    cluster.stable("a");
    let pods = names(&cluster.live());
    let component = match kind {
        ReplicationControllers => "replication-controller",
        _ => "replicaset-controller",
    };
    cluster.scale("a", 0);
    let with_reason = |reason: &str| {
        let mut events = cluster.events_of("a");
        events.retain(|event| text_at(event, "/reason") == reason);
        events
    };
    for (reason, words) in [
        ("SuccessfulCreate", "Created pod: "),
        ("SuccessfulDelete", "Deleted pod: "),
    ] {
        let expected: Vec<String> = pods.iter().map(|pod| format!("{words}{pod}")).collect();
        cluster.eventually_eq(reason, &expected, || {
            let mut messages: Vec<String> = with_reason(reason)
                .iter()
                .map(|event| text_at(event, "/message"))
                .collect();
            messages.sort();
            messages
        });
        for event in with_reason(reason) {
            let object = &event["involvedObject"];
            assert_eq!(object["kind"], rs["kind"]);
            assert_eq!(object["apiVersion"], rs["apiVersion"]);
            assert_eq!(object["uid"], json!(uid(&rs)));
            assert_eq!(object["namespace"], json!(cluster.namespace()));
            assert_eq!(event["type"], json!("Normal"));
            assert_eq!(event["source"]["component"], json!(component));
            assert_eq!(event["count"], json!(1));
        }
    }
}

#[test]
fn k_01_k_02_each_created_and_deleted_pod_is_an_event() {
    check_pods_are_events(ReplicaSets);
}

#[test]
fn o_01_each_created_and_deleted_pod_is_an_event() {
    check_pods_are_events(ReplicationControllers);
}

/// Checks that a daemon with this access to the API server scales a ReplicaSet up and down.
#[track_caller]
fn check_access(access: Access) {
    let cluster = TestCluster::running_with(Setup {
        access,
        ..Setup::default()
    });
    cluster.create_replica_set(&new_replica_set("rs", 3));
    cluster.stable("rs");
    cluster.scale("rs", 0);
    cluster.stable("rs");
    cluster.eventually_eq("no pods", &0, || cluster.live().len());
}

#[test]
fn a_daemon_with_a_client_certificate_converges() {
    check_access(Access::Certificate);
}

#[test]
fn a_daemon_with_a_bearer_token_converges() {
    check_access(Access::Token);
}
