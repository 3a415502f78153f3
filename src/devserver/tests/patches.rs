//! The controller's patches and the server's responses.

use serde_json::{Value, json};

use super::rig::{PODS, REPLICA_SETS, Rig, check_error, owner, uid, version};

const WEB: &str = "4d62c3ac-7fe1-4e8f-841a-1fbd928c160c";
const OTHER: &str = "2af3adf2-cf77-4902-9f9b-f1d787be16c0";
const ORPHAN: &str = "/api/v1/namespaces/default/pods/orphan";

fn adoption(owner_name: &str, owner_uid: &str, pod_uid: &str) -> Value {
    json!({"metadata": {"ownerReferences": [owner(owner_name, owner_uid)], "uid": pod_uid}})
}

#[test]
fn c_15_adopt_and_adopt_again() {
    let rig = Rig::new();
    let pod = rig.create_pod("orphan");
    let patch = adoption("web", WEB, &uid(&pod));
    let (code, adopted) = rig.patch(ORPHAN, &patch);
    assert_eq!(code, 200);
    assert_eq!(
        adopted["metadata"]["ownerReferences"],
        json!([owner("web", WEB)])
    );
    assert!(version(&adopted) > version(&pod));
    assert_eq!(adopted["metadata"]["generation"], json!(1));
    assert_eq!(rig.patch(ORPHAN, &patch), (200, adopted));
}

#[test]
fn c_10_release_and_release_again() {
    let rig = Rig::new();
    let pod = rig.create_pod("orphan");
    rig.patch(ORPHAN, &adoption("web", WEB, &uid(&pod)));
    let owners = json!([{"$patch": "delete", "uid": WEB}]);
    let patch = json!({"metadata": {"ownerReferences": owners, "uid": uid(&pod)}});
    let (code, released) = rig.patch(ORPHAN, &patch);
    assert_eq!(
        (code, released["metadata"].get("ownerReferences")),
        (200, None)
    );
    assert_eq!(rig.patch(ORPHAN, &patch), (200, released));
}

#[test]
fn c_21_a_patch_of_another_uid_is_invalid() {
    let rig = Rig::new();
    rig.create_pod("orphan");
    let zero = "00000000-0000-0000-0000-000000000000";
    let response = rig.patch(ORPHAN, &adoption("web", WEB, zero));
    let message = format!(
        "Pod \"orphan\" is invalid: metadata.uid: Invalid value: \"{zero}\": field is immutable"
    );
    check_error(&response, 422, "Invalid", &message);
    let cause = json!({
        "reason": "FieldValueInvalid", "field": "metadata.uid",
        "message": format!("Invalid value: \"{zero}\": field is immutable"),
    });
    assert_eq!(response.1["details"]["causes"], json!([cause, cause]));
}

#[test]
fn c_22_a_patch_of_a_deleted_pod_is_not_found() {
    let rig = Rig::new();
    let response = rig.patch(ORPHAN, &adoption("web", WEB, OTHER));
    check_error(&response, 404, "NotFound", "pods \"orphan\" not found");
}

#[test]
fn two_controllers_are_invalid() {
    let rig = Rig::new();
    let pod = rig.create_pod("orphan");
    rig.patch(ORPHAN, &adoption("web", WEB, &uid(&pod)));
    let response = rig.patch(ORPHAN, &adoption("other", OTHER, &uid(&pod)));
    let reference = |name: &str, uid: &str| {
        format!(
            "{{\"apiVersion\":\"apps/v1\",\"kind\":\"ReplicaSet\",\"name\":\"{name}\",\
             \"uid\":\"{uid}\",\"controller\":true,\"blockOwnerDeletion\":true}}"
        )
    };
    let message = format!(
        "Pod \"orphan\" is invalid: metadata.ownerReferences: Invalid value: [{},{}]: Only one \
         reference can have Controller set to true. Found \"true\" in references for \
         ReplicaSet/other and ReplicaSet/web",
        reference("other", OTHER),
        reference("web", WEB)
    );
    check_error(&response, 422, "Invalid", &message);
}

#[test]
fn m_15_a_second_non_controller_owner_stays() {
    let rig = Rig::new();
    let mut pod = rig.create_pod("orphan");
    let mut set = owner("set", OTHER);
    set["controller"] = json!(false);
    pod["metadata"]["ownerReferences"] = json!([set]);
    rig.ok("PUT", ORPHAN, &pod);
    let (code, adopted) = rig.patch(ORPHAN, &adoption("web", WEB, &uid(&pod)));
    assert_eq!(code, 200);
    let owners = adopted["metadata"]["ownerReferences"].as_array();
    assert_eq!(owners.map(Vec::len), Some(2));
}

#[test]
fn merge_patches_set_labels_and_unknown_types_fail() {
    let rig = Rig::new();
    rig.create_pod("orphan");
    let labels = json!({"metadata": {"labels": {"app": null, "x": "y"}}}).to_string();
    let (code, pod) = rig.send_as("application/merge-patch+json", "PATCH", ORPHAN, &labels);
    assert_eq!(
        (code, &pod["metadata"]["labels"]),
        (200, &json!({"x": "y"}))
    );
    let (code, _) = rig.send_as("application/nonsense", "PATCH", ORPHAN, "[]");
    assert_eq!(code, 415);
    let stale = json!({"metadata": {"resourceVersion": "1", "labels": {"x": "z"}}});
    assert_eq!(rig.patch(ORPHAN, &stale).0, 409);
}

#[test]
fn n_06_one_patch_of_labels_replicas_and_containers() {
    let rig = Rig::new();
    rig.create_replica_set("web", 1);
    let patch = json!({
        "metadata": {"labels": {"test-rs": "patched"}},
        "spec": {"replicas": 3, "template": {"spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "example.invalid/c:2"}],
        }}},
    });
    let (code, web) = rig.patch(&format!("{REPLICA_SETS}/web"), &patch);
    assert_eq!((code, &web["metadata"]["generation"]), (200, &json!(2)));
    let containers = &web["spec"]["template"]["spec"]["containers"];
    assert_eq!(containers.as_array().map(Vec::len), Some(1));
    assert_eq!(containers[0]["image"], json!("example.invalid/c:2"));
    let status = json!({"status": {"readyReplicas": 0, "replicas": 2}});
    let (code, web) = rig.patch(&format!("{REPLICA_SETS}/web/status"), &status);
    assert_eq!((code, &web["status"]), (200, &json!({"replicas": 2})));
    assert_eq!(
        rig.get(&format!("{PODS}?labelSelector=app=web")).1["items"],
        json!([])
    );
}
