//! Kinds that the server only stores, and what it says about those that it lacks.

use serde_json::{Value, json};

use super::rig::{PODS, REPLICA_SETS, Rig, names, owner, replica_set, uid};
use crate::DevServerOptions;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const SERVICES: &str = "/api/v1/namespaces/default/services";

fn deployment(name: &str) -> Value {
    let mut deployment = replica_set(name, 3);
    deployment["kind"] = json!("Deployment");
    deployment
}

#[test]
fn a_deployment_has_defaults_status_and_scale() {
    let rig = Rig::new();
    let warnings = rig.warnings("POST", DEPLOYMENTS, &deployment("web"));
    let warning = "299 - \"the dev server stores deployments but runs no controller for them\"";
    assert_eq!(warnings, [warning]);
    let path = format!("{DEPLOYMENTS}/web");
    let created = rig.get(&path).1;
    assert_eq!(created["metadata"]["generation"], json!(1));
    let strategy = &created["spec"]["strategy"]["rollingUpdate"];
    assert_eq!(strategy["maxSurge"], json!("25%"));
    assert_eq!(created["status"], json!({}));

    let status = json!({"spec": {"replicas": 9}, "status": {"readyReplicas": 2}});
    assert_eq!(rig.patch(&format!("{path}/status"), &status).0, 200);
    let scale = json!({"spec": {"replicas": 5}, "status": {"replicas": 7}});
    let (code, scaled) = rig.patch(&format!("{path}/scale"), &scale);
    assert_eq!((code, &scaled["spec"]["replicas"]), (200, &json!(5)));
    assert_eq!(scaled["status"]["selector"], json!("app=web"));
    let changed = rig.get(&path).1;
    assert_eq!(changed["spec"]["replicas"], json!(5));
    assert_eq!(changed["status"], json!({"readyReplicas": 2}));
    assert_eq!(changed["metadata"]["generation"], json!(2));
    let table = rig.table(DEPLOYMENTS);
    assert_eq!(table["columnDefinitions"][1]["name"], json!("Ready"));
    assert_eq!(table["rows"][0]["cells"][1], json!("2/5"));
}

#[test]
fn a_deployment_is_validated_as_a_replica_set() {
    let rig = Rig::new();
    let mut mismatched = deployment("web");
    mismatched["spec"]["selector"]["matchLabels"] = json!({"app": "other"});
    let (code, error) = rig.send("POST", DEPLOYMENTS, &mismatched);
    let message = error["message"].as_str().unwrap_or_default();
    assert_eq!(code, 422);
    assert!(message.contains("`selector` does not match"), "{message}");
    let mut wrong = deployment("web");
    wrong["spec"] = json!("text");
    assert_eq!(rig.send("POST", DEPLOYMENTS, &wrong).0, 400);
}

/// A Deployment rolls out forever if its template differs from that of the ReplicaSet it makes.
#[test]
fn a_replica_set_keeps_the_template_of_its_deployment() {
    let rig = Rig::new();
    let expected = rig.ok("POST", DEPLOYMENTS, &deployment("web"))["spec"]["template"].take();
    for (index, (pointer, member, value)) in [
        ("/spec/containers/0", "resources", json!(null)),
        ("/spec/containers/0", "imagePullPolicy", json!(null)),
        ("/spec/containers/0", "imagePullPolicy", json!("")),
        ("/spec/containers/0", "terminationMessagePath", json!("")),
        ("/spec/containers/0", "terminationMessagePolicy", json!("")),
        ("/spec/containers/0", "env", json!(null)),
        ("/spec", "securityContext", json!(null)),
        ("/spec", "terminationGracePeriodSeconds", json!(null)),
        ("/spec", "dnsPolicy", json!(null)),
        ("/spec", "dnsPolicy", json!("")),
        ("/spec", "restartPolicy", json!("")),
        ("/spec", "schedulerName", json!("")),
        ("/metadata", "annotations", json!(null)),
        ("/metadata", "creationTimestamp", json!(null)),
    ]
    .into_iter()
    .enumerate()
    {
        for (way, media_type) in ["json", "apply-patch+yaml"].into_iter().enumerate() {
            let name = format!("o{index}-{way}");
            let mut sent = deployment("web");
            sent["metadata"]["name"] = json!(name);
            let part = sent["spec"]["template"].pointer_mut(pointer);
            part.expect("a map")[member] = value.clone();
            let media_type = format!("application/{media_type}");
            let (method, path) = match way {
                0 => ("POST", DEPLOYMENTS.to_owned()),
                _ => ("PATCH", format!("{DEPLOYMENTS}/{name}?fieldManager=m")),
            };
            let (code, created) = rig.send_as(&media_type, method, &path, &sent.to_string());
            assert_eq!(code, 201, "{created}");
            assert_eq!(created["spec"]["template"], expected, "{member}: {value}");
        }
    }
    let mut sent = deployment("volumes");
    sent["spec"]["template"]["spec"]["volumes"] = json!([{"name": "a", "emptyDir": null}]);
    let template = rig.ok("POST", DEPLOYMENTS, &sent)["spec"]["template"].take();
    let volume = json!({"name": "a", "emptyDir": {}});
    assert_eq!(template["spec"]["volumes"], json!([volume]));
    let mut set = replica_set("volumes", 1);
    set["spec"]["template"] = template.clone();
    let set = rig.ok("POST", REPLICA_SETS, &set);
    assert_eq!(set["spec"]["template"], template);
}

/// The pods of a Job do not restart always, which is the default.
#[test]
fn a_job_needs_a_restart_policy() {
    let rig = Rig::new();
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    for (policy, code) in [
        (json!(null), 422),
        (json!(""), 422),
        (json!("Always"), 422),
        (json!("Never"), 201),
    ] {
        let mut spec = super::rig::pod("p")["spec"].take();
        spec["restartPolicy"] = policy.clone();
        let job = json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": spec}}});
        assert_eq!(rig.send("POST", jobs, &job).0, code, "{policy}");
    }
}

#[test]
fn empty_texts_of_a_pod_are_missing() {
    let rig = Rig::new();
    let expected = rig.create_pod("a")["spec"].take();
    let mut sent = super::rig::pod("b");
    for name in ["restartPolicy", "dnsPolicy", "schedulerName"] {
        sent["spec"][name] = json!("");
    }
    for name in [
        "imagePullPolicy",
        "terminationMessagePath",
        "terminationMessagePolicy",
    ] {
        sent["spec"]["containers"][0][name] = json!("");
    }
    assert_eq!(rig.ok("POST", PODS, &sent)["spec"], expected);
}

#[test]
fn config_maps_and_secrets_are_listed_watched_and_patched() {
    let rig = Rig::new();
    let mut watch = rig.watch("/api/v1/configmaps", "resourceVersion=0");
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = json!({"metadata": {"name": "m", "labels": {"a": "b"}}, "data": {"k": "v"}});
    let created = rig.ok("POST", maps, &map);
    assert_eq!(created["metadata"].get("generation"), None);
    assert!(watch.brief().starts_with("ADDED m "));
    assert_eq!(rig.send("POST", maps, &map).0, 409);
    let patch = json!({"data": {"k": null, "l": "w"}});
    let (_, patched) = rig.patch(&format!("{maps}/m"), &patch);
    assert_eq!(patched["data"], json!({"l": "w"}));
    assert!(watch.brief().starts_with("MODIFIED m "));
    assert_eq!(
        names(&rig.get(&format!("{maps}?labelSelector=a%3Db")).1),
        ["m"]
    );
    assert_eq!(
        names(&rig.get(&format!("{maps}?labelSelector=a%3Dc")).1),
        [""; 0]
    );
    let bad = json!({"metadata": {"name": "bad"}, "data": {"k": 1}});
    assert_eq!(rig.send("POST", maps, &bad).0, 400);
    assert_eq!(rig.delete(&format!("{maps}/m"), &json!({})).0, 200);
    assert!(watch.brief().starts_with("DELETED m "));

    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"k": "v"}});
    let created = rig.ok("POST", secrets, &secret);
    assert_eq!(created["data"], json!({"k": "dg=="}));
    assert_eq!(created["type"], json!("Opaque"));
    let of_type = |kind: &str| rig.get(&format!("{secrets}?fieldSelector=type%3D{kind}")).1;
    assert_eq!(names(&of_type("Opaque")), ["s"]);
    assert_eq!(names(&of_type("other")), [""; 0]);
}

#[test]
fn base64_is_read_and_stored_as_go_does() {
    let rig = Rig::new();
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let namespaced = |plural: &str| format!("/api/v1/namespaces/default/{plural}");
    for (index, (text, stored)) in [
        ("QUJD\nREVG\n", Some("QUJDREVG")),
        ("QUJD\r\nREVG", Some("QUJDREVG")),
        ("YWJ=", Some("YWI=")),
        ("YWI", None),
        ("YW I=", None),
    ]
    .into_iter()
    .enumerate()
    {
        let metadata = json!({"name": format!("o{index}")});
        let hook = json!({
            "name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://example.com", "caBundle": text},
        });
        for (path, object, pointer) in [
            (
                namespaced("secrets"),
                json!({"metadata": metadata, "data": {"a": text}}),
                "/data/a",
            ),
            (
                namespaced("configmaps"),
                json!({"metadata": metadata, "binaryData": {"a": text}}),
                "/binaryData/a",
            ),
            (
                hooks.to_owned(),
                json!({"metadata": metadata, "webhooks": [hook]}),
                "/webhooks/0/clientConfig/caBundle",
            ),
        ] {
            let (code, created) = rig.send("POST", &path, &object);
            assert_eq!(code, if stored.is_some() { 201 } else { 400 }, "{text:?}");
            let found = created.pointer(pointer).and_then(Value::as_str);
            assert_eq!(found, stored, "{text:?}");
        }
    }
}

#[test]
fn a_services_ports_merge_by_their_number() {
    let rig = Rig::new();
    let service = json!({
        "metadata": {"name": "web"},
        "spec": {"ports": [{"port": 80, "name": "http"}, {"port": 443, "name": "https"}]},
    });
    let created = rig.ok("POST", SERVICES, &service);
    let first = json!({"port": 80, "name": "http", "protocol": "TCP", "targetPort": 80});
    assert_eq!(created["spec"]["ports"][0], first);
    let patch = json!({"spec": {"ports": [{"port": 443, "name": "tls"}]}});
    let (_, patched) = rig.patch(&format!("{SERVICES}/web"), &patch);
    let ports = patched["spec"]["ports"].as_array().expect("ports");
    let of_443 = ports.iter().find(|port| port["port"] == json!(443));
    assert_eq!(ports.len(), 2);
    assert_eq!(of_443.expect("the port")["name"], json!("tls"));
}

#[test]
fn a_service_has_what_its_type_needs() {
    let rig = Rig::new();
    let rejected = |spec: Value| {
        let service = json!({"metadata": {"name": "s"}, "spec": spec});
        let path = "/api/v1/namespaces/default/services?dryRun=All";
        let (code, response) = rig.send("POST", path, &service);
        let message = response["message"].as_str().unwrap_or_default().to_owned();
        (code, message.split_once(": ").map(|it| it.1.to_owned()))
    };
    let because = |why: &str| (422, Some(why.to_owned()));
    assert_eq!(rejected(json!({})), because("spec.ports: Required value"));
    let external = json!({"type": "ExternalName"});
    assert_eq!(
        rejected(external),
        because("spec.externalName: Required value")
    );
    let two = json!({"ports": [{"port": 80, "name": "a"}, {"port": 81}]});
    assert_eq!(rejected(two), because("spec.ports[1].name: Required value"));
    assert_eq!(rejected(json!({"clusterIP": "None"})).0, 201);
}

#[test]
fn a_service_gets_addresses_and_keeps_them() {
    let rig = Rig::new();
    let service = json!({
        "metadata": {"name": "web"}, "spec": {
            "type": "NodePort", "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}],
        },
    });
    let created = rig.ok("POST", SERVICES, &service)["spec"].clone();
    let ip = created["clusterIP"].as_str().unwrap_or_default();
    assert!(ip.starts_with("10."), "{created}");
    assert_eq!(created["clusterIPs"], json!([ip]));
    let node_ports = |spec: &Value| [0, 1].map(|n| spec["ports"][n]["nodePort"].as_u64());
    let [a, b] = node_ports(&created).map(Option::unwrap_or_default);
    assert!((30000..32768).contains(&a) && a != b, "{created}");
    let (code, replaced) = rig.send("PUT", &format!("{SERVICES}/web"), &service);
    let replaced = &replaced["spec"];
    assert_eq!((code, &replaced["clusterIP"]), (200, &json!(ip)));
    assert_eq!(node_ports(replaced), [Some(a), Some(b)]);
    let path = format!("{SERVICES}/web");
    let mut other = service.clone();
    other["spec"]["ports"] = json!([{"name": "b", "port": 81}, {"name": "c", "port": 82}]);
    let (_, other) = rig.send("PUT", &path, &other);
    let [kept, added] = node_ports(&other["spec"]);
    assert!(
        kept == Some(b) && added.is_some() && added != kept,
        "{other}"
    );
    let (_, internal) = rig.patch(&path, &json!({"spec": {"type": "ClusterIP"}}));
    assert_eq!(node_ports(&internal["spec"]), [None, None]);
    let (code, error) = rig.patch(&path, &json!({"spec": {"clusterIP": "10.0.0.1"}}));
    let message = error["message"].as_str().unwrap_or_default();
    assert!(
        code == 422 && message.ends_with("may not change once set"),
        "{message}"
    );
    let by_name = json!({"spec": {"type": "ExternalName", "externalName": "example.invalid"}});
    let (code, by_name) = rig.patch(&path, &by_name);
    assert_eq!((code, by_name["spec"].get("clusterIP")), (200, None));
    let headless = json!({"metadata": {"name": "h"}, "spec": {"clusterIP": "None"}});
    let headless = rig.ok("POST", SERVICES, &headless);
    assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
    let external = json!({"type": "ExternalName", "externalName": "example.invalid"});
    let external = json!({"metadata": {"name": "e"}, "spec": external});
    let external = rig.ok("POST", SERVICES, &external);
    assert_eq!(external["spec"].get("clusterIP"), None);
    assert_eq!(external["spec"].get("internalTrafficPolicy"), None);
}

#[test]
fn immutable_data_stay_as_they_are() {
    let rig = Rig::new();
    for kind in ["configmaps", "secrets"] {
        let all = format!("/api/v1/namespaces/default/{kind}");
        let object = json!({"metadata": {"name": "o"}, "data": {"k": "dg=="}, "immutable": true});
        rig.ok("POST", &all, &object);
        let change = |patch: Value| {
            let (code, answer) = rig.patch(&format!("{all}/o"), &patch);
            (
                code,
                answer["message"].as_str().unwrap_or_default().to_owned(),
            )
        };
        let (code, message) = change(json!({"data": {"k": "dw=="}}));
        let why = "data: Forbidden: field is immutable when `immutable` is set";
        assert!(code == 422 && message.ends_with(why), "{message}");
        assert_eq!(change(json!({"immutable": false})).0, 422);
        assert_eq!(change(json!({"metadata": {"labels": {"a": "b"}}})).0, 200);
    }
    let secret = "/api/v1/namespaces/default/secrets/o";
    assert_eq!(rig.patch(secret, &json!({"type": "other"})).0, 422);
}

/// Clients that check types, such as Python's, reject an object without these.
#[test]
fn a_new_status_has_the_required_counts() {
    let rig = Rig::new();
    let new = |path: &str, spec: &Value| {
        let object = json!({"metadata": {"name": "a"}, "spec": spec});
        rig.ok("POST", path, &object)["status"].clone()
    };
    let of_pods = &replica_set("a", 1)["spec"];
    let set = new("/apis/apps/v1/namespaces/default/statefulsets", of_pods);
    assert_eq!(set["replicas"], json!(0));
    let daemons = new("/apis/apps/v1/namespaces/default/daemonsets", of_pods);
    for name in [
        "currentNumberScheduled",
        "desiredNumberScheduled",
        "numberMisscheduled",
    ] {
        assert_eq!(daemons[name], json!(0), "{name}");
    }
    assert_eq!(daemons["numberReady"], json!(0));
    let autoscalers = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let autoscaler = new(autoscalers, &json!({"maxReplicas": 2}));
    assert_eq!(autoscaler["desiredReplicas"], json!(0));
}

#[test]
fn names_of_roles_may_contain_colons() {
    let rig = Rig::new();
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    rig.ok("POST", roles, &json!({"metadata": {"name": "system:X"}}));
    assert_eq!(rig.get(&format!("{roles}/system:X")).0, 200);
    let bad = json!({"metadata": {"name": "a%b"}});
    assert_eq!(rig.send("POST", roles, &bad).0, 422);
}

#[test]
fn a_deployments_dependents_are_deleted_with_it() {
    let rig = Rig::with(&DevServerOptions {
        garbage_collection: true,
        ..DevServerOptions::default()
    });
    let path = format!("{DEPLOYMENTS}/web");
    let created = rig.ok("POST", DEPLOYMENTS, &deployment("web"));
    let mut owned = replica_set("web-1", 0);
    let mut reference = owner("web", &uid(&created));
    reference["kind"] = json!("Deployment");
    owned["metadata"]["ownerReferences"] = json!([reference]);
    rig.ok("POST", REPLICA_SETS, &owned);
    let foreground = json!({"propagationPolicy": "Foreground"});
    assert_eq!(rig.delete(&path, &foreground).0, 200);
    rig.collected(|rig| rig.get(&path).0 == 404);
    assert_eq!(rig.get(&format!("{REPLICA_SETS}/web-1")).0, 404);
}

#[test]
fn what_is_missing_is_named() {
    #[track_caller]
    fn check((code, status): (u16, Value), expected_code: u16, expected: &str) {
        let message = status["message"].as_str().unwrap_or_default();
        assert_eq!(code, expected_code, "{status}");
        assert!(message.contains(expected), "{message}");
    }
    let rig = Rig::new();
    rig.create_pod("p");
    let exec = rig.send("POST", &format!("{PODS}/p/exec"), &json!({}));
    check(exec, 405, "no command can run");
    check(
        rig.get("/apis/example.com/v1/foos"),
        404,
        "no group example.com",
    );
    check(rig.get("/apis/example.com/v1"), 404, "no group example.com");
    check(
        rig.get("/api/v1/foos"),
        404,
        "has no foos in v1; it has pods, ",
    );
    check(rig.get(&format!("{PODS}/p/resize")), 404, "pods/resize");
    assert_eq!(rig.get("/nowhere"), (404, json!("404 page not found\n")));
}

#[test]
fn unknown_fields_of_protobuf_are_skipped() {
    let rig = Rig::new();
    let kind = "application/vnd.kubernetes.protobuf";
    let maps = "/api/v1/namespaces/default/configmaps";
    let raw = "\x0a\x03\x0a\x01m\x12\x06\x0a\x01k\x12\x01v\x48\x01";
    let length = char::from(u8::try_from(raw.len()).expect("short"));
    let meta = "\x0a\x0f\x0a\x02v1\x12\x09ConfigMap";
    let body = format!("k8s\0{meta}\x12{length}{raw}");
    let (code, created) = rig.send_as(kind, "POST", maps, &body);
    assert_eq!((code, &created["data"]), (201, &json!({"k": "v"})));
}

#[test]
fn events_are_the_same_in_both_groups() {
    let rig = Rig::new();
    let new = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "c",
        "reportingInstance": "i", "action": "a", "reason": "r", "type": "Normal", "note": "n",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
    });
    let created = rig.ok("POST", new, &event);
    assert_eq!(created["note"], json!("n"));
    let core = rig.get("/api/v1/namespaces/default/events/e").1;
    assert_eq!(
        (&core["message"], &core["reportingComponent"]),
        (&json!("n"), &json!("c"))
    );
    assert_eq!(core["involvedObject"]["name"], json!("p"));
    let patch = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}});
    let (code, patched) = rig.patch(&format!("{new}/e"), &patch);
    assert_eq!((code, &patched["regarding"]["name"]), (200, &json!("p")));
    let list = rig.get(new).1;
    assert_eq!(list["items"][0]["series"]["count"], json!(2));
    assert_eq!(list["items"][0]["regarding"]["name"], json!("p"));
    let selected = |field: &str| {
        let found = rig.get(&format!("{new}?fieldSelector={field}")).1;
        names(&found).len()
    };
    assert_eq!(selected("regarding.kind%3DPod,reportingController%3Dc"), 1);
    assert_eq!(selected("regarding.name%3Dother"), 0);
    assert_eq!(rig.delete(&format!("{new}/e"), &json!({})).0, 200);
}

#[test]
fn quotas_count_objects_and_requests() {
    let rig = Rig::new();
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let hard = json!({"count/configmaps": "1", "requests.cpu": "1", "count/jobs.batch": "0"});
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": hard}});
    rig.ok("POST", quotas, &quota);
    let maps = "/api/v1/namespaces/default/configmaps";
    rig.ok("POST", maps, &json!({"metadata": {"name": "a"}}));
    let (code, error) = rig.send("POST", maps, &json!({"metadata": {"name": "b"}}));
    let message = "configmaps \"b\" is forbidden: exceeded quota: q, requested: \
                   count/configmaps=1, used: count/configmaps=1, limited: count/configmaps=1";
    assert_eq!((code, &error["message"]), (403, &json!(message)));
    let mut pod = super::rig::pod("p");
    let (code, error) = rig.send("POST", PODS, &pod);
    let message = "pods \"p\" is forbidden: failed quota: q: must specify requests.cpu for: c";
    assert_eq!((code, &error["message"]), (403, &json!(message)));
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "600m"}});
    rig.ok("POST", PODS, &pod);
    let used = rig.get(&format!("{quotas}/q")).1["status"]["used"].clone();
    let expected = json!({
        "count/configmaps": "1", "count/jobs.batch": "0", "requests.cpu": "600m",
    });
    assert_eq!(used, expected);
    pod["metadata"]["name"] = json!("p2");
    let (code, error) = rig.send("POST", PODS, &pod);
    let message = "pods \"p2\" is forbidden: exceeded quota: q, requested: requests.cpu=600m, \
                   used: requests.cpu=600m, limited: requests.cpu=1";
    assert_eq!((code, &error["message"]), (403, &json!(message)));
}

#[test]
fn values_have_the_defaults_of_their_types() {
    let rig = Rig::new();
    let mut pod = super::rig::pod("p");
    pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80}]);
    pod["spec"]["containers"][0]["livenessProbe"] = json!({"httpGet": {"port": 80}});
    pod["spec"]["volumes"] = json!([{"name": "v"}, {"name": "s", "secret": {"secretName": "s"}}]);
    let spec = &rig.ok("POST", PODS, &pod)["spec"];
    assert_eq!(spec["containers"][0]["ports"][0]["protocol"], json!("TCP"));
    let probe = &spec["containers"][0]["livenessProbe"];
    assert_eq!(
        (&probe["periodSeconds"], &probe["httpGet"]["path"]),
        (&json!(10), &json!("/"))
    );
    assert_eq!(spec["volumes"][0]["emptyDir"], json!({}));
    assert_eq!(spec["volumes"][1]["secret"]["defaultMode"], json!(420));
    pod["spec"]["containers"][0]["ports"][0]["protocol"] = json!("tcp");
    pod["metadata"]["name"] = json!("q");
    let (code, error) = rig.send("POST", PODS, &pod);
    let message = error["message"].as_str().unwrap_or_default();
    let why = "Unsupported value: \"tcp\": supported values: \"SCTP\", \"TCP\", \"UDP\"";
    assert!(code == 422 && message.ends_with(why), "{error}");
}
