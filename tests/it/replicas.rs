//! Group A: the number of pods, pods made from the template, and no write before the caches have
//! synced.

use replicaset_controller::devserver::{Action, Matcher, Rule};
use serde_json::{Value, json};

use crate::support::Kind::{ReplicaSets, ReplicationControllers};
use crate::support::{
    Kind, PATIENCE, Setup, TestCluster, controller_reference, name, new_pod, new_replica_set,
    number_at, reads_of, text_at, uids,
};

#[test]
fn o_22_a_satisfied_controller_causes_no_write() {
    let mut cluster = TestCluster::running_for(ReplicationControllers);
    cluster.create_replica_set(&new_replica_set("a", 2));
    cluster.stable("a");
    let pods = uids(&cluster.live());
    // A restarted daemon finds nothing to do.
    cluster.stop_daemon();
    cluster.faults().recorder().clear();
    cluster.start_daemon();
    cluster.eventually("all watches are open", || {
        cluster.faults().n_watches(&Matcher::any()) == 3
    });
    cluster.holds("the same pods", || uids(&cluster.live()) == pods);
    assert_eq!(cluster.n_writes(), 0);
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
        // The body is protobuf, so compare the pod that the API server stored.
        let media_type = posts[0].request.content_type();
        assert_eq!(media_type, "application/vnd.kubernetes.protobuf");
        for (member, value) in template["spec"].as_object().into_iter().flatten() {
            assert!(is_part_of(value, &pod["spec"][member]), "{member}: {pod}");
        }
        return;
    }
    let body: Value = serde_json::from_str(&posts[0].body()).expect("a pod is JSON");
    // The controller chooses the name itself: see `own_writes`.
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

/// True if `whole` contains `part`. Admission may have added further members.
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
    // A real API server drops unknown fields before the daemon reads them. There, this test only
    // checks that rarely used fields survive.
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

/// Starts the daemon while the first list or watch of `resource` is delayed.
#[track_caller]
fn check_waits_for(resource: &str) {
    let mut cluster = TestCluster::start();
    let rs = cluster.create_replica_set(&new_replica_set("a", 2));
    for pod in ["p1", "p2"] {
        let mut pod = new_pod(pod);
        pod["metadata"]["ownerReferences"] = json!([controller_reference(&rs)]);
        cluster.create_pod(&pod);
    }
    let rule = cluster
        .faults()
        .add(Rule::new(reads_of(resource), Action::Hold));
    cluster.start_daemon();
    assert!(rule.wait_for_hits(1, PATIENCE), "{resource} are requested");
    cluster.holds("nothing is written", || cluster.n_writes() == 0);
    rule.remove();
    cluster.stable("a");
    cluster.holds("two pods", || cluster.live().len() == 2);
    let n_status = cluster.recorded("update", "replicasets/status").len();
    assert_eq!((cluster.n_writes(), n_status), (1, 1));
}

#[test]
fn a_19_nothing_is_written_before_the_pods_are_listed() {
    check_waits_for("pods");
}

#[test]
fn a_19_nothing_is_written_before_the_replica_sets_are_listed() {
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
