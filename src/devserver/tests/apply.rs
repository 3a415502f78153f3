//! JSON patch and server-side apply, and the errors of malformed requests.

use std::time::Duration;

use serde_json::{Value, json};

use super::rig::{PODS, REPLICA_SETS, Rig, check_error, replica_set};
use crate::stdx::testing::thread_time;
use crate::{ApiRequest, ResponseBody, new_api};

const WEB: &str = "/apis/apps/v1/namespaces/default/replicasets/web";

impl Rig {
    fn apply(&self, query: &str, config: &Value) -> (u16, Value) {
        let path = format!("{WEB}?{query}");
        self.send_as(
            "application/apply-patch+yaml",
            "PATCH",
            &path,
            &config.to_string(),
        )
    }
}

fn config(spec: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"}, "spec": spec,
    })
}

fn full_config(replicas: i64) -> Value {
    config(&replica_set("web", replicas)["spec"])
}

#[test]
fn apply_creates_and_is_idempotent() {
    let rig = Rig::new();
    let (code, created) = rig.apply("fieldManager=m", &full_config(2));
    assert_eq!(code, 201);
    let entry = &created["metadata"]["managedFields"][0];
    assert_eq!(
        (&entry["manager"], &entry["operation"]),
        (&json!("m"), &json!("Apply"))
    );
    assert_eq!(entry["fieldsV1"]["f:spec"]["f:replicas"], json!({}));
    assert_eq!(rig.apply("fieldManager=m", &full_config(2)), (200, created));
    // The name is that of the path, as kube-rs sends it.
    let mut nameless = full_config(3);
    nameless["metadata"] = json!(null);
    let (_, changed) = rig.apply("fieldManager=m", &nameless);
    assert_eq!(changed["spec"]["replicas"], json!(3));
    assert_eq!(changed["metadata"]["generation"], json!(2));
}

#[test]
fn apply_removes_fields_that_no_manager_owns() {
    let rig = Rig::new();
    let mut first = full_config(2);
    first["metadata"]["labels"] = json!({"mine": "1", "ours": "1"});
    rig.apply("fieldManager=m", &first);
    let mut second = config(&json!({}));
    second["metadata"]["labels"] = json!({"ours": "1"});
    assert_eq!(rig.apply("fieldManager=n", &second).0, 200);
    let (_, remaining) = rig.apply("fieldManager=m", &full_config(2));
    assert_eq!(remaining["metadata"]["labels"], json!({"ours": "1"}));
}

#[test]
fn an_apply_conflicts_with_what_was_written_before() {
    let rig = Rig::new();
    rig.create_replica_set("web", 2);
    assert_eq!(rig.apply("fieldManager=m", &full_config(2)).0, 200);
    let path = format!("{REPLICA_SETS}?fieldManager=writer");
    rig.ok("POST", &path, &replica_set("other", 2));
    let mut config = config(&replica_set("other", 5)["spec"]);
    config["metadata"]["name"] = json!("other");
    let other = WEB.replace("web", "other");
    let apply = |query: &str| {
        let path = format!("{other}?fieldManager=m{query}");
        let kind = "application/apply-patch+yaml";
        rig.send_as(kind, "PATCH", &path, &config.to_string())
    };
    let message = |manager: &str| {
        format!(
            "Apply failed with 1 conflict: conflict with \"{manager}\" using apps/v1: \
             .spec.replicas"
        )
    };
    check_error(&apply(""), 409, "Conflict", &message("writer"));
    let reset = json!({"metadata": {"managedFields": [{}]}, "spec": {"replicas": 2}});
    let changed = rig.patch(&other, &reset).1;
    assert_eq!(changed["metadata"]["managedFields"], Value::Null);
    check_error(&apply(""), 409, "Conflict", &message("before-first-apply"));
    let (code, forced) = apply("&force=true");
    assert_eq!((code, &forced["spec"]["replicas"]), (200, &json!(5)));
}

#[test]
fn no_apply_conflicts_with_the_same_amount_or_the_first_status() {
    let rig = Rig::new();
    let with = |memory: &str| {
        let mut web = replica_set("web", 2);
        let container = &mut web["spec"]["template"]["spec"]["containers"][0];
        container["resources"] = json!({"limits": {"cpu": 1, "memory": memory}});
        web
    };
    assert_eq!(rig.send("POST", REPLICA_SETS, &with("1024Mi")).0, 201);
    assert_eq!(rig.apply("fieldManager=m", &with("1Gi")).0, 200);
    assert_eq!(rig.apply("fieldManager=n", &with("2Gi")).0, 409);
    rig.create_replica_set("other", 2);
    let status = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "other"},
        "status": {"replicas": 2},
    });
    let path = format!("{}/status?fieldManager=m", WEB.replace("web", "other"));
    let kind = "application/apply-patch+yaml";
    let (code, _) = rig.send_as(kind, "PATCH", &path, &status.to_string());
    assert_eq!(code, 200);
}

/// The requests of `kubectl apply --server-side`, and of Helm 4 after Helm 3.
#[test]
fn kubectl_goes_on_from_its_last_client_side_apply() {
    let rig = Rig::new();
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let mut created = full_config(2);
    created["metadata"]["labels"] = json!({"old": "1"});
    let last = created.to_string();
    created["metadata"]["annotations"] = json!({annotation: last});
    let path = format!("{REPLICA_SETS}?fieldManager=client-side");
    let created = rig.ok("POST", &path, &created);
    let (code, applied) = rig.apply("fieldManager=kubectl", &full_config(3));
    assert_eq!((code, &applied["spec"]["replicas"]), (200, &json!(3)));
    assert_eq!(applied["metadata"]["labels"], json!({"old": "1"}));
    let last = applied["metadata"]["annotations"][annotation].as_str();
    let mut config = full_config(3);
    assert_eq!(last, Some(format!("{config}\n").as_str()));
    // The client turns the update's entry into one of its own applies.
    let mut entry = created["metadata"]["managedFields"][0].clone();
    entry["manager"] = json!("kubectl");
    entry["operation"] = json!("Apply");
    let migrate = |version: &Value| {
        let patch = json!([
            {"op": "replace", "path": "/metadata/managedFields", "value": [entry]},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
        ]);
        let kind = "application/json-patch+json";
        rig.send_as(kind, "PATCH", WEB, &patch.to_string())
    };
    assert_eq!(migrate(&created["metadata"]["resourceVersion"]).0, 409);
    let (code, migrated) = migrate(&applied["metadata"]["resourceVersion"]);
    assert_eq!(
        (code, &migrated["metadata"]["managedFields"]),
        (200, &json!([entry]))
    );
    let (code, applied) = rig.apply("fieldManager=kubectl", &full_config(3));
    assert_eq!((code, &applied["metadata"]["labels"]), (200, &Value::Null));
    assert_eq!(
        applied["metadata"]["managedFields"][0]["operation"],
        "Apply"
    );
    // What another has changed since is a conflict.
    assert_eq!(rig.patch(WEB, &json!({"spec": {"replicas": 4}})).0, 200);
    config["spec"]["replicas"] = json!(5);
    assert_eq!(rig.apply("fieldManager=kubectl", &config).0, 409);
}

#[test]
fn invalid_managed_fields_are_ignored() {
    let rig = Rig::new();
    let created = rig.create_replica_set("web", 2);
    let good = json!({
        "manager": "m", "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:replicas": {}}},
    });
    let bad = [
        ("operation", json!("Other")),
        ("apiVersion", json!("")),
        ("fieldsType", json!("FieldsV2")),
        ("fieldsV1", json!({"spec": {}})),
        ("fieldsV1", Value::Null),
    ];
    for (name, value) in bad {
        let mut entry = good.clone();
        entry[name] = value;
        let (_, kept) = rig.patch(WEB, &json!({"metadata": {"managedFields": [entry]}}));
        assert_eq!(kept, created, "{name}");
    }
    let written = json!({"metadata": {"managedFields": [good]}});
    let changed = rig.patch(WEB, &written).1;
    assert_eq!(changed["metadata"]["managedFields"], json!([good]));
    let of_status = json!({"metadata": {"managedFields": [{}]}});
    assert_eq!(rig.patch(&format!("{WEB}/status"), &of_status).1, changed);
}

/// Defaults that it leaves out, and other forms of its times, are no change.
#[test]
fn an_object_that_is_sent_again_stays_as_it_is() {
    let rig = Rig::new();
    let put = |object: &Value| {
        let text = object.to_string();
        rig.send_as("application/json", "PUT", WEB, &text).1
    };
    rig.create_replica_set("web", 2);
    let first = put(&replica_set("web", 2));
    assert_eq!(put(&replica_set("web", 2)), first);
    let mut pythons = first.clone();
    let time = &mut pythons["metadata"]["managedFields"][0]["time"];
    *time = json!(time.as_str().expect("a time").replace('Z', "+00:00"));
    assert_eq!(put(&pythons), first);
    let scaled = rig.apply("fieldManager=m", &config(&json!({"replicas": 3})));
    assert_eq!(scaled.0, 409, "its creator still owns it");
}

#[test]
fn a_namespace_keeps_the_label_with_its_name() {
    let rig = Rig::new();
    let path = "/api/v1/namespaces/team?fieldManager=m";
    let named = json!({"kubernetes.io/metadata.name": "team"});
    for labels in [json!({"a": "b"}), json!({})] {
        let config = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "team", "labels": labels},
        });
        let kind = "application/apply-patch+yaml";
        let (_, applied) = rig.send_as(kind, "PATCH", path, &config.to_string());
        let mut expected = labels;
        json_patch::merge(&mut expected, &named);
        assert_eq!(applied["metadata"]["labels"], expected);
    }
}

#[test]
fn a_map_goes_with_its_last_applied_member() {
    let rig = Rig::new();
    let mut config = full_config(1);
    let resources = json!({"limits": {"cpu": "1"}});
    config["metadata"]["annotations"] = json!({"a": "1"});
    config["spec"]["template"]["spec"] = json!({
        "affinity": {"nodeAffinity": {}},
        "containers": [{
            "name": "c", "image": "i", "resources": resources,
            "livenessProbe": {"httpGet": {"port": 80}},
        }],
    });
    assert_eq!(rig.apply("fieldManager=m", &config).0, 201);
    let (code, applied) = rig.apply("fieldManager=m", &full_config(1));
    assert_eq!(
        (code, &applied["metadata"]["annotations"]),
        (200, &Value::Null)
    );
    let spec = &applied["spec"]["template"]["spec"];
    assert_eq!(spec["containers"][0]["resources"], json!({}));
    assert_eq!(spec["affinity"], Value::Null);
    assert_eq!(spec["containers"][0]["livenessProbe"], Value::Null);
}

#[test]
fn maps_that_are_one_value_are_replaced() {
    let rig = Rig::new();
    let with = |selector: Value| {
        let mut config = full_config(1);
        config["spec"]["template"]["spec"]["nodeSelector"] = selector;
        rig.apply("fieldManager=m", &config).1["spec"]["template"]["spec"].clone()
    };
    with(json!({"a": "1"}));
    let spec = with(json!({"b": "1"}));
    assert_eq!(spec["nodeSelector"], json!({"b": "1"}));
}

#[test]
fn a_dropped_empty_map_keeps_what_others_added() {
    let rig = Rig::new();
    let mut config = full_config(1);
    config["metadata"]["annotations"] = json!({});
    rig.apply("fieldManager=m", &config);
    let patch = json!({"metadata": {"annotations": {"other": "1"}}});
    assert_eq!(rig.patch(WEB, &patch).0, 200);
    let (_, applied) = rig.apply("fieldManager=m", &full_config(1));
    assert_eq!(applied["metadata"]["annotations"], json!({"other": "1"}));
}

#[test]
fn conflicts_are_reported_and_force_takes_over() {
    let rig = Rig::new();
    rig.apply("fieldManager=m", &full_config(2));
    let scale = json!({"spec": {"replicas": 5}});
    let path = format!("{WEB}/scale?fieldManager=kubectl");
    let merge = "application/merge-patch+json";
    assert_eq!(
        rig.send_as(merge, "PATCH", &path, &scale.to_string()).0,
        200
    );
    let response = rig.apply("fieldManager=m", &full_config(2));
    let manager = "conflict with \"kubectl\" with subresource \"scale\" using apps/v1";
    let message = format!("Apply failed with 1 conflict: {manager}: .spec.replicas");
    check_error(&response, 409, "Conflict", &message);
    let cause = json!({
        "reason": "FieldManagerConflict", "message": manager, "field": ".spec.replicas",
    });
    assert_eq!(response.1["details"]["causes"], json!([cause]));
    let (code, forced) = rig.apply("fieldManager=m&force=true", &full_config(2));
    assert_eq!((code, &forced["spec"]["replicas"]), (200, &json!(2)));
    let image = json!({"name": "c", "image": "other"});
    let both = json!({"replicas": 8, "template": {"spec": {"containers": [image]}}});
    let response = rig.apply("fieldManager=n", &config(&both));
    let message = "Apply failed with 2 conflicts: conflicts with \"m\":\n- .spec.replicas\n- \
                   .spec.template.spec.containers[name=\"c\"].image";
    check_error(&response, 409, "Conflict", message);
}

#[test]
fn each_writer_of_an_applied_object_has_an_entry() {
    let rig = Rig::new();
    rig.apply("fieldManager=m", &full_config(2));
    let merge = "application/merge-patch+json";
    let patch = |path: &str, body: Value| {
        let path = format!("{WEB}{path}?fieldManager=controller");
        let (code, changed) = rig.send_as(merge, "PATCH", &path, &body.to_string());
        assert_eq!(code, 200, "{changed}");
        changed
    };
    for revision in ["1", "2"] {
        patch(
            "",
            json!({"metadata": {"annotations": {"revision": revision}}}),
        );
    }
    patch("", json!({"metadata": {"annotations": {"other": "1"}}}));
    // A Deployment controller writes both at once.
    let of_status = json!({"metadata": {"labels": {"l": "1"}}, "status": {"replicas": 2}});
    let changed = patch("/status", of_status);
    let entries = changed["metadata"]["managedFields"]
        .as_array()
        .expect("a list");
    let seen: Vec<_> = entries
        .iter()
        .map(|entry| (&entry["manager"], &entry["subresource"]))
        .collect();
    let (m, controller) = (json!("m"), json!("controller"));
    let (none, status) = (Value::Null, json!("status"));
    assert_eq!(
        seen,
        [(&m, &none), (&controller, &none), (&controller, &status)]
    );
    let own = json!({"f:annotations": {"f:other": {}, "f:revision": {}}});
    assert_eq!(entries[1]["fieldsV1"], json!({"f:metadata": own}));
    let own = json!({"f:metadata": {"f:labels": {"f:l": {}}}, "f:status": {"f:replicas": {}}});
    assert_eq!(entries[2]["fieldsV1"], own);
    let mut config = full_config(2);
    config["metadata"]["annotations"] = json!({"revision": "0"});
    let message = "Apply failed with 1 conflict: conflict with \"controller\" using apps/v1: \
                   .metadata.annotations.revision";
    check_error(
        &rig.apply("fieldManager=m", &config),
        409,
        "Conflict",
        message,
    );
}

#[test]
fn invalid_applies_are_rejected() {
    let rig = Rig::new();
    let response = rig.apply("", &full_config(1));
    let message = "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is \
                   required for apply patch";
    check_error(&response, 422, "Invalid", message);
    let mut wrong = full_config(1);
    wrong["kind"] = json!("Pod");
    let message = "invalid object type: apps/v1, Kind=Pod";
    check_error(
        &rig.apply("fieldManager=m", &wrong),
        400,
        "BadRequest",
        message,
    );
    let mut managed = full_config(1);
    managed["metadata"]["managedFields"] = json!([{}]);
    assert_eq!(rig.apply("fieldManager=m", &managed).0, 400);
    let yaml = "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: web}\nspec: {replicas: 1}";
    let kind = "application/apply-patch+yaml";
    let path = format!("{WEB}?fieldManager=m");
    assert_eq!(rig.send_as(kind, "PATCH", &path, yaml).0, 422);
    assert_eq!(rig.send_as(kind, "PATCH", &path, "{").0, 400);
}

#[test]
fn json_patches_are_atomic() {
    let rig = Rig::new();
    rig.create_replica_set("web", 1);
    let send = |patch: &Value| {
        rig.send_as(
            "application/json-patch+json",
            "PATCH",
            WEB,
            &patch.to_string(),
        )
    };
    let good = json!([
        {"op": "test", "path": "/kind", "value": "ReplicaSet"},
        {"op": "test", "path": "/spec/replicas", "value": 1},
        {"op": "replace", "path": "/spec/replicas", "value": 3},
        {"op": "add", "path": "/metadata/labels", "value": {"x": "y"}},
    ]);
    let (code, web) = send(&good);
    assert_eq!((code, &web["spec"]["replicas"]), (200, &json!(3)));
    let message = "the server rejected our request due to an error in our request";
    check_error(&send(&good), 422, "Invalid", message);
    check_error(
        &send(&json!([{"op": "remove", "path": ""}])),
        422,
        "Invalid",
        message,
    );
    assert_eq!(send(&json!({})).0, 400);
    let shapeless = json!([{"op": "replace", "path": "/spec/replicas", "value": "x"}]);
    let (code, response) = send(&shapeless);
    assert_eq!(
        (code, &response["details"]["causes"][0]["field"]),
        (422, &json!("patch"))
    );
    assert_eq!(rig.get(WEB).1, web);
}

#[test]
fn malformed_objects_are_rejected_by_field() {
    let rig = Rig::new();
    let mut set = replica_set("x", 1);
    set["spec"]["replicas"] = json!("x");
    let message = "ReplicaSet in version \"v1\" cannot be handled as a ReplicaSet: json: cannot \
                   unmarshal string into Go struct field ReplicaSetSpec.spec.replicas of type \
                   int32";
    check_error(
        &rig.send("POST", REPLICA_SETS, &set),
        400,
        "BadRequest",
        message,
    );
    let mut set = replica_set("x", 1);
    set["metadata"]["labels"] = json!({"a b": "c", "d": "e f"});
    let (code, response) = rig.send("POST", REPLICA_SETS, &set);
    let causes = response["details"]["causes"].as_array().map(Vec::len);
    assert_eq!((code, causes), (422, Some(2)));
    assert_eq!(
        response["details"]["causes"][0]["field"],
        json!("metadata.labels")
    );
    let mut nested = json!({});
    for _ in 0..110 {
        nested = json!({"n": nested});
    }
    let mut set = replica_set("x", 1);
    set["spec"]["template"]["spec"]["deep"] = nested;
    assert_eq!(rig.send("POST", REPLICA_SETS, &set).0, 400);
    for query in [
        "limit=x",
        "labelSelector=a%20b",
        "labelSelector=A_%2Fb%3Dc",
        "watch=1&timeoutSeconds=x",
    ] {
        let response = rig.get(&format!("{PODS}?{query}"));
        assert_eq!(
            (response.0, &response.1["reason"]),
            (400, &json!("BadRequest")),
            "{query}"
        );
    }
    let policy = json!({"propagationPolicy": "x"});
    assert_eq!(rig.delete(&format!("{REPLICA_SETS}/x"), &policy).0, 422);
}

/// A patch merge holds the store's lock against all clients, so its time must not be quadratic:
/// ten times the entries would then take a hundred times as long.
#[test]
fn large_patches_do_not_take_quadratic_time() {
    let few = cpu_time_of_patches(600, 1_000);
    let many = cpu_time_of_patches(6_000, 10_000);
    assert!(many < few * 40, "{few:?}, ten times as many {many:?}");
}

#[test]
fn a_patch_beyond_the_list_limit_is_rejected() {
    let rig = Rig::new();
    assert_eq!(rig.apply("fieldManager=m", &full_config(0)).0, 201);
    let finalizers: Vec<String> = (0..10_000).map(|i| format!("x/{i}")).collect();
    let patch = json!({"metadata": {"finalizers": finalizers}});
    assert_eq!(rig.patch(WEB, &patch).0, 200);
    let (code, rejected) = rig.patch(
        WEB,
        &json!({"metadata": {"finalizers": vec!["x/y"; 10_001]}}),
    );
    assert_eq!(
        (code, &rejected["reason"]),
        (422, &json!("Invalid")),
        "{rejected}"
    );
}

/// The CPU time to apply and patch `n` containers and `n_finalizers` finalizers.
fn cpu_time_of_patches(n: usize, n_finalizers: usize) -> Duration {
    let api = new_api();
    let patch = |content_type: &str, query: &[(&str, &str)], body: &Value| -> (u16, Value) {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let response = api.handle(ApiRequest {
            method: "PATCH".to_owned(),
            path: WEB.to_owned(),
            query: query.iter().map(pair).collect(),
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            body: body.to_string().into_bytes(),
            ..ApiRequest::default()
        });
        let ResponseBody::Whole(body) = response.body else {
            panic!("a stream")
        };
        (response.code, serde_json::from_slice(&body).expect("JSON"))
    };
    let apply = |query: &[(&str, &str)], config: &Value| {
        patch("application/apply-patch+yaml", query, config)
    };
    let merge = |body: &Value| patch("application/strategic-merge-patch+json", &[], body).0;
    let containers = |n: usize, image: &str| -> Value {
        let container = |i| json!({"name": format!("c{i}"), "image": image});
        (0..n).map(container).collect()
    };
    let with = |containers: Value| {
        let mut object = full_config(0);
        object["spec"]["template"]["spec"]["containers"] = containers;
        object
    };
    let began = thread_time();
    let manager = ("fieldManager", "m");
    assert_eq!(apply(&[manager], &with(containers(n, "x"))).0, 201);
    let spec = json!({"template": {"spec": {"containers": containers(n, "y")}}});
    assert_eq!(merge(&json!({"spec": spec})), 200);
    let fewer = with(containers(n / 2, "z"));
    let (code, applied) = apply(&[manager, ("force", "true")], &fewer);
    assert_eq!(code, 200);
    let remaining = applied.pointer("/spec/template/spec/containers");
    assert_eq!(
        remaining.and_then(Value::as_array).map(Vec::len),
        Some(n / 2)
    );
    let finalizers: Vec<String> = (0..n_finalizers).map(|i| format!("x/{i}")).collect();
    for _ in 0..2 {
        assert_eq!(merge(&json!({"metadata": {"finalizers": finalizers}})), 200);
    }
    thread_time().saturating_sub(began)
}
