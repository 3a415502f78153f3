//! Group A: as many pods as wanted, made from the template, and nothing before everything is known.

use std::sync::Arc;

use replicaset_controller::devserver::{Action, ApiCall, Matcher, Recorded, Rule};
use serde_json::{Value, json};

use crate::support::Kind::{ReplicaSets, ReplicationControllers};
use crate::support::{
    Kind, PATIENCE, Setup, TestCluster, controller_reference, json_body, name, new_pod,
    new_replica_set, number_at, text_at, uids,
};

#[track_caller]
fn check_nothing_is_done(kind: Kind) {
    let mut cluster = TestCluster::running_for(kind);
    cluster.create_replica_set(&new_replica_set("a", 2));
    cluster.stable("a");
    let pods = uids(&cluster.live());
    // A daemon that starts anew finds everything in order.
    cluster.stop_daemon();
    cluster.faults().recorder().clear();
    cluster.start_daemon();
    cluster.eventually("it looks", || {
        cluster.faults().n_watches(&Matcher::any()) == 3
    });
    cluster.holds("the same pods", || uids(&cluster.live()) == pods);
    assert_eq!(cluster.n_writes(), 0);
}

#[test]
fn a_01_a_replica_set_that_has_what_it_wants_does_nothing() {
    check_nothing_is_done(ReplicaSets);
}

#[test]
fn o_22_a_controller_that_has_what_it_wants_does_nothing() {
    check_nothing_is_done(ReplicationControllers);
}

#[track_caller]
fn check_missing_pods_are_created(kind: Kind) {
    let cluster = TestCluster::running_for(kind);
    cluster.create_replica_set(&new_replica_set("a", 2));
    cluster.eventually_eq("two pods", &2, || cluster.live().len());
    cluster.holds("two pods", || cluster.live().len() == 2);
    assert_eq!(cluster.recorded("create", "pods").len(), 2);
    assert_eq!(cluster.recorded("delete", "pods").len(), 0);
}

#[test]
fn a_02_missing_pods_are_created() {
    check_missing_pods_are_created(ReplicaSets);
}

#[test]
fn o_22_missing_pods_are_created() {
    check_missing_pods_are_created(ReplicationControllers);
}

#[track_caller]
fn check_a_pod_too_many_is_deleted(kind: Kind) {
    let cluster = TestCluster::running_for(kind);
    cluster.create_replica_set(&new_replica_set("a", 2));
    cluster.stable("a");
    let pods = uids(&cluster.live());
    cluster.scale("a", 1);
    cluster.eventually_eq("one pod", &1, || cluster.live().len());
    cluster.holds("one of the two", || {
        let live = uids(&cluster.live());
        live.len() == 1 && pods.contains(&live[0])
    });
    assert_eq!(cluster.recorded("delete", "pods").len(), 1);
    assert_eq!(cluster.recorded("create", "pods").len(), 2);
}

#[test]
fn a_03_a_pod_too_many_is_deleted() {
    check_a_pod_too_many_is_deleted(ReplicaSets);
}

#[test]
fn o_22_a_pod_too_many_is_deleted() {
    check_a_pod_too_many_is_deleted(ReplicationControllers);
}

#[test]
fn a_06_finished_pods_are_replaced_and_kept() {
    let cluster = TestCluster::running();
    cluster.create_replica_set(&new_replica_set("a", 5));
    cluster.stable("a");
    let pods = cluster.live();
    // A status that has to wait for the last one may find five again and is not written then.
    cluster.holds("five replicas", || {
        number_at(&cluster.status("a"), "/replicas") == 5
    });
    cluster.faults().recorder().clear();
    for (pod, phase) in pods.iter().zip(["Succeeded", "Failed"]) {
        cluster.set_pod_status(&name(pod), &json!({"phase": phase}));
    }
    cluster.eventually_eq("seven pods", &7, || cluster.live().len());
    // The first status after each loss reports fewer, so only one after the last create counts.
    cluster.eventually("five replicas again", || {
        let requests = cluster.faults().recorder().requests();
        let last = |verb: &str, resource: &str| {
            let is_one =
                |it: &Arc<Recorded>| it.request.verb() == verb && it.request.resource() == resource;
            requests.iter().rposition(is_one)
        };
        let last_create = last("create", "pods");
        let last_update = last("update", "replicasets/status");
        last_update > last_create
            && last_update.is_some_and(|last| {
                let last = &requests[last];
                let replicas = number_at(&json_body(last), "/status/replicas");
                last.code().is_some() && replicas == 5
            })
    });
    cluster.holds("seven pods, five replicas", || {
        cluster.live().len() == 7 && number_at(&cluster.status("a"), "/replicas") == 5
    });
    for pod in &pods[..2] {
        let now = cluster.pod(&name(pod));
        assert_eq!(
            now["metadata"]["ownerReferences"],
            pod["metadata"]["ownerReferences"]
        );
    }
}

#[track_caller]
fn check_pods_are_made_from_the_template(kind: Kind) {
    let setup = || Setup::about(kind);
    for (setup, is_json) in [(setup(), false), (setup().in_json(), true)] {
        check_pod_of(&TestCluster::running_with(setup), is_json);
    }
}

#[track_caller]
fn check_pod_of(cluster: &TestCluster, is_json: bool) {
    let mut rs = new_replica_set("a", 1);
    rs["metadata"]["labels"] = json!({"not": "copied"});
    let template = &mut rs["spec"]["template"];
    template["metadata"]["labels"]["tier"] = json!("front");
    template["metadata"]["annotations"] = json!({"example.com/note": "a \"note\" ü"});
    template["metadata"]["finalizers"] = json!(["example.com/hold"]);
    template["spec"]["terminationGracePeriodSeconds"] = json!(7);
    template["spec"]["tolerations"] = json!([{"key": "k", "operator": "Exists"}]);
    let rs = cluster.create_replica_set(&rs);
    cluster.stable("a");

    let pod = cluster.live().remove(0);
    let template = &rs["spec"]["template"];
    for member in ["labels", "annotations", "finalizers"] {
        assert_eq!(pod["metadata"][member], template["metadata"][member]);
    }
    let owners = json!([controller_reference(&rs)]);
    assert_eq!(pod["metadata"]["ownerReferences"], owners);
    assert!(name(&pod).starts_with("a-"));

    let posts = cluster.recorded("create", "pods");
    assert_eq!(posts.len(), 1);
    let path = format!("/api/v1/namespaces/{}/pods", cluster.namespace());
    assert_eq!(posts[0].request.path, path);
    cluster.update(Kind::Pods, &name(&pod), |pod| {
        pod["metadata"]["finalizers"] = json!([]);
    });
    if !is_json && TestCluster::is_real() {
        // What was sent in protobuf is what the API server shows: the pod above.
        let media_type = posts[0].request.content_type();
        assert_eq!(media_type, "application/vnd.kubernetes.protobuf");
        for (member, value) in template["spec"].as_object().into_iter().flatten() {
            assert!(is_part_of(value, &pod["spec"][member]), "{member}: {pod}");
        }
        return;
    }
    let body: Value = serde_json::from_str(&posts[0].body()).expect("a pod is JSON");
    // The name is the controller's own choice: see pod_names.
    let mut metadata = template["metadata"].clone();
    if let Some(members) = metadata.as_object_mut() {
        members.remove("creationTimestamp");
    }
    metadata["name"] = json!(name(&pod));
    metadata["generateName"] = json!("a-");
    metadata["ownerReferences"] = owners;
    let mut sent = body["metadata"].clone();
    if let Some(members) = sent.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    assert_eq!(sent, metadata);
    assert_eq!(body["spec"], template["spec"]);
}

/// True if `whole` has all that `part` has; admission may have added more.
fn is_part_of(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => part
            .iter()
            .all(|(key, value)| whole.get(key).is_some_and(|other| is_part_of(value, other))),
        (Value::Array(part), Value::Array(whole)) => part
            .iter()
            .all(|item| whole.iter().any(|other| is_part_of(item, other))),
        (part, whole) => part == whole,
    }
}

#[test]
fn a_09_pods_are_made_from_the_template() {
    check_pods_are_made_from_the_template(ReplicaSets);
}

#[test]
fn o_01_pods_are_made_from_the_template() {
    check_pods_are_made_from_the_template(ReplicationControllers);
}

#[test]
fn unknown_template_fields_are_kept() {
    // A real API server drops what it does not know before the daemon can see it, so there this
    // shows only that rarely used members survive.
    let cluster = TestCluster::running_with(Setup::default().in_json());
    let mut rs = new_replica_set("a", 1);
    let spec = &mut rs["spec"]["template"]["spec"];
    spec["fieldOfTheFuture"] =
        json!({"deep": [1, 2.50, {"x": null}], "big": 12_345_678_901_234_i64});
    spec["schedulingGates"] = json!([{"name": "example.com/gate"}]);
    let rs = cluster.create_replica_set(&rs);
    cluster.stable("a");
    let posts = cluster.recorded("create", "pods");
    let body: Value = serde_json::from_str(&posts[0].body()).expect("a pod is JSON");
    assert_eq!(body["spec"], rs["spec"]["template"]["spec"]);
    assert_eq!(
        body["spec"]["schedulingGates"][0]["name"],
        "example.com/gate"
    );
    let is_kept = body["spec"]["fieldOfTheFuture"]["deep"][2].is_object();
    assert_eq!(is_kept, !TestCluster::is_real());
}

/// Starts the daemon with the first look at a resource held back.
#[track_caller]
fn check_waits_for(resource: &str) {
    let mut cluster = TestCluster::start();
    let rs = cluster.create_replica_set(&new_replica_set("a", 2));
    for pod in ["p1", "p2"] {
        let mut pod = new_pod(pod);
        pod["metadata"]["ownerReferences"] = json!([controller_reference(&rs)]);
        cluster.create_pod(&pod);
    }
    let look = Matcher::verb("list", resource).or(Matcher::verb("watch", resource));
    let rule = cluster.faults().add(Rule::new(look, Action::Hold));
    cluster.start_daemon();
    assert!(rule.wait_for_hits(1, PATIENCE), "{resource} are asked for");
    cluster.holds("nothing is written", || cluster.n_writes() == 0);
    rule.remove();
    cluster.stable("a");
    cluster.holds("two pods", || cluster.live().len() == 2);
    let n_status = cluster.recorded("update", "replicasets/status").len();
    assert_eq!((cluster.n_writes(), n_status), (1, 1));
}

#[test]
fn a_19_nothing_is_done_before_the_pods_are_known() {
    check_waits_for("pods");
}

#[test]
fn a_19_nothing_is_done_before_the_replica_sets_are_known() {
    check_waits_for("replicasets");
}

#[test]
fn a_21_no_replicas_means_no_pods_and_a_status() {
    let cluster = TestCluster::running();
    cluster.create_replica_set(&new_replica_set("a", 0));
    cluster.eventually_eq("observed", &(1, 0), || {
        let status = cluster.status("a");
        (
            number_at(&status, "/observedGeneration"),
            number_at(&status, "/replicas"),
        )
    });
    cluster.holds("no pods", || cluster.live().is_empty());
}

#[test]
fn absent_replicas_mean_one() {
    let cluster = TestCluster::running();
    let mut rs = new_replica_set("a", 1);
    rs["spec"]["replicas"] = Value::Null;
    cluster.create_replica_set(&rs);
    cluster.stable("a");
    assert_eq!(cluster.live().len(), 1);
    assert!(text_at(&cluster.live()[0], "/metadata/generateName").starts_with("a-"));
}
