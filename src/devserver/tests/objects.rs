//! Creates: names, defaults, admission, error texts.

use serde_json::{Value, json};

use super::rig::{PODS, REPLICA_SETS, Rig, check_error, pod, replica_set, uid, version};

#[test]
fn a_pod_gets_its_name_and_defaults() {
    let rig = Rig::new();
    let mut pod = pod("");
    pod["metadata"] = json!({"generateName": "web-", "labels": {"app": "web"}});
    let created = rig.ok("POST", PODS, &pod);
    let name = created["metadata"]["name"].as_str().expect("a name");
    assert!(name.starts_with("web-") && name.len() == 9, "{name}");
    assert_eq!(created["metadata"]["generation"], json!(1));
    assert_eq!(created["metadata"]["namespace"], json!("default"));
    assert_eq!(
        created["status"],
        json!({"phase": "Pending", "qosClass": "BestEffort"})
    );
    let spec = &created["spec"];
    assert_eq!(spec["serviceAccountName"], json!("default"));
    assert_eq!(spec["serviceAccount"], json!("default"));
    assert_eq!(spec["restartPolicy"], json!("Always"));
    assert_eq!(spec["terminationGracePeriodSeconds"], json!(30));
    assert_eq!(
        spec["containers"][0]["imagePullPolicy"],
        json!("IfNotPresent")
    );
    assert_eq!(rig.get(&format!("{PODS}/{name}")), (200, created));
}

#[test]
fn a_second_create_of_a_name_already_exists() {
    let rig = Rig::new();
    let mut pod = pod("web-abcde");
    pod["metadata"]["generateName"] = json!("web-");
    let created = rig.ok("POST", PODS, &pod);
    assert_eq!(created["metadata"]["name"], json!("web-abcde"));
    assert_eq!(created["metadata"]["generateName"], json!("web-"));
    let again = rig.send("POST", PODS, &pod);
    check_error(
        &again,
        409,
        "AlreadyExists",
        "pods \"web-abcde\" already exists",
    );
    assert_eq!(
        again.1["details"],
        json!({"name": "web-abcde", "kind": "pods"})
    );
}

#[test]
fn an_unknown_field_of_a_template_survives() {
    let rig = Rig::new();
    let mut replica_set = replica_set("web", 2);
    replica_set["spec"]["template"]["spec"]["fromTheFuture"] = json!({"deep": [1, null]});
    let created = rig.ok("POST", REPLICA_SETS, &replica_set);
    let unknown = &created["spec"]["template"]["spec"]["fromTheFuture"];
    assert_eq!(unknown["deep"], json!([1, null]));
    assert_eq!(created["status"], json!({"replicas": 0}));
    replica_set["metadata"]["name"] = json!("one");
    replica_set["spec"]["replicas"] = Value::Null;
    let one = rig.ok("POST", REPLICA_SETS, &replica_set);
    assert_eq!(one["spec"]["replicas"], json!(1));
}

#[test]
fn missing_objects_and_paths_are_not_found() {
    let rig = Rig::new();
    let found = rig.get(&format!("{REPLICA_SETS}/nope"));
    check_error(
        &found,
        404,
        "NotFound",
        "replicasets.apps \"nope\" not found",
    );
    let details = json!({"name": "nope", "group": "apps", "kind": "replicasets"});
    assert_eq!(found.1["details"], details);
    let found = rig.send("POST", "/api/v1/namespaces/missing/pods", &pod("p"));
    check_error(&found, 404, "NotFound", "namespaces \"missing\" not found");
    assert_eq!(rig.get("/api/v1/nonsense").0, 404);
    assert_eq!(rig.get("/nonsense").0, 404);
    assert_eq!(rig.get("/healthz"), (200, json!("ok")));
}

#[test]
fn a_pod_needs_its_account_and_priority_class() {
    let rig = Rig::new();
    let mut bad = pod("bad");
    bad["spec"]["serviceAccountName"] = json!("nope");
    let why = "pods \"bad\" is forbidden: error looking up service account default/nope: \
               serviceaccount \"nope\" not found";
    check_error(&rig.send("POST", PODS, &bad), 403, "Forbidden", why);
    bad["spec"]["serviceAccountName"] = json!("default");
    bad["spec"]["priorityClassName"] = json!("nope");
    let why = "pods \"bad\" is forbidden: no PriorityClass with name nope was found";
    check_error(&rig.send("POST", PODS, &bad), 403, "Forbidden", why);
    bad["spec"]["priorityClassName"] = json!("system-node-critical");
    let created = rig.ok("POST", PODS, &bad);
    // Most of a pod cannot change, but its image can.
    let path = format!("{PODS}/bad");
    let mut blank = created;
    blank["spec"]["containers"][0]["image"] = json!("");
    let why = "Pod \"bad\" is invalid: spec.containers[0].image: Required value";
    check_error(&rig.send("PUT", &path, &blank), 422, "Invalid", why);
}

#[test]
fn invalid_objects_are_rejected_field_by_field() {
    let rig = Rig::new();
    let mut bad = pod("bad");
    bad["spec"]["containers"] = json!([{"name": "C!", "image": ""}]);
    let response = rig.send("POST", PODS, &bad);
    let rule = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or \
                '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or \
                '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    let message = format!(
        "Pod \"bad\" is invalid: [spec.containers[0].name: Invalid value: \"C!\": {rule}, \
         spec.containers[0].image: Required value]"
    );
    check_error(&response, 422, "Invalid", &message);
    let cause = &response.1["details"]["causes"][1];
    let expected = json!({
        "reason": "FieldValueRequired", "message": "Required value",
        "field": "spec.containers[0].image",
    });
    assert_eq!(cause, &expected);
    let mut mismatch = replica_set("web", 1);
    mismatch["spec"]["selector"] = json!({"matchLabels": {"app": "other"}});
    let (code, response) = rig.send("POST", REPLICA_SETS, &mismatch);
    assert_eq!(code, 422);
    let message = response["message"].as_str().expect("a message");
    assert!(
        message.contains("`selector` does not match template `labels`"),
        "{message}"
    );
    assert_eq!(rig.send("POST", REPLICA_SETS, &replica_set("n", -1)).0, 422);
}

#[test]
fn g_09_a_terminating_namespace_accepts_no_objects() {
    let rig = Rig::new();
    let namespace = json!({"metadata": {"name": "doomed"}});
    let created = rig.ok("POST", "/api/v1/namespaces", &namespace);
    assert_eq!(created["status"]["phase"], json!("Active"));
    let deleted = rig.delete("/api/v1/namespaces/doomed", &json!({})).1;
    assert_eq!(deleted["status"]["phase"], json!("Terminating"));
    let mut pod = pod("");
    pod["metadata"] = json!({"generateName": "x-"});
    let response = rig.send("POST", "/api/v1/namespaces/doomed/pods", &pod);
    let message = "pods \"x-\" is forbidden: unable to create new content in namespace doomed \
                   because it is being terminated";
    check_error(&response, 403, "Forbidden", message);
    let causes = json!([{
        "reason": "NamespaceTerminating", "message": "namespace doomed is being terminated",
        "field": "metadata.namespace",
    }]);
    assert_eq!(response.1["details"]["causes"], causes);
    assert_eq!(rig.delete("/api/v1/namespaces/default", &json!({})).0, 403);
}

#[test]
fn n_03_a_pod_quota_is_enforced() {
    let rig = Rig::new();
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}});
    let path = "/api/v1/namespaces/default/resourcequotas";
    let created = rig.ok("POST", path, &quota);
    assert_eq!(
        created["status"],
        json!({"hard": {"pods": "2"}, "used": {"pods": "0"}})
    );
    rig.create_pod("a");
    let failed = rig.create_pod("b");
    let response = rig.send("POST", PODS, &pod("c"));
    let message = "pods \"c\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, \
                   limited: pods=2";
    check_error(&response, 403, "Forbidden", message);
    let status = json!({"metadata": failed["metadata"], "status": {"phase": "Failed"}});
    rig.ok("PUT", &format!("{PODS}/b/status"), &status);
    rig.create_pod("c");
    let quota = rig.get(&format!("{path}/q")).1;
    assert_eq!(quota["status"]["used"]["pods"], json!("2"));
}

#[test]
fn malformed_and_oversized_bodies_are_rejected() {
    let rig = Rig::new();
    let json = "application/json";
    assert_eq!(rig.send_as(json, "POST", PODS, "{").0, 400);
    assert_eq!(rig.send_as(json, "POST", PODS, "[]").0, 400);
    assert_eq!(rig.send_as("text/yaml", "POST", PODS, "{}").0, 415);
    assert_eq!(rig.send("POST", PODS, &replica_set("web", 1)).0, 400);
    let huge = format!("\"{}\"", "x".repeat(3 * 1024 * 1024));
    assert_eq!(rig.send_as(json, "POST", PODS, &huge).0, 413);
    assert_eq!(rig.send_as(json, "PROPFIND", PODS, "").0, 405);
}

#[test]
fn events_and_leases_are_stored_as_sent() {
    let rig = Rig::new();
    let path = "/api/v1/namespaces/default/events";
    let event = json!({
        "metadata": {"name": "web.1"}, "involvedObject": {"kind": "ReplicaSet", "name": "web"},
        "count": 1, "firstTimestamp": "2026-01-01T00:00:00Z", "message": "m",
    });
    let created = rig.ok("POST", path, &event);
    let (code, patched) = rig.patch(&format!("{path}/web.1"), &json!({"count": 2}));
    assert_eq!((code, &patched["count"]), (200, &json!(2)));
    assert!(version(&patched) > version(&created));
    let selector = format!("{path}?fieldSelector=involvedObject.name=web");
    assert_eq!(
        rig.get(&selector).1["items"][0]["metadata"]["uid"],
        json!(uid(&created))
    );
    let none = format!("{path}?fieldSelector=involvedObject.name=other");
    assert_eq!(rig.get(&none).1["items"], json!([]));

    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let time = "2026-01-01T00:00:00.123456Z";
    let lease = json!({
        "metadata": {"name": "l"}, "spec": {"holderIdentity": "a", "renewTime": time},
    });
    let mut lease = rig.ok("POST", path, &lease);
    assert_eq!(lease["spec"]["renewTime"], json!(time));
    lease["spec"]["holderIdentity"] = json!("b");
    let path = format!("{path}/l");
    rig.ok("PUT", &path, &lease);
    assert_eq!(rig.send("PUT", &path, &lease).0, 409);
    lease["metadata"]["resourceVersion"] = Value::Null;
    assert_eq!(rig.send("PUT", &path, &lease).0, 422);
}

#[test]
fn kubectl_gets_tables() {
    let rig = Rig::new();
    rig.create_replica_set("web", 3);
    rig.create_pod("p");
    let tables = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let get = |path: &str| -> Value {
        let url = rig.server.url() + path;
        let mut response = ureq::get(url)
            .header("accept", tables)
            .call()
            .expect("a table");
        let text = response
            .body_mut()
            .read_to_string()
            .expect("a whole response");
        serde_json::from_str(&text).expect("JSON")
    };
    let table = get(REPLICA_SETS);
    assert_eq!(table["kind"], json!("Table"));
    assert_eq!(table["columnDefinitions"][1]["name"], json!("Desired"));
    let cells = table["rows"][0]["cells"].as_array().expect("cells");
    assert_eq!(cells[..4], [json!("web"), json!(3), json!(0), json!(0)]);
    let pod = get(&format!("{PODS}/p"));
    let cells = pod["rows"][0]["cells"].as_array().expect("cells");
    assert_eq!(cells[..3], [json!("p"), json!("0/1"), json!("Pending")]);
}

#[test]
fn strict_validation_rejects_unknown_fields() {
    let rig = Rig::new();
    let mut typo = replica_set("web", 2);
    typo["spec"]["replica"] = json!(3);
    typo["spec"]["template"]["spec"]["containers"][0]["imagee"] = json!("x");
    let rejected = rig.send(
        "POST",
        &format!("{REPLICA_SETS}?fieldValidation=Strict"),
        &typo,
    );
    check_error(
        &rejected,
        400,
        "BadRequest",
        "ReplicaSet in version \"v1\" cannot be handled as a ReplicaSet: strict decoding error: \
         unknown field \"spec.replica\", unknown field \"spec.template.spec.containers[0].imagee\"",
    );
    for validation in ["", "&fieldValidation=Warn", "&fieldValidation=Ignore"] {
        let (code, _) = rig.send(
            "POST",
            &format!("{REPLICA_SETS}?dryRun=All{validation}"),
            &typo,
        );
        assert_eq!(code, 201, "{validation}");
    }
}

#[test]
fn strict_validation_rejects_patches_with_unknown_fields() {
    let rig = Rig::new();
    let mut old = replica_set("web", 2);
    old["spec"]["before"] = json!(1);
    rig.ok("POST", REPLICA_SETS, &old);
    let web = format!("{REPLICA_SETS}/web?fieldValidation=Strict");
    for media_type in ["merge-patch", "strategic-merge-patch"] {
        let media_type = format!("application/{media_type}+json");
        let patch = |patch: &Value| rig.send_as(&media_type, "PATCH", &web, &patch.to_string());
        let (code, error) = patch(&json!({"spec": {"bogus": 1}}));
        assert_eq!((code, &error["reason"]), (422, &json!("Invalid")));
        let message = error["message"].as_str().unwrap_or_default();
        let expected = "strict decoding error: unknown field \"spec.bogus\"";
        assert!(message.ends_with(expected), "{message}");
        let (code, _) = patch(&json!({"spec": {"replicas": 3}}));
        assert_eq!(code, 200, "what was there before is not the patch's");
    }
    let apply = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": "web"}, "spec": {"bogus": 1},
    });
    let path = format!("{REPLICA_SETS}/web?fieldManager=me");
    let media_type = "application/apply-patch+yaml";
    let (code, error) = rig.send_as(media_type, "PATCH", &path, &apply.to_string());
    assert_eq!(code, 500);
    assert_eq!(
        error["message"],
        json!(
            "failed to create typed patch object (/web; apps/v1, Kind=ReplicaSet): .spec.bogus: \
             field not declared in schema"
        )
    );
}

#[test]
fn unknown_fields_cause_warnings() {
    let rig = Rig::new();
    let mut typo = replica_set("web", 2);
    typo["spec"]["replica"] = json!(3);
    typo["zzz"] = json!(1);
    let warnings = rig.warnings("POST", REPLICA_SETS, &typo);
    assert_eq!(
        warnings,
        [
            r#"299 - "unknown field \"spec.replica\"""#,
            r#"299 - "unknown field \"zzz\"""#
        ]
    );
    let other = format!("{REPLICA_SETS}?fieldValidation=Ignore");
    typo["metadata"]["name"] = json!("other");
    assert_eq!(rig.warnings("POST", &other, &typo), [""; 0]);
}

#[test]
fn a_deletion_cost_must_be_a_number() {
    let rig = Rig::new();
    let name = "controller.kubernetes.io/pod-deletion-cost";
    let field = format!("metadata.annotations[{name}]");
    for cost in ["abc", "+1", "01", "2147483648", "", " 1"] {
        let mut pod = pod("a");
        pod["metadata"]["annotations"] = json!({name: cost});
        let why = format!("Invalid value: {}: must be a 32bit integer", json!(cost));
        let message = format!("Pod \"a\" is invalid: {field}: {why}");
        check_error(&rig.send("POST", PODS, &pod), 422, "Invalid", &message);
    }
    for (index, cost) in ["0", "-0", "-7", "2147483647"].into_iter().enumerate() {
        let mut pod = pod(&format!("fine-{index}"));
        pod["metadata"]["annotations"] = json!({name: cost});
        rig.ok("POST", PODS, &pod);
    }
    let patch = json!({"metadata": {"annotations": {name: "x"}}}).to_string();
    let (path, media_type) = (format!("{PODS}/fine-0"), "application/merge-patch+json");
    let (code, error) = rig.send_as(media_type, "PATCH", &path, &patch);
    assert_eq!(code, 422);
    assert_eq!(error["details"]["causes"].as_array().map(Vec::len), Some(2));
    let mut template = replica_set("web", 1);
    template["spec"]["template"]["metadata"]["annotations"] = json!({name: "x"});
    let rejected = rig.send("POST", REPLICA_SETS, &template);
    let message = format!(
        "ReplicaSet.apps \"web\" is invalid: spec.template.annotations[{name}]: Invalid value: \
         \"x\": must be a 32bit integer"
    );
    check_error(&rejected, 422, "Invalid", &message);
}
