//! Group A: the number of pods, pods made from the template, and no write before the caches have
//! synced.

use std::sync::Arc;

use replicaset_controller::devserver::{Action, ApiCall, Matcher, Recorded, Rule};
use serde_json::{Value, json};

use crate::support::Kind::{ReplicaSets, ReplicationControllers};
use crate::support::{
    Kind, PATIENCE, Setup, TestCluster, controller_reference, json_body, name, new_pod,
    new_replica_set, number_at, reads_of, text_at, uids,
};

#[track_caller]
fn check_a_satisfied_workload_causes_no_write(kind: Kind) {
    let mut cluster = TestCluster::running_for(kind);
    cluster.create_replica_set(&new_replica_set("a", 2));
    cluster.stable("a");
    let pods = uids(&cluster.live());
    // Each daemon learns by one write that an API server before 1.35 drops the field.
    let is_dropped = kind == ReplicaSets && !cluster.keeps_terminating_replicas("a");
    // A restarted daemon finds nothing to do.
    cluster.stop_daemon();
    cluster.faults().recorder().clear();
    cluster.start_daemon();
    cluster.eventually("all watches are open", || {
        cluster.faults().n_watches(&Matcher::any()) == 3
    });
    cluster.holds("the same pods", || uids(&cluster.live()) == pods);
    assert_eq!(cluster.n_writes(), usize::from(is_dropped));
}

#[test]
fn a_01_a_satisfied_replica_set_causes_no_write() {
    check_a_satisfied_workload_causes_no_write(ReplicaSets);
}

#[test]
fn o_22_a_satisfied_controller_causes_no_write() {
    check_a_satisfied_workload_causes_no_write(ReplicationControllers);
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
fn check_a_surplus_pod_is_deleted(kind: Kind) {
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
fn a_03_a_surplus_pod_is_deleted() {
    check_a_surplus_pod_is_deleted(ReplicaSets);
}

#[test]
fn o_22_a_surplus_pod_is_deleted() {
    check_a_surplus_pod_is_deleted(ReplicationControllers);
}

#[test]
fn a_06_finished_pods_are_replaced_and_kept() {
    let cluster = TestCluster::running();
    cluster.create_replica_set(&new_replica_set("a", 5));
    cluster.stable("a");
    let pods = cluster.live();
    // The status throttle could defer the next update until there are five pods again, and then no
    // update is due. So the test waits for the throttle's interval first.
    cluster.holds("five replicas", || {
        number_at(&cluster.status("a"), "/replicas") == 5
    });
    cluster.faults().recorder().clear();
    for (pod, phase) in pods.iter().zip(["Succeeded", "Failed"]) {
        cluster.set_pod_status(&name(pod), &json!({"phase": phase}));
    }
    cluster.eventually_eq("seven pods", &7, || cluster.live().len());
    // The first update after each loss reports fewer than five. Only an update after the last
    // create counts.
    cluster.eventually("five replicas again", || {
        let requests = cluster.faults().recorder().requests();
        let last = |verb: &str, resource: &str| {
            let matches =
                |it: &Arc<Recorded>| it.request.verb() == verb && it.request.resource() == resource;
            requests.iter().rposition(matches)
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
