//! A daemon never acts twice on the same lack: group B, and writes whose outcome is unknown.

use std::collections::BTreeSet;
use std::time::Duration;

use replicaset_controller::api::Status;
use replicaset_controller::devserver::{Action, Matcher, Rule};
use serde_json::{Value, json};

use crate::support::{
    Kind, TestCluster, is_terminating, json_body, last_part, name, names, new_pod, new_replica_set,
    new_replica_set_labelled, number_at, uid,
};

/// The names under which pods were asked for, in the order of the requests.
fn names_posted(cluster: &TestCluster) -> Vec<String> {
    let posts = cluster.recorded("create", "pods");
    posts.iter().map(|post| name(&json_body(post))).collect()
}

/// The names of the pods whose deletion was asked for, in the order of the requests.
fn names_deleted(cluster: &TestCluster) -> Vec<String> {
    let deletes = cluster.recorded("delete", "pods");
    deletes.iter().map(|delete| last_part(delete)).collect()
}

fn distinct(names: Vec<String>) -> BTreeSet<String> {
    names.into_iter().collect()
}

/// Deletes the ReplicaSet `a` and creates another one of that name with other labels.
fn recreate(cluster: &TestCluster) {
    let options = json!({"propagationPolicy": "Background"});
    cluster.delete_with(Kind::ReplicaSets, "a", &options);
    cluster.create_replica_set(&new_replica_set_labelled("a", 3, "other"));
}

fn pods_of_the_other(cluster: &TestCluster) -> usize {
    cluster.list(Kind::Pods, "app=other").len()
}

#[test]
fn b_11_a_recreated_replica_set_gets_its_pods_at_once() {
    let cluster = TestCluster::running();
    cluster.create_replica_set(&new_replica_set("a", 3));
    cluster.eventually("the first pod", || !cluster.live().is_empty());
    recreate(&cluster);
    cluster.eventually_eq("its pods", &3, || pods_of_the_other(&cluster));
    cluster.stable("a");
    cluster.holds("no more", || pods_of_the_other(&cluster) == 3);
}

#[test]
fn b_11_expectations_of_the_old_one_do_not_block_the_new() {
    let cluster = TestCluster::running();
    cluster.synced();
    let hold = cluster.hold_watch("pods");
    cluster.create_replica_set(&new_replica_set("a", 3));
    cluster.eventually_eq("pods of the old one", &3, || cluster.live().len());
    recreate(&cluster);
    cluster.eventually_eq("pods of the new one", &3, || pods_of_the_other(&cluster));
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
    cluster.holds("still three", || names_posted(&cluster).len() == 3);
}

/// Creates are done, and their answers are replaced by `fault`; there are as many pods as wanted all
/// the same, at every moment.
#[track_caller]
fn check_lost_answers_of_creates(fault: Action) {
    let cluster = TestCluster::running();
    cluster.synced();
    let rule = Rule::new(Matcher::verb("create", "pods"), fault);
    let rule = cluster.faults().add(rule.after(1).times(2));
    cluster.create_replica_set(&new_replica_set("a", 5));
    cluster.stable("a");
    assert_eq!(rule.hits(), 2);
    cluster.holds("five pods", || cluster.live().len() == 5);
    assert_eq!(distinct(names_posted(&cluster)).len(), 5, "names");
}

/// As [`check_lost_answers_of_creates`] with a daemon that does not see its pod by the watch either,
/// and finds by the name that it is there.
#[track_caller]
fn check_lost_answer_of_an_unseen_create(fault: Action) {
    let cluster = TestCluster::running();
    cluster.synced();
    let hold = cluster.hold_watch("pods");
    let rule = Rule::new(Matcher::verb("create", "pods"), fault);
    cluster.faults().add(rule.times(1));
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.eventually("it is repeated", || names_posted(&cluster).len() > 1);
    cluster.holds("one pod", || cluster.live().len() == 1);
    hold.remove();
    cluster.stable("a");
    cluster.holds("one pod", || cluster.live().len() == 1);
    assert_eq!(distinct(names_posted(&cluster)).len(), 1, "names");
}

fn timeout() -> Action {
    Action::refuse_after(Status::new(504, "Timeout", "it takes too long"))
}

fn internal_error_after() -> Action {
    Action::refuse_after(Status::new(500, "InternalError", "something broke"))
}

#[test]
fn a_create_whose_answer_is_lost_makes_no_second_pod() {
    check_lost_answers_of_creates(Action::CutAfter);
}

#[test]
fn a_create_that_times_out_in_the_server_makes_no_second_pod() {
    check_lost_answers_of_creates(timeout());
}

#[test]
fn a_create_in_which_the_server_fails_makes_no_second_pod() {
    check_lost_answers_of_creates(internal_error_after());
}

#[test]
fn a_create_whose_answer_and_event_are_lost_makes_no_second_pod() {
    check_lost_answer_of_an_unseen_create(Action::CutAfter);
}

#[test]
fn a_create_that_times_out_unseen_makes_no_second_pod() {
    check_lost_answer_of_an_unseen_create(timeout());
}

#[test]
fn a_create_that_never_arrives_is_repeated_under_its_name() {
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
fn a_name_that_a_stranger_has_is_given_up() {
    let cluster = TestCluster::running();
    cluster.synced();
    // The stranger takes the name in the moment in which the daemon asks for it.
    let create = Matcher::verb("create", "pods");
    let hold = cluster.faults().add(Rule::new(create, Action::Hold));
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.eventually_eq("one create", &1, || names_posted(&cluster).len());
    let mut stranger = new_pod(&names_posted(&cluster)[0]);
    stranger["metadata"]["labels"]["app"] = json!("stranger");
    let stranger = cluster.create_pod(&stranger);
    hold.remove();
    cluster.stable("a");
    cluster.holds("one pod, and the stranger", || {
        cluster.live().len() == 1 && cluster.list(Kind::Pods, "").len() == 2
    });
    assert_eq!(names_posted(&cluster).len(), 2);
    assert_eq!(uid(&cluster.pod(&name(&stranger))), uid(&stranger));
}

/// The answer of a delete is lost; no second pod is deleted for it.
#[track_caller]
fn check_lost_answer_of_a_delete(is_seen: bool) {
    let cluster = TestCluster::running();
    cluster.create_replica_set(&new_replica_set("a", 3));
    cluster.stable("a");
    cluster.synced();
    let hold = (!is_seen).then(|| cluster.hold_watch("pods"));
    let rule = Rule::new(Matcher::verb("delete", "pods"), Action::CutAfter);
    let rule = cluster.faults().add(rule.times(1));
    cluster.scale("a", 2);
    if let Some(hold) = hold {
        cluster.eventually_eq("it is repeated", &2, || names_deleted(&cluster).len());
        cluster.holds("two pods are left", || cluster.live().len() == 2);
        hold.remove();
    }
    cluster.stable("a");
    cluster.holds("two pods are left", || cluster.live().len() == 2);
    assert_eq!(rule.hits(), 1);
    assert_eq!(distinct(names_deleted(&cluster)).len(), 1, "names");
}

#[test]
fn a_delete_whose_answer_is_lost_takes_no_second_pod() {
    check_lost_answer_of_a_delete(true);
}

#[test]
fn a_delete_whose_answer_and_event_are_lost_takes_no_second_pod() {
    check_lost_answer_of_a_delete(false);
}

#[test]
fn a_delete_that_never_arrives_is_repeated_on_the_same_pod() {
    let cluster = TestCluster::running();
    cluster.create_replica_set(&new_replica_set("a", 3));
    cluster.stable("a");
    let rule = Rule::new(Matcher::verb("delete", "pods"), Action::CutBefore);
    cluster.faults().add(rule.times(1));
    cluster.scale("a", 2);
    cluster.stable("a");
    cluster.holds("two pods are left", || cluster.live().len() == 2);
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
    let mut stranger = new_pod(&victim);
    stranger["metadata"]["labels"]["app"] = json!("stranger");
    let stranger = cluster.create_pod(&stranger);
    hold.remove();
    cluster.stable("a");
    let is_as_it_was = |pod: &Value| uid(pod) == uid(&stranger) && !is_terminating(pod);
    cluster.holds("the new pod stays", || is_as_it_was(&cluster.pod(&victim)));
    assert_eq!(names(&cluster.live()).len(), 1);
    let delete = &cluster.recorded("delete", "pods")[0];
    assert_eq!(delete.code(), Some(409));
}
