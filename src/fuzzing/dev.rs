//! What clients send to the dev server: requests one after the other, selectors and quantities.
//!
//! Whatever it accepts must be there afterwards: each object can be got, listed, paged, written
//! back unchanged and read by the controller's own reader.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::mutate::Form;
use super::{Target, text_of};
use crate::api::interner::Interner;
use crate::api::workload_kind::{REPLICA_SET, REPLICATION_CONTROLLER};
use crate::api::{Pod, ReplicaSet};
use crate::devserver::{ApiRequest, Handler, Next, Response, ResponseBody, new_api};
use crate::http_server::testing::written_head;

const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// What is looked through in the end.
const COLLECTIONS: [(&str, &str); 8] = [
    ("/apis/apps/v1", "replicasets"),
    ("/apis/apps/v1", "deployments"),
    ("/api/v1", "pods"),
    ("/api/v1", "replicationcontrollers"),
    ("/api/v1", "resourcequotas"),
    ("/api/v1", "configmaps"),
    ("/api/v1", "events"),
    ("/apis/coordination.k8s.io/v1", "leases"),
];

const WORDS: &[&str] = &[
    "=",
    "!=",
    "!",
    ",",
    " in (",
    " notin (",
    ")",
    " ",
    "a",
    "a/b",
    "app",
    "web",
    ">",
    "metadata.name=",
    "spec.nodeName=",
    "\\",
    "-",
    ".",
    "Ki",
    "m",
    "n",
    "E",
    "e3",
    "e-9",
    "e99",
    "+",
    "0",
    "9999999999999999999",
    "\u{e9}",
    "\u{0}",
];

pub(super) fn targets() -> Vec<Target> {
    vec![
        Target {
            name: "dev-requests",
            form: Form::Json,
            n_short: 100,
            cpu_factor: 40,
            corpus: requests,
            reader: || Box::new(serve_all),
        },
        Target {
            name: "dev-texts",
            form: Form::Text(WORDS),
            n_short: 150,
            cpu_factor: 20,
            corpus: || {
                text_of(&[
                    "app=web,tier!=db",
                    "app in (web, db),!x,y",
                    "app notin (),a/b",
                    "metadata.name=web,spec.nodeName!=n",
                    "status.phase=Pending",
                    "1.5Gi",
                    "100m",
                    "1e3",
                ])
            },
            reader: || Box::new(texts),
        },
    ]
}

const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn replica_set(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": name, "labels": {"a": "b"}, "annotations": {"k": "v"}},
        "spec": {
            "replicas": 2, "minReadySeconds": 3,
            "selector": {
                "matchLabels": {"a": "b"},
                "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}],
            },
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{
                    "name": "c", "image": "y", "ports": [{"containerPort": 80}],
                    "env": [{"name": "A"}],
                    "resources": {"limits": {"cpu": "100m", "memory": "1Gi"}},
                }]},
            },
        },
    })
}

fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": "web"}, "finalizers": ["a/b"]},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "y"}]},
    })
}

fn quota(cpu: &str) -> Value {
    json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "3", "requests.cpu": cpu}}})
}

/// Each line is a request.
#[expect(clippy::too_many_lines, reason = "a table of requests")]
fn requests() -> Vec<Vec<u8>> {
    let post = |path: &str, body: Value| json!({"method": "POST", "path": path, "body": body});
    let patch = |path: &str, kind: &str, body: Value| {
        let content_type = format!("application/{kind}");
        json!({"method": "PATCH", "path": path, "type": content_type, "body": body})
    };
    let set = format!("{SETS}/a");
    let with = |mut request: Value, query: Value| {
        request["query"] = query;
        request
    };
    let get = |path: &str, query| with(json!({"method": "GET", "path": path}), query);
    let apply = patch(&set, "apply-patch+yaml", replica_set("a"));
    let yaml = "kind: ConfigMap\nmetadata: {name: m}\ndata: {a: b}\n";
    let all = [
        vec![
            post(SETS, replica_set("a")),
            patch(
                &set,
                "merge-patch+json",
                json!({"spec": {"replicas": 5, "x": null}}),
            ),
            patch(
                &set,
                "strategic-merge-patch+json",
                json!({"spec": {"template": {"spec": {"containers": [
                    {"name": "c", "image": "z"}, {"name": "d", "image": "i"},
                    {"$patch": "delete", "name": "e"}]}}}}),
            ),
            patch(
                &set,
                "json-patch+json",
                json!([{"op": "test", "path": "/spec/replicas", "value": 5},
                    {"op": "add", "path": "/metadata/labels/x~1y", "value": "z"},
                    {"op": "move", "from": "/metadata/annotations", "path": "/metadata/labels"}]),
            ),
            get(
                SETS,
                json!({"labelSelector": "a in (b)", "limit": "1", "resourceVersion": "0"}),
            ),
            json!({"method": "DELETE", "path": set, "body": {
                "gracePeriodSeconds": 0, "propagationPolicy": "Foreground",
                "preconditions": {"uid": "x"}, "dryRun": ["All"]}}),
        ],
        vec![
            with(apply.clone(), json!({"fieldManager": "m", "force": "true"})),
            with(apply, json!({"fieldManager": "n"})),
            json!({"method": "PUT", "path": format!("{set}/scale"), "body": {
                "metadata": {"name": "a", "namespace": "default"}, "spec": {"replicas": 7}}}),
            patch(
                &format!("{set}/status"),
                "merge-patch+json",
                json!({"status": {"replicas": 3, "conditions": [
                    {"type": "t", "status": "True", "reason": "r", "message": "m",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}),
            ),
            with(
                json!({"method": "PUT", "path": set, "body": replica_set("a")}),
                json!({"fieldValidation": "Strict", "dryRun": "All"}),
            ),
        ],
        vec![
            post("/api/v1/namespaces/default/resourcequotas", quota("1.5")),
            post(PODS, pod("p")),
            post(
                PODS,
                json!({"metadata": {"generateName": "p-"}, "spec": pod("x")["spec"]}),
            ),
            post(
                &format!("{PODS}/p/binding"),
                json!({"target": {"name": "n"}}),
            ),
            patch(
                &format!("{PODS}/p/status"),
                "strategic-merge-patch+json",
                json!({"status": {"phase": "Running", "conditions": [
                    {"type": "Ready", "status": "True"}], "containerStatuses": [{"name": "c"}]}}),
            ),
            json!({"method": "DELETE", "path": PODS, "query": {"fieldSelector": "status.phase=x"}}),
            get(
                PODS,
                json!({"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": "0"}),
            ),
        ],
        vec![
            post(
                "/api/v1/namespaces/default/events",
                json!({
                "metadata": {"name": "e"}, "eventTime": "2026-01-01T00:00:00.000000Z",
                "series": {"count": 2}}),
            ),
            post(
                "/apis/coordination.k8s.io/v1/namespaces/default/leases",
                json!({
                "metadata": {"name": "l"}, "spec": {"holderIdentity": "h",
                "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}}),
            ),
            post("/api/v1/namespaces", json!({"metadata": {"name": "s"}})),
            json!({"method": "POST", "path": "/api/v1/namespaces/default/configmaps",
                "type": "application/yaml", "body": yaml}),
            json!({"method": "DELETE", "path": "/api/v1/namespaces/s"}),
            post(
                "/api/v1/namespaces/default/replicationcontrollers",
                json!({
                "metadata": {"name": "r"}, "spec": {"replicas": 1, "selector": {"a": "b"},
                "template": replica_set("x")["spec"]["template"]}}),
            ),
        ],
        vec![
            post(
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                json!({
                "metadata": {"name": "ts.x.y"}, "spec": {"group": "x.y", "scope": "Namespaced",
                "names": {"plural": "ts", "singular": "t", "kind": "T"}, "versions": [
                {"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".a"}],
                "schema": {"openAPIV3Schema": {"type": "object"}}}]}}),
            ),
            post(
                "/apis/x.y/v1/namespaces/default/ts",
                json!({
                "apiVersion": "x.y/v1", "kind": "T", "metadata": {"name": "t"}, "a": [1]}),
            ),
            json!({"method": "GET", "path": "/apis/x.y/v1/ts", "accept": TABLE}),
            get("/openapi/v3/apis/apps/v1", json!({})),
            post(
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                json!({
                "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}),
            ),
        ],
    ];
    let lines = all.map(|requests| {
        let lines = requests.iter().map(|request| format!("{request}\n"));
        lines.collect::<String>().into_bytes()
    });
    lines.to_vec()
}

struct Api(Arc<dyn Handler>);

/// The whole text of a scalar.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

impl Api {
    fn send(&self, request: &Value) -> (u16, Value) {
        let content_type = match text(&request["type"]) {
            text if text.is_empty() => JSON.to_owned(),
            text => text,
        };
        let query = request["query"].as_object().into_iter().flatten();
        let method = text(&request["method"]);
        let request = ApiRequest {
            path: text(&request["path"]),
            path_and_query: text(&request["path"]),
            query: query
                .map(|(name, value)| (name.clone(), text(value)))
                .collect(),
            headers: vec![
                ("content-type".to_owned(), content_type),
                ("accept".to_owned(), text(&request["accept"])),
            ],
            body: text(&request["body"]).into_bytes(),
            method: method.clone(),
            ..ApiRequest::default()
        };
        let version = request.query_value("resourceVersion").parse::<u64>();
        if version.is_ok_and(|version| version > 1) {
            // The server would wait for it.
            return (0, Value::Null);
        }
        let message = format!("{method} {}", request.path);
        let is_watch = request.query.iter().any(|(name, _)| name == "watch");
        let response = self.0.handle(request);
        check_head(&response);
        let code = response.code;
        let is_json = response.content_type.starts_with(JSON);
        let body = if is_watch {
            watched(response.body)
        } else {
            response.body.read().expect("a whole body")
        };
        if !is_json {
            return (code, Value::Null);
        }
        let body = String::from_utf8(body).expect("text");
        let values = serde_json::Deserializer::from_str(&body).into_iter::<Value>();
        let values: Result<Vec<Value>, _> = values.collect();
        let values = values.unwrap_or_else(|error| panic!("{message}: {error} in {body}"));
        let value = values.into_iter().next().unwrap_or_default();
        assert!(
            (200..500).contains(&code) || is_upstreams(&value),
            "{message}: {value}"
        );
        if code >= 400 {
            assert_eq!(value["code"], json!(code), "{message}: {value}");
        }
        (code, value)
    }

    /// The items of a collection, which must be the same in pages and in a table.
    fn items(&self, path: &str, query: &Value) -> Vec<Value> {
        let request = |query: &Value| json!({"method": "GET", "path": path, "query": query});
        let (code, list) = self.send(&request(query));
        assert_eq!(code, 200, "{path}: {list}");
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let (mut paged, mut query) = (Vec::new(), query.clone());
        query["limit"] = json!("1");
        loop {
            let (code, page) = self.send(&request(&query));
            assert_eq!(code, 200, "{path}: {page}");
            paged.extend(page["items"].as_array().cloned().unwrap_or_default());
            match text(&page["metadata"]["continue"]) {
                end if end.is_empty() => break,
                next => query["continue"] = json!(next),
            }
        }
        assert_eq!(items, paged);
        let (code, table) = self.send(&json!({"method": "GET", "path": path, "accept": TABLE}));
        assert_eq!((code, &table["kind"]), (200, &json!("Table")));
        items
    }

    /// Whatever is stored is served, and is as good as new.
    fn check(&self) {
        for (group, plural) in COLLECTIONS {
            for item in self.items(&format!("{group}/{plural}"), &json!({})) {
                let meta = &item["metadata"];
                let (namespace, name) = (text(&meta["namespace"]), text(&meta["name"]));
                let path = format!("{group}/namespaces/{namespace}/{plural}/{name}");
                let (code, object) = self.send(&json!({"method": "GET", "path": path}));
                assert_eq!((code, &object["metadata"]), (200, meta));
                assert_eq!(object["spec"], item["spec"]);
                let put = json!({"method": "PUT", "path": path, "body": object.to_string()});
                let (code, after) = self.send(&put);
                assert_eq!(code, 200, "{object} written back: {after}");
                assert_eq!(after, object, "{path}");
                check_reader(plural, &object);
            }
        }
    }
}

/// The bytes of a watch so far.
fn watched(body: ResponseBody) -> Vec<u8> {
    match body {
        ResponseBody::Stream(mut stream) => {
            let mut bytes = Vec::new();
            let mut n_idle = 0;
            // It is idle at its beginning, too.
            while n_idle < 4 {
                match stream.next(Duration::ZERO) {
                    Next::Chunk(chunk) => bytes.extend(chunk),
                    Next::Idle => n_idle += 1,
                    Next::End | Next::Cut => break,
                }
            }
            bytes
        }
        body => body.read().expect("a whole body"),
    }
}

/// A response must fit into HTTP.
fn check_head(response: &Response) {
    let head = written_head(response);
    let head = head.unwrap_or_else(|error| panic!("{error}: {response:?}"));
    let mut headers = [httparse::EMPTY_HEADER; 200];
    let mut parsed = httparse::Response::new(&mut headers);
    let status = parsed.parse(&head).expect("a head");
    assert!(status.is_complete());
    assert_eq!(parsed.code, Some(response.code));
}

/// True for the errors that a real API server calls internal, too.
fn is_upstreams(status: &Value) -> bool {
    let message = text(&status["message"]);
    status["code"] == 500 && status.get("reason").is_none() && !message.is_empty()
}

/// The controller reads what API servers accept.
fn check_reader(plural: &str, object: &Value) {
    let bytes = object.to_string().into_bytes();
    let interner = &mut Interner::default();
    let error = match plural {
        "pods" => Pod::from_json(&bytes, interner).map(drop).err(),
        "replicasets" => ReplicaSet::of_kind(&REPLICA_SET, &bytes, interner)
            .map(drop)
            .err(),
        "replicationcontrollers" => {
            let read = ReplicaSet::of_kind(&REPLICATION_CONTROLLER, &bytes, interner);
            read.map(drop).err()
        }
        _ => None,
    };
    assert!(error.is_none(), "{error:?}: {object}");
}

fn serve_all(input: &[u8]) -> bool {
    let api = Api(new_api());
    let mut accepted = false;
    for line in input.split(|byte| *byte == b'\n').take(50) {
        if let Ok(request) = serde_json::from_slice::<Value>(line) {
            let (code, _) = api.send(&request);
            accepted |= (200..300).contains(&code);
        }
    }
    api.check();
    accepted
}

/// The text as selectors and as quantities.
fn texts(input: &[u8]) -> bool {
    let api = Api(new_api());
    let text = String::from_utf8_lossy(input);
    let (code, _) = api.send(&json!({"method": "POST", "path": PODS, "body": pod("web")}));
    assert_eq!(code, 201);
    let mut accepted = false;
    for name in ["labelSelector", "fieldSelector"] {
        let query = json!({name: text});
        let get = |query: &Value| json!({"method": "GET", "path": PODS, "query": query});
        let (code, _) = api.send(&get(&query));
        if code == 200 {
            accepted = true;
            let items = api.items(PODS, &query);
            let mut watch = query.clone();
            watch["watch"] = json!("1");
            let (code, event) = api.send(&get(&watch));
            assert_eq!(code, 200);
            assert_eq!(items.is_empty(), event.is_null(), "{items:?} {event}");
        } else {
            assert_eq!(code, 400);
        }
    }
    let path = "/api/v1/namespaces/default/resourcequotas";
    let post = json!({"method": "POST", "path": path, "body": quota(&text)});
    let (code, _) = api.send(&post);
    accepted |= code == 201;
    let mut body = pod("p");
    body["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": text}});
    let (code, _) = api.send(&json!({"method": "POST", "path": PODS, "body": body}));
    accepted |= code == 201;
    api.check();
    accepted
}
