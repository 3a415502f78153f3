//! Group B: the daemon creates or deletes each pod once, despite lagging watches and writes whose
//! outcome is unknown.

use std::collections::BTreeSet;
use std::time::Duration;

use replicaset_controller::api::Status;
use replicaset_controller::devserver::{Action, Matcher, Rule};
use serde_json::{Value, json};

use crate::support::{
    Kind, TestCluster, is_terminating, json_body, last_part, name, names, new_pod, new_replica_set,
    new_replica_set_labelled, number_at, uid,
};

/// The names of the pods in the create requests, in the order of the requests.
fn names_posted(cluster: &TestCluster) -> Vec<String> {
    let posts = cluster.recorded("create", "pods");
    posts.iter().map(|post| name(&json_body(post))).collect()
}

/// The names of the pods in the delete requests, in the order of the requests.
fn names_deleted(cluster: &TestCluster) -> Vec<String> {
    let deletes = cluster.recorded("delete", "pods");
    deletes.iter().map(|delete| last_part(delete)).collect()
}

fn distinct(names: Vec<String>) -> BTreeSet<String> {
    names.into_iter().collect()
}

/// Deletes the ReplicaSet `a` and creates another one with the same name and other labels.
fn recreate(cluster: &TestCluster) {
    let options = json!({"propagationPolicy": "Background"});
    cluster.delete_with(Kind::ReplicaSets, "a", &options);
    cluster.create_replica_set(&new_replica_set_labelled("a", 3, "other"));
}

fn n_pods_of_the_new(cluster: &TestCluster) -> usize {
    cluster.list(Kind::Pods, "app=other").len()
}

#[test]
fn b_11_a_recreated_replica_set_gets_its_pods_at_once() {
    let cluster = TestCluster::running();
    cluster.create_replica_set(&new_replica_set("a", 3));
    cluster.eventually("the first pod", || !cluster.live().is_empty());
    recreate(&cluster);
    cluster.eventually_eq("pods of the new one", &3, || n_pods_of_the_new(&cluster));
    cluster.stable("a");
    cluster.holds("three pods", || n_pods_of_the_new(&cluster) == 3);
}

#[test]
fn b_11_expectations_of_the_old_one_do_not_block_the_new() {
    let cluster = TestCluster::running();
    cluster.synced();
    let hold = cluster.hold_watch("pods");
    cluster.create_replica_set(&new_replica_set("a", 3));
    cluster.eventually_eq("pods of the old one", &3, || cluster.live().len());
    recreate(&cluster);
    cluster.eventually_eq("pods of the new one", &3, || n_pods_of_the_new(&cluster));
    hold.remove();
    cluster.stable("a");
    cluster.holds("three creates each", || names_posted(&cluster).len() == 6);
}

#[test]
fn b_13_h_21_a_lagging_pod_watch_duplicates_no_pod() {
    let cluster = TestCluster::running();
    cluster.synced();
    let hold = cluster.hold_watch("pods");
    cluster.create_replica_set(&new_replica_set("a", 3));
    cluster.eventually_eq("the creates", &3, || cluster.live().len());
    let n_updates = || cluster.recorded("update", "replicasets/status").len();
    cluster.eventually_eq("the first status", &1, || {
        number_at(&cluster.status("a"), "/observedGeneration")
    });
    let n_touches = std::cell::Cell::new(0);
    let what = "three creates and one status, however often the ReplicaSet changes";
    cluster
        .waiting()
        .holds_for(Duration::from_secs(3), what, || {
            n_touches.set(n_touches.get() + 1);
            let touch = json!({"touched": n_touches.get().to_string()});
            cluster.update(Kind::ReplicaSets, "a", |rs| {
                rs["spec"]["template"]["metadata"]["annotations"] = touch.clone();
            });
            names_posted(&cluster).len() == 3 && n_updates() == 1
        });
    hold.remove();
    cluster.stable("a");
    cluster.holds("three creates", || names_posted(&cluster).len() == 3);
}

/// The API server executes the creates, and `fault` replaces two of the responses. There must never
/// be more pods than replicas.
#[track_caller]
fn check_lost_create_responses(fault: Action) {
    let cluster = TestCluster::running();
    cluster.synced();
    let rule = Rule::new(Matcher::verb("create", "pods"), fault);
    let rule = cluster.faults().add(rule.after(1).times(2));
    cluster.create_replica_set(&new_replica_set("a", 5));
    cluster.stable("a");
    assert_eq!(rule.hits(), 2);
    cluster.holds("five pods", || cluster.live().len() == 5);
    assert_eq!(distinct(names_posted(&cluster)).len(), 5, "distinct names");
}

/// As [`check_lost_create_responses`], with a held watch of pods. The daemon repeats the create
/// under the same name, and the error AlreadyExists shows that the pod exists.
#[track_caller]
fn check_lost_response_of_an_unseen_create(fault: Action) {
    let cluster = TestCluster::running();
    cluster.synced();
    let hold = cluster.hold_watch("pods");
    let rule = Rule::new(Matcher::verb("create", "pods"), fault);
    cluster.faults().add(rule.times(1));
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.eventually("the create is retried", || names_posted(&cluster).len() > 1);
    cluster.holds("one pod", || cluster.live().len() == 1);
    hold.remove();
    cluster.stable("a");
    cluster.holds("one pod", || cluster.live().len() == 1);
    assert_eq!(distinct(names_posted(&cluster)).len(), 1, "distinct names");
}

fn timeout() -> Action {
    Action::reject_after(Status::new(504, "Timeout", "it did not finish in time"))
}

fn internal_error_after() -> Action {
    Action::reject_after(Status::new(500, "InternalError", "something broke"))
}

#[test]
fn a_create_with_a_lost_response_causes_no_second_pod() {
    check_lost_create_responses(Action::CutAfter);
}

#[test]
fn a_create_that_times_out_in_the_server_causes_no_second_pod() {
    check_lost_create_responses(timeout());
}

#[test]
fn a_create_that_fails_in_the_server_causes_no_second_pod() {
    check_lost_create_responses(internal_error_after());
}

#[test]
fn a_create_with_lost_response_and_event_causes_no_second_pod() {
    check_lost_response_of_an_unseen_create(Action::CutAfter);
}

#[test]
fn a_create_that_times_out_without_event_causes_no_second_pod() {
    check_lost_response_of_an_unseen_create(timeout());
}

#[test]
fn a_create_that_is_lost_is_retried_under_the_same_name() {
    let cluster = TestCluster::running();
    let rule = Rule::new(Matcher::verb("create", "pods"), Action::CutBefore);
    cluster.faults().add(rule.times(2));
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.stable("a");
    cluster.holds("one pod", || cluster.live().len() == 1);
    let posted = names_posted(&cluster);
    assert_eq!(posted, vec![posted[0].clone(); 3]);
}

#[test]
fn a_pod_name_that_another_pod_has_is_dropped() {
    let cluster = TestCluster::running();
    cluster.synced();
    // A foreign pod takes the name while the daemon's create is pending.
    let create = Matcher::verb("create", "pods");
    let hold = cluster.faults().add(Rule::new(create, Action::Hold));
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.eventually_eq("one create", &1, || names_posted(&cluster).len());
    let mut foreign = new_pod(&names_posted(&cluster)[0]);
    foreign["metadata"]["labels"]["app"] = json!("foreign");
    let foreign = cluster.create_pod(&foreign);
    hold.remove();
    cluster.stable("a");
    cluster.holds("one pod, and the foreign one", || {
        cluster.live().len() == 1 && cluster.list(Kind::Pods, "").len() == 2
    });
    assert_eq!(names_posted(&cluster).len(), 2);
    assert_eq!(uid(&cluster.pod(&name(&foreign))), uid(&foreign));
}

/// Loses the response to a delete, and the watch event too unless `is_seen`. The daemon must not
/// delete a second pod.
#[track_caller]
fn check_lost_delete_response(is_seen: bool) {
    let cluster = TestCluster::running();
    cluster.create_replica_set(&new_replica_set("a", 3));
    cluster.stable("a");
    cluster.synced();
    let hold = (!is_seen).then(|| cluster.hold_watch("pods"));
    let rule = Rule::new(Matcher::verb("delete", "pods"), Action::CutAfter);
    let rule = cluster.faults().add(rule.times(1));
    cluster.scale("a", 2);
    if let Some(hold) = hold {
        cluster.eventually_eq("the delete is retried", &2, || {
            names_deleted(&cluster).len()
        });
        cluster.holds("two pods remain", || cluster.live().len() == 2);
        hold.remove();
    }
    cluster.stable("a");
    cluster.holds("two pods remain", || cluster.live().len() == 2);
    assert_eq!(rule.hits(), 1);
    assert_eq!(distinct(names_deleted(&cluster)).len(), 1, "distinct names");
}

#[test]
fn a_delete_with_a_lost_response_deletes_no_second_pod() {
    check_lost_delete_response(true);
}

#[test]
fn a_delete_with_lost_response_and_event_deletes_no_second_pod() {
    check_lost_delete_response(false);
}

#[test]
fn a_delete_that_is_lost_is_retried_on_the_same_pod() {
    let cluster = TestCluster::running();
    cluster.create_replica_set(&new_replica_set("a", 3));
    cluster.stable("a");
    let rule = Rule::new(Matcher::verb("delete", "pods"), Action::CutBefore);
    cluster.faults().add(rule.times(1));
    cluster.scale("a", 2);
    cluster.stable("a");
    cluster.holds("two pods remain", || cluster.live().len() == 2);
    let deleted = names_deleted(&cluster);
    assert_eq!(deleted, vec![deleted[0].clone(); 2]);
}

#[test]
fn deletes_carry_the_uid_of_their_pod() {
    let cluster = TestCluster::running();
    cluster.create_replica_set(&new_replica_set("a", 4));
    cluster.stable("a");
    let before = cluster.live();
    cluster.scale("a", 1);
    cluster.stable("a");
    let deletes = cluster.recorded("delete", "pods");
    assert_eq!(deletes.len(), 3);
    for delete in deletes {
        let pod = before.iter().find(|pod| name(pod) == last_part(&delete));
        let pod = pod.expect("a pod of the ReplicaSet");
        let expected = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid(pod)},
        });
        assert_eq!(json_body(&delete), expected);
    }
}

#[test]
fn a_pod_recreated_under_its_name_is_not_deleted() {
    let cluster = TestCluster::running();
    cluster.create_replica_set(&new_replica_set("a", 2));
    cluster.stable("a");
    let hold = cluster.fault("delete", "pods", Action::Hold);
    cluster.scale("a", 1);
    cluster.eventually_eq("one delete", &1, || names_deleted(&cluster).len());
    let victim = names_deleted(&cluster).remove(0);
    cluster.kill_pod(&victim);
    let mut foreign = new_pod(&victim);
    foreign["metadata"]["labels"]["app"] = json!("foreign");
    let foreign = cluster.create_pod(&foreign);
    hold.remove();
    cluster.stable("a");
    let is_untouched = |pod: &Value| uid(pod) == uid(&foreign) && !is_terminating(pod);
    cluster.holds("the new pod stays", || is_untouched(&cluster.pod(&victim)));
    assert_eq!(names(&cluster.live()).len(), 1);
    let delete = &cluster.recorded("delete", "pods")[0];
    assert_eq!(delete.code(), Some(409));
}
