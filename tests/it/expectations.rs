//! Group B: the daemon creates or deletes each pod once, despite lagging watches and writes whose
//! outcome is unknown.

use std::collections::BTreeSet;

use replicaset_controller::devserver::{Action, Matcher, Rule};
use serde_json::{Value, json};

use crate::support::{
    Kind, TestCluster, is_terminating, json_body, last_part, name, names, new_pod, new_replica_set,
    uid,
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

#[test]
fn a_create_with_lost_response_and_event_causes_no_second_pod() {
    check_lost_response_of_an_unseen_create(Action::CutAfter);
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
fn a_delete_with_lost_response_and_event_deletes_no_second_pod() {
    check_lost_delete_response(false);
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
