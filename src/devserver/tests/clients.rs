//! Discovery, tables and other requests of kubectl.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::rig::{PODS, REPLICA_SETS, Rig, check_error, names, pod};
use crate::stdx::stop::Stop;
use crate::{DevServer, DevServerOptions};

#[test]
fn discovery_is_served_aggregated_and_per_group() {
    let rig = Rig::new();
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                      application/json";
    let core = rig.get_as(aggregated, "/api");
    assert_eq!(core["kind"], json!("APIGroupDiscoveryList"));
    let resources = core["items"][0]["versions"][0]["resources"]
        .as_array()
        .expect("resources");
    let pods = resources
        .iter()
        .find(|entry| entry["resource"] == json!("pods"));
    let pods = pods.expect("pods");
    assert_eq!(pods["shortNames"], json!(["po"]));
    let groups = rig.get_as(aggregated, "/apis");
    let sets = &groups["items"][0]["versions"][0]["resources"][0];
    assert_eq!(
        sets["subresources"][1]["responseKind"]["group"],
        json!("autoscaling")
    );
    let plain = rig.get("/apis/apps/v1").1;
    let scale = &plain["resources"][2];
    assert_eq!(
        (&scale["name"], &scale["group"], &scale["kind"]),
        (
            &json!("replicasets/scale"),
            &json!("autoscaling"),
            &json!("Scale")
        )
    );
    for path in [
        "/",
        "/api/v1",
        "/apis/apps",
        "/version",
        "/openapi/v2",
        "/openapi/v3",
    ] {
        assert_eq!(rig.get(path).0, 200, "{path}");
    }
    let document = rig.get("/openapi/v3/apis/apps/v1").1;
    let path = "/apis/apps/v1/namespaces/{namespace}/replicasets/{name}";
    let parameters = document["paths"][path]["patch"]["parameters"].as_array();
    let mut parameters = parameters.expect("parameters").iter();
    assert!(parameters.any(|parameter| parameter["name"] == json!("fieldValidation")));
    assert_eq!(rig.get("/openapi/v3/apis/example.com/v1").0, 404);
}

#[test]
fn tables_keep_pages_and_honour_include_object() {
    let rig = Rig::new();
    for name in ["a", "b", "c"] {
        rig.create_pod(name);
    }
    let page = rig.table(&format!("{PODS}?limit=2"));
    assert_eq!(page["rows"].as_array().map(Vec::len), Some(2));
    assert_eq!(page["metadata"]["remainingItemCount"], json!(1));
    assert!(page["metadata"]["continue"].is_string());
    assert_eq!(
        page["rows"][0]["object"]["kind"],
        json!("PartialObjectMetadata")
    );
    let whole = rig.table(&format!("{PODS}?includeObject=Object"));
    assert_eq!(whole["rows"][0]["object"]["kind"], json!("Pod"));
    let none = rig.table(&format!("{PODS}?includeObject=None"));
    assert_eq!(none["rows"][0].get("object"), None);
    let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let list = rig.get_as(metadata, PODS);
    assert_eq!(
        (list["kind"].as_str(), names(&list).len()),
        (Some("PartialObjectMetadataList"), 3)
    );
    assert_eq!(list["items"][0].get("spec"), None);
}

#[test]
fn a_watch_sends_table_columns_only_once() {
    let rig = Rig::new();
    rig.create_replica_set("web", 3);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let mut watch = rig.watch_as(
        table,
        REPLICA_SETS,
        "resourceVersion=0&allowWatchBookmarks=1",
    );
    let first = watch.next().expect("a frame");
    assert_eq!(
        (&first["type"], &first["object"]["kind"]),
        (&json!("ADDED"), &json!("Table"))
    );
    assert_eq!(first["object"]["rows"][0]["cells"][1], json!(3));
    assert!(first["object"]["columnDefinitions"].is_array());
    rig.patch(
        &format!("{REPLICA_SETS}/web"),
        &json!({"spec": {"replicas": 4}}),
    );
    let mut next = watch.next().expect("a frame");
    while next["type"] == json!("BOOKMARK") {
        assert_eq!(next["object"]["rows"], json!([]));
        next = watch.next().expect("a frame");
    }
    assert_eq!(next["object"]["rows"][0]["cells"][1], json!(4));
    assert_eq!(next["object"]["columnDefinitions"], Value::Null);
}

#[test]
fn a_dry_run_stores_nothing() {
    let rig = Rig::new();
    let before = rig.server.version();
    let (code, dry) = rig.send("POST", &format!("{PODS}?dryRun=All"), &pod("p"));
    assert_eq!((code, dry["metadata"].get("resourceVersion")), (201, None));
    assert_eq!(
        (rig.get(&format!("{PODS}/p")).0, rig.server.version()),
        (404, before)
    );
    let real = rig.create_pod("p");
    let path = format!("{PODS}/p");
    let patch = json!({"metadata": {"labels": {"x": "y"}}});
    let (code, dry) = rig.patch(&format!("{path}?dryRun=All"), &patch);
    assert_eq!((code, &dry["metadata"]["labels"]["x"]), (200, &json!("y")));
    assert_eq!(rig.delete(&path, &json!({"dryRun": ["All"]})).0, 200);
    // The server reads delete options from the query only without a body.
    let all = format!("{PODS}?dryRun=All");
    assert_eq!(rig.send_as("application/json", "DELETE", &all, "").0, 200);
    assert_eq!(rig.get(&path).1, real);
    assert_eq!(
        rig.send("POST", &format!("{PODS}?dryRun=x"), &pod("q")).0,
        422
    );
}

#[test]
fn kubectl_creates_a_namespace_by_protobuf() {
    let rig = Rig::new();
    let mut body = b"k8s\0".to_vec();
    body.extend_from_slice(b"\x0a\x0f\x0a\x02v1\x12\x09Namespace");
    body.extend_from_slice(b"\x12\x05\x0a\x03\x0a\x01n");
    let body = String::from_utf8(body).expect("it happens to be text");
    let kind = "application/vnd.kubernetes.protobuf";
    let (code, created) = rig.send_as(kind, "POST", "/api/v1/namespaces", &body);
    assert_eq!((code, &created["metadata"]["name"]), (201, &json!("n")));
    assert_eq!(rig.send_as(kind, "POST", PODS, "k8s\0").0, 415);
    assert_eq!(rig.send_as(kind, "POST", PODS, "nonsense").0, 400);
}

#[test]
fn malformed_requests_get_an_error_and_do_no_harm() {
    let rig = Rig::new();
    let address = rig.server.url().replace("http://", "");
    let send = |text: &str| {
        let mut socket = TcpStream::connect(&address).expect("a connection");
        socket.write_all(text.as_bytes()).expect("room for it");
        let mut response = String::new();
        // The close of a socket with unread bytes may reset it after the response.
        socket.read_to_string(&mut response).unwrap_or_default();
        response
    };
    let response = send("nonsense\r\n\r\n");
    assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
    let endless = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}", "x".repeat(70 * 1024));
    let response = send(&endless);
    assert!(
        response.is_empty() || response.starts_with("HTTP/1.1 431 "),
        "{response}"
    );
    let create = |headers: &str, body: &str| {
        let n = body.len();
        send(&format!(
            "POST /api/v1/namespaces HTTP/1.1\r\n{headers}Connection: close\r\nContent-Length: \
             {n}\r\n\r\n{body}"
        ))
    };
    let response = create("Host: localhost\r\n", "");
    assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
    // Requests that a web page can make a browser send.
    let pwned = r#"{"metadata":{"name":"pwned"}}"#;
    for headers in [
        "Host: localhost\r\nOrigin: http://evil.example\r\n",
        "Host: evil.example\r\n",
        "Host: evil.example\r\nOrigin: http://evil.example\r\n",
    ] {
        let response = create(headers, pwned);
        assert!(response.starts_with("HTTP/1.1 403 "), "{response}");
    }
    assert_eq!(rig.get("/api/v1/namespaces/pwned").0, 404);
    assert_eq!(rig.get("/healthz").0, 200);
}

#[test]
fn it_listens_on_loopback_by_default() {
    let options = |insecure_listen| DevServerOptions {
        listen: "0.0.0.0:0".to_owned(),
        insecure_listen,
        ..DevServerOptions::default()
    };
    let refused = DevServer::start(&options(false), &Stop::new()).expect_err("no authentication");
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    DevServer::start(&options(true), &Stop::new())
        .expect("it is allowed")
        .stop();
}

#[test]
fn access_reviews_allow_everything() {
    let rig = Rig::new();
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "create", "resource": "pods"}},
    });
    let (code, response) = rig.send("POST", path, &review);
    assert_eq!((code, &response["status"]["allowed"]), (201, &json!(true)));
    assert_eq!(response["spec"], review["spec"]);
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (_, response) = rig.send("POST", path, &json!({"kind": "SelfSubjectReview"}));
    assert_eq!(
        response["status"]["userInfo"]["username"],
        json!("system:anonymous")
    );
    assert_eq!(rig.get(path).0, 405);
}

#[test]
fn a_token_says_whose_it_is_while_the_account_exists() {
    let rig = Rig::new();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    rig.ok("POST", accounts, &json!({"metadata": {"name": "robot"}}));
    let path = format!("{accounts}/robot/token");
    let given = rig.ok("POST", &path, &json!({"spec": {"audiences": null}}));
    let audience = "https://kubernetes.default.svc";
    assert_eq!(
        given["spec"],
        json!({"audiences": [audience], "expirationSeconds": 3600})
    );
    assert!(given["status"]["expirationTimestamp"].is_string());
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let review = |token: &Value| {
        rig.ok("POST", reviews, &json!({"spec": {"token": token}}))["status"].take()
    };
    let reviewed = review(&given["status"]["token"]);
    assert_eq!(reviewed["authenticated"], json!(true));
    assert_eq!(
        reviewed["user"]["username"],
        json!("system:serviceaccount:default:robot")
    );
    for (spec, code, is_known) in [
        (json!({"expirationSeconds": 599}), 422, false),
        (json!({"expirationSeconds": "600"}), 400, false),
        (json!({"audiences": "vault"}), 400, false),
        (json!({"expirationSeconds": 600}), 201, true),
        (json!({"audiences": ["vault"]}), 201, false),
    ] {
        let (got, other) = rig.send("POST", &path, &json!({"spec": spec}));
        assert_eq!(got, code, "{other}");
        let of_other = review(&json!(other["status"]["token"].as_str().unwrap_or("none")));
        assert_eq!(of_other["authenticated"] == json!(true), is_known, "{spec}");
    }
    let message = "TokenReview in version \"v1\" cannot be handled as a TokenReview: json: cannot \
                   unmarshal number into Go struct field TokenReviewSpec.spec.token of type string";
    check_error(
        &rig.send("POST", reviews, &json!({"spec": {"token": 5}})),
        400,
        "BadRequest",
        message,
    );
    rig.delete(&format!("{accounts}/robot"), &json!({}));
    assert_eq!(review(&given["status"]["token"])["user"], json!({}));
    assert_eq!(rig.send("POST", &path, &json!({})).0, 404);
}

#[test]
fn openapi_has_the_types_of_built_in_and_custom_kinds() {
    let rig = Rig::new();
    let schemas = |path: &str| rig.get(path).1["components"]["schemas"].take();
    let apps = schemas("/openapi/v3/apis/apps/v1");
    let deployment = &apps["io.k8s.api.apps.v1.Deployment"]["properties"];
    assert_eq!(
        deployment["spec"]["$ref"],
        json!("#/components/schemas/DeploymentSpec")
    );
    let of_container = &apps["Container"]["properties"];
    assert_eq!(of_container["image"]["type"], json!("string"));
    let environment = json!({"type": "array", "items": {"$ref": "#/components/schemas/EnvVar"}});
    assert_eq!(of_container["env"], environment);
    // As numbers are valid too.
    for (name, types) in [
        ("Quantity", ["string", "number"]),
        ("IntOrString", ["integer", "string"]),
    ] {
        let types = types.map(|kind| json!({"type": kind}));
        assert_eq!(apps[name]["oneOf"], json!(types));
    }
    let limits = &apps["ResourceRequirements"]["properties"]["limits"];
    let quantity = json!({"$ref": "#/components/schemas/Quantity"});
    assert_eq!(limits["additionalProperties"], quantity);
    // The probe has the members of its handler.
    assert!(apps["Probe"]["properties"]["httpGet"].is_object());
    let size = json!({"type": "integer", "description": "how big"});
    let schema = json!({"type": "object", "properties": {"size": size}});
    let definition = json!({
        "metadata": {"name": "widgets.example.com"}, "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"}, "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    rig.ok("POST", definitions, &definition);
    let custom = schemas("/openapi/v3/apis/example.com/v1");
    let widget = custom.as_object().expect("schemas").values();
    let mut widget = widget.filter(|it| it["properties"]["size"] == size);
    assert!(widget.next().is_some(), "{custom}");
}
